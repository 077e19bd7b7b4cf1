//! The single error type of the library. Its messages name the place, the value found, and the allowed values.

use std::{collections::HashSet, convert::Infallible, fmt};

use crate::printable::{printable, printable_lines};

/// `std::result::Result` with [`Error`] as the default error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error, for code to branch on; the message is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Shapes, axes, strides or sizes that do not fit together.
    Shape,
    /// A dtype that is not allowed here, or two that may not be mixed.
    DType,
    /// A number outside its range, such as a negative probability.
    Value,
    /// A level that does not exist.
    Level,
    /// A list of cells or ops that is missing, duplicated or wrong.
    List,
    /// A path or kind that is not in the network.
    Path,
    /// A policy file that cannot be read or does not make sense.
    Policy,
    /// An applied plan that contradicts the network, or a run of it.
    Plan,
    /// An architecture file that cannot be read.
    Model,
    /// A weights file that does not fit the network.
    Weights,
    /// A training run that cannot start or continue, because of its file or its folder.
    Run,
    /// Data that cannot be read.
    Data,
    /// An error of one rank of a job, which all have, or ranks that do not answer or differ.
    Ranks,
    /// An error of the operating system.
    Io,
    /// Something that exists in the catalogue but has no implementation.
    Unsupported,
    /// A gradient that does not reach an input that it should reach.
    Gradient,
}

/// An error: a kind for code, and a message for people that names the op and the path of the cell, if any.
#[derive(Clone, PartialEq)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug, PartialEq)]
struct Inner {
    kind: ErrorKind,
    message: String,
    op: Option<&'static str>,
    /// Address of the slot in which the error occurred, until the root call turns it into a path.
    slot: Option<usize>,
    cell: Option<String>,
    /// Word of a file that the error is about.
    word: Option<String>,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $kind:ident;)*) => { $(
        $(#[$doc])*
        pub fn $name(message: impl Into<String>) -> Self { Error::new(ErrorKind::$kind, message) }
    )* };
}

