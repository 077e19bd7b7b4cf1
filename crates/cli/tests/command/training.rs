//! The command `train` of built-in models: what it compares, prints and writes.

use std::fs;

use precast::{DType, Plan, Policy, io::models, storage::weights};
use serde_json::Value;

use crate::program::{Folder, error, json, messages, precast_in, root, text};

const FEW: [&str; 7] = ["train", "mlp", "--epochs", "2", "--examples", "320", "--save-weights"];

#[test]
fn training_compares_policies_and_writes_what_it_promises() {
    let folder = Folder::new("train");
    let policies = ["-p", "o0", "-p", "o2", "-p", "o3-bf16"];
    let results = json(precast_in(&folder.0, &[&FEW[..], &policies, &["--format", "json"]].concat()));
    assert_eq!(results["model"], "mlp (built in)");
    assert_eq!(results["data"], serde_json::json!({"train_examples": 320, "test_examples": 1477, "shape": [64]}));
    assert_eq!(
        results["options"],
        serde_json::json!({"epochs": 2, "batch": 32, "lr": 0.03, "schedule": "cosine", "warm_up": 0, "seed": 0, "optimizer": "sgd"})
    );
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.iter().map(|run| run["name"].as_str().unwrap()).collect::<Vec<_>>(), ["o0", "o2", "o3-bf16"]);
    for run in runs {
        assert_eq!((&run["steps"], &run["stalled"]), (&20.into(), &Value::Null), "{run}");
        assert!(run["accuracy"].as_f64().is_some_and(|accuracy| accuracy > 0.5 && accuracy <= 1.0), "{run}");
        assert!(run["last_loss"].as_f64().is_some_and(|loss| loss > 0.0), "{run}");
        assert!(run["seconds_per_step"].as_f64().is_some_and(|seconds| seconds > 0.0), "{run}");
        assert!(run["relative_time"].as_f64().is_some_and(|times| times > 0.0), "{run}");
        // Weights and biases of three dense layers and of two norms, four bytes each.
        let parameters = 4 * (64 * 128 + 128 + 2 * 128 + 128 * 64 + 64 + 2 * 64 + 64 * 10 + 10);
        assert_eq!(run["parameter_bytes"], parameters);
        assert!(run["skipped"].as_u64().unwrap() < 20 && run["last_scale"].as_f64().unwrap() >= 1.0, "{run}");
    }
    let number = |run: usize, key: &str| runs[run][key].as_f64().unwrap();
    assert_eq!(number(0, "relative_time"), 1.0);
    assert_eq!(number(0, "casts_per_step"), 0.0);
    assert!(number(1, "casts_per_step") > 0.0 && number(2, "casts_per_step") > 0.0);
    assert!(number(2, "activation_bytes") < 0.8 * number(0, "activation_bytes"));

    let out = folder.0.join("precast-out");
    let mut names: Vec<String> =
        fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let weight_files = ["o0.safetensors", "o2.safetensors", "o3-bf16.safetensors"];
    assert_eq!(
        names,
        [&["curves.svg", "metrics.json"], &weight_files[..2], &["o3-bf16.safetensors", "plans.txt"]].concat()
    );
    assert_eq!(folder.names(), ["precast-out"]);

    let metrics: Value = serde_json::from_str(&fs::read_to_string(out.join("metrics.json")).unwrap()).unwrap();
    for (full, short) in metrics["runs"].as_array().unwrap().iter().zip(runs) {
        assert!(short.as_object().unwrap().iter().all(|(key, value)| full[key] == *value), "as printed");
        assert_eq!(full["history"]["steps"].as_array().unwrap().len(), 20);
        let policy = Policy::named(full["name"].as_str().unwrap()).unwrap();
        let plan: Plan = serde_json::from_value(full["plan"].clone()).unwrap();
        assert_eq!(plan, policy.plan(&models::load(root().join("models/mlp.yaml"), 0).unwrap()).unwrap());
    }
    let losses = |run: usize| metrics["runs"][run]["history"]["steps"][0]["loss"].as_f64().unwrap();
    assert!((losses(0) - losses(1)).abs() < 0.01, "the runs start from the same weights and examples");
    let plans = fs::read_to_string(out.join("plans.txt")).unwrap();
    assert!(plans.contains("o3-bf16: level O3, bfloat16"), "{plans}");
    let svg = fs::read_to_string(out.join("curves.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("o3-bf16"));
    // The weights are those that were tested: in f32, and with the same accuracy.
    let net = models::load(root().join("models/mlp.yaml"), 5).unwrap();
    weights::load(&net, out.join("o0.safetensors")).unwrap();
    assert!(net.named_params().iter().all(|(_, param)| param.value().dtype() == DType::F32));
    let test = precast_train::data::digits().unwrap().reshape(&[64]).unwrap().split(320, 0).unwrap().test;
    assert_eq!(precast_train::accuracy(&net, &test, 32).unwrap(), number(0, "accuracy"));
}

#[test]
fn training_prints_a_plan_and_a_table_and_repeats_itself() {
    let folder = Folder::new("table");
    let args = ["train", "mlp", "--epochs", "1", "--examples", "96", "-p", "o0", "-p", "o2", "--output", "out"];
    let shown = text(precast_in(&folder.0, &args));
    for word in [
        "model   mlp (built in)",
        "96 training digits",
        "o2: level O2",
        "BatchNorm1d",
        "| casts/step |",
        "out/curves.svg",
    ] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    assert!(!shown.contains('\u{1b}') && !shown.contains('\r'), "no progress bar where nobody watches");
    let quiet = text(precast_in(&folder.0, &[&args[..], &["--quiet"]].concat()));
    assert!(quiet.starts_with("| run") && quiet.contains("1.00x"), "{quiet}");
    // A second run gives the same except for the times: accuracy, loss, skipped steps, bytes, casts.
    let untimed = |table: &str| -> Vec<String> {
        let fields = |row: &str| -> Vec<String> { row.split('|').map(|field| field.trim().to_string()).collect() };
        let (header, times) = (fields(table.lines().find(|row| row.contains("ms/step")).unwrap()), ["ms/step", "time"]);
        let keep = |row: &str| fields(row).into_iter().zip(&header).filter(|(_, name)| !times.contains(&name.as_str()));
        let rows = table.lines().filter(|row| row.starts_with("| o"));
        rows.flat_map(|row| keep(row).map(|(field, _)| field).collect::<Vec<_>>()).collect()
    };
    assert_eq!(untimed(&shown), untimed(&quiet));
    assert_eq!(untimed(&shown).len(), 2 * 11, "9 columns and two borders a run");
}

#[test]
fn lenet5_learns_the_digits_at_every_level() {
    let folder = Folder::new("full");
    let results = json(precast_in(&folder.0, &["train", "--format", "json"]));
    let runs = results["runs"].as_array().unwrap();
    let names: Vec<&str> = runs.iter().map(|run| run["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["o0", "o1", "o1-bf16", "o2", "o2-bf16", "o3", "o3-bf16"]);
    let accuracy = |run: &Value| run["accuracy"].as_f64().unwrap();
    assert!(accuracy(&runs[0]) >= 0.97, "{}", accuracy(&runs[0]));
    for run in runs {
        // A point is 6 of the 597 test digits, about the variation between seeds. Low precision may be better by
        // chance.
        assert!(accuracy(run) >= accuracy(&runs[0]) - 0.01, "{run}");
    }
}

#[test]
fn a_run_that_cannot_go_on_ends_with_its_reason() {
    let folder = Folder::new("stalled");
    let args = ["train", "mlp", "--examples", "100", "--batch", "4", "--lr", "1e30", "-p", "o0", "--quiet"];
    let output = precast_in(&folder.0, &args);
    let stderr = messages(output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.starts_with("error: o0 stalled at step ") && stderr.contains("loss itself was not finite"),
        "{stderr}"
    );
    assert!(String::from_utf8(output.stdout).unwrap().contains("| o0 "), "the table is still printed");
    let metrics = fs::read_to_string(folder.0.join("precast-out/metrics.json")).unwrap();
    let metrics: Value = serde_json::from_str(&metrics).unwrap();
    assert!(metrics["runs"][0]["stalled"].as_str().unwrap().contains("changed nothing"));
}

#[test]
fn a_policy_whose_network_cannot_be_called_is_named() {
    let folder = Folder::new("refused-call");
    // Of each of two groups, 48 outputs are not a multiple of 32; the weights alone do not show the groups.
    let conv = |outputs: usize, groups: usize, inputs: usize| {
        format!("{{kind: Conv2d, in_channels: {inputs}, out_channels: {outputs}, kernel_size: 1, groups: {groups}}}")
    };
    let head = "{kind: Flatten}, {kind: Dense, in_features: 6144, out_features: 10}";
    let cells = [conv(64, 1, 1), conv(96, 2, 64), head.into()].join(", ");
    folder.write("net.yaml", &format!("version: 1\ninput: [1, 8, 8]\nnet: {{kind: Sequential, cells: [{cells}]}}\n"));
    folder.write("mx.yaml", "version: 1\nlevel: O2\ndtype: bfloat16\nrules: [{path: '1', operands: mxfp8}]\n");
    let said = error(2, precast_in(&folder.0, &["train", "net.yaml", "-p", "o0", "-p", "mx.yaml"]));
    assert!(
        said.starts_with("error: mx: ") && said.contains("in cell `1`: Conv2d: blocks of `operands: mxfp8`"),
        "{said}"
    );
}

#[test]
fn a_run_that_ends_without_a_number_has_failed() {
    let folder = Folder::new("lost");
    // Too few steps to stall.
    let args = ["train", "mlp", "--examples", "100", "--lr", "1e30", "--epochs", "1", "-p", "o0", "--quiet"];
    let output = precast_in(&folder.0, &args);
    let stderr = messages(output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let spoilt = " answers are not finite on the test examples after epoch 1; try a lower --lr\n";
    assert!(stderr.starts_with("error: o0: ") && stderr.ends_with(spoilt), "{stderr}");
}

/// The first scales of a policy in float16 may all be too large, whatever the learning rate.
#[test]
fn a_run_too_short_for_its_loss_scale_is_not_told_to_learn_slowly() {
    let folder = Folder::new("too-short");
    let scale = "{kind: dynamic, init: 16777216, max: 16777216}";
    folder.write("high.yaml", &format!("{{version: 1, level: O2, dtype: float16, loss_scale: {scale}}}"));
    for (batch, words) in [
        ("8", "; the loss scale was still falling, so the run is too short to tell why\n"),
        ("32", "; one step is too short a run to tell why\n"),
    ] {
        let args =
            ["train", "mlp", "-p", "high.yaml", "--epochs", "1", "--examples", "32", "--batch", batch, "--quiet"];
        let output = precast_in(&folder.0, &args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && stderr.ends_with(words), "{stderr}");
    }
}
