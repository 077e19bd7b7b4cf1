//! Training runs with folders: the bits of a run do not depend on how often it was stopped, and mismatches are refused.

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use precast::{ErrorKind, io::models::Model, prelude::*};
use precast_train::Event;
use precast_train::{EndReason, Prediction, Predictor, Run, RunFile};
use rand::{Rng as _, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use crate::{
    common::{folder::Folder, metrics::metrics},
    readers::images::png,
};

/// A network with running statistics and dropout for the digits.
pub const MODEL: &str = "
version: 1
input: [64]
net:
  kind: Sequential
  cells:
  - {kind: Dense, in_features: 64, out_features: 16}
  - {kind: BatchNorm1d, num_features: 16}
  - {kind: ReLU}
  - {kind: Dropout, p: 0.2}
  - {kind: Dense, in_features: 16, out_features: 10}
";

/// Returns the file of a run on the digits.
pub fn file(policy: &str, more: &str) -> RunFile {
    let text = format!(
        "{{version: 1, model: m, policy: {policy}, data: digits, test: 1700, epochs: 3, batch: 10, optimizer: adam{more}}}"
    );
    RunFile::parse(&text, "run.yaml").unwrap()
}

pub fn model(seed: u64) -> Model {
    Model::parse(MODEL, "model.yaml", seed).unwrap()
}

/// Returns the rows of `metrics.csv` without their times.
fn table(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("metrics.csv")).unwrap();
    text.lines().map(|line| line.rsplit_once(',').unwrap().0.to_string()).collect()
}

fn go_on(run: &mut Run) -> EndReason {
    run.train().unwrap()
}

#[test]
fn a_warm_up_beyond_the_run_is_noted() {
    for (more, words) in [
        (", warm_up: 30", None),
        (", warm_up: 31", Some("the run has 30 steps and a warm-up of 31")),
        (", schedule: one-cycle", None),
        (", schedule: one-cycle, warm_up: 3", Some("`one-cycle` has a warm-up of its own")),
    ] {
        let run = Run::begin(&file("o0", more), model(0), Folder::to_come("warm-up-noted")).unwrap();
        let noted = run.notes().iter().find(|note| note.starts_with("`warm_up`: "));
        assert_eq!(noted.map(|note| note.contains(words.unwrap_or("?"))), words.map(|_| true), "{more}: {noted:?}");
    }
}

#[test]
fn a_schedule_that_begins_after_the_run_is_noted() {
    for (schedule, words) in [
        ("{step: {every: 29, factor: 0.5}}", None),
        ("{step: {every: 30, factor: 0.5}}", Some("30 steps, and `every` is 30, so the learning rate does not fall")),
        ("{step: {every: 28, factor: 0.5}}, warm_up: 2", Some("28 steps, and `every` is 28")),
        ("{restarts: {every: 30}}", None),
        ("{restarts: {every: 31}}", Some("30 steps, and `every` is 31, so no wave ends")),
        ("{plateau: {patience: 0}}", None),
        ("{plateau: {patience: 1}}", Some("3 epochs, and a patience of 1, so the learning rate does not fall")),
        ("cosine", None),
    ] {
        let more = format!(", schedule: {schedule}");
        let run = Run::begin(&file("o0", &more), model(0), Folder::to_come("schedule-noted")).unwrap();
        let noted = run.notes().iter().find(|note| note.starts_with("`schedule`: the run has "));
        assert_eq!(noted.map(|note| note.contains(words.unwrap_or("?"))), words.map(|_| true), "{more}: {noted:?}");
    }
}

#[test]
fn a_patience_that_ends_no_run_is_noted() {
    for (patience, is_noted) in [(1, false), (2, true), (50, true)] {
        let run = file("o0", &format!(", patience: {patience}"));
        let run = Run::begin(&run, model(0), Folder::to_come("patience-noted")).unwrap();
        let words = format!("`patience`: a run of 3 epochs ends before {patience} without a better score");
        assert_eq!(run.notes().iter().any(|note| note.starts_with(&words)), is_noted, "{:?}", run.notes());
    }
}

/// 30 steps in three epochs, 97 examples: the last batch of an epoch has seven.
#[test]
fn a_run_stopped_at_any_step_ends_with_the_same_bits() {
    for policy in ["o0", "o2", "o2-bf16", "o1", "auto-bf16"] {
        let whole = Folder::to_come(&format!("{policy}-whole"));
        let more = ", schedule: cosine, warm_up: 3";
        let mut run = Run::begin(&file(policy, more), model(0), &whole).unwrap();
        assert_eq!(go_on(&mut run), EndReason::Done);
        assert_eq!(run.history().steps.len(), 30);
        drop(run);

        // Stopped after every step, and at the end of every epoch.
        let stopped = Folder::to_come(&format!("{policy}-stopped"));
        let mut run = Run::begin(&file(policy, more), model(0), &stopped).unwrap();
        let mut stops = 0;
        while run.train_with(&mut |_| ControlFlow::Break(())).unwrap() == EndReason::Interrupted {
            stops += 1;
            drop(run);
            run = Run::resume(&stopped, RunFile::of_folder(&stopped).unwrap().read_model().unwrap()).unwrap();
        }
        assert_eq!(stops, 32, "30 steps and three ends of epochs, of which the last ends the run");
        for name in ["last.safetensors", "best.safetensors", "run.yaml", "plan.txt"] {
            assert_eq!(fs::read(whole.join(name)).unwrap(), fs::read(stopped.join(name)).unwrap(), "{policy} {name}");
        }
        assert_eq!(metrics(&whole), metrics(&stopped), "{policy}");
        assert_eq!(table(&whole), table(&stopped), "{policy}");
        let left = fs::read_dir(&whole)
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("checkpoint-"));
        assert_eq!(left.count(), 2, "the last two are kept");
    }
}

