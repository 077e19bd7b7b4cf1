//! The fields of a saved type whose options are not stated by `#[options]`: serde knows their names, and reading the type
//! from some of them shows which are missing or wrong.

use std::{cell::Cell as Place, fmt};

use serde::{
    Deserializer,
    de::{self, DeserializeOwned, DeserializeSeed, MapAccess, Visitor, value::StrDeserializer},
    forward_to_deserialize_any,
};
use serde_json::Value;

use crate::options::OptionInfo;

/// The options of a saved type.
#[derive(Debug)]
pub enum Described {
    /// Options that the type states.
    Options(Vec<OptionInfo>),
    /// Reads the type from fields.
    ByReading(fn(&[(&str, Value)]) -> Asked),
}

impl Described {
    /// Returns no options, for a type that is not saved.
    pub fn nothing() -> Self {
        Described::Options(Vec::new())
    }
}

/// The answer of a type that was read from fields.
#[derive(Debug)]
pub struct Asked {
    /// The names of all its fields, if it is a struct.
    pub fields: &'static [&'static str],
    /// The outcome of the read.
    pub read: Result<(), Wrong>,
}

/// A reason why a type cannot be read from fields.
#[derive(Debug, PartialEq)]
pub enum Wrong {
    /// The field is required, and absent.
    Missing(&'static str),
    /// The value of the field is of another type.
    Value(String),
    /// Anything else.
    Other,
}

impl Asked {
    /// Reads a type from fields.
    pub fn ask<T: DeserializeOwned>(given: &[(&str, Value)]) -> Asked {
        Asked::of(given, |fields| erased_serde::deserialize::<T>(fields).is_ok())
    }

    /// Asks by a function that returns whether the type was read.
    fn of(given: &[(&str, Value)], read: fn(&mut dyn erased_serde::Deserializer<'_>) -> bool) -> Asked {
        let (mut fields, wrong): (&[&str], _) = (&[], Place::default());
        let given = Given { rest: given, value: None, fields: &mut fields, wrong: &wrong };
        let read = read(&mut <dyn erased_serde::Deserializer>::erase(given));
        Asked { fields, read: if read { Ok(()) } else { Err(wrong.take().unwrap_or(Wrong::Other)) } }
    }
}

/// Fields to read, and places for the names of all and for the first error, which the trait object of the type that reads
/// them returns as text.
struct Given<'a> {
    rest: &'a [(&'a str, Value)],
    value: Option<&'a (&'a str, Value)>,
    fields: &'a mut &'static [&'static str],
    wrong: &'a Place<Option<Wrong>>,
}

/// Notes an error, unless there is one.
fn note(place: &Place<Option<Wrong>>, wrong: Wrong) -> Wrong {
    place.set(place.take().or(Some(wrong)));
    Wrong::Other
}

impl<'de> Deserializer<'de> for Given<'_> {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let place = self.wrong;
        visitor.visit_map(self).map_err(|wrong| note(place, wrong))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        *self.fields = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for Given<'_> {
    type Error = Wrong;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Wrong> {
        let Some((next, rest)) = self.rest.split_first() else { return Ok(None) };
        (self.rest, self.value) = (rest, Some(next));
        seed.deserialize(StrDeserializer::new(next.0)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Wrong> {
        let Some((name, value)) = self.value.take() else { return Err(Wrong::Other) };
        seed.deserialize(value.clone()).map_err(|_| note(self.wrong, Wrong::Value(name.to_string())))
    }
}

impl de::Error for Wrong {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Wrong::Other
    }

    fn missing_field(field: &'static str) -> Self {
        Wrong::Missing(field)
    }
}

impl std::error::Error for Wrong {}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
