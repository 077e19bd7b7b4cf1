//! Errors of ranks.

use std::fmt;

/// Result of this package.
pub type Result<T> = std::result::Result<T, Error>;

/// The kinds of errors, for code that distinguishes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument or an environment variable that cannot be used.
    Argument,
    /// An MPI library that is missing or lacks a function.
    Library,
    /// An MPI library that is not that of the launcher, or a launcher that MPI cannot use.
    Launcher,
    /// An error that MPI returned.
    Mpi,
    /// Ranks that did not answer within the deadline.
    Silent,
    /// Ranks that made different calls, or have different values where they must agree.
    Diverged,
    /// Ranks that have ended or have ended the job.
    Ended,
    /// An error of the rank with this number, agreed upon by all ranks.
    OfRank(usize),
}

/// An error of ranks: its kind, and words that name the rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    words: String,
}

impl Error {
    /// Creates an error, for engines outside of this package.
    pub fn new(kind: ErrorKind, words: impl Into<String>) -> Self {
        Error { kind, words: words.into() }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Puts the place of an error before its words.
    #[must_use]
    pub fn context(mut self, place: impl fmt::Display) -> Self {
        self.words = format!("{place}: {}", self.words);
        self
    }
}

impl From<Error> for String {
    /// Returns the words, for errors of other libraries.
    fn from(error: Error) -> Self {
        error.words
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for Error {}
