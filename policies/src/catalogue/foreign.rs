//! Ops of other libraries, known only by name.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{PoisonError, RwLock},
};

use precast_base::{Error, Result, printable::printable};

use super::{Op, System};

/// Op of another library, named by the library and the op: `burn::float_cumsum`. Two are equal if their names are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Foreign(&'static str);

/// Maximum length of a name.
const LONGEST: usize = 200;

/// Maximum number of names. Files may hold any, so a program that reads the files of others must not keep all of them: these
/// take 13 MiB at most.
const MOST: usize = 1 << 16;

/// Interned names. They live as long as the program, so that an [`Op`] is a small value.
static NAMES: Names = Names(RwLock::new(BTreeSet::new()));

struct Names(RwLock<BTreeSet<&'static str>>);

impl Names {
    fn known(&self, name: &str) -> Option<&'static str> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    /// Returns a name, interned; `None` for a new one after the `most` that may be.
    fn intern(&self, name: String, most: usize) -> Option<&'static str> {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.get(name.as_str()) {
            return Some(known);
        }
        if names.len() >= most {
            return None;
        }
        let kept: &'static str = Box::leak(name.into_boxed_str());
        names.insert(kept);
        Some(kept)
    }
}

impl Foreign {
    /// Returns the qualified name, such as `burn::float_cumsum`.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Returns the name of the library and the name of the op in it.
    pub fn parts(self) -> (&'static str, &'static str) {
        self.0.split_once("::").unwrap_or(("", self.0))
    }

    /// Returns the op with a qualified name, if it is interned.
    pub(super) fn known(name: &str) -> Option<Foreign> {
        NAMES.known(name).map(Foreign)
    }

    /// Returns the op with a name in a library, interning the name.
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
        let interned = NAMES.intern(whole, MOST);
        interned.map(Foreign).ok_or_else(|| {
            Error::list(format!(
                "`{library}::{name}` is one foreign op too many: {MOST} others have been named since the program started, \
                 which is the most that it keeps"
            ))
        })
    }
}

impl Op {
    /// Returns the op of a library unknown to precast, named by the library and the op: `mylib::fused_gate`. Lists
    /// treat it like any other op, but precast cannot run it. Files can name the op once it has been created in code.
    ///
    /// For names of known [systems](System), use [`Op::named`].
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) for a name that lacks `::`, has blanks, is too long, or belongs to a
    /// known system; and for the 65,537th name of a foreign op that the program meets, in code or in files.
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
        // A bare name belongs to one of the four systems, or is a typo.
        assert!(Op::named("ReduceLogSumExp").is_err() && Op::named("Scan").is_err());
        // In lists of ONNX's names, its ops need no prefix.
        assert_eq!(Op::named_in(System::Onnx, "Scan").unwrap(), [op]);
        for (name, words) in [
            ("GlobalAvergePool", "no op is called `GlobalAvergePool` (did you mean `GlobalAveragePool`?)"),
            ("Gemmm", "no op is called `Gemmm` (did you mean `Gemm`, as onnx calls Addmm?)"),
        ] {
            assert_eq!(Op::named_in(System::Onnx, name).unwrap_err().to_string(), words);
        }
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

    /// Graph files may hold any name, so a mere lookup must not intern it.
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

    /// Policies from strangers, each with names of its own: the table stays as large as it may be, and what it knows can
    /// still be named.
    #[test]
    fn names_are_kept_up_to_a_limit() {
        let names = Names(RwLock::default());
        for policy in 0..50 {
            for op in 0..4 {
                let name = format!("burn::policy_{policy}_op_{op}");
                let interned = names.intern(name.clone(), 10);
                assert_eq!(interned.is_some(), policy * 4 + op < 10, "{name}");
                assert_eq!(interned, names.known(&name));
            }
        }
        assert_eq!(names.0.read().unwrap().len(), 10);
        assert_eq!(names.intern("burn::policy_2_op_1".into(), 10), Some("burn::policy_2_op_1"));
        const { assert!(MOST * LONGEST <= 13 << 20) };
    }
}
