//! `precast lint`, on models, run files and folders of runs.

use crate::program::{Folder, json, precast, precast_in, text};

/// A table whose numbers are not f16.
fn folder(test: &str, size: f64) -> Folder {
    let folder = Folder::new(test);
    let rows = (0..40).map(|i| format!("{},{},{}\n", f64::from(i) * size, -f64::from(i), i % 2));
    folder.write("points.csv", &["x,y,side\n".to_string()].into_iter().chain(rows).collect::<String>());
    let cells = "[{kind: Dense, in_features: 2, out_features: 8}, {kind: Dense, in_features: 8, out_features: 2}]";
    folder.write("net.yaml", &format!("version: 1\ninput: [2]\nnet: {{kind: Sequential, cells: {cells}}}\n"));
    let data = "data: {csv: {file: points.csv, target: side}}";
    folder.write(
        "run.yaml",
        &format!("{{version: 1, model: net.yaml, policy: o2, {data}, epochs: 1, batch: 32, lr: 1e-9}}"),
    );
    folder
}

#[test]
fn a_model_that_fits_is_linted_without_an_error() {
    let args = ["lint", "lenet5", "--policy", "o2-bf16"];
    let said = text(precast(&args));
    assert!(said.contains("\n0 errors, 0 warnings, ") || said.starts_with("0 errors, 0 warnings, "), "{said}");
    let found = json(precast(&[&args[..], &["--format", "json"]].concat()));
    assert_eq!((found["model"].as_str(), found["policy"].as_str()), (Some("lenet5"), Some("o2-bf16")));
    let findings = found["findings"].as_array().unwrap();
    assert!(findings.iter().all(|finding| finding["rule"] == "shape_of_8"));
}

#[test]
fn numbers_that_are_no_f16_are_errors_of_a_run() {
    let large = folder("lint-large", 1e5);
    let output = precast_in(&large.0, &["lint", "run.yaml"]);
    let (said, message) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(1), "{said}{message}");
    assert!(said.starts_with("error overflow: Cast of the input of the root cell reaches 3.90e6 in f32"), "{said}");
    assert!(message.starts_with("error: the lint found "), "{message}");
    // bf16 has them, and so has f16 when they are smaller.
    let overflows = |folder: &Folder, args: &[&str]| {
        let output = precast_in(&folder.0, args);
        String::from_utf8(output.stdout).unwrap().contains("error overflow")
    };
    assert!(!overflows(&large, &["lint", "run.yaml", "--policy", "o2-bf16"]));
    assert!(!overflows(&folder("lint-small", 1.0), &["lint", "run.yaml"]));
}

#[test]
fn a_model_takes_data_and_the_folder_of_a_run_its_weights() {
    let folder = folder("lint-data", 1.0);
    let lint = |args: &[&str]| precast_in(&folder.0, &[&["lint"], args].concat());
    let data = "{csv: {file: points.csv, target: side}}";
    for args in [&["net.yaml", "--policy", "o2-bf16", "--data", data][..], &["run.yaml", "--policy", "o2-bf16"]] {
        assert!(text(lint(args)).contains("0 errors, "));
    }
    text(precast_in(&folder.0, &["train", "run.yaml", "--policy", "o2-bf16", "--quiet"]));
    assert!(text(lint(&["runs/o2-bf16"])).contains("0 errors, "));
    for (args, message) in [
        (&["net.yaml"][..], "--policy is missing: name a file"),
        (&["run.yaml", "--data", "digits"], "--data is for a model"),
        (&["nope.yaml"], "there is no file `nope.yaml`"),
        (&["runs/none"], "there is no file `runs/none`"),
        (&["net.yaml", "--policy", "o22"], "there is no file `o22`"),
        (&["net.yaml", "--policy", "graph"], "has no cells to lint"),
        (&["net.yaml", "--policy", "o2"], "--data names others"),
        (&["net.yaml", "--policy", "o2", "--data", "digit"], "got `digit`"),
    ] {
        let output = lint(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(message), "{said}");
    }
}

/// The keys of a run file that help are named where they are not set: targets of up to 4e6 for gradients that no scale
/// above `min` fits, and not where the targets are standardized, or are classes.
#[test]
fn keys_of_the_run_file_are_named_unless_they_are_set() {
    let folder = Folder::new("lint-keys");
    let rows: String = (0..40).map(|i| format!("{0},-{0},{i}e5,{1}\n", f64::from(i) / 40.0, i % 2)).collect();
    folder.write("points.csv", &format!("x,y,z,side\n{rows}"));
    let said = |target: &str, more: &str| {
        let (outputs, ignored) = if target == "z" { (1, "side") } else { (2, "z") };
        let cell = format!("{{kind: Dense, in_features: 2, out_features: {outputs}}}");
        folder.write("net.yaml", &format!("version: 1\ninput: [2]\nnet: {{kind: Sequential, cells: [{cell}]}}\n"));
        let columns = format!("{{file: points.csv, target: {target}, ignore: {ignored}}}");
        let scale = "{kind: dynamic, init: 16777216, min: 16777216}";
        folder.write("p.yaml", &format!("{{version: 1, level: O2, dtype: float16, loss_scale: {scale}}}"));
        let run = format!("{{version: 1, model: net.yaml, policy: p.yaml, data: {{csv: {columns}}}{more}}}");
        folder.write("run.yaml", &run);
        let output = precast_in(&folder.0, &["lint", "run.yaml"]);
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let key = "; in a run file, `standardize_targets: true`";
    for (target, more, is_named) in [("z", "", true), ("z", ", standardize_targets: true", false), ("side", "", false)]
    {
        let said = said(target, more);
        assert!(said.contains("error grad_overflow") && said.contains(key) == is_named, "{target}{more}: {said}");
    }
}