/// Fifty stops, each of a separate run: in f32, bf16, f16 with a loss scale that overflows at first, and with bf16
/// weights rounded stochastically or with Kahan compensation.
#[test]
fn a_run_stopped_once_at_a_random_step_ends_with_the_same_bits() {
    let mut rng = ChaCha8Rng::seed_from_u64(20);
    let cases = [
        ("o0", "optimizer: {sgd: {momentum: 0.8, nesterov: true, weight_decay: 1.0e-3}}", "float32"),
        ("o2-bf16", "optimizer: {adamw: {betas: [0.9, 0.95], weight_decay: 0.1, amsgrad: true}}", "masters"),
        ("o2", "optimizer: {rmsprop: {momentum: 0.5, centered: true}}", "float32"),
        ("o2-bf16", "optimizer: {adamw: {betas: [0.8, 0.9]}}", "stochastic_rounding"),
        ("o2-bf16", "optimizer: {muon: {momentum: 0.9, others: {eps: 1.0e-6}}}", "kahan"),
    ];
    for (i, (policy, optimizer, storage)) in cases.into_iter().enumerate() {
        let text = format!(
            "{{version: 1, model: m, policy: {policy}, data: digits, test: 1700, epochs: 3, batch: 10, seed: {i}, \
             {optimizer}, storage: {storage}, schedule: cosine}}"
        );
        let file = RunFile::parse(&text, "run.yaml").unwrap();
        let whole = Folder::to_come(&format!("once-{i}-whole"));
        let mut run = Run::begin(&file, model(i as u64), &whole).unwrap();
        assert_eq!(run.storage().is_some(), storage != "float32");
        assert_eq!(go_on(&mut run), EndReason::Done);
        drop(run);
        for stop in (0..10).map(|_| rng.random_range(1..30)) {
            let to = Folder::to_come(&format!("once-{i}-stopped"));
            let mut run = Run::begin(&file, model(i as u64), &to).unwrap();
            let mut steps = 0;
            let ended = run.train_with(&mut |event| {
                steps += usize::from(matches!(event, Event::Step(_)));
                if steps == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert_eq!(ended.unwrap(), EndReason::Interrupted);
            drop(run);
            let mut run = Run::resume(&to, RunFile::of_folder(&to).unwrap().read_model().unwrap()).unwrap();
            assert_eq!(run.history().steps.len(), stop);
            assert_eq!(go_on(&mut run), EndReason::Done);
            let same = |name: &str| fs::read(whole.join(name)).unwrap() == fs::read(to.join(name)).unwrap();
            assert!(same("last.safetensors") && same("best.safetensors"), "{policy} {storage} stopped at {stop}");
            assert_eq!(metrics(&whole), metrics(&to), "{policy} {storage} stopped at {stop}");
        }
    }
}

/// Without masters, the weight file has the bits of the 16-bit weights, and the network predicts with them.
#[test]
fn parameters_are_stored_as_the_file_says() {
    use precast::storage::weights;
    let (f32, bf16) = (DType::F32, DType::Bf16);
    for (storage, in_file, bytes) in [
        ("float32", f32, 4),
        ("masters", f32, 6),
        ("low", bf16, 2),
        ("kahan", bf16, 2),
        ("{stochastic_rounding: {exclude: ['4.**']}}", bf16, 2),
    ] {
        let to = Folder::to_come("stored");
        let mut run = Run::begin(&file("o2-bf16", &format!(", storage: {storage}")), model(0), &to).unwrap();
        assert_eq!(go_on(&mut run), EndReason::Done);
        let dense = 64 * 16 + 16;
        let rest = if storage.contains("exclude") { 4 * (16 * 10 + 10) } else { bytes * (16 * 10 + 10) };
        let norm = 4 * 2 * 16;
        assert_eq!(run.history().param_bytes, bytes * dense + norm + rest, "{storage}");
        let best = run.best().unwrap().1;
        let test = run.data().test.clone();
        drop(run);
        let written = weights::read(to.join("best.safetensors")).unwrap();
        assert_eq!((written["0.weight"].dtype(), written["1.weight"].dtype()), (in_file, f32), "{storage}");
        assert_eq!(written["4.weight"].dtype(), if storage.contains("exclude") { f32 } else { in_file });
        let plan = fs::read_to_string(to.join("plan.txt")).unwrap();
        assert_eq!(plan.contains("parameters and buffers"), storage != "float32", "{plan}");

        let labels = test.labels().to_vec();
        let said = Predictor::of_folder(&to, model(1)).unwrap().predict_all(test.without_targets()).unwrap();
        let right = said.iter().zip(&labels).filter(|(said, label)| match said {
            Prediction::Class { index, .. } => *index as i64 == **label,
            _ => panic!("classes"),
        });
        assert_eq!(Some(right.count() as f64 / labels.len() as f64), best.accuracy(), "{storage}");
    }

    // Without a policy that lowers, the only low dtype is an explicit one.
    let of = |policy: &str, storage: &str| {
        Run::begin(&file(policy, &format!(", storage: {storage}")), model(0), Folder::to_come("stored-or-not"))
    };
    let run = of("o0", "masters").unwrap();
    assert!(run.storage().is_none() && run.notes()[0].contains("level O0 lowers nothing"), "{:?}", run.notes());
    drop(run);
    let error = of("o2", "kahan").unwrap_err().to_string();
    let words =
        "`storage: kahan` is for bfloat16, and the low dtype of the policy is float16; `{kahan: {dtype: bfloat16}}`";
    assert!(error.starts_with(words), "{error}");
    drop(of("o2", "{kahan: {dtype: bfloat16}}").unwrap());
    let error = of("o2-bf16", "{masters: {exclude: ['5']}}").unwrap_err().to_string();
    assert!(error.contains("the exclusion of path 5 matches no cell and no parameter"), "{error}");
}

/// Returns a network of one layer.
pub fn dense(inputs: usize, outputs: usize) -> Model {
    Model::new(Dense::new(inputs, outputs, &mut Rng::seed(0))).input([inputs])
}

/// Its network was trained on other pixels.
#[test]
fn a_run_of_other_pixels_is_refused() {
    let photos = Folder::new("pixels");
    for (class, level) in [("a", 0u8), ("b", 255)] {
        for i in 0..4 {
            let file = photos.file(&format!("{class}/{i}.png"), "");
            std::fs::write(file, png(4, 4, 0, &[level; 16])).unwrap();
        }
    }
    for (options, refused) in [("pixels: grey", true), ("resize: [2, 2]", true), ("pixels: rgb", false)] {
        let text = format!(
            "{{version: 1, model: m, policy: o0, data: {{images: {{folder: {}, {options}}}}}, epochs: 1}}",
            photos.at("").display()
        );
        let inputs = if options == "resize: [2, 2]" {
            12
        } else if refused {
            16
        } else {
            48
        };
        let to = Folder::to_come("pixels-run");
        let mut run = Run::begin(&RunFile::parse(&text, "run.yaml").unwrap(), dense(inputs, 2), &to).unwrap();
        go_on(&mut run);
        drop(run);
        Predictor::of_folder(&to, dense(inputs, 2)).unwrap();
        // As written by an earlier version.
        let mut about: Value = serde_json::from_str(&fs::read_to_string(to.at("about.json")).unwrap()).unwrap();
        about.as_object_mut().unwrap().remove("pixels").unwrap();
        to.write("about.json", &about.to_string());
        let errors = [Predictor::of_folder(&to, dense(inputs, 2)).err(), Run::resume(&to, dense(inputs, 2)).err()];
        for error in errors {
            let met = error.is_some_and(|error| error.to_string().contains("so train it anew"));
            assert_eq!(met, refused, "{options}");
        }
    }
    // Images that are resized for the model.
    let to = Folder::to_come("pixels-digits");
    let digits = RunFile::parse("{version: 1, model: m, policy: o0, data: digits, epochs: 1}", "run.yaml").unwrap();
    let small = || {
        let rng = &mut Rng::seed(0);
        Model::new(precast::sequential![precast::layers::Flatten::default(), Dense::new(16, 10, rng)]).input([1, 4, 4])
    };
    go_on(&mut Run::begin(&digits, small(), &to).unwrap());
    Predictor::of_folder(&to, small()).unwrap();
    let about = fs::read_to_string(to.at("about.json")).unwrap().replace("\"pixels\":1", "\"pixels\":0");
    to.write("about.json", &about);
    assert!(Predictor::of_folder(&to, small()).unwrap_err().to_string().contains("train it anew"));
}

/// The run file in the folder has the names of all columns.
#[test]
fn a_run_on_a_wide_table_is_resumed_and_predicts() {
    let (data, columns) = (Folder::new("wide-data"), 20_000);
    let row = |cell: &dyn Fn(usize) -> String| (0..columns).map(cell).collect::<Vec<_>>().join(",");
    let numbers = |y: usize| row(&|i| format!("{}", (i + y) % 3)) + &format!(",{y}\n");
    let header = row(&|i| format!("column {i}")) + ",y\n";
    let table = data.write("wide.csv", &(header + &(0..10).map(|i| numbers(i % 2)).collect::<String>()));
    let text = format!("{{version: 1, model: m, policy: o0, data: {{csv: {{file: {table}, target: y}}}}, epochs: 2}}");
    let to = Folder::to_come("wide");
    let mut run = Run::begin(&RunFile::parse(&text, "run.yaml").unwrap(), dense(columns, 2), &to).unwrap();
    let _ = run.train_with(&mut |_| ControlFlow::Break(())).unwrap();
    drop(run);
    go_on(&mut Run::resume(&to, dense(columns, 2)).unwrap());
    assert_eq!(Predictor::of_folder(&to, dense(columns, 2)).unwrap().predict(table).unwrap().len(), 10);
}

/// Every number of the compute weights is that of the masters, rounded once, if the cell runs low.
#[test]
fn weights_are_exported_as_masters_as_cells_compute_and_as_both() {
    use precast::storage::{SaveMode, weights};
    let to = Folder::to_come("export");
    let more = ", storage: {masters: {exclude: ['4.**']}}";
    go_on(&mut Run::begin(&file("o2", more), model(0), &to).unwrap());
    let predictor = Predictor::of_folder(&to, model(1)).unwrap();
    let written = |mode: SaveMode| {
        let path = to.join(format!("{mode}.safetensors"));
        predictor.save_weights(&path, mode).unwrap();
        weights::read(path).unwrap()
    };
    let [master, compute, both] = SaveMode::ALL.map(written);
    let best = weights::read(to.join("best.safetensors")).unwrap();
    assert_eq!(master.keys().collect::<Vec<_>>(), best.keys().collect::<Vec<_>>());
    assert_eq!(master.keys().collect::<Vec<_>>(), compute.keys().collect::<Vec<_>>());
    let mut doubled = 0;
    for (name, best) in &best {
        assert_eq!((master[name].dtype(), master[name].to_f64()), (best.dtype(), best.to_f64()), "{name}");
        assert_eq!((both[name].dtype(), both[name].to_f64()), (best.dtype(), best.to_f64()), "{name}");
        let low = name.starts_with("0.") || name.starts_with("4.");
        assert_eq!(compute[name].dtype(), if low { DType::F16 } else { best.dtype() }, "{name}");
        assert_eq!(compute[name].to_f64(), best.cast(compute[name].dtype()).to_f64(), "{name}");
        let second = both.get(&format!("@compute.{name}"));
        assert_eq!(second.map(Tensor::to_f64), low.then(|| compute[name].to_f64()), "{name}");
        doubled += usize::from(low);
    }
    assert_eq!((both.len(), doubled), (best.len() + 4, 4));
    // A file with both is read as the masters.
    let net = model(2).net;
    let options = weights::LoadOptions::new().ignore("@compute.**");
    let _ = weights::load_with(&net, to.join("both.safetensors"), &options).unwrap();
    assert_eq!(net.params().iter().next().unwrap().1.value().to_f64(), best["0.weight"].to_f64());

    // Numbers beyond the range of the dtype are not written.
    let huge = Child::new(Dense::new(1, 1, &mut Rng::seed(1)));
    huge.cell().weight.set(&Tensor::full(&[1, 1], 1e6, DType::F32)).unwrap();
    let plan = Policy::named("o2").unwrap().plan(&huge).unwrap();
    let error = plan.save_weights(&huge, to.join("huge.safetensors"), SaveMode::Both).unwrap_err();
    assert_eq!(error.to_string(), "`weight` has 1e6, which float16 cannot hold");
    assert!(!to.join("huge.safetensors").exists());
    assert!("mastre".parse::<SaveMode>().unwrap_err().to_string().contains("did you mean `master`?"));
}

#[test]
fn a_run_that_ended_stays_ended() {
    let to = Folder::to_come("ended");
    let mut run = Run::begin(&file("o0", ""), model(0), &to).unwrap();
    go_on(&mut run);
    drop(run);
    let weights = fs::read(to.join("last.safetensors")).unwrap();
    let mut run = Run::resume(&to, model(0)).unwrap();
    let mut events = 0;
    let ended = run.train_with(&mut |_| {
        events += 1;
        ControlFlow::Continue(())
    });
    assert_eq!((ended.unwrap(), events), (EndReason::Done, 0));
    assert_eq!(fs::read(to.join("last.safetensors")).unwrap(), weights);
}

#[test]
fn two_runs_never_share_a_folder() {
    let to = Folder::to_come("shared");
    let mut run = Run::begin(&file("o0", ""), model(0), &to).unwrap();
    assert_eq!(run.train_with(&mut |_| ControlFlow::Break(())).unwrap(), EndReason::Interrupted);

    let error = Run::resume(&to, model(0)).unwrap_err();
    assert!(error.to_string().ends_with("another process trains in this folder"), "{error}");
    let error = Run::begin(&file("o1", ""), model(0), &to).unwrap_err();
    assert!(error.to_string().contains("the folder has a run already; `--resume "), "{error}");
    drop(run);
    assert!(Run::begin(&file("o1", ""), model(0), &to).is_err());
    Run::resume(&to, model(0)).unwrap();

    // The remains of a run killed while it began do not get in the way.
    let begun = Folder::to_come("begun");
    fs::create_dir_all(&begun).unwrap();
    for name in ["policy.yaml", "plan.txt", ".precast-1-2.tmp"] {
        fs::write(begun.join(name), "half").unwrap();
    }
    go_on(&mut Run::begin(&file("o0", ""), model(0), &begun).unwrap());

    let other = Folder::to_come("files");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("thesis.txt"), "all of it").unwrap();
    let error = Run::begin(&file("o1", ""), model(0), &other).unwrap_err();
    assert!(error.to_string().contains("files that are of no run"), "{error}");
    assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
    let error = Run::resume(&other, model(0)).unwrap_err();
    assert!(error.to_string().contains("there is no run in this folder"), "{error}");
}

#[test]
fn what_changed_since_the_run_began_is_refused() {
    let to = Folder::to_come("changed");
    let mut run = Run::begin(&file("o2", ""), model(0), &to).unwrap();
    let _ = run.train_with(&mut |_| ControlFlow::Break(())).unwrap();
    drop(run);

    let policy = fs::read_to_string(to.join("policy.yaml")).unwrap();
    fs::write(to.join("policy.yaml"), policy.replace("O2", "O1")).unwrap();
    let error = Run::resume(&to, model(0)).unwrap_err();
    assert!(error.to_string().contains("`policy.yaml` is not the one with which the run began"), "{error}");
    fs::write(to.join("policy.yaml"), policy).unwrap();

    let text = fs::read_to_string(to.join("run.yaml")).unwrap();
    for (from, changed, words) in [
        ("seed: 0", "seed: 1", "the data has changed"),
        (
            "lr: 0.001",
            "lr: 0.002",
            "`run.yaml` was changed after the last checkpoint. Take the change back; `--epochs N` and `--lr X`",
        ),
        (
            "epochs: 3",
            "epochs: 4",
            "`run.yaml` was changed after the last checkpoint. Take the change back; `--epochs N` and `--lr X`",
        ),
    ] {
        assert!(text.contains(from), "{text}");
        fs::write(to.join("run.yaml"), text.replace(from, changed)).unwrap();
        let error = Run::resume(&to, model(0)).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    fs::write(to.join("run.yaml"), &text).unwrap();

    let wider = Model::parse(&MODEL.replace("16", "17"), "model.yaml", 0).unwrap();
    let error = Run::resume(&to, wider).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Weights, "{error}");

    let text = fs::read_to_string(to.join("model.yaml")).unwrap();
    fs::write(to.join("model.yaml"), text.replace("ReLU", "Tanh")).unwrap();
    let error = Run::resume(&to, model(0)).unwrap_err();
    assert!(error.to_string().contains("`model.yaml` is not the one with which the run began"), "{error}");
    fs::write(to.join("model.yaml"), text).unwrap();
    Run::resume(&to, model(0)).unwrap();
}

#[test]
fn weights_and_files_that_changed_predict_nothing() {
    let to = Folder::to_come("predictions");
    go_on(&mut Run::begin(&file("o2-bf16", ", standardize: true"), model(0), &to).unwrap());
    let predictor = || Predictor::of_folder(&to, model(1));
    predictor().unwrap();
    for (name, damage, words) in [
        ("best.safetensors", "a bit", "its checksum does not fit: the file is damaged"),
        ("standardization.json", "a bit", "`standardization.json` is not the one with which the run began"),
        ("standardization.json", "gone", "`standardization.json` is missing"),
        ("model.yaml", "a bit", "`model.yaml` is not the one with which the run began"),
        ("policy.yaml", "a bit", "`policy.yaml` is not the one with which the run began"),
        ("policy.yaml", "gone", "`policy.yaml` is missing"),
    ] {
        let path = to.join(name);
        let whole = fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        *bytes.last_mut().unwrap() ^= 1;
        if damage == "gone" {
            fs::remove_file(&path).unwrap()
        } else {
            fs::write(&path, &bytes).unwrap()
        }
        let error = predictor().unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        fs::write(&path, &whole).unwrap();
    }
    // The paths of moved data, and what a resumed run may change.
    let text = fs::read_to_string(to.join("run.yaml")).unwrap();
    for (from, changed, is_refused) in [
        ("standardize: true", "standardize: false", true),
        ("seed: 0", "seed: 1", true),
        ("lr: 0.001", "lr: 0.002", false),
        ("epochs: 3", "epochs: 4", false),
    ] {
        assert!(text.contains(from), "{text}");
        fs::write(to.join("run.yaml"), text.replace(from, changed)).unwrap();
        match predictor() {
            Ok(_) => assert!(!is_refused, "{from}"),
            Err(error) => {
                assert!(
                    is_refused && error.to_string().contains("`run.yaml` was changed after the run began"),
                    "{error}"
                );
            }
        }
    }
    fs::write(to.join("run.yaml"), &text).unwrap();
    predictor().unwrap();

    let checkpoints = fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().path());
    for path in checkpoints.filter(|path| path.to_string_lossy().contains("checkpoint-")) {
        fs::remove_file(path).unwrap();
    }
    let error = Run::resume(&to, model(0)).unwrap_err();
    assert!(error.to_string().contains("the run is over, and its checkpoints are gone"), "{error}");
}