impl Error {
    /// Creates an error of a kind with a message. The message gives what was found and what is allowed, without a full
    /// stop. It may quote a file: control characters in it are escaped, except for line ends.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = printable_lines(&message.into()).into_owned();
        Error(Box::new(Inner { kind, message, op: None, slot: None, cell: None, word: None }))
    }

    constructors! {
        /// See [`ErrorKind::Shape`].
        shape => Shape;
        /// See [`ErrorKind::DType`].
        dtype => DType;
        /// See [`ErrorKind::Value`].
        value => Value;
        /// See [`ErrorKind::Level`].
        level => Level;
        /// See [`ErrorKind::List`].
        list => List;
        /// See [`ErrorKind::Path`].
        path => Path;
        /// See [`ErrorKind::Policy`].
        policy => Policy;
        /// See [`ErrorKind::Plan`].
        plan => Plan;
        /// See [`ErrorKind::Model`].
        model => Model;
        /// See [`ErrorKind::Weights`].
        weights => Weights;
        /// See [`ErrorKind::Run`].
        run => Run;
        /// See [`ErrorKind::Data`].
        data => Data;
        /// See [`ErrorKind::Ranks`].
        ranks => Ranks;
        /// See [`ErrorKind::Unsupported`].
        unsupported => Unsupported;
        /// See [`ErrorKind::Gradient`].
        gradient => Gradient;
    }

    /// Creates an error of the operating system about a file.
    pub fn io(file: &std::path::Path, error: &std::io::Error) -> Self {
        Error::io_with(file, error, "")
    }

    /// As [`io`](Error::io), with more text after the message.
    #[doc(hidden)]
    pub fn io_with(file: &std::path::Path, error: &std::io::Error, more: &str) -> Self {
        Error::new(ErrorKind::Io, format!("{}: {error}{more}", printable(&file.display().to_string())))
    }

    /// Returns the kind of the error, for code.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the op in which the error occurred, if any.
    pub fn op(&self) -> Option<&'static str> {
        self.0.op
    }

    /// Returns the path of the cell in which the error occurred, if any; the root's path is the empty string.
    pub fn cell(&self) -> Option<&str> {
        self.0.cell.as_deref()
    }

    /// Names the op, unless an inner one is already named.
    #[doc(hidden)]
    pub fn in_op(mut self, op: &'static str) -> Self {
        self.0.op.get_or_insert(op);
        self
    }

    /// Marks the error as one of the backward pass of an op, or of several.
    #[doc(hidden)]
    pub fn in_backward(self, op: Option<&'static str>) -> Self {
        match op {
            Some(op) => self.in_op(op).context("backward"),
            None => self,
        }
    }

    /// Names an op around the one that is already named; the op itself if none is.
    #[doc(hidden)]
    pub fn within(self, op: &'static str) -> Self {
        if self.0.op.is_some() { self.context(format_args!("in {op}")) } else { self.in_op(op) }
    }

    /// Notes the slot being run, unless an inner one is already noted.
    #[doc(hidden)]
    pub fn in_slot(mut self, slot: usize) -> Self {
        self.0.slot.get_or_insert(slot);
        self
    }

    /// Turns the noted slot into the path of its cell.
    #[doc(hidden)]
    pub fn resolve_cell(mut self, path_of: impl FnOnce(usize) -> Option<String>) -> Self {
        if let (Some(slot), None) = (self.0.slot, &self.0.cell) {
            self.0.cell = path_of(slot);
        }
        self
    }

    /// Notes the word of a file that the error is about, for its position.
    #[doc(hidden)]
    pub fn about(mut self, word: impl Into<String>) -> Self {
        self.0.word = Some(word.into());
        self
    }

    /// Returns the [noted](Error::about) word.
    #[doc(hidden)]
    pub fn word(&self) -> Option<&str> {
        self.0.word.as_deref()
    }

    /// Puts text before the message: `file: message`.
    #[doc(hidden)]
    pub fn context(mut self, words: impl fmt::Display) -> Self {
        self.0.message = format!("{}: {}", printable(&words.to_string()), self.0.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cell() {
            Some("") => write!(f, "in the root cell: ")?,
            Some(path) => write!(f, "in cell `{path}`: ")?,
            None => {}
        }
        if let Some(op) = self.0.op {
            write!(f, "{op}: ")?;
        }
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    /// As `Display`, so that `unwrap` and `main` print a readable message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {}

impl From<Infallible> for Error {
    /// Lets functions accept either a value or its name, for instance a level.
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Returns ` (did you mean ...?)` with the nearest of the allowed names, or nothing when none is near.
#[doc(hidden)]
pub fn did_you_mean<'a>(met: &str, allowed: impl IntoIterator<Item = &'a str>) -> String {
    let allowed: Vec<&str> = allowed.into_iter().collect();
    nearest(met, &allowed, |name| name).map_or(String::new(), |name| format!(" (did you mean `{name}`?)"))
}

/// As [`did_you_mean`]; when none is near, returns ` (there are ...)` with some of the allowed names.
#[doc(hidden)]
pub fn did_you_mean_or_some<'a>(met: &str, allowed: impl IntoIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 6;
    let mut met_before = HashSet::new();
    let names: Vec<&str> = allowed.into_iter().filter(|name| !name.is_empty() && met_before.insert(*name)).collect();
    let near = did_you_mean(met, names.iter().copied());
    if !near.is_empty() || names.is_empty() {
        return near;
    }
    let some: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let more = match names.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!(" (there are {}{more})", some.join(", "))
}

/// Words that other systems and people use, in small letters, with names here that mean the same. The first allowed one
/// is suggested, before any name of a similar spelling.
const SYNONYMS: &[(&str, &[&str])] = &[
    ("adamw_torch", &["adamw"]),
    ("bce", &["bce_with_logits"]),
    ("bcewithlogitsloss", &["bce_with_logits"]),
    ("bf16", &["o2-bf16", "low"]),
    ("bfloat16", &["o2-bf16", "low"]),
    ("binary_crossentropy", &["bce_with_logits"]),
    ("categorical_crossentropy", &["cross_entropy"]),
    ("ce", &["cross_entropy"]),
    ("classification", &["classes"]),
    ("color", &["rgb"]),
    ("cosine_annealing", &["cosine"]),
    ("cosineannealinglr", &["cosine"]),
    ("cosineannealingwarmrestarts", &["restarts"]),
    ("f16", &["o2", "low"]),
    ("float16", &["o2", "low"]),
    ("fp16", &["o2", "low"]),
    ("fp32", &["o0", "float32"]),
    ("gray", &["grey"]),
    ("grayscale", &["grey"]),
    ("half", &["o2", "low"]),
    ("l", &["grey"]),
    ("l2", &["mse"]),
    ("mae", &["l1", "L1Loss"]),
    ("mean_absolute_error", &["l1"]),
    ("mean_squared_error", &["mse"]),
    ("nll", &["cross_entropy"]),
    ("onecyclelr", &["one-cycle"]),
    ("reducelronplateau", &["plateau"]),
    ("regression", &["numbers"]),
    ("smooth_l1", &["huber"]),
    ("sparse_categorical_crossentropy", &["cross_entropy"]),
    ("steplr", &["step"]),
    ("swish", &["SiLU"]),
];

/// Returns the item whose name means the same as `met`, is nearest to it or begins with it, the first of several; `None`
/// when none is near.
#[doc(hidden)]
pub fn nearest<'a, T>(met: &str, all: &'a [T], name: impl Fn(&'a T) -> &'a str) -> Option<&'a T> {
    let met_lower = met.to_lowercase();
    let same = SYNONYMS.iter().find(|(word, _)| *word == met_lower).map_or(&[][..], |(_, same)| same);
    if let Some(one) = same.iter().find_map(|same| all.iter().find(|one| name(one) == *same)) {
        return Some(one);
    }
    // With two letters, one different letter already makes another name.
    let limit = |name: &str| name.len().max(met.len()) / 3;
    let beginning =
        || (met.len() >= 3).then(|| all.iter().find(|one| name(one).to_lowercase().starts_with(&met_lower)));
    all.iter()
        .map(|one| (one, name(one)))
        // The distance is at least the difference in length; without this check a very long name would take seconds.
        .filter(|(_, name)| name.len().abs_diff(met.len()) <= limit(name))
        .map(|(one, name)| (strsim::damerau_levenshtein(&met_lower, &name.to_lowercase()), one, name))
        .filter(|(distance, _, name)| *distance <= limit(name))
        .min_by_key(|(distance, ..)| *distance)
        .map(|(_, one, _)| one)
        .or_else(|| beginning()?)
}

