//! `precast replay`: the way from a fault to its cure, and damaged faults and runs, as a user meets them.

use std::{fs, path::Path};

use precast::storage::weights;

use crate::program::{Folder, error, messages, precast_in, text};

/// A table of two columns and two classes; `last` is the second column of the last row.
fn folder(test: &str, last: f64, run: &str) -> Folder {
    let folder = Folder::new(test);
    let rows = (0..40).map(|i| {
        let y = if i == 39 { last } else { -f64::from(i) / 40.0 };
        format!("{},{y},{}\n", f64::from(i) / 40.0, i % 2)
    });
    folder.write("points.csv", &["x,y,side\n".to_string()].into_iter().chain(rows).collect::<String>());
    let cells = "[{kind: Dense, in_features: 2, out_features: 8}, {kind: ReLU}, {kind: Dense, in_features: 8, out_features: 2}]";
    folder.write("net.yaml", &format!("version: 1\ninput: [2]\nnet: {{kind: Sequential, cells: {cells}}}\n"));
    let data = "data: {csv: {file: points.csv, target: side}}";
    folder
        .write("run.yaml", &format!("{{version: 1, model: net.yaml, policy: o2, {data}, epochs: 2, batch: 10{run}}}"));
    folder
}

/// Trains, whatever comes of it, and returns the folder of the only fault.
fn fault(folder: &Folder) -> String {
    let _ = precast_in(&folder.0, &["train", "run.yaml", "--quiet"]);
    let faults = fs::read_dir(folder.0.join("runs/o2/faults")).unwrap();
    let name = faults.map(|entry| entry.unwrap().file_name().into_string().unwrap()).min().unwrap();
    format!("runs/o2/faults/{name}")
}

