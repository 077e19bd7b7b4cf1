//! Writing a stored model with each tensor in the dtype of its cell.

use std::{collections::HashMap, path::Path};

use precast_policy::host::Stored;

use crate::{
    DType,
    cell::no_such_path,
    error::Result,
    plan::{Decision, Plan},
    policy::Level,
    printable::printable,
    storage::stored::{
        CONSTANTS, ConvertOptions, Converted, StoredModel, StoredTensor, Target, UNKNOWN, cell_of, is_weight, kept_for,
    },
};

impl Stored for StoredModel {
    type Options = ConvertOptions;
    type Written = Converted;

    fn store(
        &self,
        plan: &Plan,
        to: &Path,
        options: ConvertOptions,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Converted> {
        let decisions: HashMap<&str, &Decision> = plan.decisions.iter().map(|d| (d.path.as_str(), d)).collect();
        let target_of = |tensor: &StoredTensor| {
            let cell = cell_of(&tensor.name).0;
            match decisions.get(cell) {
                Some(decision) => Ok(target(plan, decision, tensor, options.widen)),
                None => Err(no_such_path(cell, decisions.keys().copied())),
            }
        };
        self.convert(to, options, &target_of, progress)
    }
}

/// Returns the form in which a tensor of a cell is stored.
fn target(plan: &Plan, decision: &Decision, tensor: &StoredTensor, widen: bool) -> Target {
    let wide = if widen { Target::In(DType::F32) } else { Target::Same };
    // Level O0 lowers nothing, regardless of the rules.
    if let Some(rule) = plan.tensors.get(&tensor.name).filter(|_| plan.policy.level != Level::O0) {
        return if rule.stores_low() { Target::In(plan.policy.dtype) } else { wide };
    }
    let Some(low) = decision.run.dtype().filter(|dtype| dtype.is_low()) else { return wide };
    let Decision { path, kind, .. } = decision;
    if is_weight(path, kind, cell_of(&tensor.name).1, tensor.shape.len()) {
        return Target::In(low);
    }
    match tensor.castable() {
        Some(dtype) if dtype != low => Target::Kept(match kept_for(path) {
            Some(why) => why.into(),
            None if kind == UNKNOWN => "of an Unknown cell".into(),
            None if kind == CONSTANTS => "constants, by the name".into(),
            None => format!("no weight of {}", printable(kind)),
        }),
        _ => Target::Same,
    }
}
