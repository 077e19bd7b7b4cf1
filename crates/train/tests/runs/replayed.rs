//! Steps of a run, run again from a saved fault: bit for bit, with any number of threads, and their cures.

use std::{fs, path::Path};

use precast::{io::models::Model, set_threads};
use precast_diagnose::{Cure, lint::Rule};
use precast_train::{Replay, SavedFault};
use precast_train::{Run, RunFile};

use crate::common::folder::{Folder, names};

/// A network with running statistics and dropout.
const MODEL: &str = "
version: 1
input: [64]
net:
  kind: Sequential
  cells:
  - {kind: Dense, in_features: 64, out_features: 48}
  - {kind: BatchNorm1d, num_features: 48}
  - {kind: ReLU}
  - {kind: Dropout, p: 0.2}
  - {kind: Dense, in_features: 48, out_features: 10}
";

/// The scale grows until a gradient overflows, in the third epoch: after two checkpoints, shuffles and dropouts.
const POLICY: &str = "
version: 1
level: O3
dtype: float16
loss_scale: {kind: dynamic, init: 1024, growth: 2, backoff: 0.5, interval: 4, min: 1, max: 1.0e30}
";

fn model() -> Model {
    Model::parse(MODEL, "model.yaml", 3).unwrap()
}

#[test]
fn a_saved_fault_is_replayed_bit_for_bit_and_cured() {
    let files = Folder::new("replayed");
    files.write("policy.yaml", POLICY);
    files.write("model.yaml", MODEL);
    let text = "{version: 1, model: model.yaml, policy: policy.yaml, data: digits, test: 1700, epochs: 12, batch: 10, seed: 3}";
    let file = files.write("run.yaml", text);
    let folder = Folder::to_come("replayed-run");
    set_threads(1);
    let mut run = Run::begin(&RunFile::load(file).unwrap(), model(), &folder).unwrap();
    run.train().unwrap();
    let history = run.history();
    let (at, first) =
        history.steps.iter().enumerate().find_map(|(at, step)| Some((at, step.fault()?.clone()))).unwrap();
    assert!(at > 20, "in step {at}: after a checkpoint");
    let place = folder.join(format!("faults/step-{}", at + 1));
    let saved = SavedFault::load(&place).unwrap();
    assert_eq!((saved.step, &saved.origin, saved.taken), (at + 1, &first, false));
    assert_eq!((saved.epoch, saved.batch, saved.examples.len()), (at / 10, at % 10, if at % 10 == 9 { 7 } else { 10 }));
    // Apart from the batch and the parameters.
    let size = std::fs::metadata(place.join("fault.json")).unwrap().len();
    assert!(size <= 64 << 10, "{size} bytes");

    for threads in [1, 2] {
        set_threads(threads);
        let mut replay = Replay::open(&place, model()).unwrap();
        // Twice: the state before the step is that of the run each time.
        for _ in 0..2 {
            let replayed = replay.run().unwrap();
            assert!(replayed.is_same, "{threads} threads");
            let step = &history.steps[at];
            assert_eq!((replayed.step.loss, replayed.step.scale), (step.loss, step.scale));
            let found = replayed.record.fault().unwrap();
            assert_eq!(
                (found.edge.phase, &found.edge.cell, found.edge.op),
                (first.edge.phase, &first.edge.cell, first.edge.op)
            );
        }
        let cure = replay.cure().unwrap().expect("a lower scale");
        assert!(cure.rules.is_empty() && cure.loss_scale.is_some_and(|scale| scale < saved.scale), "{cure}");
    }
    set_threads(0);
    // A folder that is none, and data that changed.
    assert!(Replay::open(folder.join("faults"), model()).is_err());
}

