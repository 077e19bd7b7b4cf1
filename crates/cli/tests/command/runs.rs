//! `precast train run.yaml`, `--resume`, `runs` and `predict`, as a user runs them.

use std::{
    fs,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use crate::program::{Folder, command, error, folder_of_run, json, points, precast_in, text};
use crate::{common::metrics::metrics, png::grey};

const MODEL: &str = "
version: 1
input: [2]
net:
  kind: Sequential
  cells:
  - {kind: Dense, in_features: 2, out_features: 8}
  - {kind: ReLU}
  - {kind: Dense, in_features: 8, out_features: 2}
";

const RUN: &str = "
version: 1
model: net.yaml
policy: o2
data: {csv: {file: points.csv, target: side}}
standardize: true
optimizer: adam
lr: 0.02
epochs: 30
batch: 16
";

fn folder(test: &str, run: &str) -> Folder {
    folder_of_run(test, &points(false), MODEL, run)
}

fn weights(folder: &Path) -> Vec<u8> {
    fs::read(folder.join("last.safetensors")).unwrap()
}

#[test]
fn a_run_that_fails_before_its_first_step_leaves_its_name_free() {
    let folder = Folder::new("no-step");
    // Of each of two groups, 48 outputs are not a multiple of 32; the weights alone do not show the groups.
    let cells = "[{kind: Conv2d, in_channels: 1, out_channels: 64, kernel_size: 8}, {kind: Conv2d, in_channels: 64, out_channels: 96, \
                 kernel_size: 1, groups: 2}, {kind: Flatten}, {kind: Dense, in_features: 96, out_features: 10}]";
    folder.write("net.yaml", &format!("version: 1\ninput: [1, 8, 8]\nnet: {{kind: Sequential, cells: {cells}}}\n"));
    folder.write("run.yaml", "version: 1\nmodel: net.yaml\npolicy: low.yaml\ndata: digits\nepochs: 1\nbatch: 64\n");
    let policy =
        |recipe: &str| format!("version: 1\nlevel: O2\ndtype: bfloat16\nrules: [{{path: '1', operands: {recipe}}}]\n");
    folder.write("low.yaml", &policy("mxfp8"));
    let said = error(2, precast_in(&folder.0, &["train", "run.yaml", "--quiet", "--format", "json"]));
    assert!(said.contains("blocks of `operands: mxfp8`") && !folder.0.join("runs/low").exists(), "{said}");
    folder.write("low.yaml", &policy("tensorwise"));
    text(precast_in(&folder.0, &["train", "run.yaml", "--quiet"]));
}

#[test]
fn a_table_of_ones_own_is_trained_compared_and_predicted() {
    let folder = folder("own", RUN);
    let said = text(precast_in(&folder.0, &["train", "run.yaml"]));
    assert!(said.contains("80 training examples, 20 test examples of shape [2]"), "{said}");
    assert!(said.contains("best accuracy: "), "{said}");
    let files: Vec<String> = [
        "about.json",
        "best.safetensors",
        "last.safetensors",
        "metrics.csv",
        "metrics.jsonl",
        "model.yaml",
        "plan.txt",
        "policy.yaml",
        "report.html",
        "run.yaml",
        "standardization.json",
    ]
    .map(String::from)
    .to_vec();
    for file in &files {
        assert!(folder.0.join("runs/o2").join(file).is_file(), "{file}");
    }

    // Changing the level takes one word, and the two are compared.
    let said = text(precast_in(&folder.0, &["train", "run.yaml", "--policy", "o1-bf16", "--quiet"]));
    assert!(said.contains("| o1-bf16 |"), "{said}");
    let said = text(precast_in(&folder.0, &["show", "runs"]));
    assert!(said.contains("| o1-bf16 |") && said.contains("| o2      |"), "{said}");
    let report = fs::read_to_string(folder.0.join("runs/o1-bf16/report.html")).unwrap();
    assert!(
        report.contains("<td>o2</td>") && report.contains("<svg") && !report.contains("http://www.w3.org/1999/xhtml")
    );

    // Rows of known class, with the columns in another order and without the class.
    folder.write("new.csv", "y,x\n9,9\n1,1\n8.5,7.5\n");
    let said = text(precast_in(&folder.0, &["predict", "runs/o2", "new.csv"]));
    let classes: Vec<&str> = said.lines().map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(classes, ["class", "above", "below", "above"]);
    text(precast_in(&folder.0, &["predict", "runs/o2", "new.csv", "--output", "said.csv"]));
    let again = |file| error(2, precast_in(&folder.0, &["predict", "runs/o2", "new.csv", "--output", file]));
    assert!(again("said.csv").contains("`said.csv` already exists; --force replaces it"), "{}", again("said.csv"));
    // The file that is read is not replaced, forced or not.
    assert!(again("new.csv").contains("EXAMPLES and --output name one file, `new.csv`"), "{}", again("new.csv"));
    let forced = ["predict", "runs/o2", "new.csv", "--output", "new.csv", "--force"];
    assert!(error(2, precast_in(&folder.0, &forced)).contains("name one file"));
    let of_run = ["predict", "runs/o2", "new.csv", "--output", "points.csv", "--force"];
    let words = "the data of the run and --output name one file, `points.csv`";
    assert!(error(2, precast_in(&folder.0, &of_run)).contains(words));
    assert_eq!(fs::read_to_string(folder.0.join("new.csv")).unwrap(), "y,x\n9,9\n1,1\n8.5,7.5\n");
    assert_eq!(fs::read_to_string(folder.0.join("said.csv")).unwrap(), said);
}

#[test]
fn flags_change_keys_and_json_says_how_it_ended() {
    let folder = folder("flags", RUN);
    let args = [
        "train",
        "run.yaml",
        "--epochs",
        "2",
        "--batch",
        "40",
        "--optimizer",
        "sgd",
        "--output",
        "here",
        "--format",
        "json",
    ];
    let said = json(precast_in(&folder.0, &args));
    assert_eq!(
        (said["ended"].as_str(), said["steps"].as_u64(), said["epochs"].as_u64()),
        (Some("done"), Some(4), Some(2))
    );
    let run = fs::read_to_string(folder.0.join("here/run.yaml")).unwrap();
    for line in ["epochs: 2", "batch: 40", "lr: 0.03", "momentum: 0.9"] {
        assert!(run.contains(line), "{line}\n{run}");
    }
}

/// Nothing is trained if the folder of one of several runs is taken, or a rule of one policy fits no cell.
#[test]
fn several_runs_are_checked_before_the_first_is_trained() {
    let folder = folder("several", RUN);
    text(precast_in(&folder.0, &["train", "run.yaml", "--epochs", "1", "--quiet"]));
    let said = error(2, precast_in(&folder.0, &["train", "run.yaml", "-p", "o1", "-p", "o2", "-p", "o3"]));
    assert!(said.contains("`--resume runs/o2` continues it"), "{said}");
    folder.write("own.yaml", "version: 1\nlevel: O2\ndtype: bfloat16\nrules:\n- {path: '9', run: float32}\n");
    let said = error(2, precast_in(&folder.0, &["train", "run.yaml", "-p", "o1", "-p", "own.yaml"]));
    assert!(said.contains("own.yaml:5:"), "{said}");
    assert!(!folder.0.join("runs/o1").exists() && !folder.0.join("runs/o3").exists());
}

#[test]
fn a_run_that_has_ended_goes_on() {
    let folder = folder("further", RUN);
    text(precast_in(&folder.0, &["train", "run.yaml", "--epochs", "2", "--quiet"]));
    text(precast_in(&folder.0, &["train", "run.yaml", "--epochs", "4", "--output", "four", "--quiet"]));
    text(precast_in(&folder.0, &["train", "--resume", "runs/o2", "--epochs", "4", "--quiet"]));
    assert_eq!(weights(&folder.0.join("runs/o2")), weights(&folder.0.join("four")));
    let said = error(2, precast_in(&folder.0, &["train", "--resume", "runs/o2", "--epochs", "3"]));
    assert!(said.contains("the run has 4 epochs, got 3; allowed: more"), "{said}");
    text(precast_in(&folder.0, &["train", "--resume", "runs/o2", "--epochs", "5", "--lr", "0.001", "--quiet"]));
    let run = fs::read_to_string(folder.0.join("runs/o2/run.yaml")).unwrap();
    assert!(run.contains("epochs: 5") && run.contains("lr: 0.001"), "{run}");
}

#[test]
fn slips_are_told_with_a_remedy() {
    let folder = folder("slips", RUN);
    text(precast_in(&folder.0, &["train", "run.yaml", "--epochs", "1", "--quiet"]));
    let said = |args: &[&str]| error(2, precast_in(&folder.0, args));
    for (args, words) in [
        (&["train", "run.yaml"][..], "`--resume runs/o2` continues it"),
        (&["train", "runs/o2"], "--resume runs/o2 continues it"),
        (&["train", "--resume", "runs/o3"], "there is no such folder; expected that of a run"),
        (&["train", "--resume", "runs/o2", "--batch", "5"], "cannot be used with"),
        (&["train", "run.yaml", "-p", "o1", "-p", "o2", "--output", "x"], "--output is the folder of one run"),
        (&["train", "run.yaml", "--examples", "5"], "a run file says `test`"),
        (&["train", "run.yaml", "--schedule", "step"], "schedule: {step: {every: 100, factor: 0.1}}"),
        // A policy from the command line has no place in a file.
        (&["train", "run.yaml", "-p", "o4"], "error: no policy is called `o4`"),
        (
            &["predict", "runs", "points.csv"],
            "there is no run in this folder: `run.yaml` is missing; it contains `runs/o2`",
        ),
        (&["predict", "runs/o2", "nothing.csv"], "nothing.csv"),
        (&["show", "runs", "elsewhere"], "there is no run in `elsewhere`"),
    ] {
        let message = said(args);
        assert!(message.contains(words), "{args:?}: {message}");
    }
    for (from, to, words) in [
        ("net.yaml", "nett.yaml", "error: wrong.yaml:3:8: nett.yaml: No such file"),
        ("net.yaml", "lenet", "error: wrong.yaml:3:8: no model is called `lenet` (did you mean `lenet5`?)"),
        ("target: side", "target: sid", "did you mean `side`?"),
        ("points.csv", "point.csv", "error: wrong.yaml:5:7: point.csv: No such file"),
        ("policy: o2", "policy: o22", "error: wrong.yaml:4:9: no policy is called `o22`"),
        ("policy: o2", "policy: my.yaml", "error: wrong.yaml:4:9: my.yaml: No such file"),
        (
            "policy: o2",
            "policy: graph",
            "error: wrong.yaml:4:9: `graph`: a policy for graphs, where one with a level is expected",
        ),
        ("epochs: 30", "test: 100", "error: wrong.yaml:9:7: `test` is 100, and the data has 100 examples"),
        ("epochs: 30", "test: other.csv", "error: wrong.yaml:9:7: `test`: "),
        ("batch: 16", "batch: 0", "wrong.yaml:10:8: `batch` is 0; allowed: at least 1"),
        ("epochs: 30", "epoch: 30", "unknown key `epoch` (did you mean `epochs`?)"),
    ] {
        folder.write("wrong.yaml", &RUN.replace(from, to));
        let message = said(&["train", "wrong.yaml", "--output", "wrong"]);
        assert!(message.contains(words), "{message}");
        assert!(!folder.0.join("wrong").exists(), "{message}");
    }
}

#[test]
fn a_loss_that_is_not_finite_at_the_end_is_a_failure() {
    let folder = folder("nan", &RUN.replace("lr: 0.02", "lr: 1.0e+30").replace("policy: o2", "policy: o0"));
    let output = precast_in(&folder.0, &["train", "run.yaml", "--quiet", "--epochs", "2"]);
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("no step of epoch") || message.contains("stalled"), "{message}");
}

