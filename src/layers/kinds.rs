//! The kinds of cells that architecture files can name.

use std::fmt;

use serde::{
    Deserialize,
    de::{
        self,
        value::{MapDeserializer, StrDeserializer},
    },
};

use crate::Cell;

/// The name of every kind that this program can read from a file, sorted: the cells of this library, and those of the
/// program's own that are marked `#[typetag::serde]`.
///
/// ```
/// assert!(precast::layers::kinds().contains(&"Dense"));
/// ```
pub fn kinds() -> Vec<&'static str> {
    // A cell of no kind is asked for: the refusal lists the kinds there are.
    let nothing = MapDeserializer::<_, Refusal>::new(
        [("kind", "")]
            .into_iter()
            .map(|(k, v)| (StrDeserializer::<Refusal>::new(k), StrDeserializer::<Refusal>::new(v))),
    );
    match Box::<dyn Cell>::deserialize(nothing) {
        Err(Refusal::UnknownKind(kinds)) => kinds.to_vec(),
        _ => Vec::new(),
    }
}

/// A deserialization error that keeps the variants which would have been accepted.
#[derive(Debug)]
enum Refusal {
    UnknownKind(&'static [&'static str]),
    Other,
}

impl de::Error for Refusal {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Refusal::Other
    }
    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Refusal::UnknownKind(expected)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no cell of this kind")
    }
}

impl std::error::Error for Refusal {}
