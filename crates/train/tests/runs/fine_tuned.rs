//! Runs that start from weights, freeze, group, clip, accumulate and average; and runs continued after their end.

use std::{fs, ops::ControlFlow, path::Path};

use precast::{ErrorKind, io::models::Model, prelude::*, storage::weights};
use precast_train::Event;
use precast_train::{Change, EndReason, Run, RunFile};

use crate::{
    common::{folder::Folder, metrics::metrics},
    folders::MODEL,
};

fn model() -> Model {
    Model::parse(MODEL, "model.yaml", 0).unwrap()
}

fn file(more: &str) -> RunFile {
    let text = format!("{{version: 1, model: m, data: digits, test: 1700, batch: 10{more}}}");
    RunFile::parse(&text, "run.yaml").unwrap_or_else(|error| panic!("{error}"))
}

/// Writes the weights of another network under other names, without a head.
fn base(folder: &Path) -> Child {
    let other = Model::parse(MODEL, "model.yaml", 7).unwrap().net;
    for (path, param) in other.named_params() {
        // As if they were trained.
        let full = param.full().to_f64();
        let new: Vec<f64> = full.iter().enumerate().map(|(i, x)| x + 0.1 * (i as f64).sin().abs()).collect();
        param
            .set(&Tensor::from_f64(&new, &param.shape(), param.dtype()).unwrap())
            .unwrap_or_else(|e| panic!("{path}: {e}"));
    }
    let named = other.named_params().into_iter().filter(|(path, _)| !path.starts_with('4'));
    let tensors = named.map(|(path, param)| (format!("body.{path}"), param.full()));
    weights::write(folder.join("base.safetensors"), tensors).unwrap();
    other
}

const TUNED: &str = ", weights: {file: BASE, rename: [{from: 'body.**', to: '**'}], partial: ['4.*']}, freeze: ['0', '1'], \
     groups: [{path: '**.bias', lr_factor: 2, weight_decay: 0}], clip: 0.5, accumulate: 3, average: 0.9, epochs: 3";

fn tuned(folder: &Path, more: &str) -> RunFile {
    let file_name = folder.join("base.safetensors").display().to_string();
    file(&format!("{}{more}", TUNED.replace("BASE", &file_name)))
}

/// 12 steps of up to three batches in three epochs. The file of the weights is gone after the beginning.
#[test]
fn a_run_with_everything_stopped_at_any_step_ends_with_the_same_bits() {
    for (i, more) in [
        ", policy: o0, schedule: {restarts: {every: 3, growth: 2}}, optimizer: {sgd: {momentum: 0.9, weight_decay: 0.1}}",
        ", policy: o2, schedule: {plateau: {patience: 0, factor: 0.5}}, optimizer: adamw",
        ", policy: o2-bf16, schedule: inverse-sqrt, warm_up: 2, optimizer: adamw, storage: masters, augment: {mixup: 0.4}",
        ", policy: o2-bf16, optimizer: {muon: {others: {weight_decay: 0.1}}}, storage: stochastic_rounding",
        ", policy: o1-bf16, optimizer: lion, storage: float32",
    ]
    .into_iter()
    .enumerate()
    {
        let folder = Folder::new(&format!("tuned-{i}"));
        let other = base(&folder);
        let (whole, stopped) = (folder.join("whole"), folder.join("stopped"));
        let mut run = Run::begin(&tuned(&folder, more), model(), &whole).unwrap();
        assert_eq!(run.train().unwrap(), EndReason::Done);
        assert_eq!(run.history().steps.len(), 12);
        // What is frozen has the bits of the base, rounded where it is stored low; the head has not those of the seed.
        for ((path, param), (_, base)) in run.net().named_params().iter().zip(other.named_params()) {
            let expected = base.full().cast(param.full().dtype()).to_f64();
            assert_eq!(param.full().to_f64() == expected, !path.starts_with('4'), "{path} {more}");
        }
        drop(run);

        let mut run = Run::begin(&tuned(&folder, more), model(), &stopped).unwrap();
        fs::remove_file(folder.join("base.safetensors")).unwrap();
        while run.train_with(&mut |_| ControlFlow::Break(())).unwrap() == EndReason::Interrupted {
            drop(run);
            run = Run::resume(&stopped, RunFile::of_folder(&stopped).unwrap().read_model().unwrap()).unwrap();
        }
        drop(run);
        for name in ["last.safetensors", "best.safetensors", "run.yaml", "plan.txt"] {
            assert_eq!(fs::read(whole.join(name)).unwrap(), fs::read(stopped.join(name)).unwrap(), "{more} {name}");
        }
        assert_eq!(metrics(&whole), metrics(&stopped), "{more}");
    }
}

