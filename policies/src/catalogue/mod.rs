//! Catalogue of primitive ops, with their names in other systems.
//!
//! The catalogue defines what an op *is*. The precision it runs in is decided by lists, which are data
//! (`policies/packs/`).

mod custom;
mod foreign;
mod further;
mod op;
mod system;
mod table;

use std::{collections::HashSet, fmt, sync::LazyLock};

use precast_base::{
    Error, Result,
    names::{did_you_mean, nearest},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use custom::{Custom, Precision};
pub use foreign::Foreign;
pub(crate) use op::Mixing;
pub use op::{Family, Op};
pub use system::System;

impl Op {
    /// Returns the ops with a name: of this library (`Relu`), of MindSpore, Paddle, torch or TensorFlow (`ReLU`,
    /// `relu`), or of an explicit [system] (`paddle:mul`, `aten::mul`, `torch.mul`, `onnx::Conv`). An
    /// [open](System::is_open) system may have any op: `burn::float_cumsum`.
    ///
    /// [system]: System
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when no op has that name, with the nearest one and its system; and
    /// when the name denotes different ops in different systems, with the unambiguous names.
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

    /// Finds the ops with a name. Names of `speaker` are suggested first.
    fn find(name: &str, speaker: Option<System>) -> Result<Vec<Op>> {
        if let Some(op) = Op::by_own_name(name) {
            return Ok(vec![op]);
        }
        if let Some((system, name)) = System::of_prefix(name)? {
            return Op::in_system(system, name);
        }
        let mut hits: Vec<(System, Vec<Op>)> =
            System::listed().map(|system| (system, system.ops(name))).filter(|(_, ops)| !ops.is_empty()).collect();
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

    /// Returns the ops with a name, as found by [`named_in`](Op::named_in) or [`named`](Op::named), or none for an
    /// unknown name. This is cheap, whereas an error searches for the nearest name.
    pub(crate) fn known_as(name: &str, system: Option<System>) -> Vec<Op> {
        static NAMES: LazyLock<HashSet<&str>> = LazyLock::new(|| {
            let names = |op: &'static Op| System::ALL.iter().flat_map(|system| op.names(*system)).chain([op.name()]);
            Op::ALL.iter().flat_map(names).collect()
        });
        if let Some(system) = system.filter(|system| system.names_alone().contains(&name)) {
            return Op::met_in(system, name);
        }
        if !NAMES.contains(name) && !name.contains([':', '.']) {
            return Custom::named(name).map(Op::Custom).into_iter().collect();
        }
        let found = match (system, System::of_prefix(name)) {
            (_, Ok(Some((open, name)))) if open.is_open() => return Op::met_in(open, name),
            (Some(system), _) => Op::named_in(system, name),
            (None, _) => Op::named(name),
        };
        found.unwrap_or_default()
    }

    /// Returns the op that a system calls so: the first of the catalogue, or an interned foreign op.
    pub fn in_system_of(system: System, name: &str) -> Option<Op> {
        Op::met_in(system, name).first().copied()
    }

    /// Returns the ops that a system calls so: those of the catalogue, or an interned foreign op. It interns no name.
    fn met_in(system: System, name: &str) -> Vec<Op> {
        match system.ops(name) {
            ops if ops.is_empty() => {
                let known = Foreign::known(&format!("{}::{name}", system.name()));
                known.map(Op::Foreign).into_iter().collect()
            }
            ops => ops,
        }
    }

    /// Returns the op with a name in this library, of a registered `CustomOp`, or of an interned foreign op.
    pub fn by_own_name(name: &str) -> Option<Op> {
        let in_table = Op::ALL.iter().copied().find(|op| op.name() == name);
        let custom = || Custom::named(name).map(Op::Custom);
        in_table.or_else(custom).or_else(|| Foreign::known(name).map(Op::Foreign))
    }

    /// Returns the ops with a name in a system, falling back to [`named`](Op::named).
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
            ops if !ops.is_empty() => Ok(ops),
            _ if system.names_alone().contains(&name) => Op::in_system(system, name),
            _ => Op::find(name, Some(system)),
        }
    }

    /// Returns the ops with a name in a system, without a fallback.
    fn in_system(system: System, name: &str) -> Result<Vec<Op>> {
        match system.ops(name) {
            ops if ops.is_empty() && system.is_open() => Ok(vec![Op::Foreign(Foreign::of(system.name(), name)?)]),
            ops if ops.is_empty() => {
                let near = did_you_mean(name, Op::ALL.iter().flat_map(|op| op.names(system)));
                Err(Error::list(format!("no op of {system} is called `{name}`{near}")))
            }
            ops => Ok(ops),
        }
    }

    /// Returns a name that denotes only this op, as read in a system or, with `None`, by [`named`](Op::named).
    pub(crate) fn unambiguous_name(self, system: Option<System>) -> String {
        let means_this = |name: &str| {
            let ops = match system {
                Some(system) => Op::named_in(system, name),
                None => Op::named(name),
            };
            ops.is_ok_and(|ops| ops == [self])
        };
        let others = System::ALL.iter().flat_map(|system| self.names(*system));
        match std::iter::once(self.name()).chain(others).find(|name| means_this(name)) {
            Some(name) => name.into(),
            None => self.name().into(),
        }
    }
}

/// Returns the error for an unknown name. Among equally near names, that of `speaker` is suggested.
fn unknown(name: &str, speaker: Option<System>) -> Error {
    let own = Op::ALL.iter().map(|op| (op.name(), None, None));
    let custom = Custom::names().into_iter().map(|name| (name, None, None));
    let theirs = System::listed().chain(speaker.filter(|system| system.is_open())).flat_map(|system| {
        Op::ALL.iter().flat_map(move |op| op.names(system).map(move |name| (name, Some(system), Some(*op))))
    });
    let alone =
        speaker.into_iter().flat_map(|system| system.names_alone().iter().map(move |name| (*name, Some(system), None)));
    let mut all: Vec<(&str, Option<System>, Option<Op>)> = own.chain(custom).chain(theirs).chain(alone).collect();
    all.sort_by_key(|(_, system, _)| speaker.is_some() && *system != speaker);
    let near = match nearest(name, &all, |(known, ..)| *known) {
        Some((known, Some(system), Some(op))) => format!(" (did you mean `{known}`, as {system} calls {op}?)"),
        Some((known, ..)) => format!(" (did you mean `{known}`?)"),
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
    /// Deserializes an op from its name in this library. A `CustomOp` must be registered first.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let unknown = || format!("no op is called `{name}`; a custom op is known once it is registered");
        let foreign = || {
            let (library, own) = name.split_once("::")?;
            Foreign::of(library, own).ok().map(Op::Foreign)
        };
        Op::by_own_name(&name).or_else(foreign).ok_or_else(|| serde::de::Error::custom(unknown()))
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
            for &system in System::ALL {
                let name = op.unambiguous_name(Some(system));
                assert_eq!(Op::named_in(system, &name).unwrap(), [*op], "{system} {name}");
            }
        }
    }

    #[test]
    fn no_row_names_an_op_twice_in_one_system() {
        for op in Op::ALL {
            for &system in System::ALL {
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
