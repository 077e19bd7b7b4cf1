//! Origin of a dataset.

/// A value for the inputs and the same for the targets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts<T> {
    /// Value of the inputs.
    pub inputs: T,
    /// Value of the targets.
    pub targets: T,
}

/// Provenance of examples. Examples are the same wherever they came from, so any two are equal.
#[derive(Clone, Debug, Default)]
pub struct Read {
    /// Files, as named in errors.
    pub origins: Parts<String>,
    /// Human-readable notes.
    pub notes: Vec<String>,
}

impl PartialEq for Read {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