/// Rules record the file they were written in, and the folder has a copy.
#[test]
fn a_run_under_a_policy_with_rules_goes_on() {
    let policies = Folder::to_come("policies");
    fs::create_dir_all(&policies).unwrap();
    let policy = policies.join("mine.yaml");
    let rules = "[{path: '0', run: float32, because: wide}, {kind: ReLU, run: float32}]";
    fs::write(&policy, format!("version: 1\nlevel: O2\ndtype: float16\nrules: {rules}\n")).unwrap();
    let to = Folder::to_come("rules");
    let mut run = Run::begin(&file(&policy.display().to_string(), ""), model(0), &to).unwrap();
    assert_eq!(run.train_with(&mut |_| ControlFlow::Break(())).unwrap(), EndReason::Interrupted);
    drop(run);
    assert_eq!(go_on(&mut Run::resume(&to, model(0)).unwrap()), EndReason::Done);
}

/// Allowed but probably unintended settings are noted.
#[test]
fn notes_name_missing_classes_and_runs_that_start_again() {
    let to = Folder::to_come("notes");
    let eleven = || Model::parse(&MODEL.replace("out_features: 10", "out_features: 11"), "model.yaml", 0).unwrap();
    let mut run = Run::begin(&file("o2", ""), eleven(), &to).unwrap();
    let classes = "the model returns 11 numbers for each target, and there are 10 classes";
    assert_eq!(run.notes(), [classes]);
    let _ = run.train_with(&mut |_| ControlFlow::Break(())).unwrap();
    drop(run);
    fs::remove_file(to.join("checkpoint-000000001.safetensors")).unwrap();
    let run = Run::resume(&to, eleven()).unwrap();
    assert_eq!(run.notes(), [classes, "there is no checkpoint, so the run begins again"]);
    assert!(run.history().steps.is_empty());
}

