//! Policies whose decisions change during a run: rules end, and cells that stall the run are raised to f32.

use std::{fs, ops::ControlFlow, path::Path};

use precast::{Policy, io::models::Model};
use precast_train::Event;
use precast_train::{
    EndReason, Predictor, Replay, Run, RunFile, SavedFault, history_of,
    report::{RunReport, runs_html},
};

use crate::common::{folder::Folder, metrics::metrics};

const MODEL: &str = "
version: 1
input: [64]
net:
  kind: Sequential
  cells:
  - {kind: Dense, in_features: 64, out_features: 16}
  - {kind: ReLU}
  - {kind: Dropout, p: 0.2}
  - {kind: Dense, in_features: 16, out_features: 10}
";

/// The sums of the first layer exceed f16, and so does everything that reads them.
const LARGE: &str = "
version: 1
input: [4]
net:
  kind: Sequential
  cells:
  - {kind: Dense, in_features: 4, out_features: 64}
  - {kind: ReLU}
  - {kind: Dense, in_features: 64, out_features: 1}
";

fn run_of(files: &Folder, policy: &str, to: &Path) -> Run {
    files.write("policy.yaml", policy);
    files.write("model.yaml", MODEL);
    let text = "{version: 1, model: model.yaml, policy: policy.yaml, data: digits, test: 1700, epochs: 3, batch: 10, \
                optimizer: adam}";
    let file = RunFile::load(files.write("run.yaml", text)).unwrap();
    Run::begin(&file, file.read_model().unwrap(), to).unwrap()
}

/// Trains a run that is stopped and resumed after every event, and compares it with the same run in one go.
fn stopped_at_every_event(mut run: Run, whole: &Path, to: &Path) {
    let model = |to: &Path| -> Model { RunFile::of_folder(to).unwrap().read_model().unwrap() };
    while run.train_with(&mut |_| ControlFlow::Break(())).unwrap() == EndReason::Interrupted {
        drop(run);
        run = Run::resume(to, model(to)).unwrap();
    }
    for name in ["last.safetensors", "best.safetensors", "policy.yaml", "policy-now.yaml", "plan.txt"] {
        assert!(fs::read(whole.join(name)).unwrap() == fs::read(to.join(name)).unwrap(), "{name}");
    }
    assert_eq!(metrics(whole), metrics(to));
}

