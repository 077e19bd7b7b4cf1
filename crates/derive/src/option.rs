//! One option: what its field says, and the words that follow from it.

use proc_macro2::{Ident, TokenStream as Tokens};
use quote::{ToTokens, quote};
use syn::{
    Attribute, Error, Expr, Field, GenericArgument, Lit, LitStr, Path, PathArguments, Result, Type, Visibility,
    ext::IdentExt,
};

use crate::options::documentation;

/// The arguments of `#[option(..)]`.
#[derive(Default)]
pub struct Words {
    /// `None` for a required option, `Some(None)` for the default of its type.
    pub default: Option<Option<Expr>>,
    /// The default in words, where they are not those of its expression.
    pub shown: Option<String>,
    /// The rest of the sentence on the default, after a comma.
    pub note: Option<String>,
    pub range: Range,
    pub no_setter: bool,
    /// `true` when files leave it out at its default, in options that are otherwise written.
    pub left_out: bool,
    /// The name of a variant in files, where it is not its own in small letters.
    pub name: Option<String>,
}

/// The bounds of the numbers of an option.
#[derive(Default)]
pub struct Range {
    pub at_least: Option<Expr>,
    pub above: Option<Expr>,
    pub at_most: Option<Expr>,
    pub below: Option<Expr>,
    pub finite: bool,
    /// The range in words.
    words: String,
}

impl Range {
    fn describe(&mut self, of_floats: bool) {
        let text = |bound: &Option<Expr>| bound.as_ref().map(in_words);
        let number = if of_floats { "a finite number " } else { "" };
        let of = if of_floats { "of " } else { "" };
        self.words = match (text(&self.at_least), text(&self.above), text(&self.at_most), text(&self.below)) {
            (Some(least), _, Some(most), _) => format!("{least} to {most}"),
            (Some(least), _, _, Some(below)) => format!("{least} up to but not including {below}"),
            (Some(least), ..) => format!("{number}{of}at least {least}"),
            (_, Some(above), Some(most), _) => format!("above {above} and at most {most}"),
            (_, Some(above), _, Some(below)) => format!("above {above} and below {below}"),
            (_, Some(above), ..) => format!("{number}above {above}"),
            (_, _, Some(most), _) => format!("{number}{of}at most {most}"),
            (.., Some(below)) => format!("{number}below {below}"),
            _ if self.finite => "a finite number".into(),
            _ => String::new(),
        };
    }

