//! The attribute `#[options]`: a field, its documentation, default and range are one statement, from which everything
//! else about an option follows.

use proc_macro2::{Ident, Span, TokenStream as Tokens};
use quote::{format_ident, quote};
use syn::{
    Attribute, Error, Expr, Fields, GenericParam, ItemStruct, LitStr, Meta, Result, Token, Type, Visibility,
    ext::IdentExt, meta::ParseNestedMeta, parse::Parser, parse_quote, punctuated::Punctuated,
};

use crate::option::{Described, Words, is_f64, listed, plain};

/// The arguments of `#[options(..)]`.
#[derive(Default)]
pub struct Arguments {
    /// The types that get the setters, each with a method `options`; none for the struct itself.
    setters_on: Vec<Ident>,
    /// `true` when options at their default are written to files.
    pub written: bool,
    /// `true` when the type has a `new` of its own.
    no_new: bool,
    /// The name in `a map with the options of NAME`.
    called: Option<LitStr>,
    /// `true` for the options of cells, which one reader reads.
    pub of_cell: bool,
}

impl Arguments {
    pub fn parse(tokens: Tokens) -> Result<Self> {
        let mut arguments = Arguments::default();
        let word = |meta: ParseNestedMeta<'_>| {
            match meta.path.get_ident().map(Ident::to_string).as_deref() {
                Some("setters_on") => {
                    let list;
                    syn::parenthesized!(list in meta.input);
                    let types = Punctuated::<Ident, Token![,]>::parse_terminated(&list)?;
                    arguments.setters_on = types.into_iter().collect();
                }
                Some("written") => arguments.written = true,
                Some("no_new") => arguments.no_new = true,
                Some("called") => arguments.called = Some(meta.value()?.parse()?),
                Some("of_cell") => arguments.of_cell = true,
                _ => {
                    return Err(meta
                        .error("allowed here: `setters_on(Type)`, `written`, `no_new`, `called = \"..\"`, `of_cell`"));
                }
            }
            Ok(())
        };
        syn::meta::parser(word).parse2(tokens)?;
        Ok(arguments)
    }
}

