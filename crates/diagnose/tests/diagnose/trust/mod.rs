//! Planted faults, hazards and fragile cells: the cases of SPEC.md, or of the folder that `PRECAST_TRUST` names.

mod cases;
mod cured;
mod digits;
mod lint;
mod monitored;
mod search;

use std::{collections::BTreeMap, env, fs, path::PathBuf};

use self::cases::{Case, plain};
use precast::{
    observe::{Edge, FaultKind, Phase},
    prelude::*,
};
use precast_diagnose::Record;
use serde_json::Value;

fn read(name: &str) -> Vec<Value> {
    let own = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/diagnose/trust/given");
    let folder = env::var_os("PRECAST_TRUST").map_or_else(own, PathBuf::from);
    let path = folder.join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs the step of a case and records it.
fn step(case: &Case<'_>) -> Result<(Result<Outcome>, Record)> {
    let net = case.lowered(|policy| policy)?;
    let scale = LossScale::fixed(case.loss_scale())?;
    Ok(Record::of(&net, |net| take(case, net, scale)))
}

/// Returns whether an edge is the one of a case: phase, cell and op.
fn is_at(found: &Edge, truth: &Value) -> bool {
    let phase = match found.phase {
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::Unscale => "unscale",
        Phase::Optimizer => "optimizer",
    };
    let op = |name: String| name.to_lowercase().replace("matmulext", "matmul").replace("batchmatmul", "matmul");
    truth["phase"] == phase
        && truth["cell"] == plain(&found.cell)
        && op(truth["op"].as_str().unwrap().into()) == op(found.op.to_string())
}

/// Takes the step of a case with a loss scale.
fn take(case: &Case<'_>, net: &Child<Sequential>, mut scale: LossScale) -> Result<Outcome> {
    let (x, mut optimizer) = (case.input(0), Sgd::new(net.params(), case.lr()));
    let loss = case.loss(&net.call(&x)?)?;
    scale.step(&mut optimizer, &loss)
}

#[test]
fn the_first_faulty_edge_is_named() {
    let mut families = BTreeMap::<String, [usize; 3]>::new();
    let (mut quiet, mut called, mut kinds) = (0, 0, 0);
    for value in read("faults.jsonl") {
        let case = Case(&value);
        let truth = &value["truth"];
        let (outcome, record) = step(&case).unwrap();
        let fault = record.fault();
        if truth["kind"] == "none" {
            quiet += 1;
            if let Some(fault) = fault {
                called += 1;
                println!("{}: quiet, but {fault}", case.id());
            }
            continue;
        }
        let family = families.entry(value["family"].as_str().unwrap().into()).or_default();
        let edge = &truth["edge"];
        let Some(fault) = fault else {
            family[2] += 1;
            println!("{}: nothing found; truth {edge}; {outcome:?}", case.id());
            continue;
        };
        let right = is_at(fault.edge, edge);
        family[usize::from(!right)] += 1;
        if !right {
            println!("{}: WRONG {fault}; truth {edge}", case.id());
        }
        let kind = match fault.kind {
            FaultKind::Inf => "inf",
            FaultKind::Nan => "nan",
            FaultKind::Flush => "flush",
            FaultKind::Lost => "lost",
        };
        let inputs = truth["from_finite"].as_bool().is_none_or(|good| good == fault.edge.good_inputs);
        let good = truth["kind"] == kind && inputs;
        kinds += usize::from(right && good);
        if right && !good {
            println!("{}: kind {fault}; truth {truth}", case.id());
        }
    }
    let sum = |at: usize| families.values().map(|family| family[at]).sum::<usize>();
    let (right, wrong, nothing) = (sum(0), sum(1), sum(2));
    println!("trust faults: {right} right, {wrong} wrong, {nothing} nothing; quiet {called} called faulty");
    println!("trust faults: {kinds} of {} with kind and inputs, {quiet} quiet", right + wrong + nothing);
    // Other cases of the same kinds may be given.
    assert!(right * 100 >= (right + wrong + nothing) * 98 && called * 20 <= quiet);
}
