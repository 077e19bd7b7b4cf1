//! `precast tune` and `precast shadow`, as a user runs them on a run and on a model.

use std::fs;

use crate::program::{Folder, error, json, precast_in, text};

/// Returns the folder of a run that has learned to separate two classes of points.
fn folder(test: &str) -> Folder {
    let folder = Folder::new(test);
    let rows = (0..100).map(|i| {
        let (x, y) = (f64::from(i % 10) + 0.5, f64::from(i / 10) + 0.25);
        format!("{x},{y},{}\n", if x + y > 10.0 { "above" } else { "below" })
    });
    folder.write("points.csv", &["x,y,side\n".to_string()].into_iter().chain(rows).collect::<String>());
    let dense = |inputs: usize, outputs: usize| {
        format!("  - {{kind: Dense, in_features: {inputs}, out_features: {outputs}}}\n")
    };
    let model = ["version: 1\ninput: [2]\nnet:\n  kind: Sequential\n  cells:\n", &dense(2, 16), "  - {kind: Tanh}\n"];
    folder.write("net.yaml", &(model.concat() + &dense(16, 16) + "  - {kind: Tanh}\n" + &dense(16, 2)));
    let run = "version: 1\nmodel: net.yaml\npolicy: o2-bf16\ndata: {csv: {file: points.csv, target: side}}\n\
               standardize: true\noptimizer: adam\nlr: 0.02\nepochs: 10\nbatch: 16\n";
    folder.write("run.yaml", run);
    text(precast_in(&folder.0, &["train", "run.yaml", "--quiet"]));
    folder
}

#[test]
fn a_run_is_tuned_and_the_policy_used() {
    let folder = folder("tune");
    let tune = |more: &[&str]| {
        let args = ["tune", "runs/o2-bf16", "--policy", "o2-bf16", "--budget"];
        precast_in(&folder.0, &[&args, more].concat())
    };
    let all = json(tune(&["1", "--format", "json"]));
    let cells = all["cells"].as_array().unwrap();
    assert!(cells.len() == 5 && cells.iter().all(|cell| cell["low"] == true), "{all}");
    let error_of_all = all["error"].as_f64().unwrap();
    assert!(error_of_all > 0.0 && error_of_all < 1.0);

    // Half the error takes fewer cells.
    let budget = (error_of_all / 2.0).to_string();
    let said = text(tune(&[&budget, "--output", "tuned.yaml", "--svg", "tuned.svg"]));
    assert!(said.contains("cells lowered, kl ") && said.contains("\nkept `"), "{said}");
    let policy = fs::read_to_string(folder.0.join("tuned.yaml")).unwrap();
    assert!(policy.contains("run: float32\n") && policy.starts_with("# "), "{policy}");
    assert!(fs::read_to_string(folder.0.join("tuned.svg")).unwrap().contains("</svg>"));
    let plan = text(precast_in(&folder.0, &["plan", "net.yaml", "--policy", "tuned.yaml"]));
    assert!(plan.contains("of kl when lowered"), "{plan}");

    // The runs are in a file, and are not repeated.
    let known = text(tune(&[&budget, "--output", "tuned.yaml", "--force"]));
    assert!(known.contains(" runs, all known before\n"), "{known}");
    assert!(fs::read_to_string(folder.0.join("tuned.jsonl")).unwrap().lines().count() >= 2);

    for metric in ["loss", "relative", "gradient"] {
        let found = json(tune(&["0.5", "--metric", metric, "--runs", "3", "--fastest", "--format", "json"]));
        assert_eq!(found["metric"], metric);
    }
    let none = text(tune(&["1e-300"]));
    assert!(none.contains("\n0 of 5 cells lowered, kl 0.00e0 "), "{none}");
    for wrong in ["0", "-1", "nan", "inf"] {
        assert!(error(2, tune(&[wrong])).contains("--budget"), "{wrong}");
        assert!(error(2, tune(&["1", "--minutes", wrong])).contains("--minutes"), "{wrong}");
    }
    assert!(error(2, tune(&["1", "--runs", "0"])).contains("--runs"));

    // Recipes of operands: of all layers with products, the narrowest that the budget allows.
    let found = json(tune(&["1", "--low-bit", "tensorwise,int8", "--format", "json"]));
    let recipes: Vec<&str> =
        found["cells"].as_array().unwrap().iter().map(|of| of["operands"].as_str().unwrap()).collect();
    assert!(!recipes.is_empty() && recipes.iter().all(|recipe| *recipe == "int8"), "{found}");
    let args =
        ["1", "--low-bit", "tensorwise", "--output", "recipes.yaml", "--svg", "recipes.svg", "--html", "recipes.html"];
    let said = text(tune(&args));
    assert!(said.contains(" cells quantized (") && said.contains("tensorwise), kl "), "{said}");
    let plan = text(precast_in(&folder.0, &["plan", "net.yaml", "--policy", "recipes.yaml"]));
    assert!(plan.contains("operands tensorwise"), "{plan}");
    assert!(fs::read_to_string(folder.0.join("recipes.html")).unwrap().contains("operands tensorwise"));
    let refused = error(1, tune(&["1e-30", "--low-bit", "int8"]));
    assert!(refused.contains("even without quantized operands"), "{refused}");
    let refused = error(
        1,
        precast_in(&folder.0, &["tune", "runs/o2-bf16", "-p", "recipes.yaml", "--budget", "1", "--low-bit", "int8"]),
    );
    assert!(refused.contains("already, and others are searched"), "{refused}");
    // A run with the policy found has the name of its file.
    text(precast_in(&folder.0, &["train", "run.yaml", "-p", "tuned.yaml", "--epochs", "1", "--quiet"]));
    assert!(folder.0.join("runs/tuned").is_dir());
}

