//! Invariants of a lowered network: the names of its parameters, and the last requested level. No difference may
//! explain a disagreement here.

use precast::Child;

use crate::mindspore::{
    case::{Case, Ours},
    networks::Kit,
};

pub fn param_names(net: &Child) -> Vec<String> {
    net.named_params().into_iter().map(|(name, _)| name).collect()
}

/// Lists where a network of single ops has not kept what the recorded one kept.
pub fn broken(case: &Case<'_>, ours: &Ours) -> Vec<String> {
    let mut wrong = vec![];
    let names = &ours.param_names;
    if case.network(Kit::Unfused).map(|net| param_names(&net)).as_ref() != Ok(names) {
        wrong.push(format!("lowering has renamed parameters: {names:?}"));
    }
    // MindSpore inserts a word into the name for each wrapper around the parameter. A shared one has a single name
    // there.
    let theirs = case.record.param_names.iter().flatten().map(|name| name.replace("_backbone.", ""));
    wrong.extend(theirs.filter(|name| !names.contains(name)).map(|name| format!("no parameter is called `{name}`")));
    let level = case.record.level.as_deref().filter(|level| !level.is_empty());
    if level.is_some_and(|level| level.parse() != Ok(ours.plan.policy.level)) {
        wrong.push(format!("level {level:?} is remembered there, {} here", ours.plan.policy.level));
    }
    wrong
}
