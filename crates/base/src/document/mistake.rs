//! Mistakes in the values of a text.

use std::fmt;

use serde::de::{self, Expected, Unexpected};

/// Mistake in a value.
#[derive(Debug)]
pub(super) enum Mistake {
    UnknownKey(String, &'static [&'static str]),
    UnknownName(String, &'static [&'static str]),
    Missing(String),
    Length {
        met: usize,
        expected: String,
    },
    /// Another type than the expected one, both in words.
    Type {
        met: String,
        expected: String,
    },
    Expected(Form),
    Words(String),
}

/// Form that a value should have, in words unless they depend on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Map,
    Single,
    Truth,
    Other(&'static str),
}

pub(super) const LIST: Form = Form::Other("a list, `[a, b]` or a line with `- ` for each");
pub(super) const WHOLE: Form = Form::Other("a whole number");
pub(super) const NUMBER: Form = Form::Other("a finite number");
pub(super) const CHARACTER: Form = Form::Other("one character");
pub(super) const NAME: Form = Form::Other("a name, or a map of a name and its options");
pub(super) const ONE_NAME: Form = Form::Other("one name with its options and no second one");
pub(super) const NO_OPTIONS: Form = Form::Other("a name without options");

/// Mistake of a visitor; `None` if the reader has it already.
#[derive(Debug)]
pub struct Misread(pub(super) Option<Box<Mistake>>);

impl Misread {
    #[cold]
    pub fn new(mistake: Mistake) -> Self {
        Misread(Some(Box::new(mistake)))
    }
}

impl fmt::Display for Misread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Misread {}

impl de::Error for Misread {
    /// A missing key is noticed after its map is read. Behind a trait object, it arrives here in the words of serde.
    fn custom<T: fmt::Display>(words: T) -> Self {
        let words = words.to_string();
        let key = words.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
        Misread::new(key.map_or_else(|| Mistake::Words(words.clone()), |key| Mistake::Missing(key.into())))
    }

    fn invalid_type(met: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let met = if met == Unexpected::Unit { "nothing".into() } else { met.to_string() };
        Misread::new(Mistake::Type { met, expected: expected.to_string() })
    }

    fn invalid_length(met: usize, expected: &dyn Expected) -> Self {
        Misread::new(Mistake::Length { met, expected: expected.to_string() })
    }

    fn unknown_variant(met: &str, allowed: &'static [&'static str]) -> Self {
        Misread::new(Mistake::UnknownName(met.into(), allowed))
    }

    fn unknown_field(met: &str, allowed: &'static [&'static str]) -> Self {
        Misread::new(Mistake::UnknownKey(met.into(), allowed))
    }

    fn missing_field(key: &'static str) -> Self {
        Misread::new(Mistake::Missing(key.into()))
    }
}