/// Makes a network with a batch norm, and points, one of them beyond f16.
fn folder_with_a_bad_row(test: &str) -> Folder {
    let run =
        RUN.replace("standardize: true\n", "").replace("points.csv", "bad.csv").replace("epochs: 30", "epochs: 4");
    let folder = folder(test, &run);
    let norm = "- {kind: BatchNorm1d, num_features: 8}\n  - {kind: ReLU}";
    folder.write("net.yaml", &MODEL.replace("- {kind: ReLU}", norm));
    folder.write("bad.csv", &points(false).replace("\n3.5,2.25,below\n", "\n700000,-650000,above\n"));
    folder
}

/// Returns the output of a failed command, and its message.
fn printed_and_error(output: std::process::Output) -> (String, String) {
    assert_eq!(output.status.code(), Some(1));
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_bad_row_costs_its_steps_and_nothing_else() {
    let folder = folder_with_a_bad_row("bad-row");
    text(precast_in(&folder.0, &["train", "run.yaml"]));
    let lines = metrics(&folder.0.join("runs/o2"));
    let steps: Vec<_> = lines.iter().filter(|line| line["kind"] == "step").collect();
    let epochs: Vec<_> = lines.iter().filter(|line| line["kind"] == "epoch").collect();
    assert_eq!(epochs.len(), 4);
    for epoch in epochs {
        let taken: Vec<f64> = (steps.iter().filter(|s| s["epoch"] == epoch["epoch"] && s["outcome"] == "stepped"))
            .map(|step| step["loss"].as_f64().unwrap())
            .collect();
        let mean = taken.iter().sum::<f64>() / taken.len() as f64;
        assert!((epoch["loss"].as_f64().unwrap() - mean).abs() < 1e-12, "{epoch}");
    }
    assert!(
        steps.iter().any(|step| step["outcome"]["skipped"]["cause"]["loss"]["origin"]["kind"] == "inf"),
        "{steps:?}"
    );
    // The weights contain nothing of the skipped steps.
    let said = text(precast_in(&folder.0, &["predict", "runs/o2", "points.csv"]));
    assert!(said.lines().count() == 101 && !said.contains("NaN"), "{said}");
}

#[test]
fn answers_that_are_not_finite_are_said_and_failures() {
    let folder = folder_with_a_bad_row("not-finite");
    text(precast_in(&folder.0, &["train", "run.yaml"]));
    let (said, message) = printed_and_error(precast_in(&folder.0, &["predict", "runs/o2", "bad.csv"]));
    assert_eq!(said.lines().filter(|line| *line == ",NaN").count(), 1, "{said}");
    assert_eq!(message, "error: 1 of 100 predictions is not finite; the first is that of example 24\n");
    let (said, message) = printed_and_error(precast_in(&folder.0, &["predict", "runs/o2", "bad.csv", "--score"]));
    assert!(said.lines().next().unwrap().ends_with(" %, 1 not finite"), "{said}");
    assert_eq!(message, "error: 1 of the answers is not finite\n");
}

/// Otherwise its bits would be others than those of a run that was never stopped.
#[test]
fn a_run_is_resumed_with_the_products_of_its_beginning() {
    let folder = folder("products", &RUN.replace("epochs: 30", "epochs: 1"));
    text(precast_in(&folder.0, &["train", "run.yaml"]));
    let about = folder.0.join("runs/o2/about.json");
    let begun = fs::read_to_string(&about).unwrap();
    assert!(!begun.contains("\"amx\""), "only of a run that uses it: {begun}");
    fs::write(&about, begun.replacen('{', "{\"amx\": true,", 1)).unwrap();
    let args = ["train", "--resume", "runs/o2", "--epochs", "2"];
    let output = command(&folder.0, &args).env("PRECAST_AMX", "0").output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    assert!(output.status.success() && said.contains("the run began with AMX, and"), "{said}");
}

/// 20 kills, or as many as `PRECAST_KILLS` says, at varying moments: there is always a run to resume, and it ends like
/// one that nobody killed.
#[test]
#[cfg(unix)]
fn a_run_that_is_killed_again_and_again_ends_as_one_that_is_not() {
    let run = format!("{RUN}checkpoint: {{every: 1, keep: 2}}\n");
    let folder = folder("killed", &run);
    let kills: u64 = std::env::var("PRECAST_KILLS").map_or(20, |n| n.parse().unwrap());
    text(precast_in(&folder.0, &["train", "run.yaml", "--quiet", "--output", "whole"]));

    let (mut begun, mut killed, mut tries) = (false, 0, 0);
    while killed < kills {
        tries += 1;
        let args: &[&str] =
            if begun { &["train", "--resume", "killed"] } else { &["train", "run.yaml", "--output", "killed"] };
        let mut child = command(&folder.0, &[args, &["--quiet"]].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The moments differ with each try, so that some come before the folder is made and some before the run ends.
        let lives = Duration::from_millis(3 + 37 * tries % 160);
        let start = Instant::now();
        let ended = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if start.elapsed() >= lives {
                break None;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        match ended {
            // The run finished before it could be killed: another one begins.
            Some(status) => {
                let mut words = String::new();
                std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut words).unwrap();
                assert!(status.success(), "{words}");
                assert_eq!(weights(&folder.0.join("killed")), weights(&folder.0.join("whole")));
                fs::remove_dir_all(folder.0.join("killed")).unwrap();
                begun = false;
            }
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                killed += 1;
                begun = folder.0.join("killed/run.yaml").is_file();
                if !begun {
                    let _ = fs::remove_dir_all(folder.0.join("killed"));
                }
            }
        }
    }
    if begun {
        text(precast_in(&folder.0, &["train", "--resume", "killed", "--quiet"]));
        assert_eq!(weights(&folder.0.join("killed")), weights(&folder.0.join("whole")));
        assert_eq!(metrics(&folder.0.join("killed")), metrics(&folder.0.join("whole")));
    }
}

/// As by Ctrl-C, or by a batch system some time before it kills the job.
#[test]
#[cfg(target_os = "linux")]
fn a_signal_ends_the_run_after_the_step_with_a_checkpoint() {
    let long = RUN.replace("epochs: 30", "epochs: 100000");
    // A shell that starts these tests in the background, or `nohup`, ignores some of them.
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    let signals = [
        ("-HUP", 1),
        ("-INT", 2),
        ("-QUIT", 3),
        ("-USR1", 10),
        ("-USR2", 12),
        ("-ALRM", 14),
        ("-TERM", 15),
        ("-XCPU", 24),
    ];
    for (signal, _) in signals.into_iter().filter(|(_, number)| ignored & 1 << (number - 1) == 0) {
        let folder = folder(&format!("interrupted{signal}"), &long);
        let child = Started::new(command(&folder.0, &["train", "run.yaml", "--quiet"]), &folder);
        child.signal(signal);
        child.check_interrupted(&folder);
    }
    // As `nohup` starts it, and a shell its jobs in the background.
    let folder = folder("ignored", &long);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", r#"trap '' HUP INT; exec "$0" train run.yaml --quiet"#, env!("CARGO_BIN_EXE_precast")]);
    shell.current_dir(&folder.0);
    let child = Started::new(shell, &folder);
    child.signal("-HUP");
    child.signal("-INT");
    let length = || fs::metadata(folder.0.join("runs/o2/metrics.jsonl")).unwrap().len();
    let before = length();
    while length() == before {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.signal("-TERM");
    child.check_interrupted(&folder);
}

/// A run that has taken its first steps.
#[cfg(target_os = "linux")]
struct Started(std::process::Child);

#[cfg(target_os = "linux")]
impl Started {
    fn new(mut command: std::process::Command, folder: &Folder) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let metrics = folder.0.join("runs/o2/metrics.jsonl");
        while fs::metadata(&metrics).map_or(0, |metrics| metrics.len()) == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        Started(child)
    }

    fn signal(&self, signal: &str) {
        let sent = std::process::Command::new("kill").args([signal, &self.0.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    fn check_interrupted(self, folder: &Folder) {
        let output = self.0.wait_with_output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        let rest = message.strip_prefix("error: interrupted after step ").unwrap_or_else(|| panic!("{message}"));
        assert!(rest.ends_with("; continue with: precast train --resume runs/o2\n"), "{message}");
        let step: usize = rest.split(';').next().unwrap().parse().unwrap();
        assert!(folder.0.join(format!("runs/o2/checkpoint-{step:09}.safetensors")).is_file());
        assert!(folder.0.join("runs/o2/report.html").is_file());
    }
}

/// Relative paths are resolved against the run file, even when the run is resumed from its folder.
#[test]
fn a_run_that_is_tested_on_another_file_goes_on() {
    let folder = folder("other", &format!("{RUN}test: other.csv\n"));
    folder.write("other.csv", &points(false).replace(".5,", ".75,"));
    let said = text(precast_in(&folder.0, &["train", "run.yaml", "--epochs", "2"]));
    assert!(said.contains("100 training examples, 100 test examples"), "{said}");
    text(precast_in(&folder.0, &["train", "--resume", "runs/o2", "--quiet"]));
}

/// z = x + 2 y, learnt from a table, is printed under its name.
#[test]
fn numbers_are_predicted_under_the_names_of_their_columns() {
    let run = RUN.replace("target: side", "target: [sum, difference]").replace("policy: o2", "policy: o0");
    let folder = folder("numbers", &run.replace("epochs: 30", "epochs: 60"));
    let rows = (0..100).map(|i| {
        let (x, y) = (f64::from(i % 10) / 10.0, f64::from(i / 10) / 10.0);
        format!("{x},{y},{},{}\n", x + 2.0 * y + 0.5, x - y + 0.25)
    });
    let table: String = ["x,y,sum,difference\n".to_string()].into_iter().chain(rows).collect();
    folder.write("points.csv", &table);
    let said = text(precast_in(&folder.0, &["train", "run.yaml", "--quiet"]));
    assert!(said.contains("mean squared error"), "{said}");
    folder.write("new.csv", "x,y\n0.5,0.5\n");
    let said = text(precast_in(&folder.0, &["predict", "runs/o0", "new.csv"]));
    let (names, numbers) = said.trim_end().split_once('\n').unwrap();
    assert_eq!(names, "sum,difference");
    let numbers: Vec<f64> = numbers.split(',').map(|number| number.parse().unwrap()).collect();
    assert!((numbers[0] - 2.0).abs() < 0.1 && (numbers[1] - 0.25).abs() < 0.1, "{numbers:?}");
}

/// Decisions made for a machine when the run began hold to the end.
#[test]
fn a_policy_that_prefers_speed_is_settled_when_the_run_begins() {
    let folder = folder("speed", &RUN.replace("policy: o2", "policy: fast.yaml"));
    folder.write("fast.yaml", "version: 1\nlevel: O2\ndtype: float16\nprefer: speed\n");
    let output = precast_in(&folder.0, &["train", "run.yaml", "--epochs", "2"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("note: `prefer: speed` is settled for "), "{said}");
    let policy = fs::read_to_string(folder.0.join("runs/fast/policy.yaml")).unwrap();
    let rules = policy.matches("faster in ").count();
    assert!(!policy.contains("prefer") && said.contains(&format!(": {rules} rules were added")), "{said}\n{policy}");
    let plan = fs::read_to_string(folder.0.join("runs/fast/plan.txt")).unwrap();
    let said = text(precast_in(&folder.0, &["train", "--resume", "runs/fast"]));
    assert!(said.replace("runs/fast/policy", "policy").contains(plan.trim_end()), "{said}\n{plan}");
}

/// Optimizer options, stored weights, standardized targets, a score and an export, as a user writes them.
#[test]
fn options_of_the_run_file_reach_the_run() {
    let run = RUN
        .replace("optimizer: adam", "optimizer: {adamw: {betas: [0.8, 0.95], weight_decay: 0.1}}")
        .replace("target: side", "target: z")
        .replace("policy: o2", "policy: o2-bf16")
        + "storage: stochastic_rounding\nstandardize_targets: true\n";
    let folder = folder("options", &run);
    folder.write("net.yaml", &MODEL.replace("out_features: 2}", "out_features: 1}"));
    let rows = (0..100).map(|i| format!("{0}.0,{1}.0,{2}.0\n", i % 10, i / 10, 1000 * (i % 10 - 2 * (i / 10))));
    folder.write("points.csv", &["x,y,z\n".to_string()].into_iter().chain(rows).collect::<String>());
    let said = text(precast_in(&folder.0, &["train", "run.yaml"]));
    assert!(said.contains("stored in bfloat16, with stochastic rounding (seed 0)"), "{said}");
    let to = folder.0.join("runs/o2-bf16");
    let written = fs::read_to_string(to.join("run.yaml")).unwrap();
    for line in ["stochastic_rounding", "adamw", "0.8", "weight_decay: 0.1", "eps: ", "standardize_targets: true"] {
        assert!(written.contains(line), "{line}\n{written}");
    }
    let said = text(precast_in(&folder.0, &["predict", "runs/o2-bf16", "points.csv", "--score"]));
    let error_of: f64 = said.lines().next().unwrap().strip_prefix("mean squared error: ").unwrap().parse().unwrap();
    // The variance of z is 1000^2 (1 + 4) (100 - 1) / 12.
    assert!(error_of < 0.05 * 1e6 * 5.0 * 99.0 / 12.0, "{said}");

    let args = ["export", "runs/o2-bf16", "--to", "onnx", "--output", "net.onnx", "--explicit"];
    let said = text(precast_in(&folder.0, &args));
    assert!(said.starts_with("run     runs/o2-bf16\n") && said.trim_end().ends_with("written: net.onnx"), "{said}");
    assert!(text(precast_in(&folder.0, &["plan", "net.onnx", "--policy", "onnx"])).contains("linear_1"));

    let args = ["export", "runs/o2-bf16", "--weights", "compute", "--output", "w.safetensors"];
    assert_eq!(text(precast_in(&folder.0, &args)).trim(), "written: w.safetensors");
    let said = error(2, precast_in(&folder.0, &args));
    assert!(said.contains("already exists; --force replaces it"), "{said}");
    text(precast_in(&folder.0, &[&args[..], &["--force"]].concat()));
    for (args, words) in [
        (&["export", "runs/o2-bf16", "--weights", "compute"][..], "--output"),
        (&["export", "runs/o2-bf16", "--weights", "both", "--to", "torch", "--output", "w"], "cannot be used with"),
        (&["export", "runs/o2-bf16"], "of a run, --weights compute"),
        (&["export", "runs/o2-bf16", "--to", "onnx"], "--to onnx writes a file; --output names it"),
        (&["export", "runs/o2-bf16", "--to", "onnx", "--policy", "o1", "--output", "v"], "under its own policy"),
        (&["export", "runs/o2-bf16", "--weights", "low", "--output", "v"], "allowed: master, compute, both"),
        (&["train", "run.yaml", "--optimizer", "adamv"], "adamw"),
    ] {
        let said = error(2, precast_in(&folder.0, args));
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

/// Images in a folder for each class: dark ones and bright ones.
#[test]
fn folders_of_images_by_class_are_predicted_and_scored() {
    let run = RUN
        .replace("csv: {file: points.csv, target: side}", "images: {folder: photos, pixels: grey}")
        .replace("epochs: 30", "epochs: 100")
        .replace("policy: o2", "policy: o0");
    let folder = folder("photos", &run);
    folder.write("net.yaml", &MODEL.replace("input: [2]", "input: [4]").replace("in_features: 2,", "in_features: 4,"));
    for (class, base) in [("bright", 200u8), ("dark", 20)] {
        for i in 0..20u8 {
            let file = folder.0.join(format!("photos/{class}/{i:02}.png"));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, grey(2, 2, &[0, 1, 2, 3].map(|place| base + i + place))).unwrap();
        }
    }
    text(precast_in(&folder.0, &["train", "run.yaml", "--quiet"]));
    let said = text(precast_in(&folder.0, &["predict", "runs/o0", "photos"]));
    let classes: Vec<&str> = said.lines().skip(1).map(|line| line.split(',').nth(1).unwrap()).collect();
    assert_eq!(classes, [["bright"; 20], ["dark"; 20]].concat());
    let files: Vec<&str> = said.lines().map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!((files[0], files[1], files[40]), ("file", "photos/bright/00.png", "photos/dark/19.png"));
    let said = text(precast_in(&folder.0, &["predict", "runs/o0", "photos", "--score"]));
    assert!(said.starts_with("accuracy: 100.00 %\n\n| class "), "{said}");
    assert!(said.contains("| bright          |     20 |    0 |\n"), "{said}");
    // Without class folders there is nothing to compare with.
    let said = error(2, precast_in(&folder.0, &["predict", "runs/o0", "photos/dark", "--score"]));
    assert!(said.contains("a folder of its own"), "{said}");
    assert_eq!(text(precast_in(&folder.0, &["predict", "runs/o0", "photos/dark"])).lines().count(), 21);
}
