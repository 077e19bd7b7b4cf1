//! Models and policies by file or by name.

use std::{fmt, path::Path};

use precast::{Policy, models::Model};

use super::{Failure, Result};

/// Something read, and where it came from.
pub(super) struct Read<T> {
    pub value: T,
    /// The argument: a file or a name.
    argument: String,
    built_in: bool,
}

impl<T> Read<T> {
    /// What it goes by: the name, or the name of the file without folder and ending.
    pub fn short_name(&self) -> String {
        match Path::new(&self.argument).file_stem() {
            Some(stem) if !self.built_in => stem.to_string_lossy().into_owned(),
            _ => self.argument.clone(),
        }
    }
}

impl<T> fmt::Display for Read<T> {
    /// `o2 (built in)` or the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.argument, if self.built_in { " (built in)" } else { "" })
    }
}

/// Reads a model; its weights are drawn from the seed.
pub(super) fn model(argument: &str, seed: u64) -> Result<Read<Model>> {
    read(argument, |file| Model::load(file, seed), |name| Model::named(name, seed))
}

/// Reads a policy.
pub(super) fn policy(argument: &str) -> Result<Read<Policy>> {
    read(argument, |file| Policy::load(file), Policy::named)
}

/// A file where there is one; otherwise what is built in under that name.
fn read<T>(
    argument: &str,
    load: impl FnOnce(&Path) -> precast::Result<T>,
    named: impl FnOnce(&str) -> precast::Result<T>,
) -> Result<Read<T>> {
    let file = Path::new(argument);
    // A folder of a built-in name hides nothing.
    let built_in = !file.exists() || file.is_dir();
    let value = if built_in {
        named(argument).map_err(|error| Failure::Usage(format!("there is no file `{argument}`, and {error}")))?
    } else {
        load(file)?
    };
    Ok(Read { value, argument: argument.to_string(), built_in })
}
