//! Export to torch: hooks that cast the inputs and outputs of a module.

use std::collections::BTreeMap;

use precast_base::DType;

use super::{Json, Plan, json_in_python};
use crate::{
    adapter::Adapter,
    weights::{cell_of, weights_of},
};

/// Modules that run low, and the names of their weights with the minimum and maximum number of axes.
struct Weights<'a> {
    weights: BTreeMap<&'a str, [usize; 2]>,
    modules: Vec<&'a str>,
}

/// Returns the weights of modules that run low, grouped by modules with the same weights.
fn weights(plan: &Plan) -> Vec<Weights<'_>> {
    let mut groups = BTreeMap::<BTreeMap<&str, [usize; 2]>, Vec<&str>>::new();
    for decision in plan.decisions.iter().filter(|decision| decision.runs_low()) {
        let known = weights_of(&decision.path, &decision.kind).iter();
        let weights = known.map(|&(name, least, most)| (name, [least, most])).collect();
        groups.entry(weights).or_default().push(&decision.path);
    }
    groups.into_iter().map(|(weights, modules)| Weights { weights, modules }).collect()
}

/// Returns the tensors that rules name, by module and name, with the dtype of each that is stored low.
fn named(plan: &Plan) -> Vec<(&str, &str, Option<DType>)> {
    let low = |low: bool| low.then_some(plan.policy.dtype);
    plan.tensors.iter().map(|(name, rule)| (cell_of(name).0, cell_of(name).1, low(rule.stores_low()))).collect()
}

/// Returns for each module the dtype in which it runs and in which its parameters are stored, and the dtypes to which
/// its inputs and outputs are cast, if any.
fn modules(plan: &Plan) -> BTreeMap<&str, Json> {
    let modules = plan.decisions.iter().filter_map(|decision| {
        let mut how = vec![("dtype", Json::from(decision.run.dtype()?))];
        if let Some(cast) = decision.adapter.as_ref().and_then(Adapter::cast) {
            how.extend([("inward", cast.inward.into()), ("outward", cast.outward.into())]);
        }
        Some((decision.path.as_str(), Json::map(how)))
    });
    modules.collect()
}

pub(super) fn text(plan: &Plan, cannot_say: &[String]) -> String {
    let head =
        plan.python_head("torch", "`hooks = apply(model)` casts; `hook.remove()` of each takes it back.", cannot_say);
    let weights = weights(plan).into_iter().map(|group| {
        let weights = group.weights.into_iter().map(|(name, axes)| (name, Json::list(axes)));
        Json::map([("weights", Json::map(weights)), ("modules", Json::list(group.modules))])
    });
    let named = named(plan).into_iter().map(|(cell, name, low)| Json::List(vec![cell.into(), name.into(), low.into()]));
    let [modules, weights, named] = [Json::map(modules(plan)), Json::list(weights), Json::list(named)];
    let [modules, weights, named] = [modules, weights, named].map(|json| json_in_python(&json));
    format!("{head}\n{BEFORE}MODULES = {modules}\n{WEIGHTS}WEIGHTS = {weights}\n{NAMED}NAMED = {named}\n{AFTER}")
}

pub(super) fn cannot_say() -> Vec<String> {
    vec![
        "float32 masters: parameters of modules that run low are stored low".into(),
        "one rounding for each op: what a kernel rounds inside is the library's own".into(),
    ]
}

const BEFORE: &str = "\
import json
import re

import torch
from torch.utils._pytree import tree_map

# For each module the dtype in which it runs; `inward` and `outward` are those of its inputs and outputs where they are cast.
";

const WEIGHTS: &str = "
# The names of the weights of modules that run low, with the fewest and the most axes of each. All else keeps its dtype: tables of
# frequencies, scales of quantised weights, running statistics, schedules, masks.
";

const NAMED: &str = "
# Tensors for which a rule decides: module, name, and the dtype of one that is stored low.
";

const AFTER: &str = r#"
CASTABLE = (torch.float32, torch.float16, torch.bfloat16)


def cast(values, dtype):
    """Casts every tensor in nested values but integers, booleans and float64."""
    castable = lambda value: isinstance(value, torch.Tensor) and value.dtype in CASTABLE
    return tree_map(lambda value: value.to(dtype) if castable(value) else value, values)


def stored_in(path, name, tensor, dtype, weights, named):
    """The dtype in which a tensor of a module is stored."""
    if (path, name) in named:
        return named[path, name] or tensor.dtype
    if path not in weights:
        return dtype
    least, most = weights[path].get(re.sub(r"_l\d+(_reverse)?$", "", name), (1, 0))
    return dtype if least <= tensor.dim() <= most else tensor.dtype


def apply(model):
    """Stores weights in the dtypes of their modules, and returns the hooks that cast."""
    paths = {path for path, _ in model.named_modules(remove_duplicate=False)}
    missing = sorted(set(MODULES) - paths)
    if missing:
        raise KeyError(f"the model has no modules {missing}")
    weights = {path: group["weights"] for group in WEIGHTS for path in group["modules"]}
    named = {(path, name): dtype and getattr(torch, dtype) for path, name, dtype in NAMED}
    hooks = []
    for path, how in MODULES.items():
        module, dtype = model.get_submodule(path), getattr(torch, how["dtype"])
        for name, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            tensor.data = cast(tensor.data, stored_in(path, name, tensor, dtype, weights, named))
        if "inward" in how:
            inward, outward = getattr(torch, how["inward"]), getattr(torch, how["outward"])
            before = lambda _, args, kwargs, dtype=inward: (cast(args, dtype), cast(kwargs, dtype))
            after = lambda _, args, kwargs, output, dtype=outward: cast(output, dtype)
            hooks.append(module.register_forward_pre_hook(before, with_kwargs=True))
            hooks.append(module.register_forward_hook(after, with_kwargs=True))
    return hooks
"#;