#[test]
fn damaged_checkpoints_fall_back_and_cut_lines_are_dropped() {
    let (whole, to) = (Folder::to_come("undamaged"), Folder::to_come("damaged"));
    for to in [&whole, &to] {
        go_on(&mut Run::begin(&file("o2-bf16", ", checkpoint: {every: 4, keep: 3}"), model(0), to).unwrap());
    }
    let mut checkpoints: Vec<PathBuf> = fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().path()).collect();
    checkpoints.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with("checkpoint-"));
    checkpoints.sort();
    let names: Vec<String> =
        checkpoints.iter().map(|p| p.file_name().unwrap().to_string_lossy().into_owned()).collect();
    assert_eq!(
        names,
        ["checkpoint-000000024", "checkpoint-000000028", "checkpoint-000000030"].map(|n| format!("{n}.safetensors"))
    );
    let mut bytes = fs::read(&checkpoints[2]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&checkpoints[2], &bytes).unwrap();
    let metrics_file = to.join("metrics.jsonl");
    let text = fs::read_to_string(&metrics_file).unwrap();
    fs::write(&metrics_file, &text[..text.len() - 7]).unwrap();
    fs::remove_file(to.join("last.safetensors")).unwrap();

    let mut run = Run::resume(&to, model(0)).unwrap();
    assert!(run.notes()[0].ends_with("the checkpoint before it is taken"), "{:?}", run.notes());
    assert_eq!(run.history().steps.len(), 28);
    assert_eq!(go_on(&mut run), EndReason::Done);
    assert_eq!(fs::read(to.join("last.safetensors")).unwrap(), fs::read(whole.join("last.safetensors")).unwrap());
    assert_eq!(metrics(&to), metrics(&whole));
    drop(run);

    for path in &checkpoints {
        fs::write(path, b"nothing").unwrap();
    }
    assert_eq!(Run::resume(&to, model(0)).unwrap_err().kind(), ErrorKind::Weights);
}

