//! Source positions of run-file values validated when a run starts, such as the name of a missing file.

use std::sync::Arc;

use precast::train::{Augment, GroupOptions, Loss};
use precast_policy::document::{Place, Source};

use super::{ModelSource, Test, Weights, data};

/// The text of a run file and some positions in it. A run is the same wherever it is written, so any two are equal.
#[derive(Clone, Debug)]
pub(crate) struct Written(Arc<(String, String, Places)>);

/// Values as read, with their positions.
#[derive(Debug)]
pub(super) struct Places {
    pub model: (ModelSource, Place),
    pub policy: (String, Place),
    pub data: (data::Source, Place),
    pub loss: Option<(Loss, Place)>,
    pub augment: (Augment, Place),
    pub test: Option<(Test, Place)>,
    pub validation: Option<(Test, Place)>,
    pub weights: Option<(Weights, Place)>,
    pub freeze: (Vec<String>, Place),
    pub groups: (Vec<GroupOptions>, Place),
}

impl PartialEq for Written {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Written {
    pub(super) fn new(source: &Source<'_>, places: Places) -> Self {
        Written(Arc::new((source.name.to_string(), source.text.to_string(), places)))
    }

    /// Returns the name and the text of the file, and the positions.
    pub(super) fn parts(&self) -> (&str, &str, &Places) {
        let (name, text, places) = &*self.0;
        (name, text, places)
    }
}
