//! Paths of cells: joining them, and naming them in messages.

use std::borrow::Cow;

use crate::{error::Error, names::did_you_mean_or_some, printable::printable};

/// Returns the name of the cell at a path, as used in messages.
pub fn named(path: &str) -> Cow<'static, str> {
    match path {
        "" => "the root cell".into(),
        path => format!("`{}`", printable(path)).into(),
    }
}

/// Returns `parent.name`, or `name` below the root.
pub fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_string() } else { format!("{parent}.{name}") }
}

/// Returns the error for a path without a cell.
pub fn no_such_path<'a>(path: &str, paths: impl IntoIterator<Item = &'a str>) -> Error {
    if path == "(root)" {
        return Error::path("the path of the root cell is empty; a pattern of a rule for it is `**`");
    }
    Error::path(format!("no cell at `{path}`{}", did_you_mean_or_some(path, paths)))
}

/// Returns the path as shown to users.
pub fn shown(path: &str) -> Cow<'_, str> {
    if path.is_empty() { "(root)".into() } else { printable(path) }
}
