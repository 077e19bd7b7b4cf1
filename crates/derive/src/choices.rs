//! The attribute `#[options]` of an enum: its variants are choices by name, each with options of its own.

use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{Attribute, Error, Fields, Ident, ItemEnum, Result, Variant, ext::IdentExt, parse_quote};

use crate::{
    option::{Described, Words},
    options::{Arguments, attributes, defaults, documentation, in_files, info},
};

/// A variant, with the code that follows from it.
struct Choice {
    ident: Ident,
    name: String,
    /// The functions with the defaults of its options.
    defaults: Vec<Tokens>,
    /// Its description.
    described: Tokens,
    /// The arm of a match that returns the message for a number outside its range.
    checked: Tokens,
}

pub fn expand(arguments: Tokens, mut input: ItemEnum) -> Result<Tokens> {
    let arguments = Arguments::parse(arguments)?;
    let owner = input.ident.clone();
    if arguments.of_cell {
        return Err(Error::new(owner.span(), "`of_cell` is for structs"));
    }
    let choices: Vec<Choice> =
        input.variants.iter_mut().map(|variant| Choice::take(variant, &owner, &arguments)).collect::<Result<_>>()?;
    input.attrs.splice(0..0, in_files(&arguments));
    let defaults = choices.iter().flat_map(|choice| &choice.defaults);
    let described: Vec<&Tokens> = choices.iter().map(|choice| &choice.described).collect();
    let checked = choices.iter().map(|choice| &choice.checked);
    let names = choices.iter().map(|Choice { ident, name, .. }| quote!(Self::#ident { .. } => #name,));
    Ok(quote! {
        #input

        impl #owner {
            /// Returns the name in files.
            pub fn name(&self) -> &'static str {
                match self { #(#names)* }
            }
            #(#defaults)*
        }

        impl ::precast::options::Takes for #owner {
            fn takes(_: &::precast::options::Range) -> ::std::string::String {
                ::precast::options::Choice::takes(&[#(#described),*])
            }
            fn schema(_: &::precast::options::Range) -> ::precast::__derive::serde_json::Value {
                ::precast::options::Choice::schema(&[#(#described),*])
            }
            fn out_of_range(
                &self,
                _: &str,
                _: &::precast::options::Range,
            ) -> ::core::option::Option<::precast::Error> {
                match self { #(#checked)* }
            }
        }
    })
}

impl Choice {
    /// Reads a variant, and adds its name in files.
    fn take(variant: &mut Variant, owner: &Ident, arguments: &Arguments) -> Result<Self> {
        let ident = variant.ident.clone();
        let words = Words::take(&mut variant.attrs)?;
        let name = words.name.unwrap_or_else(|| in_small_letters(&ident));
        let rename: Attribute = parse_quote!(#[serde(rename = #name)]);
        variant.attrs.push(rename);
        let about = documentation(&variant.attrs);
        let mut choice = Choice { ident, name, defaults: Vec::new(), described: Tokens::new(), checked: Tokens::new() };
        let (ident, name) = (&choice.ident, &choice.name);
        let options = match &mut variant.fields {
            Fields::Unit => {
                choice.checked = quote!(Self::#ident => ::core::option::Option::None,);
                quote!(::core::option::Option::None)
            }
            Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
                let ty = &fields.unnamed[0].ty;
                choice.checked = quote! {
                    Self::#ident(options) => ::precast::options::Options::out_of_range(options).map(|(_, error)| error),
                };
                quote!(::core::option::Option::Some(<#ty as ::precast::options::Options>::options()))
            }
            Fields::Named(fields) => {
                let mut infos = Vec::new();
                let mut checks = Vec::new();
                for field in &mut fields.named {
                    let mut option = Described::take(field)?;
                    option.of = format!("{name}_").replace('-', "_");
                    field.attrs.extend(attributes(&option, &owner.to_string(), arguments));
                    choice.defaults.extend(defaults(&option));
                    infos.push(info(&option));
                    let (place, key, range) = (&option.ident, &option.key, option.words.range.tokens());
                    checks
                        .push((place.clone(), quote!(::precast::options::Takes::out_of_range(#place, #key, &#range))));
                }
                let (places, checks): (Vec<Ident>, Vec<Tokens>) = checks.into_iter().unzip();
                choice.checked = quote! {
                    Self::#ident { #(#places),* } => ::core::option::Option::None #(.or_else(|| #checks))*,
                };
                quote!(::core::option::Option::Some(::std::vec![#(#infos),*]))
            }
            Fields::Unnamed(_) => {
                let words = "a variant has no options, options with names, or one struct of options";
                return Err(Error::new(ident.span(), words));
            }
        };
        choice.described = quote!(::precast::options::Choice { name: #name, about: #about, options: #options });
        Ok(choice)
    }
}

/// Returns `cross_entropy` of `CrossEntropy`.
fn in_small_letters(ident: &Ident) -> String {
    let mut name = String::new();
    for letter in ident.unraw().to_string().chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    name
}
