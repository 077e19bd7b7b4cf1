//! Faults planted in small runs with dropout and shuffles, each saved and replayed with one thread and with two.

use precast::{
    Op,
    io::models::Model,
    observe::{Edge, EdgeOp, Subject},
    set_threads,
};
use precast_train::{Replay, Run, RunFile, SavedFault};

use crate::common::folder::Folder;

/// A network of its own for each case: its width, depth, activation, norms and dropouts.
fn model(case: u64) -> String {
    let width = [24, 48, 256][case as usize % 3];
    let activation = ["ReLU", "Tanh", "GELU"][(case / 3) as usize % 3];
    let dropout = format!("{{kind: Dropout, p: 0.{}}}", 1 + case % 5);
    let mut cells = vec![format!("{{kind: Dense, in_features: 64, out_features: {width}}}")];
    for at in 0..1 + case % 2 {
        if (case + at).is_multiple_of(3) {
            cells.push(format!("{{kind: BatchNorm1d, num_features: {width}}}"));
        }
        cells.push(format!("{{kind: {activation}}}"));
        cells.push(dropout.clone());
        cells.push(format!("{{kind: Dense, in_features: {width}, out_features: {width}}}"));
    }
    cells.push(format!("{{kind: {activation}}}"));
    cells.push(format!("{{kind: Dense, in_features: {width}, out_features: 10}}"));
    format!("{{version: 1, input: [64], net: {{kind: Sequential, cells: [{}]}}}}", cells.join(", "))
}

/// A loss scale that grows until a gradient overflows, one that is too large from the start, and learning rates with which
/// the forward pass overflows after some steps.
fn fault(case: u64) -> (String, f64) {
    match case % 4 {
        0 => {
            let interval = 2 + case % 3;
            (
                format!(
                    "{{kind: dynamic, init: 4096, growth: 4, backoff: 0.5, interval: {interval}, min: 1, max: 1.0e30}}"
                ),
                0.1,
            )
        }
        1 => (format!("{{kind: fixed, scale: 1.0e{}}}", 7 + case % 3), 0.1),
        2 => ("{kind: none}".into(), 2000.0 + 100.0 * (case % 7) as f64),
        _ => (
            "{kind: dynamic, init: 65536, growth: 2, backoff: 0.5, interval: 3, min: 16384, max: 1.0e30}".into(),
            500.0,
        ),
    }
}

/// Trains the run of a case, replays its saved faults, and returns their number and that of the replays that differ.
fn replayed(case: u64, most: usize) -> (usize, usize) {
    let files = Folder::new(&format!("planted-{case}"));
    let (scale, lr) = fault(case);
    files.write("model.yaml", &model(case));
    files.write("policy.yaml", &format!("{{version: 1, level: O3, dtype: float16, loss_scale: {scale}}}"));
    let batch = [10, 16, 32][case as usize % 3];
    let text = format!(
        "{{version: 1, model: model.yaml, policy: policy.yaml, data: digits, test: 1700, epochs: 4, batch: {batch}, lr: {lr}, \
         seed: {case}, lint: false, checkpoint: {{every: {}}}}}",
        2 + case % 5
    );
    let file = RunFile::load(files.write("run.yaml", &text)).unwrap();
    let folder = Folder::to_come(&format!("planted-{case}-run"));
    let model = || -> Model { file.read_model().unwrap() };
    set_threads(1 + case as usize % 2);
    // It may stall.
    let _ = Run::begin(&file, model(), &folder).unwrap().train().unwrap();
    let places = SavedFault::all(&folder).unwrap();
    let mut differ = 0;
    let places: Vec<_> = places.into_iter().take(most).collect();
    for (place, fault) in &places {
        for threads in [1, 2] {
            set_threads(threads);
            let replayed = Replay::open(place, model()).unwrap().run().unwrap();
            // A replay also looks at low copies of parameters, which a run does in some steps alone.
            let is_copy = |edge: &Edge| matches!(edge.subject, Subject::Param(_)) && edge.op == EdgeOp::Op(Op::Cast);
            let found: Vec<&Edge> = replayed.record.not_finite().collect();
            let first = found.iter().position(|edge| !is_copy(edge)).unwrap_or(found.len());
            let edge = &fault.origin.edge;
            let is_it = |met: &&&Edge| (met.phase, &met.cell, met.op) == (edge.phase, &edge.cell, edge.op);
            let same = replayed.is_same && found.iter().take(first + 1).any(|met| is_it(&met));
            if !same {
                println!("case {case}, step {}, {threads} threads: not {edge}", fault.step);
            }
            differ += usize::from(!same);
        }
    }
    set_threads(0);
    (places.len(), differ)
}

/// Replays faults until there are so many of them, at most three of a run.
fn replay(wanted: usize) {
    let (mut faults, mut differ, mut case) = (0, 0, 0);
    while faults < wanted && case < 2 * wanted as u64 + 10 {
        let (met, wrong) = replayed(case, (wanted - faults).min(3));
        (faults, differ, case) = (faults + met, differ + wrong, case + 1);
    }
    println!(
        "replay: {faults} faults of {case} runs, with one thread and with two; {differ} of {} replays differ",
        2 * faults
    );
    assert_eq!((faults, differ), (wanted, 0));
}

#[test]
fn planted_faults_are_replayed_with_one_thread_and_with_two() {
    replay(3);
}

#[test]
#[ignore = "takes minutes"]
fn a_hundred_planted_faults_are_replayed_with_one_thread_and_with_two() {
    replay(100);
}