/// A tiny learning rate: no score is better than the first.
#[test]
fn patience_ends_a_run_that_does_not_become_better() {
    let to = Folder::to_come("patience");
    let dense = || Model::new(Dense::new(64, 10, &mut Rng::seed(0))).input([64]);
    let mut run = Run::begin(&file("o0", ", lr: 1.0e-30, patience: 1"), dense(), &to).unwrap();
    assert_eq!(go_on(&mut run), EndReason::NoBetter);
    assert_eq!((run.history().epochs.len(), run.best().unwrap().0), (2, 0));
    drop(run);
    assert_eq!(go_on(&mut Run::resume(&to, dense()).unwrap()), EndReason::NoBetter);
}

#[test]
fn best_weights_are_those_of_the_best_epoch_and_predict_alike() {
    let to = Folder::to_come("best");
    let mut twelve = file("o2", "");
    twelve.options.epochs = 12;
    let mut run = Run::begin(&twelve, model(0), &to).unwrap();
    let mut best = 0.0f64;
    let ended = run.train_with(&mut |event| {
        if let Event::Epoch(epoch) = event {
            best = best.max(epoch.score.accuracy().unwrap());
        }
        ControlFlow::Continue(())
    });
    assert_eq!(ended.unwrap(), EndReason::Done);
    assert_eq!(run.best().unwrap().1.accuracy(), Some(best));
    let test = run.data().test.clone();
    let labels = test.labels().to_vec();
    drop(run);
    let predictions = Predictor::of_folder(&to, model(1)).unwrap().predict_all(test.without_targets()).unwrap();
    let right = predictions.iter().zip(&labels).filter(|(said, label)| match said {
        Prediction::Class { index, .. } => *index as i64 == **label,
        _ => panic!("classes"),
    });
    assert_eq!(right.count() as f64 / labels.len() as f64, best);
}

