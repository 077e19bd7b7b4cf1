//! For torch: hooks that cast what goes into a module and what comes out.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Plan, json_in_python};
use crate::{DType, cell::Adapter};

#[derive(Serialize)]
struct Module {
    /// The dtype in which it runs, and its parameters are stored.
    dtype: DType,
    /// The dtype to which its inputs are cast, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    inward: Option<DType>,
    /// The dtype to which its outputs are cast.
    #[serde(skip_serializing_if = "Option::is_none")]
    outward: Option<DType>,
}

pub(super) fn text(plan: &Plan, cannot_say: &[String]) -> String {
    let modules = plan.decisions.iter().filter_map(|decision| {
        let cast = match &decision.adapter {
            Some(Adapter::Cast(cast) | Adapter::CastOps(cast, _)) => Some(cast),
            _ => None,
        };
        let (inward, outward) = (cast.map(|cast| cast.inward), cast.map(|cast| cast.outward));
        Some((decision.path.as_str(), Module { dtype: decision.run.dtype()?, inward, outward }))
    });
    let modules: BTreeMap<&str, Module> = modules.collect();
    let head =
        plan.python_head("torch", "`hooks = apply(model)` casts; `hook.remove()` of each takes it back.", cannot_say);
    format!("{head}\n{BEFORE}MODULES = {}\n{AFTER}", json_in_python(&modules))
}

pub(super) fn cannot_say() -> Vec<String> {
    vec![
        "float32 masters: parameters of modules that run low are stored low".into(),
        "one rounding for each op: what a kernel rounds inside is the library's own".into(),
    ]
}

const BEFORE: &str = "\
import json

import torch
from torch.utils._pytree import tree_map

# For each module the dtype in which it runs; `inward` and `outward` are those of its inputs and outputs where they are cast.
";

const AFTER: &str = r#"
CASTABLE = (torch.float32, torch.float16, torch.bfloat16)


def cast(values, dtype):
    """Casts every tensor in nested values but integers, booleans and float64."""
    castable = lambda value: isinstance(value, torch.Tensor) and value.dtype in CASTABLE
    return tree_map(lambda value: value.to(dtype) if castable(value) else value, values)


def apply(model):
    """Stores parameters and buffers in the dtypes of their modules, and returns the hooks that cast."""
    paths = {path for path, _ in model.named_modules(remove_duplicate=False)}
    missing = sorted(set(MODULES) - paths)
    if missing:
        raise KeyError(f"the model has no modules {missing}")
    hooks = []
    for path, how in MODULES.items():
        module, dtype = model.get_submodule(path), getattr(torch, how["dtype"])
        for tensor in [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
            tensor.data = cast(tensor.data, dtype)
        if "inward" in how:
            inward, outward = getattr(torch, how["inward"]), getattr(torch, how["outward"])
            before = lambda _, args, kwargs, dtype=inward: (cast(args, dtype), cast(kwargs, dtype))
            after = lambda _, args, kwargs, output, dtype=outward: cast(output, dtype)
            hooks.append(module.register_forward_pre_hook(before, with_kwargs=True))
            hooks.append(module.register_forward_hook(after, with_kwargs=True))
    return hooks
"#;
