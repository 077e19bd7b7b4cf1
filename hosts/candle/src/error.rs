//! The error of this crate: one of the policies, or one of candle.

use std::fmt;

use precast_policy::ErrorKind;

/// `std::result::Result` with [`Error`] as the default error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the policies or of candle. Both convert into it, and it converts into an error of candle, so `?` works in
/// functions that return either.
pub enum Error {
    /// An error of a policy, of a plan, or of this crate. Its kind is for code.
    Policy(precast_policy::Error),
    /// An error of candle.
    Candle(candle_core::Error),
}

impl Error {
    /// Returns the kind of the error, for code; `None` for an error of candle.
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Error::Policy(error) => Some(error.kind()),
            Error::Candle(_) => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Policy(error) => fmt::Display::fmt(error, f),
            Error::Candle(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Policy(error) => fmt::Debug::fmt(error, f),
            Error::Candle(error) => fmt::Debug::fmt(error, f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Policy(error) => error.source(),
            Error::Candle(error) => error.source(),
        }
    }
}

impl From<precast_policy::Error> for Error {
    fn from(error: precast_policy::Error) -> Self {
        Error::Policy(error)
    }
}

impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        Error::Candle(error)
    }
}

impl From<Error> for candle_core::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Policy(error) => candle_core::Error::wrap(error),
            Error::Candle(error) => error,
        }
    }
}
