//! Reading and writing slots in files.

use serde::{
    Serialize, Serializer,
    de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::{Child, InSlot, Planned, SavedCell, Slot, saved::note_not_written};
use crate::DType;

/// The written form of a slot with a requested dtype.
#[derive(Serialize)]
struct Requested<'a, C: ?Sized> {
    to_float: DType,
    cell: &'a C,
}

impl<C: ?Sized + Serialize> Serialize for Child<C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write_slot(self.to_float, &**self.cell, serializer).inspect_err(|_| note_not_written(self.id()))
    }
}

impl Serialize for Slot<'_> {
    /// Writes the kind of the cell, whatever type the slot knows.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write_slot(self.to_float, &**self.cell, serializer).inspect_err(|_| note_not_written(self.id))
    }
}

fn write_slot<C: ?Sized + Serialize, S: Serializer>(
    to_float: Option<DType>,
    cell: &C,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match to_float {
        None => cell.serialize(serializer),
        Some(to_float) => Requested { to_float, cell }.serialize(serializer),
    }
}

impl<'de, C: Deserialize<'de>> Deserialize<'de> for Child<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (to_float, cell) = read_slot(deserializer)?;
        Ok(Child { to_float, recompute: false, planned: Planned::default(), site: None, cell: InSlot::new(cell) })
    }
}

impl<'de> Deserialize<'de> for Child {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (to_float, cell) = read_slot::<_, Box<dyn SavedCell>>(deserializer)?;
        Ok(Child { to_float, ..cell.into_slot() })
    }
}

/// A slot in a row of cells: `{name: head, kind: Dense, ..}`, or without a name.
pub(crate) struct NamedSlot {
    pub name: Option<String>,
    pub slot: Child,
}

impl<'de> Deserialize<'de> for NamedSlot {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NamedVisitor;

        impl<'de> Visitor<'de> for NamedVisitor {
            type Value = NamedSlot;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a cell: a map with `kind` and its fields, with a `name` before them or without")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let first: Option<String> = map.next_key()?;
                let (name, first) = match first.as_deref() {
                    Some("name") => (Some(map.next_value()?), map.next_key()?),
                    _ => (None, first),
                };
                let slot = Child::deserialize(MapAccessDeserializer::new(Replay { first, map }))?;
                Ok(NamedSlot { name, slot })
            }
        }

        deserializer.deserialize_map(NamedVisitor)
    }
}

/// Reads a slot: in a map whose first key is `to_float`, the cell is under `cell`; any other map is the cell itself.
fn read_slot<'de, D: Deserializer<'de>, C: Deserialize<'de>>(deserializer: D) -> Result<(Option<DType>, C), D::Error> {
    struct SlotVisitor<C>(std::marker::PhantomData<C>);

    impl<'de, C: Deserialize<'de>> Visitor<'de> for SlotVisitor<C> {
        type Value = (Option<DType>, C);

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a cell: a map with `kind` and its fields, or `to_float` and `cell`")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let first: Option<String> = map.next_key()?;
            if first.as_deref() != Some("to_float") {
                let replay = Replay { first, map };
                return Ok((None, C::deserialize(MapAccessDeserializer::new(replay))?));
            }
            let to_float: DType = map.next_value()?;
            if !to_float.is_castable() {
                return Err(A::Error::custom(format!("to_float takes float32, float16 or bfloat16, got {to_float}")));
            }
            match map.next_key::<String>()?.as_deref() {
                Some("cell") => {}
                Some(other) => return Err(A::Error::unknown_field(other, &["cell"])),
                None => return Err(A::Error::missing_field("cell")),
            }
            let cell = map.next_value()?;
            match map.next_key::<String>()? {
                None => Ok((Some(to_float), cell)),
                Some(key) => Err(A::Error::unknown_field(&key, &["to_float", "cell"])),
            }
        }
    }

    deserializer.deserialize_map(SlotVisitor(std::marker::PhantomData))
}

/// A map whose first key has already been read.
struct Replay<A> {
    first: Option<String>,
    map: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Replay<A> {
    type Error = A::Error;

    fn next_key_seed<K: serde::de::DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        match self.first.take() {
            Some(key) => seed.deserialize(serde::de::value::StringDeserializer::new(key)).map(Some),
            None => self.map.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: serde::de::DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
