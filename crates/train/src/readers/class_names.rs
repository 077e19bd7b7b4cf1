//! Names of classes, in the order of their indices.

use std::collections::{BTreeSet, HashMap};

use precast::error::{Error, Result};
use precast_base::{names::did_you_mean_or_some, printable};

/// Names of classes with their indices.
pub(super) struct ClassNames {
    names: Vec<String>,
    indices: HashMap<String, i64>,
}

impl ClassNames {
    /// Creates the names from those given or, without any, from those met, sorted: as integers if all are, else as
    /// text.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) for a duplicate given name.
    pub(super) fn new(given: &[String], met: BTreeSet<String>) -> Result<Self> {
        let mut names = given.to_vec();
        if names.is_empty() {
            names = met.into_iter().collect();
            if names.iter().all(|name| name.parse::<i64>().is_ok()) {
                names.sort_by_key(|name| name.parse::<i64>().ok());
            }
        }
        let mut indices = HashMap::new();
        for (i, name) in names.iter().enumerate() {
            if let Some(before) = indices.insert(name.clone(), i as i64) {
                return Err(Error::value(format!(
                    "classes {before} and {i} have the same name, `{}`",
                    printable(name)
                )));
            }
        }
        Ok(ClassNames { names, indices })
    }

    /// Returns the index of a class.
    ///
    /// # Errors
    /// Error text for a name that is not a class.
    pub(super) fn index(&self, name: &str) -> Result<i64, String> {
        self.indices.get(name).copied().ok_or_else(|| {
            let near = did_you_mean_or_some(name, self.names.iter().map(String::as_str));
            format!("there is no class `{}`{near}", printable(name))
        })
    }

    /// Returns the names in the order of their indices.
    pub(super) fn into_vec(self) -> Vec<String> {
        self.names
    }
}
