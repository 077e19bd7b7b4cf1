//! The choice of test and validation examples among those of the data.

use precast::options::{Range, Takes};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Value, json};

use super::data::Column;

/// Choice of test and validation examples. In files: `shuffled`, `in_order`, or `{by: COLUMN}`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Partition {
    /// The seed draws them.
    #[default]
    Shuffled,
    /// The last examples are for tests, those before them for validation. Windows of a text that reach into the next part
    /// are left out.
    InOrder,
    /// The seed draws groups: rows of a table with the same word in this column are in one part. A part takes whole groups
    /// up to its number of examples, one at least.
    By(Column),
}

/// Accepted values of `split`.
const PARTITION: &str = "shuffled, in_order, or {by: COLUMN} for rows of a table that belong together";

impl Serialize for Partition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Partition::Shuffled => serializer.serialize_str("shuffled"),
            Partition::InOrder => serializer.serialize_str("in_order"),
            Partition::By(column) => By { by: column.clone() }.serialize(serializer),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct By {
    by: Column,
}

impl<'de> Deserialize<'de> for Partition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> de::Visitor<'de> for Reader {
            type Value = Partition;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(PARTITION)
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Partition, E> {
                match word {
                    "shuffled" => Ok(Partition::Shuffled),
                    "in_order" => Ok(Partition::InOrder),
                    _ => Err(E::unknown_variant(word, &["shuffled", "in_order", "by"])),
                }
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Partition, A::Error> {
                let By { by } = By::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(Partition::By(by))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl Takes for Partition {
    fn takes(_: &Range) -> String {
        PARTITION.into()
    }

    fn schema(_: &Range) -> Value {
        let column = json!({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 1}]});
        let by =
            json!({"type": "object", "properties": {"by": column}, "required": ["by"], "additionalProperties": false});
        json!({"anyOf": [{"enum": ["shuffled", "in_order"]}, by]})
    }
}
