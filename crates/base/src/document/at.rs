//! Values with their positions.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, SeqAccess, Visitor},
};

use super::source::Place;

/// Value with its position in the file, written as its value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct At<T> {
    /// The value.
    pub value: T,
    #[serde(skip)]
    /// The position of its first character.
    pub place: Place,
}

/// Name by which a reader of documents recognizes a value with its position: it is read as a pair of both.
pub(super) const AT: &str = "a value with its position";

/// Returns a value without a position, for writing.
pub fn placeless<T>(value: T) -> At<T> {
    At { value, place: Place::START }
}

impl Place {
    /// Returns the position as one number.
    pub(super) fn packed(self) -> u64 {
        (self.line as u64) << 32 | self.column as u64
    }

    /// Returns the position of a number.
    pub(super) fn unpacked(packed: u64) -> Self {
        Place { line: (packed >> 32) as usize, column: packed as u32 as usize }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pair<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Pair<T> {
            type Value = At<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(AT)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<At<T>, A::Error> {
                let (place, value) = (pair.next_element()?, pair.next_element()?);
                let both = place.map(Place::unpacked).zip(value);
                both.map(|(place, value)| At { value, place }).ok_or_else(|| A::Error::invalid_length(0, &AT))
            }
        }
        deserializer.deserialize_tuple_struct(AT, 2, Pair(PhantomData))
    }
}