#[test]
fn mismatched_model_and_data_are_refused_before_any_write() {
    let to = Folder::to_come("refused");
    let three = Model::parse(&MODEL.replace("out_features: 10", "out_features: 3"), "model.yaml", 0).unwrap();
    let error = Run::begin(&file("o2", ""), three, &to).unwrap_err();
    assert_eq!(error.to_string(), "the model returns 3 numbers for each target, and there are 10 classes");
    let narrow = Model::parse(&MODEL.replace("64", "63"), "model.yaml", 0).unwrap();
    let error = Run::begin(&file("o2", ""), narrow, &to).unwrap_err();
    assert_eq!(error.to_string(), "the model takes examples of shape [63], and the data has [1, 8, 8]");
    let one = Model::parse(&MODEL.replace("out_features: 10", "out_features: 1"), "model.yaml", 0).unwrap();
    let error = Run::begin(&file("o2", ""), one, &to).unwrap_err();
    let words = "the model returns 1 number for each target, and there are 10 classes; whole numbers are read as numbers, and \
        not as classes, with `as: numbers`";
    assert_eq!(error.to_string(), words);
    let error = Run::begin(&file("graph", ""), model(0), &to).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("run.yaml:1:32: `graph`: a policy for graphs, where one with a level is expected"),
        "{error}"
    );
    let error = Run::begin(&file("o2", ", loss: mse"), model(0), &to).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("run.yaml:1:107: the loss mse compares with numbers, and the targets are classes"),
        "{error}"
    );
    assert!(!to.exists());
}

