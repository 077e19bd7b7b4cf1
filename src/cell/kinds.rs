//! The kinds of cells known to this program.

use super::Described;
use crate::error::{Error, Result};

/// A type that derives `Cell`.
#[derive(Debug)]
pub struct Registered {
    /// The name of the type.
    pub kind: &'static str,
    /// `true` when architecture files can name it.
    pub saved: bool,
    /// The doc comment of the type.
    pub documentation: &'static str,
    /// Its options.
    pub described: fn() -> Described,
    /// The path of its module.
    pub path: &'static str,
    /// The file that declares it.
    pub file: &'static str,
    /// The line of the declaration.
    pub line: u32,
}

inventory::collect!(Registered);

/// Returns the name of every kind that this program can read from a file, sorted: the cells of this library and those
/// of the program marked `#[cell(saved)]`.
///
/// # Errors
/// [`ErrorKind::Model`](crate::ErrorKind::Model) when two types have the same kind, naming both.
///
/// ```
/// assert!(precast::layers::kinds()?.contains(&"Dense"));
/// # Ok::<(), precast::Error>(())
/// ```
pub fn kinds() -> Result<Vec<&'static str>> {
    let mut all: Vec<&Registered> = inventory::iter::<Registered>().filter(|of| of.saved).collect();
    all.sort_by_key(|of| (of.kind, of.path, of.file, of.line));
    match all.windows(2).find(|pair| pair[0].kind == pair[1].kind) {
        None => Ok(all.iter().map(|of| of.kind).collect()),
        Some(pair) => {
            let place = |of: &Registered| format!("{} ({}:{})", of.path, of.file, of.line);
            Err(Error::model(format!(
                "two types of cells have the kind `{}`: {} and {}; give one another: `#[cell(saved, kind = \"..\")]`",
                pair[0].kind,
                place(pair[0]),
                place(pair[1])
            )))
        }
    }
}

/// Returns the entry of a kind that files can name.
pub(crate) fn registered(kind: &str) -> Option<&'static Registered> {
    inventory::iter::<Registered>().find(|of| of.saved && of.kind == kind)
}

/// Returns all kinds that a policy may name: those of [`kinds`], and those that are not saved.
pub(crate) fn known_kinds() -> impl Iterator<Item = &'static str> {
    inventory::iter::<Registered>().map(|of| of.kind)
}