/// The weights that are saved are the averages, with which the score of the epoch was measured.
#[test]
fn the_average_is_saved() {
    let folder = Folder::new("averaged");
    let mut run =
        Run::begin(&file(", policy: o0, average: 0.9, epochs: 2, optimizer: adam"), model(), &*folder).unwrap();
    assert_eq!(run.train().unwrap(), EndReason::Done);
    let saved = model().net;
    let _ = weights::load(&saved, folder.join("last.safetensors")).unwrap();
    let score = precast_train::Evaluation::of(&saved, &run.data().test, 10).unwrap().score();
    assert_eq!(Some(score), run.history().score());
    let differs = |(a, b): (&(String, Param), &(String, Param))| a.1.full().to_f64() != b.1.full().to_f64();
    assert!(saved.named_params().iter().zip(&run.net().named_params()).any(differs));
}

/// Compares a run of two epochs, raised to four, with a run of four, bit for bit.
#[test]
fn a_run_that_has_ended_goes_on_with_more_epochs() {
    let folder = Folder::new("further");
    let (four, two) = (folder.join("four"), folder.join("two"));
    let more = ", policy: o2-bf16, optimizer: adam, average: 0.9, epochs:";
    assert_eq!(Run::begin(&file(&format!("{more} 4")), model(), &four).unwrap().train().unwrap(), EndReason::Done);
    assert_eq!(Run::begin(&file(&format!("{more} 2")), model(), &two).unwrap().train().unwrap(), EndReason::Done);
    let before = fs::read(two.join("run.yaml")).unwrap();

    // A change that was not written to the end: the checkpoint knows both run files.
    drop(Run::resume_with(&two, model(), Change::default().epochs(4)).unwrap());
    let after = fs::read(two.join("run.yaml")).unwrap();
    fs::write(two.join("run.yaml"), &before).unwrap();
    assert_eq!(Run::resume(&two, model()).unwrap().train().unwrap(), EndReason::Done);
    assert_eq!(Run::resume(&two, model()).unwrap().history().epochs.len(), 2);
    fs::write(two.join("run.yaml"), &after).unwrap();

    let stop = &mut |event: Event<'_>| match event {
        Event::Epoch(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    assert_eq!(Run::resume(&two, model()).unwrap().train_with(stop).unwrap(), EndReason::Interrupted);
    assert_eq!(Run::resume(&two, model()).unwrap().train().unwrap(), EndReason::Done);
    for name in ["last.safetensors", "best.safetensors", "run.yaml"] {
        assert_eq!(fs::read(four.join(name)).unwrap(), fs::read(two.join(name)).unwrap(), "{name}");
    }
    assert_eq!(metrics(&four), metrics(&two));

    // Another learning rate from here on.
    let weights_of = |run: &Run| run.net().named_params().iter().map(|(_, p)| p.full().to_f64()).collect::<Vec<_>>();
    let mut slow = Run::resume_with(&two, model(), Change::default().epochs(5).lr(1e-30)).unwrap();
    let start = weights_of(&slow);
    assert_eq!(slow.train().unwrap(), EndReason::Done);
    let trained = slow.net().params();
    assert_eq!((slow.history().epochs.len(), slow.file().options.lr), (5, 1e-30));
    let same = slow
        .net()
        .named_params()
        .iter()
        .zip(weights_of(&slow).iter().zip(&start))
        .all(|((path, _), (a, b))| a == b || !trained.iter().any(|(other, _)| other == path));
    assert!(same, "only running statistics change");
    drop(slow);

    for (change, words) in [
        (Change::default().epochs(3), "the run has 5 epochs, got 3; allowed: more"),
        (Change::default().lr(0.0), "`lr` is 0; allowed: a finite number above 0"),
    ] {
        let error = Run::resume_with(&two, model(), change).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Run);
        assert!(error.to_string().ends_with(words), "{error}");
    }
}

