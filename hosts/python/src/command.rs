//! The command.

use pyo3::prelude::*;

/// Runs the command `precast` with these arguments, without the name of the program, and returns its exit status.
#[pyfunction]
pub fn command(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> u8 {
    py.detach(|| precast_cli::Cli::with_name("precast").status(arguments))
}
