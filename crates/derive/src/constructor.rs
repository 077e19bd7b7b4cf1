//! The constructor of `#[cell(new)]`.

use proc_macro2::{Ident, Span, TokenStream as Tokens};
use quote::quote;
use syn::{DeriveInput, Error, Fields, Result, Type};

/// Generates `new`, which takes the fields in order. A slot is given as its cell, so that `Child::new` is not written
/// for each.
pub fn constructor(input: &DeriveInput, fields: &Fields, new: Span) -> Result<Tokens> {
    let Fields::Named(fields) = fields else {
        return Err(Error::new(
            new,
            "`new` takes the fields by name; a struct without named fields is its own constructor",
        ));
    };
    let fields = fields.named.iter().filter_map(|field| Some((field.ident.as_ref()?, &field.ty)));
    let (arguments, values): (Vec<Tokens>, Vec<Tokens>) = fields.map(|(name, of_type)| argument(name, of_type)).unzip();
    let (name, vis) = (&input.ident, &input.vis);
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        #[allow(clippy::too_many_arguments)]
        impl #impl_generics #name #type_generics #where_clause {
            /// Creates the cell from its fields, in order. A slot is given as its cell.
            #vis fn new(#(#arguments),*) -> Self {
                Self { #(#values),* }
            }
        }
    })
}

/// Returns the argument for a field, and the field made of it.
fn argument(name: &Ident, of_type: &Type) -> (Tokens, Tokens) {
    match is_slot(of_type) {
        true => {
            let argument = quote!(#name: impl ::core::convert::Into<#of_type>);
            (argument, quote!(#name: ::core::convert::Into::into(#name)))
        }
        false => (quote!(#name: #of_type), quote!(#name)),
    }
}

/// Returns whether a type is written as a slot, `Child` or `Child<..>`.
fn is_slot(of_type: &Type) -> bool {
    matches!(of_type, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Child"))
}