#[test]
fn a_run_out_of_patience_does_not_go_on() {
    let folder = Folder::new("impatient");
    let more = ", policy: o0, optimizer: sgd, lr: 1.0e-30, epochs: 9, patience: 1";
    assert_eq!(Run::begin(&file(more), model(), &*folder).unwrap().train().unwrap(), EndReason::NoBetter);
    let error = Run::resume_with(&*folder, model(), Change::default().epochs(20)).unwrap_err().to_string();
    assert!(error.contains("out of patience"), "{error}");
    assert!(fs::read_to_string(folder.join("run.yaml")).unwrap().contains("epochs: 9"), "nothing is changed");
}

/// Mistakes that only the network shows have the position of the pattern in the file.
#[test]
fn mistakes_have_their_position() {
    let folder = Folder::new("mistaken");
    base(&folder);
    for (line, begins) in [
        ("freeze: ['0', '9.**']", "run.yaml:6:16: `freeze`: `9.**` matches no cell and no parameter (there are "),
        ("freeze: ['2']", "run.yaml:6:11: `freeze`: what `2` matches has no parameters"),
        ("freeze: ['**']", "run.yaml:6:11: `freeze`: every parameter is frozen, so there is nothing to train"),
        ("freeze: ['a..b']", "run.yaml:6:11: "),
        (
            "groups: [{path: '0.wieght', lr_factor: 2}]",
            "run.yaml:6:18: `groups`: the group `0.wieght` matches no parameter (did you mean `0.weight`?)",
        ),
        ("groups: [{path: '**', lr: 2}]", "run.yaml:6:23: unknown key `lr`"),
        ("groups: [{path: '**', lr_factor: -1}]", "run.yaml:6:34: `lr_factor` is -1"),
        ("weights: none.safetensors", "run.yaml:6:10: `weights`: "),
        ("weights: base.safetensors", "run.yaml:6:10: `weights`: "),
        ("weights: {file: base.safetensors, renam: []}", "run.yaml:6:35: unknown key `renam` (did you mean `rename`?)"),
        ("clip: 0", "run.yaml:6:7: `clip` is 0"),
        ("accumulate: 0", "run.yaml:6:13: `accumulate` is 0"),
        ("average: 1", "run.yaml:6:10: `average` is 1"),
        ("ema: 0.9", "run.yaml:6:1: "),
    ] {
        let text = format!("version: 1\nmodel: m\npolicy: o0\ndata: digits\ntest: 1700\n{line}\n");
        fs::write(folder.join("run.yaml"), &text).unwrap();
        let begun = RunFile::parse(&text, "run.yaml").and_then(|file| {
            let mut file = file;
            file.folder = folder.to_path_buf();
            Run::begin(&file, model(), folder.join("run"))
        });
        let error = begun.unwrap_err().to_string();
        assert!(error.starts_with(begins), "{line}: {error}");
        assert!(!folder.join("run").exists(), "nothing is written");
    }
    let text = "{version: 1, model: m, policy: o0, data: digits, schedule: plateau, patience: 3}";
    let error = RunFile::parse(text, "run.yaml").unwrap_err().to_string();
    assert!(error.contains("allowed: at least 4"), "{error}");
}