pub fn expand(arguments: Tokens, mut input: ItemStruct) -> Result<Tokens> {
    let arguments = Arguments::parse(arguments)?;
    let name = input.ident.clone();
    let Fields::Named(fields) = &mut input.fields else {
        return Err(Error::new(name.span(), "options are a struct with named fields"));
    };
    let turbofish = turbofish(&input.generics.params.iter().collect::<Vec<_>>());
    let path = quote!(#name #turbofish).to_string().replace(' ', "");
    let options = fields.named.iter_mut().map(Described::take).collect::<Result<Vec<Described>>>()?;
    for (field, option) in fields.named.iter_mut().zip(&options) {
        field.attrs.extend(attributes(option, &path, &arguments));
    }
    // What has no setters of its own is written as a literal, and so is a cell that is its own options: `Softmax { axis: 0 }`.
    if arguments.setters_on.is_empty() && name.to_string().ends_with("Spec") {
        input.attrs.insert(0, parse_quote!(#[non_exhaustive]));
    }
    input.attrs.splice(0..0, in_files(&arguments));

    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    let defaults = options.iter().filter_map(defaults);
    let setters: Vec<Tokens> =
        options.iter().filter_map(|option| setter(option, !arguments.setters_on.is_empty())).collect();
    let targets = &arguments.setters_on;
    let setters = match targets.is_empty() {
        true => quote!(impl #impl_generics #name #type_generics #where_clause { #(#setters)* }),
        false => targets.iter().map(|target| quote!(impl #target { #(#setters)* })).collect(),
    };
    let created = created(&name, &options, arguments.no_new);
    let default = options.iter().all(|option| option.words.default.is_some()).then(|| {
        let fields = options.iter().map(initial);
        quote! {
            impl #impl_generics ::core::default::Default for #name #type_generics #where_clause {
                fn default() -> Self {
                    Self { #(#fields)* }
                }
            }
        }
    });
    let called = match &arguments.called {
        Some(called) => called.value(),
        None => name.unraw().to_string().trim_end_matches("Spec").trim_end_matches("Options").to_string(),
    };
    let reader = arguments.of_cell.then(|| reader(&input, &options, &called));
    let infos = options.iter().map(info);
    let checks = options.iter().map(|option| {
        let (ident, key, range) = (&option.ident, &option.key, option.words.range.tokens());
        quote!(if let ::core::option::Option::Some(error) = ::precast::options::Takes::out_of_range(&self.#ident, #key, &#range) {
            return ::core::option::Option::Some((#key, error));
        })
    });
    Ok(quote! {
        #input

        impl #impl_generics #name #type_generics #where_clause {
            #created
            #(#defaults)*
        }

        #setters
        #default
        #reader

        impl #impl_generics ::precast::options::Options for #name #type_generics #where_clause {
            const CALLED: &'static str = #called;
            fn options() -> ::std::vec::Vec<::precast::options::OptionInfo> {
                ::std::vec![#(#infos),*]
            }
            fn out_of_range(&self) -> ::core::option::Option<(&'static str, ::precast::Error)> {
                #(#checks)*
                ::core::option::Option::None
            }
        }
    })
}

/// Returns the attributes of serde for a type.
pub fn in_files(arguments: &Arguments) -> Vec<Attribute> {
    let mut attributes: Vec<Attribute> = vec![
        parse_quote!(#[derive(::precast::__derive::serde::Serialize)]),
        parse_quote!(#[serde(crate = "::precast::__derive::serde", deny_unknown_fields)]),
    ];
    if !arguments.of_cell {
        attributes.insert(0, parse_quote!(#[derive(::precast::__derive::serde::Deserialize)]));
    }
    attributes
}

/// Implements `Deserialize` by the reader that all options of cells share. It sees the values as trait objects, so an
/// error inside a value has its place in its text.
fn reader(input: &ItemStruct, options: &[Described], called: &str) -> Tokens {
    let mut generics = input.generics.clone();
    generics.params.insert(0, parse_quote!('de));
    let (impl_generics, ..) = generics.split_for_impl();
    let (_, type_generics, where_clause) = input.generics.split_for_impl();
    let name = &input.ident;
    let (idents, types): (Vec<_>, Vec<_>) = options.iter().map(|option| (&option.ident, &option.ty)).unzip();
    let keys: Vec<&String> = options.iter().map(|option| &option.key).collect();
    let numbers = 0..options.len();
    let required = numbers.clone().filter(|number| options[*number].words.default.is_none());
    let values = options.iter().map(|option| match &option.read_by {
        Some(module) => quote!(#module::deserialize(value)?),
        None => quote!(Deserialize::deserialize(value)?),
    });
    let finished = options.iter().map(|option| {
        let (ident, key) = (&option.ident, &option.key);
        match option.words.default {
            Some(_) => {
                let default = default_fn(option);
                quote!(#ident.unwrap_or_else(Self::#default))
            }
            None => quote!(#ident.ok_or_else(|| Error::missing_field(#key))?),
        }
    });
    quote! {
        const _: () = {
            use ::precast::__derive::serde::{Deserialize, Deserializer, de::Error};

            impl #impl_generics Deserialize<'de> for #name #type_generics #where_clause {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> ::core::result::Result<Self, D::Error> {
                    #(let mut #idents: ::core::option::Option<#types> = ::core::option::Option::None;)*
                    let keys: (&'static [&'static str], &[usize]) = (&[#(#keys),*], &[#(#required),*]);
                    ::precast::__derive::read_options(deserializer, #called, keys, &mut |key, value| {
                        match key {
                            #(#numbers => #idents = ::core::option::Option::Some(#values),)*
                            _ => {}
                        }
                        ::core::result::Result::Ok(())
                    })?;
                    ::core::result::Result::Ok(Self { #(#idents: #finished),* })
                }
            }
        };
    }
}

/// Returns `::<N>` for the parameters of a struct.
fn turbofish(params: &[&GenericParam]) -> Tokens {
    let names = params.iter().filter_map(|param| match param {
        GenericParam::Type(param) => Some(&param.ident),
        GenericParam::Const(param) => Some(&param.ident),
        GenericParam::Lifetime(_) => None,
    });
    if params.is_empty() { Tokens::new() } else { quote!(::<#(#names),*>) }
}

fn default_fn(option: &Described) -> Ident {
    format_ident!("default_{}{}", option.of, option.ident.unraw())
}

fn is_default_fn(option: &Described) -> Ident {
    format_ident!("is_default_{}{}", option.of, option.ident.unraw())
}

/// Returns the attributes of a field: the sentence on its default and range, and those of serde.
pub fn attributes(option: &Described, path: &str, arguments: &Arguments) -> Vec<Attribute> {
    let mut attributes: Vec<Attribute> = Vec::new();
    if let Some(sentence) = option.sentence() {
        let sentence = format!(" {sentence}");
        attributes.push(parse_quote!(#[doc = #sentence]));
    }
    if !arguments.of_cell && option.is_of_words() {
        attributes.push(parse_quote!(#[serde(deserialize_with = "::precast::__derive::words")]));
    }
    if option.words.default.is_none() {
        return attributes;
    }
    if !arguments.of_cell {
        let default = LitStr::new(&format!("{path}::{}", default_fn(option)), Span::call_site());
        attributes.push(parse_quote!(#[serde(default = #default)]));
    }
    if !arguments.written || option.words.left_out || option.optional().is_some() {
        let is_default = LitStr::new(&format!("{path}::{}", is_default_fn(option)), Span::call_site());
        attributes.push(parse_quote!(#[serde(skip_serializing_if = #is_default)]));
    }
    attributes
}

/// Defines the two functions that serde calls for an option with a default.
pub fn defaults(option: &Described) -> Option<Tokens> {
    let value = option.words.default.as_ref()?;
    let (ty, default, is_default) = (&option.ty, default_fn(option), is_default_fn(option));
    let value = match value {
        None => quote!(::core::default::Default::default()),
        Some(value) if option.by_value() => quote!(#value),
        Some(value) => quote!(::core::convert::Into::into(#value)),
    };
    Some(quote! {
        fn #default() -> #ty {
            #value
        }
        #[allow(dead_code)]
        fn #is_default(value: &#ty) -> bool {
            *value == Self::#default()
        }
    })
}

/// Returns the initial value of an option in a constructor.
fn initial(option: &Described) -> Tokens {
    let ident = &option.ident;
    match option.words.default {
        Some(_) => {
            let default = default_fn(option);
            quote!(#ident: Self::#default(),)
        }
        None if option.by_value() => quote!(#ident,),
        None => quote!(#ident: ::core::convert::Into::into(#ident),),
    }
}

/// Defines `new`, which takes the required options.
fn created(name: &Ident, options: &[Described], no_new: bool) -> Tokens {
    let required: Vec<&Described> = options.iter().filter(|option| option.words.default.is_none()).collect();
    if no_new || required.is_empty() {
        return Tokens::new();
    }
    let doc = match required.len() == options.len() {
        true => format!("Creates a `{name}` with these options."),
        false => format!("Creates a `{name}` with the required options; the others have their defaults."),
    };
    let takes = required.iter().map(|option| {
        let (ident, ty) = (&option.ident, option.argument(&option.ty));
        quote!(#ident: #ty)
    });
    let fields = options.iter().map(initial);
    quote! {
        #[doc = #doc]
        pub fn new(#(#takes),*) -> Self {
            Self { #(#fields)* }
        }
    }
}

/// Defines the setter of an option with a default. A tuple is set by as many arguments.
fn setter(option: &Described, elsewhere: bool) -> Option<Tokens> {
    let hidden = !matches!(option.visibility, Visibility::Public(_));
    if option.words.no_setter || hidden || option.words.default.is_none() {
        return None;
    }
    let (ident, doc) = (&option.ident, option.of_setter());
    let inner = option.optional().unwrap_or(&option.ty);
    let (takes, value) = match inner {
        Type::Tuple(tuple) => {
            let names: Vec<Ident> = ["first", "second", "third"]
                .iter()
                .take(tuple.elems.len())
                .map(|name| format_ident!("{name}"))
                .collect();
            let types = tuple.elems.iter();
            (quote!(#(#names: #types),*), quote!((#(#names),*)))
        }
        inner if listed(inner).is_some() => {
            let item = listed(inner);
            let takes = quote! {
                #ident: impl ::core::iter::IntoIterator<Item = impl ::core::convert::Into<#item>>
            };
            let items = quote!(::core::iter::IntoIterator::into_iter(#ident));
            (takes, quote!(#items.map(::core::convert::Into::into).collect()))
        }
        inner => {
            // A number of a layer may be an f32 or an integer in code.
            let as_it_is = plain(inner) && (elsewhere || !is_f64(inner));
            match as_it_is {
                true => (quote!(#ident: #inner), quote!(#ident)),
                false => {
                    (quote!(#ident: impl ::core::convert::Into<#inner>), quote!(::core::convert::Into::into(#ident)))
                }
            }
        }
    };
    let value = option.optional().map_or(value.clone(), |_| quote!(::core::option::Option::Some(#value)));
    let place = if elsewhere { quote!(self.options().#ident) } else { quote!(self.#ident) };
    Some(quote! {
        #[doc = #doc]
        #[must_use]
        pub fn #ident(mut self, #takes) -> Self {
            #place = #value;
            self
        }
    })
}

/// Returns the description of an option.
pub fn info(option: &Described) -> Tokens {
    let (ty, key, about, range) = (&option.ty, &option.key, &option.about, option.words.range.tokens());
    let (shown, default) = match option.words.default {
        Some(_) => {
            let default = default_fn(option);
            (option.shown(), quote!(::core::option::Option::Some(Self::#default())))
        }
        None => (String::new(), quote!(::core::option::Option::None)),
    };
    quote!(::precast::options::OptionInfo::new::<#ty>(#key, #about, &#range, #default, #shown))
}

fn text_of(value: &Expr) -> Option<String> {
    match value {
        Expr::Group(group) => text_of(&group.expr),
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value().trim().to_string()),
        _ => None,
    }
}

/// Returns the doc comment of a field as one text, a line for each paragraph.
pub fn documentation(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(line) if line.path.is_ident("doc") => text_of(&line.value),
        _ => None,
    });
    lines.collect::<Vec<_>>().join(" ").trim().to_string()
}

impl Words {
    /// Reads and removes the `#[option(..)]` of a field or a variant.
    pub fn take(attributes: &mut Vec<Attribute>) -> Result<Self> {
        let mut words = Words::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("option")) {
            attribute.parse_nested_meta(|word| words.read(word))?;
        }
        attributes.retain(|attribute| !attribute.path().is_ident("option"));
        Ok(words)
    }

    fn read(&mut self, word: ParseNestedMeta<'_>) -> Result<()> {
        let name = word.path.get_ident().map(Ident::to_string).unwrap_or_default();
        let number = || -> Result<Option<Expr>> { Ok(Some(word.value()?.parse()?)) };
        match name.as_str() {
            "default" => {
                self.default = Some(if word.input.peek(Token![=]) { number()? } else { None });
            }
            "shown" => self.shown = Some(word.value()?.parse::<LitStr>()?.value()),
            "note" => self.note = Some(word.value()?.parse::<LitStr>()?.value()),
            "at_least" => self.range.at_least = number()?,
            "above" => self.range.above = number()?,
            "at_most" => self.range.at_most = number()?,
            "below" => self.range.below = number()?,
            "finite" => self.range.finite = true,
            "no_setter" => self.no_setter = true,
            "left_out" => self.left_out = true,
            "name" => self.name = Some(word.value()?.parse::<LitStr>()?.value()),
            _ => {
                return Err(word.error(
                    "allowed here: `default`, `default = ..`, `shown = \"..\"`, `note = \"..\"`, `at_least = ..`, \
                     `above = ..`, `at_most = ..`, `below = ..`, `finite`, `no_setter`, `left_out`, and for a variant `name = \"..\"`",
                ));
            }
        }
        Ok(())
    }
}
