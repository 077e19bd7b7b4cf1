//! Reading of the options of cells: one reader for all, so that a struct of options adds little code.

use std::fmt;

use erased_serde::Deserializer as Value;
use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, MapAccess, Visitor},
};

/// A function that sets an option, by the number of its key, to a value.
type Set<'s, 'de> = dyn FnMut(usize, &mut dyn Value<'de>) -> Result<(), erased_serde::Error> + 's;

/// Reads a map of options with these keys, and sets each that is present. `required` has the numbers of those that must
/// be.
pub fn read<'de, D: Deserializer<'de>>(
    deserializer: D,
    called: &'static str,
    (keys, required): (&'static [&'static str], &[usize]),
    set: &mut Set<'_, 'de>,
) -> Result<(), D::Error> {
    deserializer.deserialize_struct(called, keys, Reader { called, keys, required, set })
}

/// Reader of one map.
struct Reader<'a, 's, 'de> {
    called: &'static str,
    keys: &'static [&'static str],
    required: &'a [usize],
    set: &'a mut Set<'s, 'de>,
}

impl<'de> Visitor<'de> for Reader<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a map with the options of {}", self.called)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = Vec::new();
        while let Some(key) = map.next_key_seed(Key(self.keys))? {
            if seen.contains(&key) {
                return Err(A::Error::duplicate_field(self.keys[key]));
            }
            seen.push(key);
            map.next_value_seed(Slot { key, set: self.set })?;
        }
        match self.required.iter().find(|key| !seen.contains(key)) {
            Some(key) => Err(A::Error::missing_field(self.keys[*key])),
            None => Ok(()),
        }
    }
}

/// The number of a key.
struct Key(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Key {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("field identifier")
    }

    fn visit_str<E: Error>(self, met: &str) -> Result<usize, E> {
        self.0.iter().position(|key| *key == met).ok_or_else(|| E::unknown_field(met, self.0))
    }
}

/// The value of a key.
struct Slot<'a, 's, 'de> {
    key: usize,
    set: &'a mut Set<'s, 'de>,
}

impl<'de> DeserializeSeed<'de> for Slot<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        (self.set)(self.key, &mut <dyn Value>::erase(deserializer)).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use crate::options::{Options, options};

    /// Options of a filter.
    #[options(of_cell)]
    #[derive(Clone, Debug, PartialEq)]
    struct FilterSpec {
        /// Number of channels.
        #[option(at_least = 1)]
        channels: u64,
        /// Share of the old value that is kept.
        #[option(default = 0.9)]
        decay: f64,
        /// Lengths of the windows.
        #[option(default)]
        lengths: Option<[usize; 2]>,
    }

    fn read(text: &str) -> Result<FilterSpec, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read_as_serde_would_read_them() {
        let spec = FilterSpec { channels: u64::MAX, decay: 0.9, lengths: Some([1, 2]) };
        assert_eq!(read(r#"{"lengths": [1, 2], "channels": 18446744073709551615}"#).as_ref(), Ok(&spec));
        assert_eq!(read(&serde_json::to_string(&spec).unwrap()), Ok(spec));
        assert_eq!(read(r#"{"channels": 1, "lengths": null}"#), Ok(FilterSpec::new(1)));
        let yaml: FilterSpec = precast_base::document::from_str("{channels: 1, decay: .inf}").unwrap();
        assert_eq!((yaml.decay, yaml.check().is_ok()), (f64::INFINITY, true));
    }

    #[test]
    fn errors_are_those_of_serde_with_their_places() {
        for (text, says) in [
            ("{}", "missing field `channels` at line 1 column 2"),
            (
                r#"{"channel": 1}"#,
                "unknown field `channel`, expected one of `channels`, `decay`, `lengths` at line 1 column 10",
            ),
            (r#"{"channels": 1, "channels": 1}"#, "duplicate field `channels` at line 1 column 26"),
            (r#"{"channels": -1}"#, "invalid value: integer `-1`, expected u64 at line 1 column 15"),
            (
                r#"{"channels": 1, "lengths": [1]}"#,
                "invalid length 1, expected an array of length 2 at line 1 column 30",
            ),
            ("[1]", "invalid type: sequence, expected a map with the options of Filter at line 1 column 1"),
        ] {
            assert_eq!(read(text).unwrap_err(), says, "{text}");
        }
    }
}
