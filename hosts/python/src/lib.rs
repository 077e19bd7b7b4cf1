//! The module `precast._engine` of the Python package precast: policies and plans, which know no tensor, and the command.
//!
//! It has no logic of its own: everything is decided in `precast-policy`, and everything about torch is in Python.
#![deny(missing_docs)]
#![deny(unsafe_code)]

#[cfg(feature = "command")]
mod command;
mod error;
mod plan;
mod policy;
mod scale;

use pyo3::prelude::*;

/// The engine of the package precast.
#[pymodule]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Error", module.py().get_type::<error::Error>())?;
    module.add_class::<policy::Policy>()?;
    module.add_class::<plan::Plan>()?;
    module.add_class::<plan::Diff>()?;
    module.add_class::<scale::ScaleMachine>()?;
    #[cfg(feature = "command")]
    module.add_function(wrap_pyfunction!(command::command, module)?)?;
    Ok(())
}
