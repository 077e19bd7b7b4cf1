//! Export to torchao: the linear layers that a configuration covers, and those that train with operands in 8 bits.

use std::collections::BTreeMap;

use super::{Decision, Json, Plan, json_in_python, recipes};

/// Recipes with the names of torchao.
pub(super) const RECIPES: [(&str, &str); 4] =
    [("tensorwise", "tensorwise"), ("rowwise", "rowwise"), ("rowwise-hp-grad", "rowwise_with_gw_hp"), ("int8", "int8")];

/// torchao only has handlers for linear layers.
fn is_linear(decision: &Decision) -> bool {
    decision.kind == "Dense"
}

pub(super) fn text(plan: &Plan, cannot_say: &[String]) -> String {
    let layers: BTreeMap<&str, Json> =
        plan.decisions.iter().filter(|d| is_linear(d)).map(|d| (d.path.as_str(), d.runs_low().into())).collect();
    let use_it = "`quantize_(model, fqn_to_config(config), filter_fn=None)` with any configuration of torchao.";
    let head = plan.python_head("torchao", use_it, cannot_say);
    let mut text = format!("{head}\n{BEFORE}LOWERED = {}\n{AFTER}", json_in_python(&Json::map(layers)));
    let recipes = recipes(plan, &RECIPES);
    if !recipes.is_empty() {
        text += &format!("{TRAINED}RECIPES = {}\n{TRAIN}", json_in_python(&Json::map(recipes)));
    }
    text
}

pub(super) fn cannot_say(plan: &Plan) -> Vec<String> {
    let mut lines = vec![
        format!(
            "the dtype {}: torchao's own configurations say what lowered layers become",
            plan.policy.dtype.long_name()
        ),
        "casts of inputs and outputs: a layer that is lowered takes what it is given".into(),
    ];
    let others = plan.decisions.iter().filter(|d| d.runs_low() && !is_linear(d)).count();
    if others > 0 {
        lines.push(format!("cells that run low and are not linear layers: {others}"));
    }
    lines
}

const BEFORE: &str = "\
import json
from collections import OrderedDict

from torchao.quantization import FqnToConfig

# For each linear layer whether it is lowered.
";

const AFTER: &str = r#"

def fqn_to_config(config):
    """The configuration for every layer that is lowered, and none for those that stay."""
    layers = [(fqn, config if lowered else None) for fqn, lowered in LOWERED.items()]
    return FqnToConfig(fqn_to_config=OrderedDict(layers))
"#;

const TRAINED: &str = "

# For each linear layer that trains with operands in 8 bits, its recipe.
";

const TRAIN: &str = r#"

def train_in_8_bits(model, **keys):
    """Makes layers quantize the operands of their products. `emulate=True` rehearses those in FP8 without a GPU."""
    from dataclasses import replace

    from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    from torchao.prototype.quantized_training import int8_mixed_precision_training
    from torchao.quantization import quantize_

    for recipe in sorted(set(RECIPES.values())):
        is_met = lambda module, fqn: RECIPES.get(fqn) == recipe
        if recipe == "int8":
            # Of weights as a subclass, torch 2.15 does not run the products of torchao 0.18.
            quantize_(model, int8_mixed_precision_training(module_swap=True), filter_fn=is_met)
        else:
            config = replace(Float8LinearConfig.from_recipe_name(recipe), **keys)
            convert_to_float8_training(model, config=config, module_filter_fn=is_met)
    return model
"#;
