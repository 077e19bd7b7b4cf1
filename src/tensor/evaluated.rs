//! Which cells computed something in evaluation that would be otherwise in training, for those who train by it.

use super::LeafId;

/// Cells that behave otherwise in training and ran in evaluation while a tape was recorded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Evaluated {
    /// Each with its path and the trained parameters that stand beside it; none where it is a network by itself.
    pub cells: Vec<(String, Vec<LeafId>)>,
}

impl Evaluated {
    /// The first cell beside which one of these parameters stands.
    pub fn beside(&self, params: &[LeafId]) -> Option<&str> {
        let beside = |ids: &[LeafId]| ids.is_empty() || params.iter().any(|param| ids.contains(param));
        self.cells.iter().find(|(_, ids)| beside(ids)).map(|(path, _)| path.as_str())
    }
}
