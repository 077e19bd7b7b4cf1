//! Runs with validation examples: these choose the weights, and the test examples are scored once, at the end.

use std::{fs, ops::ControlFlow, path::Path};

use precast::io::models::Model;
use precast_train::{Change, EndReason, Predictor, Run, RunFile, history_of, scores_of};
use precast_train::{Evaluation, Event};

use crate::{
    common::{folder::Folder, metrics::metrics},
    folders::MODEL,
};

fn file(more: &str) -> RunFile {
    let text = format!(
        "{{version: 1, model: m, policy: o2-bf16, data: digits, test: 1000, epochs: 3, batch: 50, optimizer: adam{more}}}"
    );
    RunFile::parse(&text, "run.yaml").unwrap()
}

fn model() -> Model {
    Model::parse(MODEL, "model.yaml", 0).unwrap()
}

fn resumed(folder: &Path) -> Run {
    Run::resume(folder, RunFile::of_folder(folder).unwrap().read_model().unwrap()).unwrap()
}

fn lines_of_tests(folder: &Path) -> usize {
    let text = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    text.lines().filter(|line| line.starts_with("{\"kind\":\"test\"")).count()
}

const VALIDATED: &str = ", validation: 400, average: 0.9";

#[test]
fn the_test_examples_are_the_same_and_are_scored_once_with_the_best_weights() {
    let [plain, to] = ["plain", "validated"].map(Folder::to_come);
    let without = Run::begin(&file(""), model(), &plain).unwrap();
    let mut run = Run::begin(&file(VALIDATED), model(), &to).unwrap();
    assert_eq!((run.data().train.len(), run.validation().map(|of| of.len()), run.test().len()), (397, Some(400), 1000));
    assert_eq!((run.test(), without.validation()), (without.test(), None));
    // All others are for training and validation, in the order of the run without.
    let both = without.data().train.split_in_order(397).unwrap();
    assert_eq!((&both.train, &both.test), (&run.data().train, run.validation().unwrap()));

    assert_eq!(run.train().unwrap(), EndReason::Done);
    let (best, of_best) = run.best().unwrap();
    let test = run.history().test.clone().unwrap();
    assert_eq!((test.step, test.epoch), (run.history().steps.len(), best));
    let (test_data, validation) = (run.test().clone(), run.validation().unwrap().clone());
    drop(run);
    // The weights are those of predictions.
    let predictor = Predictor::of_folder(&*to, RunFile::of_folder(&*to).unwrap().read_model().unwrap()).unwrap();
    let net = predictor.into_net().unwrap();
    let scores = scores_of(&to).unwrap().unwrap();
    assert_eq!(scores.test, Evaluation::of(&net, &test_data, 50).unwrap());
    assert_eq!(scores.validation, Some(Evaluation::of(&net, &validation, 50).unwrap()));
    assert_eq!((scores.test.score(), scores.validation.unwrap().score()), (test.score, of_best));
    assert_eq!(history_of(&to).unwrap().test, Some(test.clone()));

    // Resumed at its end, it is not tested again; with more epochs it is, at the new end.
    let mut run = resumed(&to);
    assert_eq!(run.train().unwrap(), EndReason::Done);
    assert_eq!((run.history().test.as_ref(), lines_of_tests(&to)), (Some(&test), 1));
    drop(run);
    let model = RunFile::of_folder(&*to).unwrap().read_model().unwrap();
    let mut run = Run::resume_with(&*to, model, Change::default().epochs(4)).unwrap();
    run.train().unwrap();
    let again = run.history().test.clone().unwrap();
    assert!(again.step > test.step && lines_of_tests(&to) == 2);
    assert_eq!(scores_of(&to).unwrap().unwrap().step, again.step);
}

/// Stopped after every event, and once between the last epoch and the score.
#[test]
fn a_stopped_run_has_the_same_scores() {
    let whole = Folder::to_come("validated-whole");
    let mut run = Run::begin(&file(VALIDATED), model(), &whole).unwrap();
    run.train().unwrap();
    drop(run);
    let stopped = Folder::to_come("validated-stopped");
    let mut run = Run::begin(&file(VALIDATED), model(), &stopped).unwrap();
    while run.train_with(&mut |_| ControlFlow::Break(())).unwrap() == EndReason::Interrupted {
        drop(run);
        run = resumed(&stopped);
    }
    drop(run);
    let same = |what: &str| {
        for name in ["last.safetensors", "best.safetensors", "scores.json", "run.yaml"] {
            assert!(fs::read(whole.join(name)).unwrap() == fs::read(stopped.join(name)).unwrap(), "{what}: {name}");
        }
        assert_eq!(metrics(&whole), metrics(&stopped), "{what}");
    };
    same("every event");
    // As killed after the last checkpoint: neither score nor last weights.
    let text = fs::read_to_string(stopped.join("metrics.jsonl")).unwrap();
    let before = text.trim_end().rsplit_once('\n').unwrap().0.to_string() + "\n";
    for (tail, scores) in [("", false), ("{\"kind\":\"test\",\"st", false), ("", true)] {
        fs::write(stopped.join("metrics.jsonl"), format!("{before}{tail}")).unwrap();
        fs::remove_file(stopped.join("last.safetensors")).unwrap();
        if !scores {
            fs::remove_file(stopped.join("scores.json")).unwrap();
        }
        assert_eq!(history_of(&stopped).unwrap().test, None);
        assert_eq!(resumed(&stopped).train().unwrap(), EndReason::Done);
        same("killed before the score");
    }
}

#[test]
fn patience_goes_by_the_validation_examples() {
    let to = Folder::to_come("validated-patience");
    // Without a learning rate to speak of, no epoch is better than the first.
    let mlp = Model::named("mlp", 0).unwrap();
    let mut run = Run::begin(&file(", validation: 0.1, patience: 1, lr: 1.0e-30"), mlp, &to).unwrap();
    let mut epochs = 0;
    let ended = run.train_with(&mut |event| {
        epochs += usize::from(matches!(event, Event::Epoch(_)));
        ControlFlow::Continue(())
    });
    assert_eq!((ended.unwrap(), run.validation().unwrap().len()), (EndReason::NoBetter, 180));
    assert!(epochs == 2 && run.history().test.is_some());
}

#[test]
fn examples_of_validation_that_cannot_be_are_refused_with_their_place() {
    let words = |line: &str| {
        let text = format!("version: 1\nmodel: m\npolicy: o2\ndata: digits\ntest: 1000\n{line}\n");
        let begun = RunFile::parse(&text, "run.yaml")
            .and_then(|file| Run::begin(&file, model(), Folder::to_come("validated-refused").join("to")));
        begun.unwrap_err().to_string().lines().next().unwrap().to_string()
    };
    for (line, expected) in [
        (
            "validation: 797",
            "run.yaml:6:13: `test` takes 1000 examples and `validation` 797, and the data has 1797; some must be left to \
             train with",
        ),
        (
            "validation: 0.5",
            "run.yaml:6:13: `test` takes 1000 examples and `validation` 899, and the data has 1797; some must be left to \
             train with",
        ),
        (
            "validation: 1.5",
            "run.yaml:6:13: `validation` is 1.5; allowed: a share above 0 and below 1, a number of examples from 1, or a \
             file",
        ),
    ] {
        assert_eq!(words(line), expected);
    }
    let missing = words("validation: none.csv");
    assert!(missing.starts_with("run.yaml:6:13: `validation`: ") && missing.contains("none.csv"), "{missing}");
}