#[test]
fn one_example_is_too_few() {
    let folder = folder("tune-one");
    folder.write("one.csv", "x,y,side\n1,2,below\n");
    let args = ["tune", "runs/o2-bf16", "-p", "o2-bf16", "--budget", "1", "--data", "one.csv"];
    let said = error(2, precast_in(&folder.0, &args));
    assert!(said.contains("tune needs at least 2 examples") && said.contains("; got 1"), "{said}");
}

#[test]
fn a_shadow_run_prints_a_table() {
    let folder = folder("shadow");
    let shadow =
        |more: &[&str]| text(precast_in(&folder.0, &[&["shadow", "runs/o2-bf16", "-p", "o2-bf16"], more].concat()));
    let said = shadow(&[]);
    assert!(said.contains("error of the output ") && said.contains("| Dense "), "{said}");
    assert!(shadow(&["--gradients"]).contains("| gradient |"));
    assert!(shadow(&["--digits"]).contains("no cell loses digits"));
    assert!(said.contains("| note "), "{said}");
    let full = text(precast_in(&folder.0, &["shadow", "runs/o2-bf16", "-p", "o0"]));
    assert!(full.contains("lowers no cell of this network") && !full.contains('|'), "{full}");
}

#[test]
fn a_model_needs_examples() {
    let folder = folder("tune-model");
    let tune = |more: &[&str]| {
        let args = ["tune", "lenet5_8x8", "--policy", "o1-bf16", "--budget", "1e-2", "--metric", "relative"];
        precast_in(&folder.0, &[&args, more].concat())
    };
    assert!(error(2, tune(&[])).contains("--data is missing"));
    assert!(error(2, tune(&["--data", "points.csv"])).contains("expected `digits`, an `.npz` file"));
    assert!(error(2, tune(&["--data", "digits", "--batch", "0"])).contains("--batch"));
    assert!(text(tune(&["--data", "digits"])).contains(" cells lowered, relative "));
}

/// Trains a network with one output on numbers.
fn regression(test: &str) -> Folder {
    let folder = Folder::new(test);
    let rows: String = (0..60).map(|i| format!("{i},{},{}.5\n", i % 7, 2 * i - i % 7)).collect();
    folder.write("points.csv", &format!("x,y,z\n{rows}"));
    let cells = "[{kind: Dense, in_features: 2, out_features: 8}, {kind: Tanh}, {kind: Dense, in_features: 8, out_features: 1}]";
    folder.write("net.yaml", &format!("version: 1\ninput: [2]\nnet: {{kind: Sequential, cells: {cells}}}\n"));
    let data = "data: {csv: {file: points.csv, target: z}}, standardize: true, standardize_targets: true";
    let storage = "storage: {low: {dtype: bfloat16}}";
    folder
        .write("run.yaml", &format!("{{version: 1, model: net.yaml, policy: o2-bf16, {data}, {storage}, epochs: 2}}"));
    let _ = precast_in(&folder.0, &["train", "run.yaml", "--quiet"]);
    folder
}

