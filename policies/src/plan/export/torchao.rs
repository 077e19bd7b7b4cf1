//! Export to torchao: the linear layers that a configuration covers.

use std::collections::BTreeMap;

use super::{Decision, Json, Plan, json_in_python};

/// torchao only has handlers for linear layers.
fn is_linear(decision: &Decision) -> bool {
    decision.kind == "Dense"
}

pub(super) fn text(plan: &Plan, cannot_say: &[String]) -> String {
    let layers: BTreeMap<&str, Json> =
        plan.decisions.iter().filter(|d| is_linear(d)).map(|d| (d.path.as_str(), d.runs_low().into())).collect();
    let use_it = "`quantize_(model, fqn_to_config(config), filter_fn=None)` with any configuration of torchao.";
    let head = plan.python_head("torchao", use_it, cannot_say);
    format!("{head}\n{BEFORE}LOWERED = {}\n{AFTER}", json_in_python(&Json::map(layers)))
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
