//! Runs that end between the writes of files that belong together, as if they were killed there: a folder in the place
//! of a file is never replaced, so the run ends at that file.

use std::{fs, path::Path};

use precast::io::models::Model;
use precast_train::{Change, Predictor, Run, RunFile, scores_of};

use crate::{
    common::folder::Folder,
    folders::{file, model},
    onnx_model as build,
};

fn resumed(folder: &Path) -> Run {
    Run::resume(folder, RunFile::of_folder(folder).unwrap().read_model().unwrap()).unwrap()
}

/// Begins a run that ends before it writes a file, and removes what was in its place.
fn ended_before(name: &str, to: &Path) {
    let mut run = Run::begin(&file("o0", ""), model(0), to).unwrap();
    let taken = to.join(name);
    fs::create_dir_all(taken.join("in the way")).unwrap();
    let error = run.train().unwrap_err().to_string();
    assert!(error.contains(name), "{error}");
    drop(run);
    fs::remove_dir_all(taken).unwrap();
}

/// An epoch has ten steps. With a learning rate of 10, the second and the third are worse than the first.
#[test]
fn best_weights_are_those_of_an_epoch_in_the_history() {
    for name in ["checkpoint-000000020.safetensors", "best.safetensors"] {
        let folder = Folder::to_come("killed-best");
        ended_before(name, &folder);
        let again = RunFile::of_folder(&folder).unwrap().read_model().unwrap();
        let mut run = Run::resume_with(&folder, again, Change::default().lr(10.0)).unwrap();
        assert_eq!(run.history().epochs.len(), 1, "{name}: the checkpoint of the first epoch is the last");
        run.train().unwrap();
        let (epoch, score) = run.best().unwrap();
        assert_eq!(epoch, 0, "{name}: {:?}", run.history().epochs);
        // The test examples chose the weights, so their score is that of the epoch.
        let scores = scores_of(&folder).unwrap().unwrap();
        assert_eq!((scores.epoch, scores.test.score()), (epoch, score), "{name}");
    }
}

/// At each file, the run continues and ends with the bits of one that nothing stopped.
#[test]
fn a_run_that_ends_at_any_file_goes_on() {
    let whole = Folder::to_come("killed-whole");
    Run::begin(&file("o0", ""), model(0), &whole).unwrap().train().unwrap();
    let files = ["metrics.csv", "best.safetensors", "last.safetensors", "scores.json"];
    for name in files.into_iter().chain(["checkpoint-000000010.safetensors", "checkpoint-000000020.safetensors"]) {
        let folder = Folder::to_come("killed-any");
        ended_before(name, &folder);
        resumed(&folder).train().unwrap();
        for name in ["last.safetensors", "best.safetensors", "scores.json"] {
            let bytes = |folder: &Path| fs::read(folder.join(name)).unwrap();
            assert!(bytes(&whole) == bytes(&folder), "{name}");
        }
    }
}

/// The files of a run that was killed before its run file was written are not files of the run that begins there.
#[test]
fn a_run_begins_without_the_standardization_of_another() {
    let (whole, killed) = (Folder::to_come("killed-plain"), Folder::to_come("killed-standardized"));
    Run::begin(&file("o0", ""), model(0), &whole).unwrap().train().unwrap();
    drop(Run::begin(&file("o0", ", standardize: true"), model(0), &killed).unwrap());
    fs::remove_file(killed.join("run.yaml")).unwrap();
    drop(Run::begin(&file("o0", ""), model(0), &killed).unwrap());
    resumed(&killed).train().unwrap();
    let bytes = |folder: &Path| fs::read(folder.join("best.safetensors")).unwrap();
    assert!(bytes(&whole) == bytes(&killed));
    assert!(!killed.join("standardization.json").exists(), "a predictor would read it");
}

/// `about.json` has a checksum for each of 400 data files whose names have 200 characters: more than 64 KiB.
#[test]
fn a_run_of_a_model_with_many_data_files_can_be_resumed() {
    use build::{FLOAT, Message, floats, graph, node, value};
    let folder = Folder::new("many-data-files");
    let (mut nodes, mut weights) = (Vec::new(), Vec::new());
    nodes.push(node("MatMul", &["x", "w"], &["y0"], &[]));
    weights.push(floats("w", &[64, 10], &[0.01; 640]));
    for at in 0..400 {
        let (from, to, bias) = (format!("y{at}"), format!("y{}", at + 1), format!("b{at}"));
        let location = format!("{at:0>200}");
        fs::write(folder.at(&location), [0; 40]).unwrap();
        let place = Message::default().bytes(1, "location").bytes(2, &location);
        weights.push(Message::default().int(1, 10).int(2, FLOAT).bytes(8, &bias).message(13, &place).int(14, 1));
        nodes.push(node("Add", &[&from, &bias], &[&to], &[]));
    }
    let io = [value("x", FLOAT, &["n", "64"]), value("y400", FLOAT, &["n", "10"])];
    fs::write(folder.at("model.onnx"), build::bytes(&graph(&nodes, &weights, &io[..1], &io[1..]), 18)).unwrap();
    let text = "{version: 1, model: {onnx: model.onnx}, policy: o0, data: digits, test: 1700, epochs: 1, batch: 97}";
    fs::write(folder.at("run.yaml"), text).unwrap();
    let (file, to) = (RunFile::load(folder.at("run.yaml")).unwrap(), folder.at("run"));
    drop(Run::begin(&file, file.read_model().unwrap(), &to).unwrap());
    assert!(fs::metadata(to.join("about.json")).unwrap().len() > 1 << 16);
    resumed(&to).train().unwrap();
    let model: Model = RunFile::of_folder(&to).unwrap().read_model().unwrap();
    Predictor::of_folder(&to, model).unwrap();
}