#[test]
fn a_warm_up_in_f32_ends_after_its_steps_and_resumes_bit_for_bit() {
    let files = Folder::new("warm-up");
    let head = "version: 1\nlevel: O3\ndtype: bfloat16\n";
    let policy = format!("{head}rules:\n  - path: '**'\n    run: float32\n    until: {{ step: 13 }}\n");
    let whole = Folder::to_come("warm-up-whole");
    let mut run = run_of(&files, &policy, &whole);
    assert_eq!(run.train().unwrap(), EndReason::Done);
    let losses = |run: &Run| run.history().steps.iter().map(|step| step.loss).collect::<Vec<f64>>();
    let warmed = losses(&run);
    drop(run);

    // The same steps in f32 alone, and the steps after the warm-up are others.
    let full = Folder::to_come("warm-up-full");
    let mut run = run_of(&files, &head.replace("O3", "O0"), &full);
    run.train().unwrap();
    let equal = warmed.iter().zip(&losses(&run)).take_while(|(a, b)| a == b).count();
    assert_eq!((equal, warmed.len()), (13, 30));
    let now = Policy::load(whole.join("policy-now.yaml")).unwrap();
    assert!(now.rules.is_empty());
    // The end is noted; the casts are those of the first step, in f32.
    let history = history_of(&whole).unwrap();
    assert_eq!(history.ended.iter().map(|ended| ended.step).collect::<Vec<_>>(), [13]);
    assert_eq!(history.ended[0].to_string(), "the rule for the path ** (run: float32) ended after step 13");
    assert_eq!(history.casts, 0);
    let html = runs_html(&RunReport::of(&whole).unwrap(), &[]).unwrap();
    assert!(html.contains("the rule for the path ** (run: float32) ended after step 13"));
    assert!(!full.join("policy-now.yaml").exists());
    let plan = fs::read_to_string(whole.join("plan.txt")).unwrap();
    assert!(plan.contains("runs f32 until step 13, then runs bf16"), "{plan}");
    assert!(plan.contains("(run: float32 until step 13)"), "{plan}");

    let stopped = Folder::to_come("warm-up-stopped");
    stopped_at_every_event(run_of(&files, &policy, &stopped), &whole, &stopped);
    // Predictions are in the precision of the last step.
    let file = RunFile::of_folder(&whole).unwrap();
    let predictor = Predictor::of_folder(&whole, file.read_model().unwrap()).unwrap();
    assert!(predictor.into_net().unwrap().adapter().is_some());
    // They are refused under another policy than one that the run had.
    let now = whole.join("policy-now.yaml");
    let text = fs::read_to_string(&now).unwrap();
    for (changed, words) in [
        (Some(text.replace("O3", "O1")), "`policy-now.yaml` is not a policy that the run had"),
        (Some(String::new()), "`policy-now.yaml` is not a policy that the run had"),
        (None, "`policy-now.yaml` is missing"),
    ] {
        match changed {
            Some(changed) => fs::write(&now, changed).unwrap(),
            None => fs::remove_file(&now).unwrap(),
        }
        let error = Predictor::of_folder(&whole, file.read_model().unwrap()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    fs::write(&now, text).unwrap();
    Predictor::of_folder(&whole, file.read_model().unwrap()).unwrap();
}

/// The file is that of the checkpoint, whatever became of it, and a note says so.
#[test]
fn the_policy_of_the_next_step_is_written_again_when_it_was_changed() {
    let files = Folder::new("policy-now");
    let rules = "rules:\n  - { path: '**', run: float32, until: { step: 2 } }\n  - { path: '*', run: float32, until: { step: 30 } }\n";
    let to = Folder::to_come("policy-now-run");
    let mut run = run_of(&files, &format!("version: 1\nlevel: O3\ndtype: bfloat16\n{rules}"), &to);
    let idle = run.notes().iter().filter(|note| note.contains("policy.yaml:6:5: the rule for the path * does not end"));
    assert_eq!(idle.count(), 1, "{:?}", run.notes());
    let _ = run.train_with(&mut |event| match event {
        Event::Ended(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    drop(run);
    let file = to.join("policy-now.yaml");
    let whole = fs::read_to_string(&file).unwrap();
    let notes = || {
        let model = RunFile::of_folder(&to).unwrap().read_model().unwrap();
        let run = Run::resume(&*to, model).unwrap();
        let of_it = run.notes().iter().filter(|note| note.contains("`policy-now.yaml`"));
        of_it.cloned().collect::<Vec<String>>()
    };
    assert!(notes().is_empty());
    fs::write(&file, whole.replace("O3", "O1")).unwrap();
    assert_eq!(notes(), ["`policy-now.yaml` was not the policy of the checkpoint, and is written again"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), whole);
    fs::remove_file(&file).unwrap();
    assert_eq!(notes(), ["`policy-now.yaml` was missing, and is written again"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), whole);
}

fn large(files: &Folder, rules: &str, more: &str, to: &Path) -> precast::Result<Run> {
    let rows: String = (0..84).map(|i| format!("{0},{0},-{0},{0},{1}.5\n", 60000 + 20 * i, i % 3)).collect();
    files.write("data.csv", &format!("a,b,c,d,y\n{rows}"));
    files.write("model.yaml", LARGE);
    let head = "version: 1\nlevel: O3\ndtype: float16\nloss_scale: { kind: none }\n";
    files.write("policy.yaml", &format!("{head}{rules}"));
    let text = format!(
        "{{version: 1, model: model.yaml, policy: policy.yaml, data: {{csv: {{file: data.csv, target: y}}}}, test: 4, epochs: 5, \
         batch: 10, lr: 1.0e-13{more}}}"
    );
    let file = RunFile::load(files.write("run.yaml", &text))?;
    Run::begin(&file, file.read_model()?, to)
}

const RAISE: &str = "rules:\n  - path: '**'\n    after_stall: raise\n";

#[test]
fn a_cell_that_stalls_a_run_is_raised_and_the_run_continues() {
    let files = Folder::new("stall");
    let stalled = Folder::to_come("stall-stalled");
    assert_eq!(large(&files, "", "", &stalled).unwrap().train().unwrap(), EndReason::Stalled);

    let whole = Folder::to_come("stall-whole");
    let mut run = large(&files, RAISE, "", &whole).unwrap();
    let mut seen = Vec::new();
    let ended = run.train_with(&mut |event| {
        if let Event::Raised(raised) = event {
            seen.push(raised.clone());
        }
        ControlFlow::Continue(())
    });
    assert_eq!(ended.unwrap(), EndReason::Done);
    let history = run.history();
    assert_eq!(history.raised, seen);
    let cells: Vec<&str> = seen.iter().map(|raised| raised.origin.edge.cell.as_str()).collect();
    assert_eq!((cells[0], seen[0].step), ("0", 20));
    assert!(!history.steps.last().unwrap().is_skipped());
    // The event is in the metrics, and the policy has a rule for each.
    let lines = fs::read_to_string(whole.join("metrics.jsonl")).unwrap();
    assert_eq!(lines.matches("\"kind\":\"raised\"").count(), seen.len());
    let now = Policy::load(whole.join("policy-now.yaml")).unwrap();
    let raised: Vec<String> =
        now.rules.iter().filter(|rule| rule.run.is_some()).map(|rule| rule.select.to_string()).collect();
    assert!(cells.iter().all(|cell| raised.contains(&format!("path {cell}"))), "{cells:?}, {raised:?}");
    assert!(now.rules[0].because.as_ref().is_some_and(|words| words.starts_with("stalled the run at step ")));
    drop(run);

    // A new run by that policy takes every step.
    let text = fs::read_to_string(whole.join("policy-now.yaml")).unwrap();
    let rules = &text[text.find("rules:").unwrap()..text.find("loss_scale:").unwrap()];
    let again = Folder::to_come("stall-again");
    let mut run = large(&files, rules, "", &again).unwrap();
    assert_eq!((run.train().unwrap(), run.history().skipped()), (EndReason::Done, 0));
    drop(run);

    let stopped = Folder::to_come("stall-stopped");
    stopped_at_every_event(large(&files, RAISE, "", &stopped).unwrap(), &whole, &stopped);

    // The fault of the last cell came after those of the others were raised.
    let places: Vec<_> = SavedFault::all(&whole).unwrap();
    assert_eq!(places.len(), seen.len());
    for (place, fault) in places {
        let file = RunFile::of_folder(&whole).unwrap();
        let mut replay = Replay::open(&place, file.read_model().unwrap()).unwrap();
        assert!(replay.run().unwrap().is_same, "step {}", fault.step);
    }
}

/// A warm-up in f32 hides nothing: the lint of the first batch is that of the steps after it.
#[test]
fn a_policy_is_linted_as_it_is_when_its_rules_have_ended() {
    let files = Folder::new("lint-until");
    let rules = "rules:\n  - path: '**'\n    run: float32\n    until: { step: 13 }\n";
    let run = large(&files, rules, "", &Folder::to_come("lint-until-run")).unwrap();
    let overflow = |notes: &[String]| notes.iter().any(|note| note.contains("lint") && note.contains("overflow"));
    assert!(overflow(run.notes()), "{:?}", run.notes());
    drop(run);
    let rules = "rules:\n  - path: '**'\n    run: float32\n";
    let run = large(&files, rules, "", &Folder::to_come("lint-always-run")).unwrap();
    assert!(!overflow(run.notes()), "{:?}", run.notes());
}

/// The root is kept in f32 by a rule for `**`, the path of the rule that raises it.
#[test]
fn the_policy_of_a_raised_root_can_be_read() {
    let files = Folder::new("stall-root");
    let to = Folder::to_come("stall-root-run");
    let rows: String = (0..84).map(|i| format!("{0},{0},-{0},{0},{1}.5\n", 70000 + 20 * i, i % 3)).collect();
    drop(large(&files, RAISE, "", &Folder::to_come("stall-root-unused")).unwrap());
    // Numbers that are infinite in f16.
    files.write("data.csv", &format!("a,b,c,d,y\n{rows}"));
    let file = RunFile::load(files.at("run.yaml")).unwrap();
    let mut run = Run::begin(&file, file.read_model().unwrap(), &to).unwrap();
    let _ = run.train().unwrap();
    assert_eq!(run.history().raised[0].origin.edge.cell, "");
    let now = Policy::load(to.join("policy-now.yaml")).unwrap();
    assert!(now.rules.iter().any(|rule| rule.raise_after_stall) && now.rules.iter().any(|rule| rule.run.is_some()));
}

#[test]
fn a_run_ends_where_no_rule_raises_its_cell() {
    let files = Folder::new("stall-ends");
    let to = Folder::to_come("stall-ends-run");
    let mut run = large(&files, "rules: [{ path: '2', after_stall: raise }]\n", "", &to).unwrap();
    assert_eq!(run.train().unwrap(), EndReason::Stalled);
    assert!(run.history().raised.is_empty());
    // Nothing can be raised without its name.
    let to = Folder::to_come("stall-unwatched");
    let error = large(&files, RAISE, ", monitor: false", &to).unwrap_err().to_string();
    assert!(error.contains("only the monitor finds them"), "{error}");
}
