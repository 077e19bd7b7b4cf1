//! Export to Qwix: a rule for each layer of a network of JAX that trains with quantized operands.

use super::{Json, Plan, json_in_python, recipes};

/// Recipes with the rules of Qwix: names of `RULES` in the file.
pub(super) const RECIPES: [(&str, &str); 7] = [
    ("tensorwise", "tensorwise"),
    ("rowwise", "rowwise"),
    ("block", "block"),
    ("mxfp8", "mxfp8"),
    ("mxfp4", "mxfp4"),
    ("nvfp4", "nvfp4"),
    ("int8", "int8"),
];

pub(super) fn text(plan: &Plan, cannot_say: &[String]) -> String {
    let recipes = recipes(plan, &RECIPES).into_iter().map(|(path, recipe)| (path.replace('.', "/"), recipe));
    let head = plan.python_head("Qwix", "`qwix.quantize_model(model, provider(), *inputs)` applies it.", cannot_say);
    format!("{head}\n{BEFORE}RECIPES = {}\n{AFTER}", json_in_python(&Json::map(recipes)))
}

pub(super) fn cannot_say() -> Vec<String> {
    vec![
        "the dtypes of layers: those of a network of JAX are in its code".into(),
        "scales: Qwix does not round those of rows and blocks to powers of two, or transform operands of nvfp4".into(),
    ]
}

const BEFORE: &str = "\
import json
import re

import qwix

# For each layer with operands in 8 or 4 bits, by its path in the network, its recipe.
";

const AFTER: &str = r#"
E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"


def by_blocks(qtype, size):
    """A rule whose operands have a scale for each block, in all three products of a layer."""
    sizes = dict(dlhs_tile_size=size, drhs_tile_size=size, dlhs_residual_qtype=qtype, drhs_residual_qtype=qtype)
    return dict(weight_qtype=qtype, act_qtype=qtype, bwd_qtype=qtype, tile_size=size, additional_qt_config=sizes)


RULES = {
    "tensorwise": dict(weight_qtype=E4M3, act_qtype=E4M3, bwd_qtype=E5M2, disable_channelwise_axes=True),
    "rowwise": dict(weight_qtype=E4M3, act_qtype=E4M3, bwd_qtype=E4M3),
    "int8": dict(weight_qtype="int8", act_qtype="int8", bwd_qtype="int8"),
    "block": by_blocks(E4M3, 128),
    "mxfp8": by_blocks("mxfp8", 32),
    "mxfp4": by_blocks("mxfp4", 32),
    "nvfp4": by_blocks("nvfp4", 16),
}


def provider():
    """The rules, one for each layer. Other layers are not quantized."""
    rules = [qwix.QtRule(module_path=re.escape(path), **RULES[name]) for path, name in RECIPES.items()]
    return qwix.QtProvider(rules)
"#;
