//! Runs on several ranks, which are threads: the same files as in one process, also interrupted and continued by others.

use std::{fs, ops::ControlFlow, path::Path, time::Duration};

use precast::{Result, error::ErrorKind};
use precast_mpi::{Ranks, Threads};
use precast_train::{EndReason, Follower, Run, RunFile, SavedFault};

use crate::common::folder::Folder;

const RUN: &str = "\
version: 1
model: lenet5_bn
policy: o2
data: digits
test: 1500
epochs: 2
batch: 60
accumulate: 2
shards: 5
optimizer: {adam: {}}
average: 0.9
augment: {crop: 1}
patience: 3
checkpoint: {every: 1}
";

/// Runs a job, of which rank 0 trains `begin`s run until it has taken so many steps.
fn job(ranks: usize, steps: usize, begin: impl Fn() -> Result<Run> + Sync) -> Vec<Result<Option<EndReason>>> {
    Threads::run(ranks, &[], Duration::from_secs(60), |ranks: &Ranks| {
        if ranks.rank() > 0 {
            return Follower::receive(ranks, RunFile::read_model)?.follow(ranks, || false).map(|()| None);
        }
        let mut taken = 0;
        let mut observer = |event: precast_train::Event<'_>| {
            taken += usize::from(matches!(event, precast_train::Event::Step(_)));
            if taken >= steps { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        begin()?.train_on(ranks, &mut observer).map(Some)
    })
    .unwrap()
}

fn resumed(folder: &Path) -> Result<Run> {
    Run::resume(folder, RunFile::of_folder(folder)?.read_model()?)
}

/// Returns the metrics without times, and without what describes one process.
fn metrics(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let of_all = text.lines().filter(|line| !line.contains(r#""kind":"memory""#));
    of_all.map(|line| line.split(r#","seconds":"#).next().unwrap().to_string()).collect()
}

#[test]
fn a_run_has_the_same_files_on_any_ranks_and_continued_on_others() {
    let folder = Folder::new("over-ranks");
    let file = RunFile::parse(RUN, "run.yaml").unwrap();
    let begin = |name: &str| {
        let (path, file) = (folder.0.join(name), file.clone());
        move || Run::begin(&file, file.read_model()?, &path)
    };
    let one = folder.0.join("one");
    assert_eq!(begin("one")().unwrap().train().unwrap(), EndReason::Done);
    let check = |name: &str| {
        let met = folder.0.join(name);
        for same in ["last.safetensors", "best.safetensors", "scores.json", "checkpoint-000000006.safetensors"] {
            assert!(fs::read(one.join(same)).unwrap() == fs::read(met.join(same)).unwrap(), "{name}: {same}");
        }
        assert_eq!(metrics(&met), metrics(&one), "{name}");
    };
    for ranks in 1..=4 {
        let name = format!("on-{ranks}");
        let ended = job(ranks, usize::MAX, begin(&name));
        assert_eq!(ended[0], Ok(Some(EndReason::Done)));
        assert!(ended[1..].iter().all(|ended| *ended == Ok(None)), "{ended:?}");
        check(&name);
    }
    let mut sharded = file.clone();
    sharded.shard_optimizer = true;
    for (stop, before, after) in [(1, 2, 3), (2, 4, 1), (4, 1, 4), (5, 3, 2), (3, 3, 4)] {
        let name = format!("stopped-{stop}");
        let ended = match stop {
            // Also from one step to the next of the same run.
            3 => job(before, stop, || Run::begin(&sharded, sharded.read_model()?, folder.0.join(&name))),
            _ => job(before, stop, begin(&name)),
        };
        assert_eq!(ended[0], Ok(Some(EndReason::Interrupted)));
        assert!(ended[1..].iter().all(|ended| *ended == Ok(None)), "{ended:?}");
        let path = folder.0.join(&name);
        assert_eq!(job(after, usize::MAX, || resumed(&path))[0], Ok(Some(EndReason::Done)));
        check(&name);
    }
}

/// An example that overflows in f16 comes into another shard in each epoch.
#[test]
fn a_fault_is_that_of_one_process_whichever_rank_has_it() {
    let folder = Folder::new("fault-over-ranks");
    let rows: String = (0..50).map(|i| format!("{}.5,{}\n", if i == 8 { 100_000 } else { i % 7 }, i % 5)).collect();
    folder.write("points.csv", &format!("x,y\n{rows}"));
    folder.write("net.yaml", "version: 1\ninput: [1]\nnet: {kind: Dense, in_features: 1, out_features: 1}\n");
    let text = "{version: 1, model: net.yaml, policy: o2, data: {csv: {file: points.csv, target: y, as: numbers}}, test: 20, \
                shards: 6, batch: 15, epochs: 9, lr: 0.001, lint: false}";
    folder.write("run.yaml", text);
    let file = RunFile::load(folder.0.join("run.yaml")).unwrap();
    let begin = |name: &str| {
        let (path, file) = (folder.0.join(name), file.clone());
        move || Run::begin(&file, file.read_model()?, &path)
    };
    let mut run = begin("one")().unwrap();
    let ended = run.train().unwrap();
    let not_finite = run.history().steps.iter().filter(|step| !step.loss.is_finite() && step.fault().is_some());
    assert_eq!(not_finite.count(), 9, "one in each epoch: {ended:?}");
    let one = folder.0.join("one");
    let origins = |run: &Path| -> Vec<_> {
        SavedFault::all(run).unwrap().into_iter().map(|(_, fault)| (fault.step, fault.examples, fault.origin)).collect()
    };
    for ranks in [2, 3, 5] {
        let name = format!("on-{ranks}");
        let ended = job(ranks, usize::MAX, begin(&name));
        assert!(ended.iter().all(Result::is_ok), "{ended:?}");
        let met = folder.0.join(&name);
        assert_eq!(metrics(&met), metrics(&one), "{name}");
        assert_eq!(origins(&met), origins(&one), "{name}");
        assert!(fs::read(one.join("last.safetensors")).unwrap() == fs::read(met.join("last.safetensors")).unwrap());
    }
}

#[test]
fn ranks_continue_from_a_checkpoint_before_a_damaged_one() {
    let folder = Folder::new("damaged-over-ranks");
    let file = RunFile::parse(&RUN.replace("patience: 3", "seed: 1"), "run.yaml").unwrap();
    let [whole, damaged] = ["whole", "damaged"].map(|name| folder.0.join(name));
    Run::begin(&file, file.read_model().unwrap(), &whole).unwrap().train().unwrap();
    assert_eq!(job(2, 4, || Run::begin(&file, file.read_model()?, &damaged))[0], Ok(Some(EndReason::Interrupted)));
    fs::write(damaged.join("checkpoint-000000004.safetensors"), "cut off").unwrap();
    let ended = job(3, usize::MAX, || resumed(&damaged));
    assert_eq!(ended[0], Ok(Some(EndReason::Done)));
    let last = |run: &Path| fs::read(run.join("last.safetensors")).unwrap();
    assert!(last(&damaged) == last(&whole));
}

#[test]
fn any_rank_may_stop_a_run() {
    let folder = Folder::new("stopped-by-a-rank");
    let file = RunFile::parse(RUN, "run.yaml").unwrap();
    let path = folder.0.join("run");
    let ended = Threads::run(3, &[], Duration::from_secs(60), |ranks: &Ranks| match ranks.rank() {
        0 => {
            Run::begin(&file, file.read_model()?, &path)?.train_on(ranks, &mut |_| ControlFlow::Continue(())).map(Some)
        }
        rank => {
            let steps = std::cell::Cell::new(0);
            let is_stopped = || {
                steps.set(steps.get() + 1);
                rank == 2 && steps.get() == 3
            };
            Follower::receive(ranks, RunFile::read_model)?.follow(ranks, is_stopped).map(|()| None)
        }
    })
    .unwrap();
    assert_eq!(ended, [Ok(Some(EndReason::Interrupted)), Ok(None), Ok(None)]);
    assert_eq!(resumed(&path).unwrap().history().steps.len(), 3);
}

#[test]
fn a_wire_of_16_bits_is_an_option_of_the_run() {
    let folder = Folder::new("wire");
    let weights = |wire: &str, ranks: usize| {
        let text = RUN.replace("epochs: 2", &format!("epochs: 1\nwire: {wire}"));
        let file = RunFile::parse(&text, "run.yaml").unwrap();
        assert_eq!(RunFile::parse(&file.to_yaml().unwrap(), "again").unwrap().wire, file.wire);
        let path = folder.0.join(format!("{wire}-{ranks}"));
        assert!(job(ranks, usize::MAX, || Run::begin(&file, file.read_model()?, &path)).iter().all(Result::is_ok));
        let net = file.read_model().unwrap().net;
        precast::storage::weights::load(&net, path.join("last.safetensors")).unwrap();
        let params: Vec<(String, Vec<f64>)> =
            net.named_params().iter().map(|(path, param)| (path.to_string(), param.full().to_f64())).collect();
        params
    };
    let (one, exact) = (weights("bfloat16", 1), weights("float32", 2));
    for (wire, ranks) in [("bfloat16", 2), ("bfloat16-both", 2), ("bfloat16", 3)] {
        let mut differs = false;
        assert_eq!(one, exact, "one process uses no wire");
        for ((name, met), (_, exact)) in weights(wire, ranks).iter().zip(&exact) {
            // Adam moves a weight by at most about the learning rate a step, of which there are three.
            let most = met.iter().zip(exact).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
            assert!(most < 6e-3, "{wire} on {ranks}, {name}: {most}");
            differs |= most > 0.0;
        }
        assert!(differs, "{wire} on {ranks} ranks");
    }
    let error = RunFile::parse(&RUN.replace("shards: 5", "shards: 5\nwire: float16"), "run.yaml").unwrap_err();
    assert!(error.to_string().starts_with("run.yaml:10:7: "), "{error}");
    assert!(error.to_string().contains("float16"), "{error}");
}

#[test]
fn a_rank_that_cannot_begin_or_goes_wrong_is_an_error_of_all() {
    let folder = Folder::new("over-ranks-wrong");
    // More ranks than shards.
    let few = RunFile::parse(&RUN.replace("shards: 5", "shards: 2"), "run.yaml").unwrap();
    let ended = job(3, usize::MAX, || Run::begin(&few, few.read_model()?, folder.0.join("few")));
    for ended in ended {
        let error = ended.unwrap_err();
        assert!(error.to_string().contains("`shards` is 2, and the launcher has started 3 processes"), "{error}");
    }
    // Other examples on rank 1 than on rank 0, which had read them before.
    let rows = |last: &str| {
        let rows: String = (0..40).map(|i| format!("{}.5,{}\n", i % 7, i % 2)).collect();
        format!("x,class\n{rows}{last}")
    };
    folder.write("points.csv", &rows("3.5,1\n"));
    folder.write("net.yaml", "version: 1\ninput: [1]\nnet: {kind: Dense, in_features: 1, out_features: 2}\n");
    let text =
        "{version: 1, model: net.yaml, policy: o2-bf16, data: {csv: {file: points.csv, target: class}}, shards: 2}";
    folder.write("run.yaml", text);
    let file = RunFile::load(folder.0.join("run.yaml")).unwrap();
    let ended = job(2, usize::MAX, || {
        let run = Run::begin(&file, file.read_model()?, folder.0.join("other-data"))?;
        folder.write("points.csv", &rows("4.5,1\n"));
        Ok(run)
    });
    let words: Vec<String> = ended.into_iter().map(|ended| ended.unwrap_err().to_string()).collect();
    assert!(words[0].starts_with("rank 1: this rank") && !words[0].contains("precast-rank"), "{words:?}");
    let expected = "has not the data of rank 0: the data has changed: the run began with 33 and 8 examples";
    assert!(words[0].contains(expected), "{words:?}");
    assert_eq!(words[0], words[1]);
    // A disk that is full: rank 0 cannot write its checkpoint, and says so to all.
    let broken = folder.0.join("broken");
    let ended = job(2, usize::MAX, || {
        folder.write("points.csv", &rows("3.5,1\n"));
        Run::begin(&file, file.read_model()?, &broken)
    });
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    let full = folder.0.join("full");
    let ended = Threads::run(2, &[], Duration::from_secs(60), |ranks: &Ranks| {
        if ranks.rank() > 0 {
            return Follower::receive(ranks, RunFile::read_model)?.follow(ranks, || false);
        }
        let mut run = Run::begin(&file, file.read_model()?, &full)?;
        let mut observer = |_: precast_train::Event<'_>| {
            fs::remove_dir_all(&full).unwrap();
            ControlFlow::Break(())
        };
        run.train_on(ranks, &mut observer).map(drop)
    })
    .unwrap();
    let errors: Vec<_> = ended.into_iter().map(Result::unwrap_err).collect();
    assert_eq!(errors[0].kind(), ErrorKind::Io);
    assert_eq!(errors[1].to_string(), format!("rank 0: {}", errors[0]));
}

/// One number of 48 overflows, in another shard each time, and most ranks have not met it.
#[test]
fn a_cell_that_stalls_a_run_is_raised_on_all_ranks() {
    let folder = Folder::new("over-ranks-stall");
    let rows: String = (0..60).map(|i| format!("{},{}.5\n", if i % 50 == 7 { 60000 } else { i }, i % 3)).collect();
    folder.write("data.csv", &format!("a,y\n{rows}"));
    folder.write(
        "net.yaml",
        "version: 1\ninput: [1]\nnet: {kind: Sequential, cells: [{kind: Dense, in_features: 1, out_features: 8}, {kind: ReLU}, \
         {kind: Dense, in_features: 8, out_features: 1}]}\n",
    );
    folder.write(
        "policy.yaml",
        "version: 1\nlevel: O3\ndtype: float16\nloss_scale: { kind: none }\nrules:\n  - path: '**'\n    after_stall: raise\n",
    );
    let text = "{version: 1, model: net.yaml, policy: policy.yaml, data: {csv: {file: data.csv, target: y}}, test: 12, \
                epochs: 50, batch: 48, shards: 4, lr: 1.0e-13}";
    let file = RunFile::load(folder.write("run.yaml", text)).unwrap();
    let begin = |name: &str| {
        let (path, file) = (folder.0.join(name), &file);
        move || Run::begin(file, file.read_model()?, &path)
    };
    assert_eq!(begin("one")().unwrap().train().unwrap(), EndReason::Done);
    let one = folder.0.join("one");
    let raised = |line: &String| line.contains(r#""kind":"raised""#);
    assert!(metrics(&one).iter().any(raised), "{:?}", metrics(&one));
    for ranks in 2..=4 {
        let name = format!("on-{ranks}");
        let ended = job(ranks, usize::MAX, begin(&name));
        assert_eq!(ended[0], Ok(Some(EndReason::Done)), "{ended:?}");
        assert!(ended[1..].iter().all(|ended| *ended == Ok(None)), "{ended:?}");
        assert_eq!(metrics(&folder.0.join(&name)), metrics(&one), "{ranks} ranks");
    }
}