/// Leftovers of processes that were killed while they saved a fault are neither faults nor parts of one.
#[test]
fn a_fault_is_saved_as_a_whole() {
    let files = Folder::new("fault-whole");
    files.write("policy.yaml", POLICY);
    files.write("model.yaml", MODEL);
    let text =
        "{version: 1, model: model.yaml, policy: policy.yaml, data: digits, test: 1700, epochs: 5, batch: 10, seed: 3}";
    let file = RunFile::load(files.write("run.yaml", text)).unwrap();
    let trained = |name: &str, left: &dyn Fn(&Path)| {
        let folder = files.at(name);
        let mut run = Run::begin(&file, model(), &folder).unwrap();
        left(&folder.join("faults"));
        run.train().unwrap();
        SavedFault::all(&folder).unwrap().remove(0)
    };
    let (whole, fault) = trained("whole", &|_| ());
    let step = whole.file_name().unwrap();
    let (again, same) = trained("again", &|faults| {
        fs::create_dir_all(faults.join(step)).unwrap();
        fs::write(faults.join(step).join("left.safetensors"), "").unwrap();
        fs::create_dir_all(faults.join(".precast-1-0.tmp")).unwrap();
        fs::copy(whole.join("fault.json"), faults.join(".precast-1-0.tmp/fault.json")).unwrap();
    });
    assert_eq!((again.file_name().unwrap(), names(&again), &same.origin), (step, names(&whole), &fault.origin));
}

/// The sums of the first layer exceed f16, and `tanh` makes finite numbers of them: every step is taken.
#[test]
fn a_step_taken_with_an_infinity_is_reported_saved_and_cured() {
    let net = "
version: 1
input: [4]
net:
  kind: Sequential
  cells:
  - {kind: Dense, in_features: 4, out_features: 64}
  - {kind: Tanh}
  - {kind: Dense, in_features: 64, out_features: 1}
";
    let model = || Model::parse(net, "model.yaml", 1).unwrap();
    let files = Folder::new("swallowed");
    let rows: String = (0..24).map(|i| format!("{0},{0},-{0},{0},{1}.5\n", 60000 + 200 * i, i % 3)).collect();
    files.write("data.csv", &format!("a,b,c,d,y\n{rows}"));
    files.write("model.yaml", net);
    files.write("policy.yaml", "{version: 1, level: O3, dtype: float16, loss_scale: {kind: none}}");
    let text = "{version: 1, model: model.yaml, policy: policy.yaml, data: {csv: {file: data.csv, target: y}}, test: 4, epochs: 3, \
                batch: 10, lr: 0.0001}";
    let file = files.write("run.yaml", text);
    let folder = Folder::to_come("swallowed-run");
    let mut run = Run::begin(&RunFile::load(file).unwrap(), model(), &folder).unwrap();
    run.train().unwrap();
    let taken: Vec<usize> = run.history().swallowed().map(|(at, _)| at).collect();
    let all: Vec<usize> = (0..run.history().steps.len()).filter(|&at| !run.history().steps[at].is_skipped()).collect();
    assert!(!taken.is_empty() && taken == all, "{taken:?} of {all:?}");
    let (at, origin) = run.history().swallowed().next().map(|(at, origin)| (at, origin.clone())).unwrap();
    assert_eq!(origin.to_string().split(':').next(), Some("Linear in `0`, forward pass"));
    // One of each place is saved, and the metrics have the rest.
    let places = run.faults().unwrap();
    let place = places.iter().find(|folder| SavedFault::load(folder).unwrap().origin == origin).unwrap();
    assert!(SavedFault::load(place).unwrap().taken);
    let metrics = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    assert_eq!(metrics.matches("\"swallowed\"").count(), taken.len());
    let mut replay = Replay::open(place, model()).unwrap();
    assert_eq!(replay.fault().step, at + 1);
    assert!(replay.run().unwrap().is_same);
    let cure = replay.cure().unwrap().expect("f32 holds these numbers");
    assert!((1..=2).contains(&cure.rules.len()), "{cure}");
}

