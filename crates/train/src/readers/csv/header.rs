//! The header of a file: distinct names of columns.

use std::collections::HashMap;

use precast_base::printable;

/// Column names, all distinct.
pub(super) struct Header {
    pub(super) line: usize,
    names: Vec<String>,
    places: HashMap<String, usize>,
}

impl Header {
    /// Creates a header of distinct names.
    ///
    /// # Errors
    /// Error text for two columns with the same name.
    pub fn of(line: usize, names: Vec<String>) -> Result<Self, String> {
        let mut places = HashMap::new();
        for (i, name) in names.iter().enumerate() {
            if let Some(first) = places.insert(name.clone(), i) {
                let same = format!(
                    "columns {} and {} have the same name, `{}`; rename one",
                    first + 1,
                    i + 1,
                    printable(name)
                );
                return Err(same);
            }
        }
        Ok(Header { line, names, places })
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the index of the column with a name.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }
}
