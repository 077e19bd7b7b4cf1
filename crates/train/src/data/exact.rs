//! Provenance of a dataset: all digits of the numbers in its files, and human-readable notes.

use super::{
    Dataset, Inputs, Targets,
    elements::elements_in_memory,
    numbers::Wide,
    origin::{Parts, Read},
};

impl Dataset {
    /// Attaches the digits that f32 cannot represent, and the provenance.
    pub(crate) fn with_origin(mut self, wide: Parts<Wide>, read: Read) -> Self {
        (self.wide, self.read) = (wide, read.into());
        self
    }

    /// Drops the digits of the inputs beyond f32.
    pub(crate) fn in_f32(mut self) -> Self {
        if let Inputs::Stored(_) = self.inputs() {
            // Nothing can fail.
            return self.later(|part| Ok(part.in_f32())).unwrap_or(self);
        }
        self.wide.inputs = Wide::default();
        self
    }

    /// Returns numeric inputs as in their file: in f64 where f32 cannot represent all of a column.
    pub(crate) fn exact_inputs(&self) -> Option<impl Iterator<Item = f64>> {
        let Inputs::Numbers(values) = self.inputs() else { return None };
        Some(self.wide.inputs.exact(values, elements_in_memory(self.shape())))
    }

    /// Returns numeric targets as in their file, from an example on.
    pub(crate) fn exact_targets(&self, first: usize) -> Option<impl Iterator<Item = f64>> {
        let Targets::Numbers { shape, values } = self.targets() else { return None };
        let of_one = elements_in_memory(shape);
        Some(self.wide.targets.exact(values, of_one).skip(first * of_one))
    }

    /// Returns human-readable notes about reading the examples, such as distinct numbers of a column that become equal.
    /// Batches are f32, so numbers with more digits are rounded unless [standardized](Dataset::standardized) first. A
    /// run of `precast-train` includes these in its own notes.
    pub fn notes(&self) -> Vec<String> {
        self.notes_unless(false, false)
    }

    /// Returns the [`notes`](Dataset::notes) that apply if inputs or targets will be standardized.
    pub(crate) fn notes_unless(&self, standardize: bool, standardize_targets: bool) -> Vec<String> {
        let Read { origins, notes } = &*self.read;
        let of_inputs = || self.wide.inputs.note(&origins.inputs, "standardize");
        let of_targets = || self.wide.targets.note(&origins.targets, "standardize_targets");
        let rounded = [(!standardize).then(of_inputs), (!standardize_targets).then(of_targets)];
        notes.iter().cloned().chain(rounded.into_iter().flatten().flatten()).collect()
    }
}
