//! Errors of precast as an exception.

use precast_base::Error as BaseError;
use pyo3::{create_exception, exceptions::PyValueError, prelude::*};

create_exception!(
    precast,
    Error,
    PyValueError,
    "An error of precast: its words, its kind (`kind`, such as \"Policy\"), and its place in a file (`file`, `line`, `column`)."
);

/// Returns an error as an exception. Facts that it lacks are `None`.
pub fn raised(error: &BaseError) -> PyErr {
    Python::attach(|py| {
        let exception = Error::new_err(error.to_string());
        let value = exception.value(py);
        let place = error.location();
        let set = || {
            value.setattr("kind", format!("{:?}", error.kind()))?;
            value.setattr("file", place.map(|place| place.file.as_str()))?;
            value.setattr("line", place.and_then(|place| place.line))?;
            value.setattr("column", place.and_then(|place| place.column))
        };
        set().err().unwrap_or(exception)
    })
}

/// Conversion of results of precast to those of Python.
pub trait OrRaise<T> {
    /// Returns the value, or raises the error.
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, BaseError> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| raised(&error))
    }
}
