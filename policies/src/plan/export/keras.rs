//! Export to Keras: a map from the paths of layers to policies.

use std::collections::BTreeMap;

use precast_base::DType;

use super::{Json, Plan, json_in_python};

pub(super) fn text(plan: &Plan, cannot_say: &[String]) -> String {
    let layers = plan.decisions.iter().filter_map(|d| Some((d.path.replace('.', "/"), policy(d.run.dtype()?))));
    let layers: BTreeMap<String, Json> = layers.map(|(path, policy)| (path, policy.into())).collect();
    let use_it = "`keras.config.set_dtype_policy(policy_map(NAME))` before a model of that name is built.";
    let head = plan.python_head("Keras", use_it, cannot_say);
    format!("{head}\n{BEFORE}POLICIES = {}\n{AFTER}", json_in_python(&Json::map(layers)))
}

/// Returns the name of the policy that computes in a dtype and keeps variables in float32.
fn policy(dtype: DType) -> String {
    if dtype.is_low() { format!("mixed_{}", dtype.long_name()) } else { dtype.long_name().into() }
}

pub(super) fn cannot_say() -> Vec<String> {
    vec![
        "the dtype of outputs: a layer returns the dtype in which it computes, and the next one casts".into(),
        "what holds inside of a layer: a policy is for one layer, and those inside have their own".into(),
    ]
}

const BEFORE: &str = "\
import json

import keras

# For each layer, by its path below the model, the name of its policy.
";

const AFTER: &str = r#"

def policy_map(name):
    """The policies for a model of this name, whose layers have the paths `name/..`. Other layers have that of the model."""
    policies = {f"{name}/{path}" if path else name: policy for path, policy in POLICIES.items()}
    policies = {path: keras.dtype_policies.DTypePolicy(policy) for path, policy in policies.items()}
    default = keras.dtype_policies.DTypePolicy(POLICIES.get("", "float32"))
    return keras.dtype_policies.DTypePolicyMap(default_policy=default, policy_map=policies)
"#;
