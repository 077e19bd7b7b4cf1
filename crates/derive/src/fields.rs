//! The walk over the fields of a struct.
//!
//! The type of a field decides whether it is part of the tree: the compiler selects one of three traits (see
//! `precast::__derive`). It cannot do so for a type parameter, which may be anything; such a field is a `Member`, or is
//! marked.

use proc_macro2::{Ident, Span, TokenStream as Tokens, TokenTree};
use quote::{ToTokens, quote_spanned};
use syn::{Error, Fields, Generics, Index, Result, Type, ext::IdentExt, spanned::Spanned};

use crate::words::is_marked_as_data;

/// The statements of `visit` and `visit_mut`, and the fields of a copy, one per field.
pub struct Visits {
    pub visit: Vec<Tokens>,
    pub visit_mut: Vec<Tokens>,
    pub copied: Vec<Tokens>,
    /// The type parameters that occur in a `Child`.
    pub cells: Vec<Ident>,
}

impl Visits {
    pub fn new(fields: &Fields, generics: &Generics) -> Result<Self> {
        let params: Vec<&Ident> = generics.type_params().map(|param| &param.ident).collect();
        let mut visits = Visits { visit: vec![], visit_mut: vec![], copied: vec![], cells: vec![] };
        for (i, field) in fields.iter().enumerate() {
            let (member, name) = match &field.ident {
                Some(ident) => (ident.to_token_stream(), ident.unraw().to_string()),
                None => (Index::from(i).to_token_stream(), i.to_string()),
            };
            let of_type = &field.ty;
            refuse_bare_cells(of_type)?;
            let open = !in_children(of_type, &params, &mut visits.cells);
            // Errors point at the type of the field; names are resolved as elsewhere in the generated code.
            let span = Span::call_site().located_at(of_type.span());
            let place = quote_spanned!(span=> (&&&::precast::__derive::of(&self.#member)).place());
            let (visit, visit_mut) = if is_marked_as_data(&field.attrs)? {
                let place = quote_spanned!(span=> ::precast::__derive::marked(#place));
                (quote_spanned!(span=> #place.visit), quote_spanned!(span=> #place.visit_mut))
            } else if open {
                let member = quote_spanned!(span=> <#of_type as ::precast::cell::Member>);
                (quote_spanned!(span=> #member::visit), quote_spanned!(span=> #member::visit_mut))
            } else {
                (quote_spanned!(span=> #place.visit), quote_spanned!(span=> #place.visit_mut))
            };
            let is_open_member = open && !is_marked_as_data(&field.attrs)?;
            let copy = match is_open_member {
                true => quote_spanned!(span=> <#of_type as ::precast::cell::Member>::copied(&self.#member, copies)?),
                false => {
                    let of = quote_spanned!(span=> ::precast::__derive::of(&self.#member));
                    quote_spanned!(span=> (&&&&#of).copy(&self.#member, copies)?)
                }
            };
            visits.copied.push(quote_spanned!(span=> #member: #copy));
            visits.visit.push(quote_spanned!(span=> #visit(&self.#member, #name, visitor);));
            visits.visit_mut.push(quote_spanned!(span=> #visit_mut(&mut self.#member, #name, visitor);));
        }
        Ok(visits)
    }
}

/// Refuses `dyn Forward`, by which torch's users write a list of modules: the compiler would complain of threads.
fn refuse_bare_cells(of_type: &Type) -> Result<()> {
    let tokens = flat(of_type.to_token_stream());
    let is = |token: &TokenTree, name: &str| matches!(token, TokenTree::Ident(ident) if ident == name);
    match tokens.windows(2).find(|pair| is(&pair[0], "dyn") && is(&pair[1], "Forward")) {
        None => Ok(()),
        Some(_) => Err(Error::new(
            of_type.span(),
            "a cell of any kind is held in its slot, `Child`: a list of them is `Vec<Child>`",
        )),
    }
}

/// Returns whether every type parameter occurs alone in a `Child`, as in `Vec<Child<C>>`, and collects those that do.
fn in_children(of_type: &Type, params: &[&Ident], cells: &mut Vec<Ident>) -> bool {
    let mut all = true;
    let tokens = flat(of_type.to_token_stream());
    let mut rest = &tokens[..];
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (
                TokenTree::Ident(child),
                [TokenTree::Punct(open), TokenTree::Ident(cell), TokenTree::Punct(close), ..],
            ) if child == "Child" && open.as_char() == '<' && close.as_char() == '>' && params.contains(&cell) => {
                cells.push(cell.clone());
                rest = &after[3..];
            }
            (TokenTree::Ident(ident), _) => all &= !params.contains(&ident),
            _ => {}
        }
    }
    all
}

/// Returns the tokens with those inside parentheses and brackets inlined.
fn flat(tokens: Tokens) -> Vec<TokenTree> {
    tokens
        .into_iter()
        .flat_map(|token| match token {
            TokenTree::Group(group) => flat(group.stream()),
            token => vec![token],
        })
        .collect()
}
