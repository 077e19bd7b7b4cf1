//! The test and the validation examples of a run.

use std::path::PathBuf;

use precast::{
    Error,
    options::{Range, Takes},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Value, json};

/// Test or validation examples of a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Test {
    /// A share of all examples, above 0 and below 1, chosen by the seed.
    Share(f64),
    /// This many of all examples, chosen by the seed.
    Count(usize),
    /// Another file of the same format.
    File(PathBuf),
}

impl Test {
    /// Returns the number of examples among `all`; `None` for those of another file.
    pub(super) fn number_of(&self, all: usize) -> Option<usize> {
        match self {
            Test::Share(share) => Some(((all as f64 * share).round() as usize).max(1)),
            Test::Count(count) => Some(*count),
            Test::File(_) => None,
        }
    }

    pub(super) fn is_share(&self) -> bool {
        matches!(self, Test::Share(_))
    }
}

impl Serialize for Test {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Test::Share(share) => serializer.serialize_f64(*share),
            Test::Count(count) => serializer.serialize_u64(*count as u64),
            Test::File(file) => file.serialize(serializer),
        }
    }
}

/// Accepted values of `test` and `validation`.
const TEST: &str = "a share above 0 and below 1, a number of examples from 1, or a file";

impl<'de> Deserialize<'de> for Test {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl de::Visitor<'_> for Reader {
            type Value = Test;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(TEST)
            }

            fn visit_f64<E: de::Error>(self, share: f64) -> Result<Test, E> {
                Ok(Test::Share(share))
            }

            fn visit_u64<E: de::Error>(self, count: u64) -> Result<Test, E> {
                Ok(Test::Count(usize::try_from(count).unwrap_or(usize::MAX)))
            }

            fn visit_i64<E: de::Error>(self, count: i64) -> Result<Test, E> {
                match usize::try_from(count) {
                    Ok(count) => Ok(Test::Count(count)),
                    Err(_) => Err(E::invalid_type(de::Unexpected::Signed(count), &self)),
                }
            }

            fn visit_str<E: de::Error>(self, file: &str) -> Result<Test, E> {
                match file.strip_suffix('%').and_then(|percent| percent.trim().parse::<f64>().ok()) {
                    Some(percent) => {
                        Err(E::custom(format!("`{file}`: a share is a number from 0 to 1, {}", percent / 100.0)))
                    }
                    None => Ok(Test::File(file.into())),
                }
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl Takes for Test {
    fn takes(_: &Range) -> String {
        TEST.into()
    }

    fn schema(_: &Range) -> Value {
        let share = json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1});
        json!({"anyOf": [share, {"type": "integer", "minimum": 1}, {"type": "string"}]})
    }

    fn out_of_range(&self, name: &str, _: &Range) -> Option<Error> {
        let got = match self {
            Test::Count(0) => "0 examples".to_string(),
            Test::Share(share) if !(*share > 0.0 && *share < 1.0) => share.to_string(),
            _ => return None,
        };
        Some(Error::value(format!("`{name}` is {got}; allowed: {TEST}")).about(name))
    }
}
