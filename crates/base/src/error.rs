//! The single error type of the packages, as data for code and in words for people.

use std::{convert::Infallible, fmt, iter, mem};

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

/// An error: a kind, a place and a chain of causes for code, and a message for people.
///
/// `Display` prints all of it: the cell and the op, and then, for each link of the chain from the outside to the root
/// cause, the location and the message. [`source`](std::error::Error::source) is the rest of the chain, which a report
/// of an error and all its sources therefore repeats.
///
/// ```
/// use precast_base::Error;
///
/// let error = Error::weights("no tensor `head`").in_file("net.safetensors").context("the best weights");
/// assert_eq!(error.to_string(), "the best weights: net.safetensors: no tensor `head`");
/// assert_eq!(error.location().unwrap().file, "net.safetensors");
/// assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "net.safetensors: no tensor `head`");
/// ```
#[derive(Clone, PartialEq)]
pub struct Error(Box<Inner>);

/// A file or a folder, and the position in it, if one is known. Lines and columns are counted from 1; a column counts
/// characters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location {
    /// Its path or name.
    pub file: String,
    /// Number of the line.
    pub line: Option<usize>,
    /// Number of the character in the line.
    pub column: Option<usize>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.file))?;
        [self.line, self.column].iter().flatten().try_for_each(|number| write!(f, ":{number}"))
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Inner {
    kind: ErrorKind,
    /// The mistake, with what was met and what is allowed; of a context, its words.
    message: String,
    location: Option<Location>,
    /// The line of the location, with a mark under the column.
    excerpt: Option<String>,
    cause: Option<Error>,
    head: Head,
}

/// Facts about a whole chain, kept in its outermost link.
#[derive(Clone, Debug, Default, PartialEq)]
struct Head {
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
        let head = Head::default();
        Error(Box::new(Inner { kind, message, location: None, excerpt: None, cause: None, head }))
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
        Error::new(ErrorKind::Io, format!("{error}{more}")).in_file(file.display())
    }

    /// Returns the kind of the error, for code.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the location of the root cause, or of the innermost link of the chain that has one.
    pub fn location(&self) -> Option<&Location> {
        self.chain().filter_map(|link| link.0.location.as_ref()).last()
    }

    /// Iterates over the chain: this error, its cause, the cause of that, and so on.
    fn chain(&self) -> impl Iterator<Item = &Error> {
        iter::successors(Some(self), |link| link.0.cause.as_ref())
    }

    /// Returns the op in which the error occurred, if any.
    pub fn op(&self) -> Option<&'static str> {
        self.0.head.op
    }

    /// Returns the path of the cell in which the error occurred, if any; the root's path is the empty string.
    pub fn cell(&self) -> Option<&str> {
        self.0.head.cell.as_deref()
    }

    /// Names the op, unless an inner one is already named.
    pub fn in_op(mut self, op: &'static str) -> Self {
        self.0.head.op.get_or_insert(op);
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
        if self.0.head.op.is_some() { self.context(format_args!("in {op}")) } else { self.in_op(op) }
    }

    /// Notes the slot being run, unless an inner one is already noted.
    pub fn in_slot(mut self, slot: usize) -> Self {
        self.0.head.slot.get_or_insert(slot);
        self
    }

    /// Turns the noted slot into the path of its cell.
    pub fn resolve_cell(mut self, path_of: impl FnOnce(usize) -> Option<String>) -> Self {
        if let (Some(slot), None) = (self.0.head.slot, &self.0.head.cell) {
            self.0.head.cell = path_of(slot);
        }
        self
    }

    /// Notes the word of a file that the error is about, for its position.
    pub fn about(mut self, word: impl Into<String>) -> Self {
        self.0.head.word = Some(word.into());
        self
    }

    /// Returns the [noted](Error::about) word.
    pub fn word(&self) -> Option<&str> {
        self.0.head.word.as_deref()
    }

    /// Adds a link around the error, which prints as `words: message`.
    pub fn context(mut self, words: impl fmt::Display) -> Self {
        let mut outer = Error::new(self.kind(), printable(&words.to_string()));
        outer.0.head = mem::take(&mut self.0.head);
        outer.0.cause = Some(self);
        outer
    }

    /// Adds words to the end of the message, such as a remedy.
    pub fn ending(mut self, words: impl fmt::Display) -> Self {
        let mut link = &mut self.0;
        while let Some(Error(cause)) = &mut link.cause {
            link = cause;
        }
        link.message += &printable_lines(&words.to_string());
        self
    }

    /// Names the file of the error. A file that is named already is one of the cause.
    pub fn in_file(self, file: impl fmt::Display) -> Self {
        self.located(Location { file: file.to_string(), line: None, column: None })
    }

    /// Names the file, the line and, if it is known, the column of the error, as [`in_file`](Error::in_file) does.
    pub fn at(self, file: impl fmt::Display, line: usize, column: impl Into<Option<usize>>) -> Self {
        self.located(Location { file: file.to_string(), line: Some(line), column: column.into() })
    }

    fn located(self, location: Location) -> Self {
        let mut error = if self.0.location.is_some() { self.context("") } else { self };
        error.0.location = Some(location);
        error
    }

    /// Quotes the line of the location, below the message.
    pub(crate) fn quoting(mut self, excerpt: String) -> Self {
        self.0.excerpt = Some(excerpt);
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
        if let Some(op) = self.0.head.op {
            write!(f, "{op}: ")?;
        }
        let mut separator = "";
        for link in self.chain() {
            let Inner { message, location, excerpt, .. } = &*link.0;
            if let Some(location) = location {
                write!(f, "{separator}{location}")?;
                separator = ": ";
            }
            if !message.is_empty() {
                write!(f, "{separator}{message}")?;
                separator = ": ";
            }
            excerpt.iter().try_for_each(|lines| write!(f, "\n{lines}"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    /// As `Display`, so that `unwrap` and `main` print a readable message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause.as_ref().map(|cause| cause as _)
    }
}

impl From<Infallible> for Error {
    /// Lets functions accept either a value or its name, for instance a level.
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn contexts_are_a_chain_around_the_cause() {
        let root = Error::data("no rows").at("a\nb.csv", 3, None).in_op("Relu").in_slot(7).about("target");
        let error = root.context("`split`").in_file("run.yaml").in_file("folder");
        let error = error.resolve_cell(|slot| (slot == 7).then(|| "head".to_string()));
        assert_eq!(error.to_string(), r"in cell `head`: Relu: folder: run.yaml: `split`: a\nb.csv:3: no rows");
        assert_eq!((error.kind(), error.op(), error.word()), (ErrorKind::Data, Some("Relu"), Some("target")));
        let Location { file, line, column } = error.location().unwrap();
        assert_eq!((&**file, *line, *column), ("a\nb.csv", Some(3), None));
        let causes = iter::successors(error.source(), |&cause| cause.source()).map(ToString::to_string);
        assert_eq!(causes.collect::<Vec<_>>(), [r"run.yaml: `split`: a\nb.csv:3: no rows", r"a\nb.csv:3: no rows"]);
    }

    #[test]
    fn message_names_cell_and_op() {
        let error = Error::shape("2 columns meet 3 rows").in_op("MatMul").in_slot(7);
        let error = error.resolve_cell(|slot| (slot == 7).then(|| "head.fc".to_string()));
        assert_eq!(error.to_string(), "in cell `head.fc`: MatMul: 2 columns meet 3 rows");
    }
}