/// The policy that a cure writes has no name, so that its run gets a folder of its own, and the command that is printed
/// trains it to the end.
#[test]
fn a_cured_policy_is_trained_by_the_command_that_is_printed() {
    let folder = folder("cured-flow", 1e5, "");
    let fault = fault(&folder);
    let said = text(precast_in(&folder.0, &["replay", &fault, "--cure", "--output", "cured.yaml"]));
    let policy = fs::read_to_string(folder.0.join("cured.yaml")).unwrap();
    assert!(!policy.contains("name:") && policy.contains("run: float32"), "{policy}");
    let tried = "train runs/o2/run.yaml --policy cured.yaml --output runs/cured";
    assert!(said.contains(&format!("written: cured.yaml; try: precast {tried}\n")), "{said}");
    let args: Vec<&str> = tried.split(' ').chain(["--quiet", "--lr", "1e-9"]).collect();
    let output = precast_in(&folder.0, &args);
    assert!(folder.0.join("runs/cured/best.safetensors").is_file(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A run that recovers by itself has no cure, and a policy with a dynamic scale keeps one.
#[test]
fn a_dynamic_scale_that_falls_is_the_cure() {
    let folder = folder("recovered", 0.0, "");
    let scale = "{kind: dynamic, init: 16777216, growth: 2, backoff: 0.5, interval: 2000, min: 1, max: 16777216}";
    folder.write("big.yaml", &format!("{{version: 1, name: o2, level: O2, dtype: float16, loss_scale: {scale}}}"));
    let run = fs::read_to_string(folder.0.join("run.yaml")).unwrap();
    folder.write("run.yaml", &run.replace("policy: o2", "policy: big.yaml").replace("epochs: 2", "epochs: 10"));
    let fault = fault(&folder);
    let said = text(precast_in(&folder.0, &["replay", &fault, "--cure", "--output", "cured.yaml"]));
    assert!(said.contains("no cure is needed: the dynamic scale fell to "), "{said}");
    assert!(
        said.contains("this step is sound; no policy is written") && !folder.0.join("cured.yaml").exists(),
        "{said}"
    );
}

#[test]
fn a_folder_without_a_fault_is_named_with_the_faults_that_there_are() {
    let folder = folder("no-fault", 1e5, "");
    let fault = fault(&folder);
    fs::create_dir(folder.0.join("lonely")).unwrap();
    fs::copy(folder.0.join(&fault).join("fault.json"), folder.0.join("lonely/fault.json")).unwrap();
    let name = Path::new(&fault).file_name().unwrap().to_str().unwrap();
    let replay = |args: &[&str]| precast_in(&folder.0, &[&["replay"], args].concat());
    for (args, message) in [
        (&["nothere"][..], "there is no folder `nothere`; expected the folder of a run, or of one of its".to_string()),
        (&["nothere"], "; there are the runs `runs/o2`".into()),
        (&["run.yaml"], "`run.yaml` is a file; expected the folder of a run".into()),
        (&["run.yaml"], "; there are the runs `runs/o2`".into()),
        (&["runs"], "there is no fault in `runs`; expected the folder of a run".into()),
        (&["runs"], "; there are the runs `runs/o2`".into()),
        (&["runs/o3"], "there is no folder `runs/o3`; expected ".into()),
        (&["runs/o3"], "; there are the runs `runs/o2`".into()),
        (&["lonely"], "the fault is not in the folder of the run that saved it".into()),
        (&["runs/o2/faults/step-77"], format!("`runs/o2/faults/step-77`; the faults of the run are `{name}`")),
        (&["."], "there is no fault in `.`".into()),
        (&["runs/o2", "--cure", "--output", "q.yaml"], "--cure is for one fault".into()),
        (&[&fault, "--cure", "--output", "runs/o2/policy.yaml", "--force"], "is in the folder of a run".into()),
    ] {
        let said = error(2, replay(args));
        assert!(said.contains(&message), "{said}");
    }
    for run in ["runs/o2", "runs/o2/faults"] {
        assert!(text(replay(&[run])).contains(&format!("replay runs/o2/faults/{name}")), "{run}");
    }
}

#[test]
fn a_run_without_faults_is_named_as_such() {
    let folder = folder("sound", 0.0, "");
    text(precast_in(&folder.0, &["train", "run.yaml", "--quiet", "--policy", "o0"]));
    let replay = |of: &str| precast_in(&folder.0, &["replay", of]);
    assert_eq!(text(replay("runs/o0")), "no step of runs/o0 met a number that was not finite\n");
    let said = error(2, replay("runs/o0/faults/step-1"));
    assert_eq!(said, "error: there is no folder `runs/o0/faults/step-1`; the run `runs/o0` has no fault\n");
}

#[test]
fn a_run_without_a_monitor_has_no_faults_but_skipped_steps() {
    let folder = folder("unmonitored", 1e5, ", monitor: false");
    let _ = precast_in(&folder.0, &["train", "run.yaml", "--quiet"]);
    let said = text(precast_in(&folder.0, &["replay", "runs/o2"]));
    assert!(said.contains("was not monitored (`monitor: false`); "), "{said}");
}

/// Each file and each number of a saved fault is checked, and so is the policy of the run.
#[test]
fn damage_to_a_fault_or_its_run_is_named() {
    let folder = folder("damaged", 1e5, "");
    let fault = fault(&folder);
    let (file, batch) = (folder.0.join(&fault).join("fault.json"), folder.0.join(&fault).join("batch.safetensors"));
    let (whole, tensors) = (fs::read_to_string(&file).unwrap(), fs::read(&batch).unwrap());
    let saved: serde_json::Value = serde_json::from_str(&whole).unwrap();
    let replay = || precast_in(&folder.0, &["replay", &fault]);
    let damages =
        [("seed", "9"), ("scale", "-1"), ("scale", "2"), ("step", "77"), ("epoch", "1"), ("examples", "[99999]")];
    for (key, value) in damages {
        let mut changed = saved.clone();
        changed[key] = serde_json::from_str(value).unwrap();
        fs::write(&file, changed.to_string()).unwrap();
        let output = replay();
        let said = messages(output.stderr);
        assert!(!output.status.success() && said.contains(key), "{key}: {said}");
    }
    fs::write(&file, &whole).unwrap();
    for bytes in [None, Some(&tensors[..tensors.len() / 2])] {
        match bytes {
            None => fs::remove_file(&batch).unwrap(),
            Some(bytes) => fs::write(&batch, bytes).unwrap(),
        }
        let output = replay();
        let said = messages(output.stderr);
        assert!(!output.status.success() && said.contains("batch.safetensors"), "{said}");
    }
    fs::write(&batch, &tensors).unwrap();
    assert!(weights::read(&batch).is_ok());
    text(replay());
    let policy = folder.0.join("runs/o2/policy.yaml");
    let changed = fs::read_to_string(&policy).unwrap().replace("float16", "bfloat16");
    fs::write(&policy, changed).unwrap();
    let said = error(2, replay());
    assert!(said.contains("is not the one with which the run began"), "{said}");
}

/// Returns a table whose numbers are all beyond f16.
fn beyond_f16() -> String {
    let rows: String = (0..40).map(|i| format!("{0}e5,-{0}e5,{1}\n", 1 + i, i % 2)).collect();
    format!("x,y,side\n{rows}")
}

/// A run that stalls does not keep the next policy from being trained.
#[test]
fn every_policy_is_trained_although_one_run_stalls() {
    let folder = folder("stalled-first", 0.0, "");
    folder.write("points.csv", &beyond_f16());
    // At least the 20 steps after which a run has stalled.
    let run = fs::read_to_string(folder.0.join("run.yaml")).unwrap().replace("epochs: 2", "epochs: 10, lr: 1e-9");
    folder.write("run.yaml", &run);
    let output = precast_in(&folder.0, &["train", "run.yaml", "--policy", "o3", "--policy", "o0", "--quiet"]);
    let (said, message) = (String::from_utf8(output.stdout).unwrap(), messages(output.stderr));
    assert!(message.contains("1 of 2 runs failed:\no3 stalled at step 20"), "{message}");
    // The cell at fault is named with the rule that would raise it.
    let write = "no rule raises the root cell: write `rules: [{ path: \"**\", after_stall: raise }]`";
    assert!(message.contains(write), "{message}");
    assert!(folder.0.join("runs/o0/last.safetensors").is_file() && said.contains("| o0 "), "{said}");
    // The weights of a run that broke may be to blame for what a lint finds.
    let linted = precast_in(&folder.0, &["lint", "runs/o3"]);
    assert!(String::from_utf8(linted.stderr).unwrap().contains("the run broke"), "{}", linted.status);
    // Steps with the same cause are one row of the report.
    let report = fs::read_to_string(folder.0.join("runs/o3/report.html")).unwrap();
    assert!(report.contains(">1 to 20<"), "{report}");
}

/// A fault right at the beginning needs no data but its batch.
#[test]
fn a_fault_is_replayed_from_its_batch_when_the_data_has_moved() {
    let folder = folder("moved", 1e5, "");
    // The first step is faulty.
    folder.write("points.csv", &beyond_f16());
    let fault = fault(&folder);
    let before = text(precast_in(&folder.0, &["replay", &fault]));
    fs::rename(folder.0.join("points.csv"), folder.0.join("moved.csv")).unwrap();
    let output = precast_in(&folder.0, &["replay", &fault]);
    let message = messages(output.stderr);
    assert!(message.contains("the saved batch takes the place of the data"), "{message}");
    assert_eq!((output.status.code(), String::from_utf8(output.stdout).unwrap()), (Some(0), before));
}

/// An input that is far from all others is named by its line, its column and its number.
#[test]
fn the_input_that_broke_a_step_is_named() {
    let folder = folder("outlier", 0.0, "");
    let row = |i: i64| {
        let y = if i % 8 == 7 { format!("-{i}e36") } else { format!("0.{i}") };
        format!("0.5,{y},{}\n", i % 2)
    };
    let table = "x,y,side\n".to_string() + &(0..40).map(row).collect::<String>();
    folder.write("points.csv", &table);
    let said = text(precast_in(&folder.0, &["replay", &fault(&folder)]));
    let found = said.split("points.csv:").nth(1).unwrap_or_else(|| panic!("{said}"));
    let (line, rest) = found.split_once(": column y is ").unwrap();
    let number: f64 = rest.split(';').next().unwrap().parse().unwrap();
    let field = table.lines().nth(line.parse::<usize>().unwrap() - 1).unwrap().split(',').nth(1).unwrap();
    let expected: f32 = field.parse().unwrap();
    assert_eq!(number as f32, expected);
}
