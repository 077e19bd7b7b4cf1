//! Names of classes, in the order of their indices.

use std::collections::{BTreeSet, HashMap};

use crate::{
    error::{Error, Result, did_you_mean_or_some},
    printable::printable,
};

/// The names of classes with their indices.
pub(super) struct ClassNames {
    names: Vec<String>,
    indices: HashMap<String, i64>,
}

impl ClassNames {
    /// The names that are given; if none are, those that were met, sorted: as integers, if all are, else as text.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a name that is given twice.
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

    /// The index of a class.
    ///
    /// # Errors
    /// Words on a name that is none of a class.
    pub(super) fn index(&self, name: &str) -> Result<i64, String> {
        self.indices.get(name).copied().ok_or_else(|| {
            let near = did_you_mean_or_some(name, self.names.iter().map(String::as_str));
            format!("there is no class `{}`{near}", printable(name))
        })
    }

    /// The names in the order of their indices.
    pub(super) fn into_vec(self) -> Vec<String> {
        self.names
    }
}
