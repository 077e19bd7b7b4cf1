//! Sizes of the inferred cells of stored weights.

use std::collections::HashMap;

use super::{StoredModel, cell_of};
use crate::{
    DType,
    plan::{CellSummary, ModelSummary, Plan},
};

impl StoredModel {
    /// Returns the sizes of each inferred cell under a plan for this [outline](StoredModel::outline). All floating
    /// tensors count as parameters, running statistics included. Without code there is no call, so shapes of outputs
    /// and multiply-adds are unknown.
    pub fn summary(&self, plan: &Plan) -> ModelSummary {
        let cell = |decision: &precast_policy::plan::Decision| {
            CellSummary::new(decision.path.clone(), &decision.kind, decision.run.dtype().unwrap_or(DType::F32))
        };
        let mut cells: Vec<CellSummary> = plan.decisions.iter().map(cell).collect();
        let places: HashMap<String, usize> =
            cells.iter().enumerate().map(|(place, cell)| (cell.path.clone(), place)).collect();
        for tensor in self.tensors().filter(|tensor| tensor.is_float()) {
            if let Some(&place) = places.get(cell_of(&tensor.name).0) {
                cells[place].add(tensor.elements(), true);
            }
        }
        ModelSummary::of(cells)
    }
}
