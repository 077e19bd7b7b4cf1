//! JSON reader that rejects duplicate keys, which serde_json resolves silently in favour of the last.

use std::{collections::HashSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error, MapAccess, SeqAccess, Visitor},
};

use crate::printable::printable;

/// Reads a JSON value.
///
/// # Errors
/// With line and column: for invalid JSON, a value of another type, and an object with duplicate keys.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice::<EachOnce>(text)?;
    serde_json::from_slice(text)
}

/// Visitor that accepts any value whose objects have unique keys.
struct EachOnce;

impl<'de> Deserialize<'de> for EachOnce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EachOnce)
    }
}

impl<'de> Visitor<'de> for EachOnce {
    type Value = EachOnce;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<EachOnce, E> {
        Ok(EachOnce)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<EachOnce, E> {
        Ok(EachOnce)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<EachOnce, E> {
        Ok(EachOnce)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<EachOnce, E> {
        Ok(EachOnce)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<EachOnce, E> {
        Ok(EachOnce)
    }

    fn visit_unit<E: Error>(self) -> Result<EachOnce, E> {
        Ok(EachOnce)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<EachOnce, A::Error> {
        while values.next_element::<EachOnce>()?.is_some() {}
        Ok(EachOnce)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<EachOnce, A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = entries.next_key::<String>()? {
            if names.contains(&name) {
                return Err(A::Error::custom(format!("two entries have the name `{}`", printable(&name))));
            }
            names.insert(name);
            entries.next_value::<EachOnce>()?;
        }
        Ok(EachOnce)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_entry_that_appears_twice_is_an_error_with_its_place() {
        let text = br#"{"a": [1, -2, 3.5, "x", null, true], "b": {"a": {}}}"#;
        let expected = json!({"a": [1, -2, 3.5, "x", null, true], "b": {"a": {}}});
        assert_eq!(read::<Value>(text).unwrap(), expected);
        for (text, says) in [
            (&br#"{"a": 1, "a": 1}"#[..], "two entries have the name `a` at line 1 column "),
            (b"{\"x\": [{\"a\": 1,\n \"\\u0061\": 2}]}", "two entries have the name `a` at line 2 column "),
            (b"{\"a\\n\": 1, \"a\\n\": 1}", "two entries have the name `a\\n` at"),
            (b"{", "EOF while parsing"),
        ] {
            let error = read::<Value>(text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(read::<Value>(&b"[".repeat(100_000)).is_err(), "nested too deep");
    }
}