/// Trains the built-in network at O3 with a fixed loss scale and a learning rate, and replays its last saved fault.
fn replay_of_mlp(test: &str, scale: &str, lr: f64) -> Replay {
    let files = Folder::new(test);
    files.write("policy.yaml", &format!("{{version: 1, level: O3, dtype: float16, loss_scale: {scale}}}"));
    let text = format!("{{version: 1, model: mlp, policy: policy.yaml, data: digits, epochs: 2, lr: {lr}}}");
    let file = RunFile::load(files.write("run.yaml", &text)).unwrap();
    let folder = Folder::to_come(&format!("{test}-run"));
    let mut run = Run::begin(&file, file.read_model().unwrap(), &folder).unwrap();
    // It may stall.
    let _ = run.train();
    let place = run.faults().unwrap().pop().expect("a fault");
    Replay::open(place, file.read_model().unwrap()).unwrap()
}

/// The largest power of two with which no gradient overflows is found from any distance, and no rule is needed.
#[test]
fn a_fixed_scale_far_too_large_is_cured_by_one_that_fits_alone() {
    for scale in ["1e6", "1e9", "1e30"] {
        let mut replay = replay_of_mlp(&format!("scale-{scale}"), &format!("{{kind: fixed, scale: {scale}}}"), 0.1);
        let cure = replay.cure().unwrap().expect("a smaller scale");
        let fits = cure.loss_scale.unwrap_or_else(|| panic!("{scale}: {cure}"));
        assert!(cure.rules.is_empty() && fits >= 1024.0 && fits.log2().fract() == 0.0, "{scale}: {cure}");
        let mut faulty = |scale| {
            let cure = Cure { loss_scale: Some(scale), ..Cure::default() };
            replay.run_with(&cure).unwrap().record.fault().is_some_and(|fault| fault.kind.is_overflow())
        };
        // Twice as much may be near the limit, four times as much is beyond.
        assert!(!faulty(fits) && faulty(4.0 * fits), "{scale}: {cure}");
    }
}

#[test]
fn a_step_that_diverges_in_f32_has_no_cure() {
    let mut replay = replay_of_mlp("diverged", "{kind: fixed, scale: 128}", 3000.0);
    assert_eq!(replay.cure().unwrap(), None);
    assert!(replay.not_by_precision().unwrap().is_some());
}

/// Inputs beyond f16 need the root in f32, and the cells in it as before.
#[test]
fn the_rules_that_a_lint_writes_cure_large_inputs() {
    let net = "{version: 1, input: [4], net: {kind: Sequential, cells: [{kind: Dense, in_features: 4, out_features: 8}, \
               {kind: ReLU}, {kind: Dense, in_features: 8, out_features: 1}]}}";
    let files = Folder::new("lint-written");
    let rows: String = (0..24).map(|i| format!("{0},{0},-{0},{0},{1}.5\n", 100_000 + 200 * i, i % 3)).collect();
    files.write("data.csv", &format!("a,b,c,d,y\n{rows}"));
    files.write("model.yaml", net);
    let lint = |rules: &str| {
        files.write(
            "policy.yaml",
            &format!("{{version: 1, level: O2, dtype: float16, loss_scale: {{kind: none}}{rules}}}"),
        );
        let text = "{version: 1, model: model.yaml, policy: policy.yaml, data: {csv: {file: data.csv, target: y}}, test: 4, batch: 10}";
        let file = RunFile::load(files.write("run.yaml", text)).unwrap();
        file.lint(file.read_model().unwrap()).unwrap()
    };
    let found = lint("");
    assert_eq!((found[0].rule, found[0].cell.as_str()), (Rule::Overflow, ""));
    // f32 reaches as far as the numbers do not fit, so cells that read them may follow.
    let (mut rules, mut left) = (String::new(), found);
    for _ in 0..3 {
        let Some(next) = left.iter().find(|finding| finding.rule == Rule::Overflow) else { break };
        let next = next.write.strip_prefix("rules: [").and_then(|text| text.strip_suffix(']')).unwrap();
        rules = if rules.is_empty() { next.to_string() } else { format!("{next}, {rules}") };
        left = lint(&format!(", rules: [{rules}]"));
    }
    assert!(left.iter().all(|finding| finding.rule != Rule::Overflow), "{rules}: {left:?}");
}
