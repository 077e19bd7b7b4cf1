//! Export to Transformer Engine: the linear layers that run in a region of their recipe.

use super::{Json, Plan, json_in_python, recipes};

/// Recipes with the classes of Transformer Engine.
pub(super) const RECIPES: [(&str, &str); 5] = [
    ("tensorwise", "Float8CurrentScaling"),
    ("block", "Float8BlockScaling"),
    ("mxfp8", "MXFP8BlockScaling"),
    ("nvfp4", "NVFP4BlockScaling"),
    ("delayed", "DelayedScaling"),
];

pub(super) fn text(plan: &Plan, cannot_say: &[String]) -> String {
    let head = plan.python_head("Transformer Engine", "`convert(model)` replaces linear layers.", cannot_say);
    format!("{head}\n{BEFORE}RECIPES = {}\n{AFTER}", json_in_python(&Json::map(recipes(plan, &RECIPES))))
}

pub(super) fn cannot_say() -> Vec<String> {
    vec![
        "the dtypes of layers: a layer of Transformer Engine takes what it is given, and `--to torch` casts".into(),
        "sizes: it refuses those that are not multiples of 16, or of 32 for mxfp8".into(),
    ]
}

const BEFORE: &str = "\
import json

import transformer_engine.pytorch as te
from transformer_engine.common import recipe

# For each linear layer that trains with operands in 8 or 4 bits, the class of its recipe.
";

const AFTER: &str = r#"

class Linear(te.Linear):
    """A linear layer that runs in a region of its recipe."""

    def forward(self, *args, **kwargs):
        with te.autocast(enabled=True, recipe=self.recipe):
            return super().forward(*args, **kwargs)


def convert(model):
    """Replaces the linear layers that have a recipe by those of Transformer Engine, with their weights."""
    made = {name: getattr(recipe, name)() for name in set(RECIPES.values())}
    for path, name in RECIPES.items():
        old = model.get_submodule(path)
        keys = {"params_dtype": old.weight.dtype, "device": old.weight.device}
        new = Linear(old.in_features, old.out_features, bias=old.bias is not None, **keys)
        new.load_state_dict(old.state_dict(), strict=False)
        new.recipe = made[name]
        parent, _, own = path.rpartition(".")
        setattr(model.get_submodule(parent), own, new)
    return model
"#;