/// Files with a mistake, and the messages.
#[test]
fn mistakes_in_run_files_have_a_place_and_a_remedy() {
    let good = "version: 1\nmodel: mlp\npolicy: o2\ndata: digits\n";
    RunFile::parse(good, "run.yaml").unwrap();
    let mut answers = String::new();
    for wrong in [
        "",
        "version: 2\nmodel: mlp\npolicy: o2\ndata: digits\n",
        "version: 1\npolicy: o2\ndata: digits\n",
        "version: 1\nmodel: mlp\npolicy: o2\n",
        "version: 1\nmodel: mlp\npolicy: o2\ndata: digit\n",
        "version: 1\nmodel: mlp\npolicy: o2\ndata: {csv: {fil: a.csv}}\n",
        "version: 1\nmodel: mlp\npolicy: o2\ndata: {csv: a.csv}\n",
        "version: 1\nmodel: mlp\npolicy: o2\ndata: csv\n",
        &format!("{good}optimiser: adam\n"),
        &format!("{good}optimizer: adm\n"),
        &format!("{good}optimizer: {{sgd: {{momentun: 0.5}}}}\n"),
        &format!("{good}optimizer: {{adamw: {{beta: [0.9, 0.95]}}}}\n"),
        &format!("{good}optimizer: {{adamw: {{betas: 0.9}}}}\n"),
        &format!("{good}optimizer: {{adamw: {{betas: [0.9]}}}}\n"),
        &format!("{good}optimizer:\n  adamw: {{betas: [0.9, 1.5]}}\n"),
        &format!("{good}optimizer: {{adam: {{weight_decay: -1}}}}\n"),
        &format!("{good}optimizer: {{adam: {{wd: 0.1}}}}\n"),
        &format!("{good}optimizer: {{adam: {{amsgrad: yes}}}}\n"),
        &format!("{good}optimizer: {{sgd: {{momentum: 0, nesterov: true}}}}\n"),
        &format!("{good}optimizer: {{adam: 0.001}}\n"),
        &format!("{good}optimizer: {{adam: {{lr: 0.001}}}}\n"),
        &format!("{good}optimizer: {{muon: {{others: {{momentum: 0.9}}}}}}\n"),
        &format!("{good}optimizer: {{adam: {{}}, sgd: {{}}}}\n"),
        &format!("{good}storage: master\n"),
        &format!("{good}storage: {{stochastic_rounding: {{seed: 1}}}}\n"),
        &format!("{good}storage: {{kahan: {{dtype: float16}}}}\n"),
        &format!("{good}storage: {{low: {{dtype: float32}}}}\n"),
        &format!("{good}storage: {{low: {{dtype: bf61}}}}\n"),
        &format!("{good}storage: {{masters: {{exclude: {{head: true}}}}}}\n"),
        &format!("{good}storage: {{masters: {{exclude: ['a..b']}}}}\n"),
        &format!("{good}storage: {{masters: {{excluded: [head]}}}}\n"),
        &format!("{good}standardize_target: true\n"),
        &format!("{good}lr: 0\n"),
        &format!("{good}lr: fast\n"),
        &format!("{good}epochs: 0\n"),
        &format!("{good}epochs: -3\n"),
        &format!("{good}batch: 1.5\n"),
        &format!("{good}schedule: cosin\n"),
        &format!("{good}schedule: step\n"),
        &format!("{good}schedule: {{step: {{every: 0, factor: 0.1}}}}\n"),
        &format!("{good}schedule: restarts\n"),
        &format!("{good}schedule: {{plateau: {{factor: 1}}}}\npatience: 2\n"),
        &format!("{good}schedule: plateau\npatience: 2\n"),
        &format!("{good}freeze: {{encoder: true}}\n"),
        &format!("{good}freeze: ['encoder..']\n"),
        &format!("{good}groups: {{path: head, lr_factor: 2}}\n"),
        &format!("{good}groups: [{{lr_factor: 2}}]\n"),
        &format!("{good}weights: 3\n"),
        &format!("{good}weights: {{rename: [{{from: a}}]}}\n"),
        &format!("{good}max_grad_norm: 1\n"),
        &format!("{good}average: 1.5\n"),
        &format!("{good}loss: cross-entropy\n"),
        &format!("{good}loss: {{huber: {{delta: big}}}}\n"),
        &format!("{good}test: 1.5\n"),
        &format!("{good}test: 0\n"),
        &format!("{good}test: -4\n"),
        &format!("{good}test: [1]\n"),
        &format!("{good}checkpoint: {{keep: 0}}\n"),
        &format!("{good}checkpoint: 100\n"),
        &format!("{good}name: ../elsewhere\n"),
        &format!("{good}patience: 0\n"),
        &format!("{good}standardize: maybe\n"),
        &format!("{good}seed: 1\nseed: 2\n"),
        &format!("{good}data: &a digits\n"),
    ] {
        let error = RunFile::parse(wrong, "run.yaml").expect_err(wrong);
        assert_eq!(error.kind(), ErrorKind::Run, "{error}");
        answers += &format!("{}\n{error}\n\n", "-".repeat(40));
    }
    insta::assert_snapshot!("run_files", answers);
}

