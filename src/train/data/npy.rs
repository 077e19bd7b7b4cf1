//! Arrays of NumPy.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Dataset;
use crate::error::{Error, Result};

/// Arrays of NumPy: two `.npy` files, or two entries of one `.npz` file. The first axis counts the examples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Npy {
    /// An `.npz` file. Without it, inputs and targets are files of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The inputs: a `.npy` file, or the name of an entry of the `.npz` file.
    pub inputs: PathBuf,
    /// The targets, in the same way. Integers are classes, other numbers are numbers. Without it, examples have no targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<PathBuf>,
}

impl Npy {
    /// Two `.npy` files.
    pub fn new(inputs: impl Into<PathBuf>, targets: impl Into<PathBuf>) -> Self {
        Npy { file: None, inputs: inputs.into(), targets: Some(targets.into()) }
    }

    /// An `.npz` file, with entries `x` and `y` unless others are said.
    pub fn npz(file: impl Into<PathBuf>) -> Self {
        Npy { file: Some(file.into()), ..Npy::new("x", "y") }
    }

    /// Sets [`inputs`](Npy::inputs).
    pub fn inputs(self, inputs: impl Into<PathBuf>) -> Self {
        Npy { inputs: inputs.into(), ..self }
    }

    /// Sets [`targets`](Npy::targets).
    pub fn targets(self, targets: impl Into<PathBuf>) -> Self {
        Npy { targets: Some(targets.into()), ..self }
    }

    /// The arrays as examples.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported): not written yet.
    pub fn read(&self) -> Result<Dataset> {
        Err(Error::unsupported("the reader of NumPy's arrays is not written yet"))
    }

    /// As [`read`](Npy::read), without targets, which may be missing.
    ///
    /// # Errors
    /// As [`read`](Npy::read).
    pub fn read_inputs(&self) -> Result<Dataset> {
        self.read()
    }

    /// The same with files that start from a folder.
    pub(in crate::train) fn starting_from(&self, folder: &Path) -> Npy {
        match &self.file {
            Some(file) => Npy { file: Some(folder.join(file)), ..self.clone() },
            None => {
                let targets = self.targets.as_ref().map(|targets| folder.join(targets));
                Npy { inputs: folder.join(&self.inputs), targets, file: None }
            }
        }
    }

    /// The same with another file of inputs.
    pub(super) fn of_inputs(&self, file: &Path) -> Npy {
        match self.file {
            Some(_) => Npy { file: Some(file.into()), ..self.clone() },
            None => Npy { inputs: file.into(), ..self.clone() },
        }
    }
}
