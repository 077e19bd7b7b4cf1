//! The catalogue of primitive operations, and the names each has in other systems.
//!
//! The catalogue says what an op *is*. Which precision it runs in is decided by lists, and those are data (`policies/packs/`).

mod custom;
mod op;
mod table;

use std::{collections::HashSet, fmt, str::FromStr, sync::LazyLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use custom::{Custom, Precision};
pub use op::Op;
#[doc(hidden)]
pub use op::{Family, Mixing};

use crate::error::{Error, Result, by_name, did_you_mean, nearest};

/// A system whose names of ops the catalogue knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum System {
    /// MindSpore's primitives: `Conv2D`.
    #[serde(rename = "mindspore")]
    MindSpore,
    /// Paddle's ops under the names its lists use: `elementwise_add`.
    #[serde(rename = "paddle")]
    Paddle,
    /// torch's `aten` ops: `conv2d`, also written `aten::conv2d` or with an overload, `conv2d.padding`.
    #[serde(rename = "torch")]
    Torch,
    /// TensorFlow's graph ops: `Conv2D`.
    #[serde(rename = "tensorflow")]
    TensorFlow,
}

impl System {
    /// All systems, in the order of the catalogue's columns.
    pub const ALL: [System; 4] = [System::MindSpore, System::Paddle, System::Torch, System::TensorFlow];

    /// The name as in files: `torch`.
    pub fn name(self) -> &'static str {
        match self {
            System::MindSpore => "mindspore",
            System::Paddle => "paddle",
            System::Torch => "torch",
            System::TensorFlow => "tensorflow",
        }
    }

    /// The system that a name is said to be of, and the rest of it: `paddle:mul`, `aten::mul`, `torch.mul`.
    fn of_prefix(name: &str) -> Result<Option<(System, &str)>> {
        let alias = |prefix: &str| match prefix {
            "aten" => Some(System::Torch),
            "tf" => Some(System::TensorFlow),
            prefix => System::ALL.into_iter().find(|system| system.name() == prefix),
        };
        if let Some((prefix, rest)) = name.split_once(':') {
            let system = alias(prefix).map_or_else(|| prefix.parse(), Ok)?;
            return Ok(Some((system, rest.trim_start_matches(':'))));
        }
        // Of a dot in a name only a system's own is a prefix: `conv2d.padding` has an overload.
        Ok(name.split_once('.').and_then(|(prefix, rest)| Some((alias(prefix)?, rest))))
    }

    /// A name of this system without what may stand around it.
    fn bare(self, name: &str) -> &str {
        if self != System::Torch {
            return name;
        }
        let name = name.strip_prefix("aten::").unwrap_or(name);
        name.split_once('.').map_or(name, |(name, _overload)| name)
    }

    fn ops(self, name: &str) -> Vec<Op> {
        let name = self.bare(name);
        Op::ALL.iter().copied().filter(|op| op.names(self).any(|known| known == name)).collect()
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for System {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        by_name(text, System::ALL, System::name, "no system is called").map_err(Error::list)
    }
}

impl Op {
    /// The ops of a name: of this library (`Relu`), of one of the four systems (`ReLU`, `relu`), or of one of them said
    /// outright (`paddle:mul`, `aten::mul`, `torch.mul`).
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when no op has that name, with the nearest one and whose it is; and when
    /// the name means different ops in different systems, with the ways to say which.
    ///
    /// ```
    /// use precast_policy::Op;
    /// assert_eq!(Op::named("Relu")?, [Op::Relu]);
    /// assert_eq!(Op::named("ReLU")?, [Op::Relu]);
    /// assert_eq!(Op::named("elementwise_add")?, [Op::Add]);
    /// assert_eq!(Op::named("aten::softmax.int")?, [Op::Softmax]);
    /// let error = Op::named("elementwise_ad").unwrap_err().to_string();
    /// assert_eq!(error, "no op is called `elementwise_ad` (did you mean `elementwise_add`, as paddle calls Add?)");
    /// # Ok::<(), precast_policy::Error>(())
    /// ```
    pub fn named(name: &str) -> Result<Vec<Op>> {
        Op::find(name, None)
    }