#[test]
fn what_is_written_is_read_again() {
    for more in [
        "",
        ", optimizer: {sgd: {momentum: 0.5}}, loss: {cross_entropy: {label_smoothing: 0.1, weight: [1, 2]}}, seed: 3",
        ", schedule: {step: {every: 7, factor: 0.5}}, checkpoint: {every: 5, keep: 1}, patience: 4, warm_up: 2",
        ", optimizer: {muon: {rounds: 4, others: {betas: [0.8, 0.9], state_8bit: true}}}, storage: stochastic_rounding",
        ", weights: {file: a.safetensors, torch: true, rename: [{from: 'h.**', to: '**'}]}, freeze: ['0.**'], clip: 0.5",
        ", groups: [{path: '**.bias', lr_factor: 2}], accumulate: 4, shards: 2, average: 0.99, schedule: {restarts: {every: 9}}",
        ", optimizer: lion, storage: {masters: {dtype: bfloat16, exclude: ['head.**']}}, standardize_targets: true",
        ", test: other.csv, standardize: true, name: first try, monitor: false, lint: false, lr: 0.125",
    ] {
        let text =
            format!("{{version: 1, model: m.yaml, policy: o2, data: {{csv: {{file: a.csv, target: y}}}}{more}}}");
        let file = RunFile::parse(&text, "run.yaml").unwrap();
        let again = RunFile::parse(&file.to_yaml().unwrap(), "again").unwrap();
        assert_eq!(format!("{again:?}"), format!("{file:?}"));
    }
}

#[test]
fn run_from_a_file_alone_is_in_its_own_folder() {
    let to = Folder::new("from-a-file");
    let text = "{version: 1, model: mlp, policy: o2-bf16, data: digits, epochs: 1, batch: 256}";
    fs::write(to.join("run.yaml"), text).unwrap();
    let mut run = Run::load(to.join("run.yaml")).unwrap();
    assert_eq!(run.train().unwrap(), EndReason::Done);
    assert_eq!(run.folder(), to.join("runs/o2-bf16"));
    drop(run);
    assert_eq!(Run::load(to.join("run.yaml")).unwrap_err().kind(), ErrorKind::Run, "the folder is taken");
    assert_eq!(Run::load(to.join("none.yaml")).unwrap_err().kind(), ErrorKind::Io);
}
