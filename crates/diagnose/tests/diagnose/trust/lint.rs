//! The lint, on planted hazards and on clean networks.

use precast::{
    observe::{EdgeOp, Phase},
    optim::{Method, SgdOptions},
    policy::LossScaleSpec,
    prelude::*,
    storage::Decorate,
};
use precast_diagnose::lint::{Finding, Lint, Place, Rule};
use serde_json::Value;

use super::{
    cases::{Case, plain},
    read,
};

/// Lints the network of a case on the batch with this number.
fn findings(case: &Case<'_>, batch: u64) -> Result<Vec<Finding>> {
    let Case(value) = case;
    let dtype = case.low();
    let policy = |level: &str| Policy::new(level, dtype);
    let all_low = value["storage_of"] == "all";
    let mut net = case.net();
    if value["storage"] == "low" && !all_low {
        let _ = precast::storage::decorate(&net, Decorate::new(dtype).masters(false))?;
    }
    // The cases normalize with running statistics.
    net.set_train(false);
    let steps: Vec<&str> = value["applied"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let level = value["level"].as_str().unwrap();
    // All but the last policy are applied already.
    let (before, level) = match &steps[..] {
        [policies @ .., region] if region.starts_with("region") => (&policies[..policies.len() - 1], level),
        [policies @ .., last] => (policies, *last),
        [] => (&[][..], level),
    };
    for level in before {
        policy(&level.to_uppercase())?.apply(&mut net)?;
    }
    let region = value["region_around"].is_string() || steps.iter().any(|step| step.starts_with("region"));
    let x = case.input(batch);
    let loss = |net: &Child<Sequential>| {
        let call = || net.call(&x);
        let y = if region { autocast(Autocast::new("precast-1")?.dtype(dtype), call)? } else { call()? };
        match value["loss"]["kind"].as_str() {
            Some("mean_square") => y.square()?.mean_all(),
            _ => case.loss(&y),
        }
    };
    let lint = Lint::new()
        .loss_scale(LossScaleSpec::Fixed { scale: case.loss_scale() })
        .update(Method::Sgd(SgdOptions::default()), case.lr());
    // A pack that keeps no cells lets statistics be stored low.
    let lint = match all_low {
        true => lint.storage(Decorate::new(dtype).masters(false).pack("torch-2.15-cuda")?),
        false => lint,
    };
    let level = if level == "auto" { level.to_string() } else { level.to_uppercase() };
    lint.under(&policy(&level)?, &mut net, loss)
}

/// Returns whether a finding is the expected one.
fn is_expected(finding: &Finding, wanted: &Value) -> bool {
    let op = |name: &str| name.to_lowercase().replace("matmulext", "matmul").replace("batchmatmul", "matmul");
    let place = |place: &Place| {
        let phase = if place.phase == Phase::Forward { "forward" } else { "backward" };
        let name = match place.op {
            EdgeOp::Op(op) => op.name().to_string(),
            other => other.to_string(),
        };
        wanted["phase"] == phase
            && wanted["cell"] == plain(&place.cell)
            && wanted["op"].as_str().is_none_or(|wanted| op(wanted) == op(&name))
    };
    let cell = || wanted["cell"] == "*" || wanted["cell"] == plain(&finding.cell) || wanted["cell"] == "";
    wanted["rule"] == finding.rule.name()
        && match wanted["phase"].is_string() {
            true => finding.place.iter().chain(&finding.then).any(place),
            false => cell(),
        }
}

#[test]
fn hazards_are_found_and_clean_networks_are_not() {
    let (mut right, mut hazards, mut called, mut clean) = (0, 0, 0, 0);
    for value in read("lint.jsonl") {
        let case = Case(&value);
        let wanted: Vec<&Value> = value["expect"].as_array().unwrap().iter().collect();
        let first: Vec<&Value> = wanted.iter().filter(|wanted| wanted["first"] == true).copied().collect();
        let decides = if first.is_empty() { &wanted } else { &first };
        let mut whole = true;
        let mut wrong = false;
        for batch in [0, 1] {
            let found = match findings(&case, batch) {
                Ok(found) => found,
                Err(error) => {
                    println!("{}: {error}", case.id());
                    whole = false;
                    continue;
                }
            };
            for wanted in decides.iter().filter(|w| !found.iter().any(|finding| is_expected(finding, w))) {
                whole = false;
                println!("{} batch {batch}: not found {wanted}", case.id());
                found.iter().for_each(|finding| println!("    {finding}"));
            }
            for finding in found.iter().filter(|finding| finding.rule != Rule::ShapeOf8) {
                let rule = finding.rule;
                if wanted.is_empty() {
                    wrong = true;
                    println!("{} batch {batch}: clean, but {finding}", case.id());
                } else if !wanted.iter().any(|wanted| wanted["rule"] == rule.name()) {
                    println!("{} batch {batch}: also {finding}", case.id());
                }
            }
        }
        match value["hazard"] == true {
            true => (hazards, right) = (hazards + 1, right + usize::from(whole)),
            false => (clean, called) = (clean + 1, called + usize::from(wrong)),
        }
    }
    println!("trust lint: {right} of {hazards} hazards, {called} of {clean} clean called");
    assert!(right == hazards && called * 20 <= clean);
}