    /// `speaker` is whose names are suggested first.
    fn find(name: &str, speaker: Option<System>) -> Result<Vec<Op>> {
        if let Some((system, name)) = System::of_prefix(name)? {
            return Op::in_system(system, name);
        }
        if let Some(op) = Op::by_own_name(name) {
            return Ok(vec![op]);
        }
        let mut hits: Vec<(System, Vec<Op>)> = System::ALL
            .into_iter()
            .map(|system| (system, system.ops(name)))
            .filter(|(_, ops)| !ops.is_empty())
            .collect();
        let Some((_, ops)) = hits.first().cloned() else { return Err(unknown(name, speaker)) };
        if hits.iter().any(|(_, others)| !others.iter().any(|op| ops.contains(op))) {
            hits.dedup_by(|a, b| a.1 == b.1);
            let list = |ops: &[Op]| ops.iter().map(|op| op.name()).collect::<Vec<_>>().join(", ");
            let meanings: Vec<String> =
                hits.iter().map(|(system, ops)| format!("`{system}:{name}` is {}", list(ops))).collect();
            return Err(Error::list(format!("`{name}` is not one op in all systems: {}", meanings.join(", "))));
        }
        let mut all: Vec<Op> = hits.into_iter().flat_map(|(_, ops)| ops).collect();
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// The ops that a name means, as [`named_in`](Op::named_in) or [`named`](Op::named) finds them; none for a name that
    /// nobody knows. That takes no time, where an error would look for the nearest name.
    #[doc(hidden)]
    pub fn known_as(name: &str, system: Option<System>) -> Vec<Op> {
        static NAMES: LazyLock<HashSet<&str>> = LazyLock::new(|| {
            let names =
                |op: &'static Op| System::ALL.into_iter().flat_map(|system| op.names(system)).chain([op.name()]);
            Op::ALL.iter().flat_map(names).collect()
        });
        if !NAMES.contains(name) && !name.contains([':', '.']) {
            return Custom::named(name).map(Op::Custom).into_iter().collect();
        }
        let found = match system {
            Some(system) => Op::named_in(system, name),
            None => Op::named(name),
        };
        found.unwrap_or_default()
    }

    /// The op that this library, or a `CustomOp`, calls so.
    #[doc(hidden)]
    pub fn by_own_name(name: &str) -> Option<Op> {
        let in_table = Op::ALL.iter().copied().find(|op| op.name() == name);
        in_table.or_else(|| Custom::named(name).map(Op::Custom))
    }

    /// The ops that a name means to somebody who speaks the names of `system`: its own name first, else as
    /// [`named`](Op::named).
    ///
    /// # Errors
    /// As [`named`](Op::named).
    ///
    /// ```
    /// use precast_policy::{Op, catalogue::System};
    /// assert_eq!(Op::named_in(System::Paddle, "mul")?, [Op::MatMul]); // the old name of a matrix product
    /// assert_eq!(Op::named_in(System::Torch, "mul")?, [Op::Mul]);
    /// assert_eq!(Op::named_in(System::Torch, "Mul")?, [Op::Mul]);
    /// # Ok::<(), precast_policy::Error>(())
    /// ```
    pub fn named_in(system: System, name: &str) -> Result<Vec<Op>> {
        match system.ops(name) {
            ops if ops.is_empty() => Op::find(name, Some(system)),
            ops => Ok(ops),
        }
    }

    /// The ops that a system calls so.
    fn in_system(system: System, name: &str) -> Result<Vec<Op>> {
        match system.ops(name) {
            ops if ops.is_empty() => {
                let near = did_you_mean(name, Op::ALL.iter().flat_map(|op| op.names(system)));
                Err(Error::list(format!("no op of {system} is called `{name}`{near}")))
            }
            ops => Ok(ops),
        }
    }

    /// A name that means this op alone, whoever reads it.
    #[doc(hidden)]
    pub fn unambiguous_name(self, system: Option<System>) -> String {
        let means_this = |name: &str| {
            let ops = match system {
                Some(system) => Op::named_in(system, name),
                None => Op::named(name),
            };
            ops.is_ok_and(|ops| ops == [self])
        };
        let others = System::ALL.into_iter().flat_map(|system| self.names(system));
        match std::iter::once(self.name()).chain(others).find(|name| means_this(name)) {
            Some(name) => name.into(),
            None => self.name().into(),
        }
    }
}

/// The error for a name that nobody knows. Of names that are equally near, the speaker's own is suggested.
fn unknown(name: &str, speaker: Option<System>) -> Error {
    let own = Op::ALL.iter().map(|op| (op.name(), None, *op));
    let custom = Custom::names().into_iter().filter_map(|name| Some((name, None, Op::Custom(Custom::named(name)?))));
    let theirs = System::ALL.into_iter().flat_map(|system| {
        Op::ALL.iter().flat_map(move |op| op.names(system).map(move |name| (name, Some(system), *op)))
    });
    let mut all: Vec<(&str, Option<System>, Op)> = own.chain(custom).chain(theirs).collect();
    all.sort_by_key(|(_, system, _)| speaker.is_some() && *system != speaker);
    let near = match nearest(name, &all, |(known, ..)| *known) {
        Some((known, Some(system), op)) => format!(" (did you mean `{known}`, as {system} calls {op}?)"),
        Some((known, None, _)) => format!(" (did you mean `{known}`?)"),
        None => "; a custom op is known once it is registered".into(),
    };
    Error::list(format!("no op is called `{name}`{near}"))
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Op {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Op {
    /// By the name in this library; a `CustomOp` must be registered before.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let unknown = || format!("no op is called `{name}`; a custom op is known once it is registered");
        Op::by_own_name(&name).ok_or_else(|| serde::de::Error::custom(unknown()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "so many names take Miri an hour")]
    fn every_op_can_be_named_alone() {
        for op in Op::ALL {
            assert_eq!(Op::named(&op.unambiguous_name(None)).unwrap(), [*op]);
            for system in System::ALL {
                let name = op.unambiguous_name(Some(system));
                assert_eq!(Op::named_in(system, &name).unwrap(), [*op], "{system} {name}");
            }
        }
    }

    #[test]
    fn no_row_names_an_op_twice_in_one_system() {
        for op in Op::ALL {
            for system in System::ALL {
                let names: Vec<&str> = op.names(system).collect();
                let mut unique = names.clone();
                unique.sort_unstable();
                unique.dedup();
                assert_eq!(unique.len(), names.len(), "{op} in {system}");
            }
        }
    }

    #[test]
    fn a_name_of_two_minds_is_told_so() {
        let message = Op::named("mul").unwrap_err().to_string();
        assert_eq!(message, "`mul` is not one op in all systems: `paddle:mul` is MatMul, `torch:mul` is Mul");
        assert_eq!(Op::named("torch:mul").unwrap(), [Op::Mul]);
        assert!(Op::named("troch:mul").unwrap_err().to_string().contains("did you mean `torch`"));
        let message = Op::named("torch:mull").unwrap_err().to_string();
        assert!(message.starts_with("no op of torch is called `mull` (did you mean `mul`?)"), "{message}");
        for (name, words) in [
            ("aten::softmx", "no op of torch is called `softmx` (did you mean `softmax`?)"),
            ("tf:Conv2d", "no op of tensorflow is called `Conv2d` (did you mean `Conv2D`?)"),
            ("paddle::conv2", "no op of paddle is called `conv2` (did you mean `conv2d`?)"),
        ] {
            assert_eq!(Op::named(name).unwrap_err().to_string(), words);
        }
        assert_eq!(Op::named("torch.matmul").unwrap(), Op::named("torch:matmul").unwrap());
        let message = Op::named_in(System::Paddle, "softmaxx").unwrap_err().to_string();
        assert!(message.ends_with("(did you mean `softmax`, as paddle calls Softmax?)"), "{message}");
    }
}
