//! The arguments of `#[cell(..)]`.

use proc_macro2::{Ident, Span};
use syn::{Attribute, Error, LitStr, Result, Token, meta::ParseNestedMeta, punctuated::Punctuated, spanned::Spanned};

/// The arguments above a struct.
#[derive(Default)]
pub struct Words {
    /// The position of `saved`.
    pub saved: Option<Span>,
    /// The position of `new`.
    pub new: Option<Span>,
    pub kinds: Kinds,
}

/// The kinds of a struct.
#[derive(Default)]
pub enum Kinds {
    /// The name of the struct.
    #[default]
    OfTheStruct,
    /// `kind = "Name"`.
    Named(String),
    /// `kinds(Name, Name)`: each is the name of a type.
    Listed(Vec<Ident>),
}

impl Words {
    pub fn parse(attributes: &[Attribute]) -> Result<Self> {
        let mut words = Words::default();
        each_word(attributes, |word, met| {
            match met {
                "saved" => words.saved = Some(word.path.span()),
                "new" => words.new = Some(word.path.span()),
                "kind" => {
                    let name: LitStr = word.value()?.parse()?;
                    if name.value().is_empty() {
                        return Err(Error::new(name.span(), "a kind has a name"));
                    }
                    words.be(&word, Kinds::Named(name.value()))?;
                }
                "kinds" => {
                    let list;
                    syn::parenthesized!(list in word.input);
                    let names = Punctuated::<Ident, Token![,]>::parse_terminated(&list).map_err(|error| {
                        Error::new(error.span(), "a list of names, each of a type: `type DenseBlock = Block<Dense>;`")
                    })?;
                    if names.is_empty() {
                        return Err(word.error("a list of names, each of a type: `kinds(Conv1d, Conv2d)`"));
                    }
                    words.be(&word, Kinds::Listed(names.into_iter().collect()))?;
                }
                _ => return Err(word.error("allowed here: `saved`, `new`, `kind = \"Name\"` and `kinds(Name, Name)`")),
            }
            Ok(())
        })?;
        Ok(words)
    }

    fn be(&mut self, word: &ParseNestedMeta<'_>, kinds: Kinds) -> Result<()> {
        if !matches!(self.kinds, Kinds::OfTheStruct) {
            return Err(word.error("either `kind` or `kinds`"));
        }
        self.kinds = kinds;
        Ok(())
    }
}

/// Returns whether a field is marked `#[cell(data)]`.
pub fn is_marked_as_data(attributes: &[Attribute]) -> Result<bool> {
    let mut data = false;
    each_word(attributes, |word, met| {
        data = met == "data";
        if data {
            Ok(())
        } else {
            Err(word.error(format!(
            "`{met}` is not a mark of a field; allowed: `data`, where the type is a type parameter. Other plain data needs no mark, \
             and slots and parameters are never left out of the tree"
        )))
        }
    })?;
    Ok(data)
}

/// Calls `take` for each argument of every `#[cell(..)]`. Each may occur only once.
fn each_word(attributes: &[Attribute], mut take: impl FnMut(ParseNestedMeta<'_>, &str) -> Result<()>) -> Result<()> {
    let mut seen = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("cell")) {
        attribute.parse_nested_meta(|word| {
            let met = word.path.get_ident().map(Ident::to_string).unwrap_or_default();
            if seen.contains(&met) {
                return Err(word.error(format!("duplicate `{met}`")));
            }
            seen.push(met.clone());
            take(word, &met)
        })?;
    }
    Ok(())
}