/// A softmax of one number is 1, so numbers are compared themselves. The parameters, stored low, are widened.
#[test]
fn a_regression_is_tuned_by_the_relative_error_of_its_numbers() {
    let folder = regression("tune-regression");
    let tune = |more: &[&str]| precast_in(&folder.0, &[&["tune", "runs/o2-bf16", "--budget", "1"], more].concat());
    let said = text(tune(&[]));
    assert!(said.contains(" cells lowered, relative "), "{said}");
    assert!(error(2, tune(&["--metric", "kl"])).contains("expected relative"));
    assert!(text(precast_in(&folder.0, &["shadow", "runs/o2-bf16"])).contains("error of the output "));
    let data = "{csv: {file: points.csv, target: z}}";
    text(tune(&["--data", data]));
    // Changed data and missing weights are distinguished from a run that is as it was.
    let best = folder.0.join("runs/o2-bf16/best.safetensors");
    let weights = fs::read(&best).unwrap();
    fs::remove_file(&best).unwrap();
    for command in [&["lint", "runs/o2-bf16"][..], &["shadow", "runs/o2-bf16"]] {
        assert!(error(2, precast_in(&folder.0, command)).contains("`best.safetensors` is missing"));
    }
    fs::write(&best, weights).unwrap();
    folder.write("points.csv", "x,y,z\n1,2,3.5\n2,3,4.5\n4,5,6.5\n");
    for command in [&["lint", "runs/o2-bf16"][..], &["shadow", "runs/o2-bf16"]] {
        assert!(error(2, precast_in(&folder.0, command)).contains("the data has changed"));
    }
}

/// A search that ended at its limit, or by Ctrl-C, is continued by the same command. The policy of a search that ended by
/// itself is replaced by force only, and so is a file of the user.
#[test]
fn an_unfinished_search_is_continued_by_the_same_command() {
    let folder = folder("tune-continued");
    let tune = |more: &[&str]| {
        let args = ["tune", "runs/o2-bf16", "--budget", "1e-9", "--output", "tuned.yaml"];
        precast_in(&folder.0, &[&args, more].concat())
    };
    let policy = || fs::read_to_string(folder.0.join("tuned.yaml")).unwrap();
    text(tune(&["--runs", "1"]));
    assert!(policy().contains("\n# The search has not ended: the same command continues it"), "{}", policy());
    assert!(text(tune(&[])).contains(" known before"));
    assert!(!policy().contains("has not ended"), "{}", policy());
    assert!(error(2, tune(&[])).contains("`tuned.yaml` already exists; --force replaces it"));
    folder.write("tuned.yaml", "mine: true\n");
    assert!(error(2, tune(&[])).contains("--force"));
    assert_eq!(policy(), "mine: true\n");
}

/// The line that a killed search was writing is left out, and the rest is not run again.
#[test]
fn a_search_continues_after_a_line_that_was_cut_off() {
    let folder = folder("tune-cut");
    let tune = |output: &str| {
        precast_in(&folder.0, &["tune", "runs/o2-bf16", "--budget", "1e-9", "--force", "--output", output])
    };
    text(tune("tuned.yaml"));
    let journal = folder.0.join("tuned.jsonl");
    let whole = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, &whole[..whole.len() - 5]).unwrap();
    text(tune("tuned.yaml"));
    // Each line is a run, and the last one was run once more.
    let again = fs::read_to_string(&journal).unwrap();
    let (lines, known) = (whole.lines().count(), whole.trim_end().rfind('\n').unwrap());
    assert_eq!((again.lines().count(), &again[..known]), (lines, &whole[..known]));
    // Another search has the file.
    let other = fs::File::options().append(true).open(&journal).unwrap();
    other.lock().unwrap();
    assert!(error(1, tune("tuned.yaml")).contains("another search writes to this file"));
    drop(other);
    // A line that no search began is kept.
    folder.write("mine.jsonl", "mine");
    assert!(error(1, tune("mine.yaml")).contains("mine.jsonl:1: expected a run of a search"));
    assert_eq!(fs::read_to_string(folder.0.join("mine.jsonl")).unwrap(), "mine");
    assert!(error(2, tune("tuned.jsonl")).contains("is the name of the file of its runs"));
    let said = error(2, tune("runs/o2-bf16/policy.yaml"));
    assert!(said.contains("is in the folder of a run"), "{said}");
}
