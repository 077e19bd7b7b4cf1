//! Paths of cells: joined, named in messages, missing.

use std::borrow::Cow;

use crate::{
    error::{Error, did_you_mean_or_some},
    printable::printable,
};

/// The cell at a path, as messages call it.
#[doc(hidden)]
pub fn named(path: &str) -> Cow<'static, str> {
    match path {
        "" => "the root cell".into(),
        path => format!("`{}`", printable(path)).into(),
    }
}

/// `parent.name`, or `name` below the root.
pub fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_string() } else { format!("{parent}.{name}") }
}

/// The error for a path at which no cell stands.
#[doc(hidden)]
pub fn no_such_path<'a>(path: &str, paths: impl IntoIterator<Item = &'a str>) -> Error {
    if path == "(root)" {
        return Error::path("the path of the root cell is empty; a pattern of a rule for it is `**`");
    }
    Error::path(format!("no cell at `{path}`{}", did_you_mean_or_some(path, paths)))
}

/// The path as people see it.
#[doc(hidden)]
pub fn shown(path: &str) -> Cow<'_, str> {
    if path.is_empty() { "(root)".into() } else { printable(path) }
}