    pub fn tokens(&self) -> Tokens {
        let bound = |bound: &Option<Expr>| match bound {
            Some(bound) => quote!(::core::option::Option::Some((#bound) as f64)),
            None => quote!(::core::option::Option::None),
        };
        let (at_least, above) = (bound(&self.at_least), bound(&self.above));
        let (at_most, below, words) = (bound(&self.at_most), bound(&self.below), &self.words);
        quote!(::precast::options::Range {
            at_least: #at_least,
            above: #above,
            at_most: #at_most,
            below: #below,
            words: #words,
        })
    }
}

/// An option with everything that its field says.
pub struct Described {
    pub ident: Ident,
    /// Beginning of the names of its functions: the variant that it belongs to.
    pub of: String,
    pub visibility: Visibility,
    pub ty: Type,
    /// The key in files.
    pub key: String,
    /// Its documentation, without the default.
    pub about: String,
    /// The module in `#[serde(with = "..")]`, which reads and writes its values.
    pub read_by: Option<Path>,
    pub words: Words,
}

impl Described {
    /// Reads a field, and removes its `#[option(..)]`.
    pub fn take(field: &mut Field) -> Result<Self> {
        let ident = field.ident.clone().ok_or_else(|| Error::new_spanned(&field.ty, "an option has a name"))?;
        let mut words = Words::take(&mut field.attrs)?;
        let ty = ungrouped(&field.ty).clone();
        let about = documentation(&field.attrs);
        if about.is_empty() {
            return Err(Error::new(ident.span(), "an option is documented: a noun phrase, or \"`true` when ..\""));
        }
        words.range.describe(ty.to_token_stream().into_iter().any(|token| is_float(&token)));
        let (key, of) = (ident.unraw().to_string(), String::new());
        let read_by = read_by(&field.attrs)?;
        Ok(Described { key, ident, of, visibility: field.vis.clone(), ty, about, read_by, words })
    }

    /// Returns `T` of an `Option<T>`.
    pub fn optional(&self) -> Option<&Type> {
        argument_of(&self.ty, "Option")
    }

    /// Returns whether it is a list of words, which files may have as a single word.
    pub fn is_of_words(&self) -> bool {
        listed(&self.ty).is_some_and(|item| matches!(item, Type::Path(path) if path.path.is_ident("String")))
    }

    /// Returns whether its value is taken as it is, so that a literal needs no suffix.
    pub fn by_value(&self) -> bool {
        plain(&self.ty) || matches!(self.ty, Type::Tuple(_)) || self.optional().is_some()
    }

    /// Returns the type of an argument for a value of some type.
    pub fn argument(&self, ty: &Type) -> Tokens {
        if plain(ty) || matches!(ty, Type::Tuple(_)) { quote!(#ty) } else { quote!(impl ::core::convert::Into<#ty>) }
    }

    /// Returns the default in words.
    pub fn shown(&self) -> String {
        match (&self.words.shown, &self.words.default) {
            (Some(shown), _) => shown.clone(),
            (None, Some(Some(value))) => in_words(value),
            _ => "none".into(),
        }
    }

    /// Returns the sentence on default and range.
    pub fn sentence(&self) -> Option<String> {
        let range = &self.words.range.words;
        let note = self.words.note.as_ref().map(|note| format!(", {note}")).unwrap_or_default();
        match (&self.words.default, range.is_empty()) {
            (Some(_), true) => Some(format!("Default: {}{note}.", self.shown())),
            (Some(_), false) => Some(format!("Default: {}{note}; allowed: {range}.", self.shown())),
            (None, false) => Some(format!("Allowed: {range}.")),
            (None, true) => None,
        }
    }

    /// Returns the documentation of the setter: `Sets the ..`, or `Sets whether ..` for a switch.
    pub fn of_setter(&self) -> String {
        let about = &self.about;
        let sets = if let Some(rest) = about.strip_prefix("`true` when ") {
            format!("Sets whether {rest}")
        } else if let Some(rest) = about.strip_prefix("The ") {
            format!("Sets the {rest}")
        } else {
            let mut letters = about.chars();
            let first = letters.next().unwrap_or_default();
            let rest = letters.as_str();
            match rest.starts_with(char::is_uppercase) {
                true => format!("Sets the {about}"),
                false => format!("Sets the {}{rest}", first.to_lowercase()),
            }
        };
        self.sentence().map_or(sets.clone(), |sentence| format!("{sets} {sentence}"))
    }
}

/// Returns the module in `#[serde(with = "..")]`.
fn read_by(attributes: &[Attribute]) -> Result<Option<Path>> {
    let Some(attribute) = attributes.iter().find(|attribute| attribute.path().is_ident("serde")) else {
        return Ok(None);
    };
    let mut module = None;
    attribute.parse_nested_meta(|word| {
        let value: LitStr = word.value()?.parse()?;
        if word.path.is_ident("with") {
            module = Some(value.parse()?);
        }
        Ok(())
    })?;
    Ok(module)
}

/// Returns `T` of a `Vec<T>`, unless it is a number, a switch or a letter.
pub fn listed(ty: &Type) -> Option<&Type> {
    argument_of(ty, "Vec").filter(|item| !plain(item))
}

/// Returns `T` of a type such as `Option<T>`.
fn argument_of<'a>(ty: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = ungrouped(ty) else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(inner) => Some(ungrouped(inner)),
        _ => None,
    }
}

/// Returns the type inside invisible groups, which macros put around their fragments.
fn ungrouped(mut ty: &Type) -> &Type {
    while let Type::Group(group) = ty {
        ty = &group.elem;
    }
    ty
}

/// Returns whether a type is a number, a switch or a letter.
pub fn plain(ty: &Type) -> bool {
    const PLAIN: [&str; 8] = ["usize", "isize", "u64", "i64", "f64", "f32", "bool", "char"];
    matches!(ungrouped(ty), Type::Path(path) if path.path.get_ident().is_some_and(|name| PLAIN.iter().any(|plain| name == plain)))
}

pub fn is_f64(ty: &Type) -> bool {
    matches!(ungrouped(ty), Type::Path(path) if path.path.is_ident("f64"))
}

fn is_float(token: &proc_macro2::TokenTree) -> bool {
    match token {
        proc_macro2::TokenTree::Ident(ident) => ident == "f64" || ident == "f32",
        proc_macro2::TokenTree::Group(group) => group.stream().into_iter().any(|token| is_float(&token)),
        _ => false,
    }
}

/// Returns an expression as documentation shows it: a number without suffix, the last name of a path.
fn in_words(value: &Expr) -> String {
    match value {
        Expr::Group(group) => in_words(&group.expr),
        Expr::Lit(literal) => match &literal.lit {
            Lit::Float(number) => {
                let digits = number.base10_digits();
                digits.strip_suffix(".0").unwrap_or(digits).to_string()
            }
            Lit::Int(number) => number.base10_digits().to_string(),
            Lit::Bool(switch) => switch.value.to_string(),
            Lit::Char(letter) => format!("`{}`", letter.value()),
            Lit::Str(text) => text.value(),
            other => other.to_token_stream().to_string(),
        },
        Expr::Unary(unary) => format!("{}{}", unary.op.to_token_stream(), in_words(&unary.expr)),
        Expr::Tuple(tuple) => tuple.elems.iter().map(in_words).collect::<Vec<_>>().join(" and "),
        Expr::Path(path) => {
            path.path.segments.last().map(|last| last.ident.to_string().to_lowercase()).unwrap_or_default()
        }
        other => other.to_token_stream().to_string(),
    }
}
