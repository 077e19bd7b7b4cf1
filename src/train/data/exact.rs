//! What a dataset knows of the files from which it was read: all digits of their numbers, and what people should know.

use super::{Dataset, Inputs, Targets, dataset::elements_in_memory, numbers::Wide};

/// Something of the inputs and the same of the targets.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Parts<T> {
    pub inputs: T,
    pub targets: T,
}

/// How examples were read. Examples are the same wherever they came from, so any two are equal.
#[derive(Clone, Default)]
pub(super) struct Read {
    /// The files, as errors name them.
    pub origins: Parts<String>,
    /// What people should know of it.
    pub notes: Vec<String>,
}

impl PartialEq for Read {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Dataset {
    /// The same examples with what f32 does not hold of their numbers, and how they were read.
    #[cfg(feature = "data")]
    pub(super) fn with_origin(mut self, wide: Parts<Wide>, read: Read) -> Self {
        (self.wide, self.read) = (wide, read.into());
        self
    }

    /// The same examples with inputs that are no wider than f32.
    pub(in crate::train) fn in_f32(mut self) -> Self {
        self.wide.inputs = Wide::default();
        self
    }

    /// The inputs as their file has them, if they are numbers: in f64 where f32 does not hold all of a column.
    pub(in crate::train) fn exact_inputs(&self) -> Option<impl Iterator<Item = f64>> {
        let Inputs::Numbers(values) = self.inputs() else { return None };
        Some(self.wide.inputs.exact(values, elements_in_memory(self.shape())))
    }

    /// The targets as their file has them, if they are numbers.
    pub(in crate::train) fn exact_targets(&self) -> Option<impl Iterator<Item = f64>> {
        let Targets::Numbers { shape, values } = self.targets() else { return None };
        Some(self.wide.targets.exact(values, elements_in_memory(shape)))
    }

    /// What people should know of how the examples were read: different numbers of a column that become one, and others of
    /// that kind. Batches are f32, so what a file has in more digits is rounded unless it was
    /// [standardized](Dataset::standardized) before. A [`Run`](crate::train::Run) has them among its notes.
    pub fn notes(&self) -> Vec<String> {
        self.notes_unless(false, false)
    }

    /// As [`notes`](Dataset::notes), for examples of which inputs or targets will be standardized.
    pub(in crate::train) fn notes_unless(&self, standardize: bool, standardize_targets: bool) -> Vec<String> {
        let Read { origins, notes } = &*self.read;
        let of_inputs = || self.wide.inputs.note(&origins.inputs, "standardize");
        let of_targets = || self.wide.targets.note(&origins.targets, "standardize_targets");
        let rounded = [(!standardize).then(of_inputs), (!standardize_targets).then(of_targets)];
        notes.iter().cloned().chain(rounded.into_iter().flatten().flatten()).collect()
    }
}
