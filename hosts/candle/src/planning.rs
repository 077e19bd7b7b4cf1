//! Plans for candle: what a policy may ask for, and what the network must have for it.

use precast_base::printable;
use precast_policy::{
    self as policy, Level, Plan, Policy,
    plan::Decision,
    policy::{Origin, RunAs},
};

use crate::{Result, border::changes, learned::Learned};

/// Returns the policy without the op lists of its pack: candle's ops cannot be intercepted.
///
/// # Errors
/// [`ErrorKind::Unsupported`](policy::ErrorKind::Unsupported) for all that a user asked for and candle cannot do.
pub(crate) fn for_candle(policy: &Policy) -> Result<Policy> {
    let refuse = |words: String| Err(policy::Error::new(policy::ErrorKind::Unsupported, words).into());
    if policy.level == Level::Auto {
        return refuse(
            "level auto decides for each op by lists, and candle's ops cannot be intercepted; use O1, O2 or O3, which decide \
             for each layer"
                .into(),
        );
    }
    if let Some((op, entry)) = policy.lists.ops().iter().find(|(_, entry)| !matches!(entry.origin, Origin::Pack(_))) {
        return refuse(format!(
            "{}: the op `{op}` is on a list, and candle's ops cannot be intercepted; write a rule for the layer that calls it",
            entry.origin
        ));
    }
    for rule in policy.rules.iter().filter(|_| policy.level != Level::O0) {
        let asks = if rule.checkpoint == Some(true) {
            "recomputes activations, which candle does not; leave it out"
        } else if rule.raise_after_stall {
            "raises a cell after a stall; plan and apply the policy with `run: float32` for it when `step` returns `Stalled`"
        } else if rule.until.is_some() {
            "ends during the run; plan and apply `policy.after_steps(steps)` then"
        } else if rule.run == Some(RunAs::LowForward) {
            "asks for gradients of weights in float32, which candle does not compute beside low products; use `low` or `float32`"
        } else {
            continue;
        };
        return refuse(format!("{}: the rule for {} {asks}", rule.origin, rule.select));
    }
    let mut policy = policy.clone();
    let ops: Vec<_> = policy.lists.ops().keys().copied().collect();
    ops.into_iter().for_each(|op| drop(policy.lists.remove_op(op)));
    Ok(policy)
}

/// Checks what candle's layers need of a plan.
///
/// # Errors
/// [`ErrorKind::Plan`](policy::ErrorKind::Plan) for a cell whose precision differs from that around it without an
/// [`Amp`](crate::Amp), and for a low batch norm.
pub(crate) fn check(plan: &Plan, learned: &Learned) -> Result<()> {
    let has_statistics = |decision: &&Decision| {
        let mut variables = learned.variables.iter();
        let is_low = decision.run.dtype().is_some_and(policy::DType::is_low);
        is_low && variables.any(|variable| variable.is_statistic() && path_of(&variable.name) == decision.path)
    };
    if let Some(decision) = plan.decisions.iter().find(has_statistics) {
        return Err(policy::Error::plan(format!(
            "`{}` would run in {}, and candle's batch norm mixes its input with running statistics in f32; add the rule \
             `{{ path: {0}, run: float32-inside }}`",
            printable(&decision.path),
            decision.run
        ))
        .into());
    }
    let is_bare = |decision: &&Decision| {
        let path = &decision.path;
        let casts = learned.wrapped.contains_key(path) || learned.by_hand.contains(path);
        !path.is_empty() && !casts && changes(plan, decision)
    };
    let bare: Vec<&Decision> = plan.decisions.iter().filter(is_bare).collect();
    let Some(first) = bare.first() else { return Ok(()) };
    let list: Vec<String> =
        bare.iter().map(|cell| format!("`{}` ({})", printable(&cell.path), cell.effect())).collect();
    let name = first.path.rsplit('.').next().unwrap_or_default();
    let ours = match &*first.kind {
        "LayerNorm" => "build it by `precast_candle::layer_norm`, which casts by the plan and has a backward pass, or ",
        "RmsNorm" => "build it by `precast_candle::rms_norm`, which casts by the plan and has a backward pass, or ",
        "Embedding" => "build it by `precast_candle::embedding`, which casts by the plan, or ",
        "Dense" => "build it by `precast_candle::linear`, which casts by the plan, or ",
        _ => "",
    };
    let path = printable(&first.path);
    Err(policy::Error::plan(format!(
        "{}: tensors need casts at a change of precision, and these cells have none. For `{path}`, {ours}wrap \
         it: `Amp::new(vb.pp(\"{name}\"), |vb| ..)?` in place of `..(vb.pp(\"{name}\"))?`. If the code around it casts, declare it: \
         `by_hand(\"{path}\")`",
        list.join(", "),
    ))
    .into())
}

fn path_of(name: &str) -> &str {
    policy::weights::cell_of(name).0
}
