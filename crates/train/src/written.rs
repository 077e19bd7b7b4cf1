//! Source positions of run-file values validated when a run starts, such as the name of a missing file.

use std::{fmt, sync::Arc};

use precast_base::document::{Place, Source};

use super::{ModelSource, Partition, Test, Weights, data};
use crate::training::{Augment, GroupOptions, Loss};

/// The text of a run file and some positions in it.
#[derive(Clone)]
pub(crate) struct Written(Arc<(String, String, Places)>);

/// Values as read, with their positions.
pub(super) struct Places {
    pub model: (ModelSource, Place),
    pub policy: (String, Place),
    pub data: (data::Source, Place),
    pub loss: Option<(Loss, Place)>,
    pub augment: (Augment, Place),
    pub test: Option<(Test, Place)>,
    pub validation: Option<(Test, Place)>,
    pub split: (Partition, Place),
    pub weights: Option<(Weights, Place)>,
    pub freeze: (Vec<String>, Place),
    pub groups: (Vec<GroupOptions>, Place),
}

impl fmt::Debug for Written {
    /// Leaves out the text, which runs with the same values need not share.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Written")
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
