//! The dtype in which gradients travel between the ranks of a run.

use precast::options::{Range, Takes};
use precast_mpi::Wire;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Value, json};

/// A [`Wire`], as it is written in a run file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written(pub Wire);

impl Serialize for Written {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Written).map_err(de::Error::custom)
    }
}

impl Takes for Written {
    fn takes(_: &Range) -> String {
        names().join(", ")
    }

    fn schema(_: &Range) -> Value {
        json!({"enum": names()})
    }
}

fn names() -> Vec<&'static str> {
    Wire::ALL.iter().map(|wire| wire.name()).collect()
}

impl From<Wire> for Written {
    fn from(wire: Wire) -> Self {
        Written(wire)
    }
}

impl From<Written> for Wire {
    fn from(Written(wire): Written) -> Self {
        wire
    }
}
