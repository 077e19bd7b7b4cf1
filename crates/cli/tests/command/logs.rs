//! Progress of training in a log, tables of runs, and their events for TensorBoard.

use std::{fs, process::Stdio};

use crate::program::{Folder, command, error, precast_in, text};

const RUN: &str = "{version: 1, model: mlp, policy: o2, data: digits, epochs: 3, batch: 256}";

#[test]
fn each_epoch_is_a_line_of_the_log_and_json_stays_json() {
    let folder = Folder::new("log");
    folder.write("run.yaml", RUN);
    let output = precast_in(&folder.0, &["train", "run.yaml", "--format", "json"]);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["epochs"], 3);
    let log = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 3, "{log}");
    for (i, line) in lines.iter().enumerate() {
        assert!(line.starts_with(&format!("o2: epoch {}/3, loss ", i + 1)), "{line}");
        assert!(line.contains(", accuracy ") && line.contains(", learning rate ") && line.ends_with(" s"), "{line}");
    }
    let args = ["train", "mlp", "--policy", "o0", "--policy", "o2", "--epochs", "2", "--output", "compared"];
    let log = String::from_utf8(precast_in(&folder.0, &args).stderr).unwrap();
    let begins: Vec<&str> = log.lines().filter_map(|line| line.split(", ").next()).collect();
    assert_eq!(begins, ["o0: epoch 1/2", "o2: epoch 1/2", "o0: epoch 2/2", "o2: epoch 2/2"]);
    let quiet = precast_in(&folder.0, &[&args[..7], &["1", "--quiet"]].concat());
    assert!(quiet.status.success() && quiet.stderr.is_empty());
}

#[test]
fn a_run_has_a_table_events_and_an_entry_in_the_report() {
    let folder = Folder::new("events");
    folder.write("run.yaml", RUN);
    text(precast_in(&folder.0, &["train", "run.yaml", "--policy", "o1", "--policy", "o2"]));
    let table = fs::read_to_string(folder.0.join("runs/o2/metrics.csv")).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0], ["epoch", "steps", "loss", "accuracy", "skipped", "scale", "learning_rate", "seconds"]);
    let numbers: Vec<&str> = rows[1..].iter().map(|row| row[0]).collect();
    assert_eq!((numbers, rows[3].len()), (vec!["1", "2", "3"], 8));

    let said = text(precast_in(&folder.0, &["show", "runs", "--tensorboard", "events", "--html", "all.html"]));
    assert!(!said.contains(" time "), "{said}");
    let events = fs::read(folder.0.join("events/o2/events.out.tfevents.0.precast")).unwrap();
    // Records: a length in 8 bytes, its checksum in 4, the content, its checksum in 4.
    let (mut at, mut records) = (0, 0);
    while at < events.len() {
        at += 16 + u64::from_le_bytes(events[at..at + 8].try_into().unwrap()) as usize;
        records += 1;
    }
    let steps: usize = rows[3][1].parse().unwrap();
    assert_eq!((at, records), (events.len(), 1 + steps + 3));
    // The same run is written again; one of the same name that began at another time is not.
    text(precast_in(&folder.0, &["show", "runs", "--tensorboard", "events"]));
    let about = fs::read_to_string(folder.0.join("runs/o2/about.json")).unwrap();
    let mut other: serde_json::Value = serde_json::from_str(&about).unwrap();
    other["started"] = "2020-01-01T00:00:00Z".into();
    folder.write("runs/o2/about.json", &other.to_string());
    let said = error(1, precast_in(&folder.0, &["show", "runs", "runs/o2", "--tensorboard", "events"]));
    assert!(said.contains("events/o2/events.out") && said.contains("a run that began at another time"), "{said}");
    assert!(fs::read(folder.0.join("events/o2/events.out.tfevents.0.precast")).unwrap() == events);

    let html = fs::read_to_string(folder.0.join("all.html")).unwrap();
    for part in ["<title>2 runs - precast", "<summary>o1</summary>", "<summary>o2</summary>", "level: O1", "level: O2"]
    {
        assert!(html.contains(part), "{part}");
    }
}

#[test]
#[cfg(unix)]
fn a_comparison_that_is_interrupted_has_its_table_and_files() {
    use std::io::{BufRead as _, BufReader, Read as _};
    let folder = Folder::new("interrupted-comparison");
    let args = ["train", "mlp", "--policy", "o0", "--policy", "o2", "--epochs", "100000"];
    let mut child =
        command(&folder.0, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command");
    // The first line of the log says that an epoch is done.
    let mut log = BufReader::new(child.stderr.take().unwrap());
    log.read_line(&mut String::new()).unwrap();
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let reader = std::thread::spawn(move || {
        let mut rest = String::new();
        log.read_to_string(&mut rest).map(|_| rest).unwrap()
    });
    let output = child.wait_with_output().unwrap();
    let rest = reader.join().unwrap();
    assert_eq!(output.status.code(), Some(1), "{rest}");
    assert!(rest.contains("interrupted after ") && rest.contains("of 100000 epochs"), "{rest}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("| o2  |"));
    for file in ["metrics.json", "plans.txt", "curves.svg"] {
        assert!(folder.0.join("precast-out").join(file).is_file(), "{file}");
    }
}
