//! The memory for the data of a run.

use std::{fmt, str::FromStr};

use precast::options::{Range, Takes};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Value, json};

/// Most bytes of examples that a run holds in memory; more are read while it trains. In files: `256 MiB`, or a number of
/// bytes. Default: 1 GiB.
///
/// ```
/// use precast_train::Memory;
/// assert_eq!("1.5 GiB".parse(), Ok(Memory(3 << 29)));
/// assert_eq!(Memory(256 << 20).to_string(), "256 MiB");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory(pub u64);

impl Default for Memory {
    fn default() -> Self {
        Memory(1 << 30)
    }
}

/// Units, the largest first.
const UNITS: [(&str, u64); 7] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
];

/// Accepted values.
const MEMORY: &str = "a number of bytes, or one with a unit: kB, MB, GB, KiB, MiB, GiB, TiB, such as 256 MiB";

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Memory(bytes) = *self;
        match UNITS.iter().take(4).find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
            Some((name, unit)) => write!(f, "{} {name}", bytes / unit),
            None => write!(f, "{bytes} B"),
        }
    }
}

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{}` is not an amount of memory; allowed: {MEMORY}", precast_base::printable(text));
        if !text.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(wrong());
        }
        let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = match unit.trim() {
            "" | "B" => 1,
            unit => UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(wrong)?.1,
        };
        let bytes = match number.parse::<u64>() {
            Ok(number) => number.checked_mul(unit).ok_or_else(wrong)?,
            Err(_) => match number.parse::<f64>().map_err(|_| wrong())? * unit as f64 {
                bytes if bytes < 2f64.powi(63) => bytes as u64,
                _ => return Err(wrong()),
            },
        };
        Ok(Memory(bytes))
    }
}

impl Serialize for Memory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Memory {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl de::Visitor<'_> for Reader {
            type Value = Memory;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(MEMORY)
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Memory, E> {
                Ok(Memory(bytes))
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Memory, E> {
                u64::try_from(bytes).map(Memory).map_err(|_| E::invalid_type(de::Unexpected::Signed(bytes), &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Memory, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl Takes for Memory {
    fn takes(_: &Range) -> String {
        MEMORY.into()
    }

    fn schema(_: &Range) -> Value {
        json!({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]})
    }
}
