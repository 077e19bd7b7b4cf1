//! Ops of other libraries, known by name alone.

use std::{collections::BTreeSet, fmt, sync::RwLock};

use super::{Op, System};
use crate::{
    error::{Error, Result},
    printable::printable,
};

/// An op of another library, by the library's name and its own: `burn::float_cumsum`. Two are equal when they have the same
/// name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Foreign(&'static str);

/// The longest name.
const LONGEST: usize = 200;

/// Every name that was met. One stays for the life of the program, so that an [`Op`] is a small value.
static NAMES: RwLock<BTreeSet<&'static str>> = RwLock::new(BTreeSet::new());

impl Foreign {
    /// Both names: `burn::float_cumsum`.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// The name of the library, and that of the op in it.
    pub fn parts(self) -> (&'static str, &'static str) {
        self.0.split_once("::").unwrap_or(("", self.0))
    }

    /// The op of a whole name that was met before.
    pub(super) fn known(name: &str) -> Option<Foreign> {
        NAMES.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(name).copied().map(Foreign)
    }

    /// The op of a name in a library.
    pub(super) fn of(library: &str, name: &str) -> Result<Foreign> {
        let whole = format!("{library}::{name}");
        let identifier = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let good = !library.is_empty() && library.chars().all(identifier) && !name.is_empty();
        if !good || !name.chars().all(|c| c.is_ascii_graphic() && c != '`') || whole.len() > LONGEST {
            return Err(Error::list(format!(
                "`{}` cannot be the name of a foreign op; allowed: the name of a library of letters, digits and `_`, `::`, and \
                 the name of the op without blanks, at most {LONGEST} characters",
                printable(&whole)
            )));
        }
        if let Some(known) = Foreign::known(&whole) {
            return Ok(known);
        }
        let mut names = NAMES.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Another thread may have come first.
        if let Some(known) = names.get(whole.as_str()) {
            return Ok(Foreign(known));
        }
        let kept: &'static str = Box::leak(whole.into_boxed_str());
        names.insert(kept);
        Ok(Foreign(kept))
    }
}

impl Op {
    /// The op of a library that precast does not know, by the library's name and its own: `mylib::fused_gate`. Lists treat it
    /// as any other op; nothing here can run it. Once it was made in code, files can name it, too.
    ///
    /// Names of [systems](System) that precast knows are read by [`Op::named`].
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) for a name without `::`, with blanks or too long, and for one of a system
    /// that precast knows.
    ///
    /// ```
    /// use precast_policy::Op;
    /// let op = Op::foreign("mylib::fused_gate")?;
    /// assert_eq!(Op::named("mylib::fused_gate")?, [op]);
    /// assert!(!op.has_kernel());
    /// assert!(Op::named("mylib::fused_gait").is_err());
    /// # Ok::<(), precast_policy::Error>(())
    /// ```
    pub fn foreign(name: &str) -> Result<Op> {
        let (library, own) = name.split_once("::").unwrap_or(("", name));
        match library.parse::<System>() {
            Ok(system) => Err(Error::list(format!(
                "{system} is a system that is known here; `Op::named` finds `{}`",
                printable(name)
            ))),
            Err(_) => Foreign::of(library, own).map(Op::Foreign),
        }
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_open_systems_are_taken_and_typos_are_not() {
        let op = Op::named("onnx:Scan").unwrap()[0];
        assert_eq!((op.name(), Op::named("onnx::Scan").unwrap()), ("onnx::Scan", vec![op]));
        assert_eq!(op.names(System::Onnx).collect::<Vec<_>>(), ["Scan"]);
        assert_eq!(op.names(System::Burn).count(), 0);
        assert_eq!(Op::named("onnx::Relu").unwrap(), [Op::Relu]);
        assert_eq!(Op::named_in(System::Onnx, "Conv").unwrap(), [Op::Conv1d, Op::Conv2d, Op::Conv3d]);
        // A bare name is one of the four systems, or a slip.
        assert!(Op::named("ReduceLogSumExp").is_err() && Op::named("Scan").is_err());
        for (name, words) in [
            ("brun::matmul", "no system is called `brun` (did you mean `burn`?)"),
            ("torch::mull", "no op of torch is called `mull` (did you mean `mul`?)"),
            ("burn::", "`burn::` cannot be the name of a foreign op"),
            ("burn::a b", "`burn::a b` cannot be the name of a foreign op"),
            (&format!("burn::{}", "a".repeat(LONGEST)), "`burn::aaa"),
        ] {
            let message = Op::named(name).unwrap_err().to_string();
            assert!(message.starts_with(words), "{message}");
        }
        for name in ["matmul", "::matmul", "my lib::matmul", "torch::mul", "burn::matmul"] {
            assert!(Op::foreign(name).is_err(), "{name}");
        }
    }

    /// A graph file may hold any name; what only looks a name up keeps none.
    #[test]
    fn a_look_up_keeps_no_name() {
        assert!(Op::known_as("onnx::NeverMet", None).is_empty());
        assert_eq!(Foreign::known("onnx::NeverMet"), None);
        assert_eq!(Op::known_as("onnx::Relu", None), [Op::Relu]);
        assert_eq!(Op::known_as("Relu", Some(System::Onnx)), [Op::Relu]);
    }

    #[test]
    fn foreign_ops_come_back_from_files() {
        let text = "\"burn::met_in_a_file\"";
        let op: Op = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&op).unwrap(), text);
    }
}