/// Returns the item named `text`; otherwise an error with `unknown` (`unknown level`), the name found, the nearest name
/// and the allowed ones.
#[doc(hidden)]
pub fn by_name<T: Copy, const N: usize>(
    text: &str,
    all: [T; N],
    name: fn(T) -> &'static str,
    unknown: &str,
) -> Result<T, String> {
    all.into_iter().find(|one| name(*one) == text).ok_or_else(|| {
        let names = all.map(name);
        format!("{unknown} `{text}`{}; allowed: {}", did_you_mean(text, names), names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_are_near_or_absent() {
        let names = ["BatchNorm1d", "BatchNorm2d", "Dense"];
        assert_eq!(did_you_mean("dence", names), " (did you mean `Dense`?)");
        assert_eq!(did_you_mean("Softmax", names), "");
    }

    #[test]
    fn a_word_of_another_system_suggests_the_name_that_means_the_same() {
        for (met, names, meant) in [
            ("mae", &["mse", "l1", "huber"][..], "l1"),
            ("float16", &["float32", "masters", "low"], "low"),
            ("Swish", &["HSwish", "SiLU"], "SiLU"),
            ("BF16", &["o2", "o2-bf16"], "o2-bf16"),
        ] {
            assert_eq!(did_you_mean(met, names.iter().copied()), format!(" (did you mean `{meant}`?)"));
        }
        // A synonym that is not allowed suggests nothing.
        assert_eq!(did_you_mean("mae", ["cross_entropy"]), "");
    }

    #[test]
    fn message_names_cell_and_op() {
        let error = Error::shape("2 columns meet 3 rows").in_op("MatMul").in_slot(7);
        let error = error.resolve_cell(|slot| (slot == 7).then(|| "head.fc".to_string()));
        assert_eq!(error.to_string(), "in cell `head.fc`: MatMul: 2 columns meet 3 rows");
    }
}
