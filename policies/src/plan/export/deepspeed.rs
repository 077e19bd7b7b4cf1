//! Export to DeepSpeed: its `torch_autocast`, which names classes of modules.

use std::collections::{BTreeMap, BTreeSet};

use super::{Decision, Json, Plan};
use crate::{kinds::elsewhere, plan::words::cells};

/// Returns the cells of each kind that has a class in torch.
fn classes(plan: &Plan) -> BTreeMap<&'static str, Vec<&Decision>> {
    let mut classes = BTreeMap::<_, Vec<&Decision>>::new();
    for decision in &plan.decisions {
        if let Some(name) = elsewhere(&decision.kind).and_then(|names| names.torch.first().copied()) {
            classes.entry(name).or_default().push(decision);
        }
    }
    classes
}

pub(super) fn text(plan: &Plan, cannot_say: &[String]) -> String {
    let low = classes(plan).into_iter().filter(|(_, cells)| cells.iter().all(|cell| cell.runs_low()));
    let low: Vec<String> = low.map(|(name, _)| format!("torch.nn.{name}")).collect();
    let enabled = plan.decisions.iter().any(|decision| decision.run.lowers());
    let cannot_say = Json::list(cannot_say.iter().map(String::as_str));
    let config = Json::map([
        ("_precast", Json::map([("cannot_say", cannot_say), ("policy", plan.policy.to_string().into())])),
        (
            "torch_autocast",
            Json::map([
                ("dtype", plan.policy.dtype.into()),
                ("enabled", enabled.into()),
                ("lower_precision_safe_modules", Json::list(low)),
            ]),
        ),
    ]);
    config.pretty() + "\n"
}

pub(super) fn cannot_say(plan: &Plan) -> Vec<String> {
    let mut lines = vec![
        "single modules: `lower_precision_safe_modules` names classes, and says in which dtype they communicate"
            .to_string(),
        "which op runs low: `torch.autocast` goes by its own lists of ops".into(),
    ];
    let classes = classes(plan);
    for (name, of) in &classes {
        let low = of.iter().filter(|cell| cell.runs_low()).count();
        if low > 0 && low < of.len() {
            lines.push(format!(
                "{low} of {} of the class torch.nn.{name} run low: the class is left out",
                cells(of.len())
            ));
        }
    }
    let known: BTreeSet<&str> = classes.values().flatten().map(|cell| cell.path.as_str()).collect();
    let strange = plan.decisions.iter().filter(|d| d.runs_low() && !known.contains(d.path.as_str())).count();
    if strange > 0 {
        lines.push(format!("cells that run low and are of no class in torch.nn: {strange}"));
    }
    lines
}
