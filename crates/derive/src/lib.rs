//! `#[derive(Cell)]`, `#[options]` and `formula!` of the crate precast, where they are re-exported and documented.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod choices;
mod constructor;
mod fields;
mod formula;
mod option;
mod options;
mod words;

use proc_macro::TokenStream;
use proc_macro2::{Ident, Span, TokenStream as Tokens};
use quote::{quote, quote_spanned};
use syn::{
    Data, DeriveInput, Error, Expr, GenericParam, Generics, Item, Meta, Result, ext::IdentExt, parse_macro_input,
    parse_quote,
};

use crate::{
    fields::Visits,
    words::{Kinds, Words},
};

/// Implements `Cell` for a struct: its kind, and a walk over its children and parameters.
#[proc_macro_derive(Cell, attributes(cell))]
pub fn cell(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Makes the fields of a struct, or of the variants of an enum, options: documented, with defaults and ranges, in code
/// and in files.
#[proc_macro_attribute]
pub fn options(arguments: TokenStream, input: TokenStream) -> TokenStream {
    let expanded = match parse_macro_input!(input as Item) {
        Item::Struct(input) => options::expand(arguments.into(), input),
        Item::Enum(input) => choices::expand(arguments.into(), input),
        other => Err(Error::new_spanned(other, "options are the fields of a struct, or of the variants of an enum")),
    };
    expanded.unwrap_or_else(Error::into_compile_error).into()
}

/// Computes a formula of tensors and numbers, with one `?` at its end.
#[proc_macro]
pub fn formula(input: TokenStream) -> TokenStream {
    formula::expand(&parse_macro_input!(input as Expr)).into()
}

fn expand(input: &DeriveInput) -> Result<Tokens> {
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        Data::Enum(data) => {
            let message = "a cell is a struct, so that its paths do not depend on its state; where a cell is one of several, \
                           hold it in a `Child`, which takes a cell of any kind";
            return Err(Error::new(data.enum_token.span, message));
        }
        Data::Union(data) => return Err(Error::new(data.union_token.span, "a cell is a struct")),
    };
    if let Some(lifetime) = input.generics.lifetimes().next() {
        return Err(Error::new_spanned(lifetime, "a cell owns what it holds: it can have no lifetime"));
    }
    let words = Words::parse(&input.attrs)?;
    let constructor = words.new.map(|new| constructor::constructor(input, fields, new)).transpose()?;
    let cells = match &words.kinds {
        Kinds::Listed(types) => {
            let visits = Visits::new(fields, &Generics::default())?;
            let implement = |name: &Ident| implement(name, &name.unraw().to_string(), input, &words, &visits, None);
            types.iter().map(implement).collect()
        }
        kinds => {
            if let (Some(saved), Some(param)) = (words.saved, input.generics.params.first()) {
                return Err(generic_and_saved(saved, &input.ident, param));
            }
            let kind = match kinds {
                Kinds::Named(kind) => kind.clone(),
                _ => input.ident.unraw().to_string(),
            };
            let visits = Visits::new(fields, &input.generics)?;
            implement(&input.ident, &kind, input, &words, &visits, Some(&input.generics))
        }
    };
    Ok(quote!(#cells #constructor))
}

/// Generates the implementations for one type.
fn implement(
    name: &Ident,
    kind: &str,
    input: &DeriveInput,
    words: &Words,
    visits: &Visits,
    generics: Option<&Generics>,
) -> Tokens {
    let generics = generics.map(|generics| with_bounds(generics, visits)).unwrap_or_default();
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let Visits { visit, visit_mut, copied, .. } = visits;
    let saved = words.saved.map(|_| {
        quote! {
            fn saved(&self) -> ::core::option::Option<&dyn ::precast::cell::SavedCell> {
                ::core::option::Option::Some(self)
            }
        }
    });
    let registered = registered(name, kind, words.saved, &documentation(input));
    quote! {
        #[automatically_derived]
        #[allow(clippy::all, clippy::pedantic, deprecated, unused_imports, unused_variables)]
        impl #impl_generics ::precast::Cell for #name #type_generics #where_clause {
            fn kind(&self) -> &'static str {
                #kind
            }
            fn visit(&self, visitor: &mut dyn ::core::ops::FnMut(&str, ::precast::cell::Part<'_>)) {
                use ::precast::__derive::{IsConstant as _, IsMember as _, IsMisplaced as _, IsPlainData as _};
                #(#visit)*
            }
            fn visit_mut(&mut self, visitor: &mut dyn ::core::ops::FnMut(&str, ::precast::cell::PartMut<'_>)) {
                use ::precast::__derive::{IsConstant as _, IsMember as _, IsMisplaced as _, IsPlainData as _};
                #(#visit_mut)*
            }
            fn copied(
                &self,
                copies: &mut ::precast::cell::Copies,
            ) -> ::core::result::Result<Self, ::precast::Error> {
                use ::precast::__derive::{CopiesCounter as _, CopiesData as _, CopiesMember as _, CopiesNothing as _};
                ::core::result::Result::Ok(Self { #(#copied),* })
            }
            fn copied_in_slot(
                &self,
                copies: &mut ::precast::cell::Copies,
            ) -> ::core::result::Result<::precast::Child, ::precast::Error> {
                ::precast::__derive::copied_in_slot(self, copies)
            }
            #saved
        }
        #registered
    }
}

/// Registers the kind for policies and, if it is saved, for architecture files. A missing requirement is reported at
/// `saved`.
fn registered(name: &Ident, kind: &str, saved: Option<Span>, documentation: &Tokens) -> Tokens {
    let (type_name, is_saved) = (name.unraw().to_string(), saved.is_some());
    let span = Span::call_site().located_at(saved.unwrap_or_else(|| name.span()));
    let mut this = name.clone();
    this.set_span(span);
    let saved = saved.map(|_| {
        quote_spanned! {span=>
            // This reports a missing requirement in one sentence, ahead of the compiler's follow-up errors.
            const _: () = ::precast::__derive::is_written::<#this>();

            // The code generated by typetag refers to its crate by name.
            use ::precast::__derive::typetag;

            #[typetag::serde(name = #kind)]
            impl ::precast::cell::SavedCell for #this {}
        }
    });
    let described = match is_saved {
        true => quote_spanned! {span=>
            || {
                use ::precast::__derive::{AsksSerde as _, HasOptions as _};
                (&&::precast::__derive::typed::<#this>()).described()
            }
        },
        false => quote!(::precast::__derive::Described::nothing),
    };
    quote_spanned! {span=>
        const _: () = {
            #saved

            ::precast::__derive::inventory::submit! {
                ::precast::__derive::Registered {
                    kind: #kind,
                    saved: #is_saved,
                    documentation: #documentation,
                    described: #described,
                    path: ::core::concat!(::core::module_path!(), "::", #type_name),
                    file: ::core::file!(),
                    line: ::core::line!(),
                }
            }
        };
    }
}

/// Returns the doc comment of the struct as one literal.
fn documentation(input: &DeriveInput) -> Tokens {
    let lines = input.attrs.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(line) if line.path.is_ident("doc") => Some(&line.value),
        _ => None,
    });
    quote!(::core::concat!(#(#lines, "\n"),*))
}

/// Adds the bounds that every cell needs to the generics: type parameters in a `Child` are cells.
fn with_bounds(generics: &Generics, visits: &Visits) -> Generics {
    let mut generics = generics.clone();
    for param in &mut generics.params {
        if let GenericParam::Type(param) = param {
            if visits.cells.contains(&param.ident) {
                param.bounds.push(parse_quote!(::precast::Cell));
            } else {
                param.bounds.push(parse_quote!(::core::fmt::Debug));
                param.bounds.push(parse_quote!(::core::marker::Send));
                param.bounds.push(parse_quote!(::core::marker::Sync));
                param.bounds.push(parse_quote!('static));
            }
        }
    }
    generics
}

fn generic_and_saved(saved: Span, name: &Ident, param: &GenericParam) -> Error {
    let argument = match param {
        GenericParam::Const(_) => "1",
        _ => "Dense",
    };
    let message = format!(
        "`{name}` is generic, and a file names one type by each kind. Give each type that is written a name, and list the \
         names: `type My{name} = {name}<{argument}>;` and `#[cell(saved, kinds(My{name}))]`"
    );
    Error::new(saved, message)
}
