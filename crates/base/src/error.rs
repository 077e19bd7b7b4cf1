//! The single error type of the library. Its messages name the place, the value found, and the allowed values.

use std::{convert::Infallible, fmt};

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
    pub fn in_op(mut self, op: &'static str) -> Self {
        self.0.op.get_or_insert(op);
        self
    }

    /// Marks the error as one of the backward pass of an op, or of several.
    pub fn in_backward(self, op: Option<&'static str>) -> Self {
        match op {
            Some(op) => self.in_op(op).context("backward"),
            None => self,
        }
    }

    /// Names an op around the one that is already named; the op itself if none is.
    pub fn within(self, op: &'static str) -> Self {
        if self.0.op.is_some() { self.context(format_args!("in {op}")) } else { self.in_op(op) }
    }

    /// Notes the slot being run, unless an inner one is already noted.
    pub fn in_slot(mut self, slot: usize) -> Self {
        self.0.slot.get_or_insert(slot);
        self
    }

    /// Turns the noted slot into the path of its cell.
    pub fn resolve_cell(mut self, path_of: impl FnOnce(usize) -> Option<String>) -> Self {
        if let (Some(slot), None) = (self.0.slot, &self.0.cell) {
            self.0.cell = path_of(slot);
        }
        self
    }

    /// Notes the word of a file that the error is about, for its position.
    pub fn about(mut self, word: impl Into<String>) -> Self {
        self.0.word = Some(word.into());
        self
    }

    /// Returns the [noted](Error::about) word.
    pub fn word(&self) -> Option<&str> {
        self.0.word.as_deref()
    }

    /// Puts text before the message: `file: message`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_cell_and_op() {
        let error = Error::shape("2 columns meet 3 rows").in_op("MatMul").in_slot(7);
        let error = error.resolve_cell(|slot| (slot == 7).then(|| "head.fc".to_string()));
        assert_eq!(error.to_string(), "in cell `head.fc`: MatMul: 2 columns meet 3 rows");
    }
}
