//! Plans on the command line: trees, tables, summaries, explanations, comparisons and new policies.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use precast::{Level, Plan, Policy, io::models, policy::PolicyFile};

use crate::program::{Folder, command, error, json, json_of, precast, root, text};

#[test]
fn a_plan_is_a_tree_a_table_or_json() {
    let expected = Policy::load(root().join("policies/o2.yaml")).unwrap();
    let expected = expected.plan(&models::load(root().join("models/lenet5_bn.yaml"), 0).unwrap()).unwrap();
    let plan = |model: &str, policy: &str, format: &str| {
        text(precast(&["plan", model, "--policy", policy, "--format", format]))
    };
    let read: Plan = serde_json::from_str(&plan("models/lenet5_bn.yaml", "policies/o2.yaml", "json")).unwrap();
    assert_eq!(read, expected, "the JSON of a plan is the plan");
    assert_eq!(
        plan("models/lenet5_bn.yaml", "policies/o2.yaml", "tree"),
        format!("model   models/lenet5_bn.yaml\npolicy  policies/o2.yaml\n{expected}\n")
    );
    assert_eq!(plan("lenet5_bn", "o2", "tree"), text(precast(&["plan", "lenet5_bn", "-p", "o2"])), "a tree by default");
    let table = plan("lenet5_bn", "o2", "table");
    assert!(table.starts_with("model   lenet5_bn (built in)\npolicy  o2 (built in)\n"), "{table}");
    let rows: Vec<Vec<&str>> = table.lines().skip(5).map(|row| row.split('|').map(str::trim).collect()).collect();
    assert_eq!(rows.len(), expected.decisions.len());
    for (row, decision) in rows.iter().zip(&expected.decisions) {
        let path = if decision.path.is_empty() { "(root)" } else { &decision.path };
        let mark = if decision.adapter.is_some() { "*" } else { "" };
        assert_eq!(row[1..6], [path, &decision.kind, mark, &decision.effect(), &decision.because.to_string()]);
    }
}

/// A machine with extremely slow casts.
const SPEEDS: &str = r#"{
    "host": "a machine", "call": 100, "cache": 1e6, "byte": 0.1, "parallel": 1,
    "f32": {"product": {"multiply_add": 0.02, "element": 0.5}, "convolution": {"multiply_add": 0.03, "element": 1},
        "elementwise": {"element": 0.5}, "function": {"element": 2}, "norm": {"element": 1}, "pool": {"element": 1},
        "attention": {"multiply_add": 0.03, "element": 1}, "cast": 0},
    "f16": {"product": {"multiply_add": 0.02, "element": 0.3}, "convolution": {"multiply_add": 0.03, "element": 1},
        "elementwise": {"element": 0.3}, "function": {"element": 2}, "norm": {"element": 1}, "pool": {"element": 1},
        "attention": {"multiply_add": 0.03, "element": 1}, "cast": 99},
    "bf16": {"product": {"multiply_add": 0.02, "element": 0.3}, "convolution": {"multiply_add": 0.03, "element": 1},
        "elementwise": {"element": 0.3}, "function": {"element": 2}, "norm": {"element": 1}, "pool": {"element": 1},
        "attention": {"multiply_add": 0.03, "element": 1}, "cast": 0}
}"#;

/// LeNet-5 has 61,706 parameters, and its multiply-adds follow from its shapes.
#[test]
fn a_summary_has_the_sizes_of_every_cell() {
    let shown = text(precast(&["plan", "lenet5", "--policy", "o2", "--summary"]));
    assert!(shown.starts_with("model   lenet5 (built in)\npolicy  o2 (built in)\ninput   [1, 1, 32, 32]\n"), "{shown}");
    let adds = 6 * 28 * 28 * 25 + 16 * 10 * 10 * 6 * 25 + 400 * 120 + 120 * 84 + 84 * 10;
    let total = shown.lines().last().unwrap().replace([' ', ','], "");
    assert_eq!(total, format!("|total|||61706||{}|{adds}|", 2 * 61706));
    let json = json_of(&["plan", "lenet5", "--summary", "--batch", "3", "--format", "json"]);
    assert_eq!(
        (&json["parameters"], &json["bytes"]),
        (&61706.into(), &(4 * 61706).into()),
        "without a policy, all is f32"
    );
    assert_eq!(json["multiply_adds"], 3 * adds);
    assert_eq!(json["cells"][1]["outputs"], serde_json::json!([[3, 6, 28, 28]]));

    let folder = Folder::new("summary");
    let model = folder.write(
        "net.yaml",
        "version: 1\nname: net\nnet: {kind: Sequential, cells: [{kind: Dense, in_features: 3, out_features: 2}]}\n",
    );
    let shown = text(precast(&["plan", &model, "--summary"]));
    assert!(
        shown.contains("shapes and multiply-adds are unknown: a call depends on the size of the input, and "),
        "{shown}"
    );
    assert!(shown.contains("| total  |            |          8 |       |    32 |"), "{shown}");
    let onnx = json_of(&["plan", "docs/guide/torch-vit.onnx", "--policy", "o2", "--summary", "--format", "json"]);
    assert_eq!(onnx["cells"][1]["outputs"], serde_json::json!([[1, 16, 4, 4]]));
    let message = error(2, precast(&["plan", "lenet5", "--summary", "--speeds", "speeds.json"]));
    assert!(message.contains("--speeds is for a policy with `prefer: speed`"), "{message}");
    error(2, precast(&["plan", "lenet5", "--summary", "--predict"]));
}

#[test]
fn a_policy_that_prefers_speed_is_planned_for_a_machine() {
    let folder = Folder::new("speed");
    let speeds = folder.write("speeds.json", SPEEDS);
    let policy = folder.write("fast.yaml", "version: 1\nlevel: O2\ndtype: float16\nprefer: speed\n");
    let bf16 = folder.write("fast-bf16.yaml", "version: 1\nlevel: O2\ndtype: bfloat16\nprefer: speed\n");
    let args = |policy: &str, more: &[&str]| {
        let args = ["plan", "lenet5_bn", "--policy", policy, "--speeds", &speeds];
        text(precast(&[&args[..], more].concat()))
    };
    let shown = args(&policy, &["--batch", "4"]);
    assert!(shown.contains("(root)  Sequential  * runs f32") && shown.contains("  cost: f16 would take "), "{shown}");
    assert!(shown.contains("15 cells (15 f32)") && shown.trim_end().ends_with("speeds of a machine"), "{shown}");
    assert!(args(&bf16, &[]).contains("15 cells (13 bf16, 2 f32)"), "where casts cost nothing, all is lowered");
    let plan: Plan = serde_json::from_str(&args(&policy, &["--format", "json"])).unwrap();
    let prediction = plan.prediction.unwrap();
    assert!(prediction.planned == prediction.full && prediction.planned.nanos < prediction.lowered.nanos);
    assert!(args(&policy, &["--format", "table"]).contains("| predicted |"));
    // Others are predicted on demand, and decided as always.
    let o2 = args("o2", &["--predict"]);
    assert!(o2.contains("15 cells (13 f16, 2 f32)") && o2.contains("all in f32") && !o2.contains("cost"), "{o2}");
    let explained = text(precast(&["explain", "lenet5_bn", ".", "-p", &policy, "--speeds", &speeds]));
    assert!(explained.contains("\n  because  cost: ") && explained.contains("\n  over     level O2"), "{explained}");
    let diff = text(precast(&["diff", "lenet5_bn", "-p", "o2", "-p", &policy, "--speeds", &speeds]));
    assert!(diff.trim_end().ends_with("15 of 15 cells differ"), "{diff}");

    let sizeless = folder.write("net.yaml", "version: 1\nnet: {kind: Dense, in_features: 64, out_features: 10}\n");
    let message = error(2, precast(&["plan", &sizeless, "-p", &policy, "--speeds", &speeds]));
    assert!(message.contains("net.yaml does not say it") && message.contains("`input: [1, 28, 28]`"), "{message}");
    let broken = folder.write("broken.json", "{}");
    let message = error(2, precast(&["plan", "mlp", "-p", &policy, "--speeds", &broken]));
    assert!(message.contains("broken.json: missing field"), "{message}");
    error(2, precast(&["plan", "mlp", "-p", &policy, "--batch", "0"]));
    let message = error(2, precast(&["plan", "mlp", "-p", &policy, "--speeds", &speeds, "--batch", "100000000"]));
    assert!(message.contains("a batch of 100000000 makes inputs of [100000000, 64]"), "{message}");
    for args in [
        &["plan", "mlp", "-p", "o2"][..],
        &["explain", "mlp", "0", "-p", "o2"],
        &["diff", "mlp", "-p", "o1", "-p", "o2"],
    ] {
        for unread in [["--speeds", &speeds], ["--batch", "8"]] {
            let message = error(2, precast(&[args, &unread].concat()));
            assert!(message.contains(&format!("{} is for a policy with `prefer: speed`", unread[0])), "{message}");
        }
    }
}

/// An unreadable cache is measured again, and an unwritable one is not an error.
#[test]
fn speeds_are_measured_once_and_kept() {
    let folder = Folder::new("cache");
    let policy = folder.write("fast.yaml", "version: 1\nlevel: O2\ndtype: float16\nprefer: speed\n");
    let plan = |cache: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_precast"));
        let command = command.args(["plan", "mlp", "--policy", &policy]).current_dir(&folder.0);
        text(command.env("XDG_CACHE_HOME", cache).output().unwrap())
    };
    let first = plan(&folder.0);
    let cache = folder.0.join("precast");
    let kept: Vec<PathBuf> = fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(plan(&folder.0), first, "the same speeds, the same plan");
    for broken in ["", "{", "[1, 2]", "null"] {
        fs::write(&kept[0], broken).unwrap();
        plan(&folder.0);
        assert!(precast::cost::Speeds::load(&kept[0]).is_ok(), "measured anew and kept");
    }
    plan(&PathBuf::from(folder.write("a-file", "")));
}

#[test]
fn one_cell_is_explained() {
    let shown = text(precast(&["explain", "lenet5_bn", "1", "--policy", "o2"]));
    assert!(shown.contains("1 (BatchNorm2d)") && shown.contains("full list, precast-1"), "{shown}");
    let root = json(precast(&["explain", "lenet5_bn", ".", "--policy", "o2", "--format", "json"]));
    assert_eq!((&root["decision"]["path"], &root["decision"]["kind"]), (&"".into(), &"Sequential".into()));
    assert_eq!(root["decision"]["adapter"]["cast"]["inward"], "float16");
}

#[test]
fn two_policies_are_compared() {
    let args = ["diff", "lenet5_bn", "--policy", "o2", "--policy", "o3"];
    let shown = text(precast(&args));
    assert!(shown.contains("\n2 cells: 1 (BatchNorm2d), 5 (BatchNorm2d)\n  - runs f32, returns f16"), "{shown}");
    assert!(shown.trim_end().ends_with("2 of 15 cells differ"), "{shown}");
    let diff = json(precast(&[&args[..], &["--format", "json"]].concat()));
    let paths: Vec<&str> =
        diff["changes"].as_array().unwrap().iter().map(|change| change["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["1", "5"], "the two batch normalisations");
    assert!(text(precast(&["diff", "lenet5", "-p", "o2", "-p", "o3"])).contains("no difference in 13 cells"));
}

#[test]
fn a_new_policy_plans_as_its_base_and_its_exceptions_count() {
    let folder = Folder::new("init");
    let attention = "{kind: Sequential, cells: [{kind: Embedding, vocab_size: 9, embedding_size: 4}, \
                     {kind: LayerNorm, normalized_shape: [4]}, {kind: Dense, in_features: 4, out_features: 3}, \
                     {kind: LogSoftmax}]}";
    let model = folder.write("words.yaml", &format!("version: 1\nnet: {attention}\n"));
    for model in ["lenet5_bn", &model] {
        for base in PolicyFile::names() {
            if base.starts_with("onnx") {
                let refused = error(2, precast(&["init", model, "--policy", base]));
                assert!(refused.contains("the policy has the ops of ONNX files"), "{refused}");
                continue;
            }
            let new = text(precast(&["init", model, "--policy", base]));
            let policy = PolicyFile::parse(&new, "new.yaml").unwrap_or_else(|error| panic!("{base}: {error}\n{new}"));
            let PolicyFile::Cells(policy) = policy else { continue };
            let net = models::load(model, 0).unwrap_or_else(|_| models::Model::named(model, 0).unwrap().net);
            let plan = policy.plan(&net).unwrap();
            let expected = Policy::named(base).unwrap().plan(&net).unwrap();
            assert_eq!(plan.decisions, expected.decisions, "{base}");
            // Removing the `#` of each exception switches it on, and then changes the plan.
            let rules: Vec<usize> =
                new.lines().enumerate().filter(|(_, line)| line.starts_with("  # {")).map(|(at, _)| at).collect();
            assert_eq!(rules.is_empty(), policy.level == Level::O0, "{base}: {new}");
            for rule in rules {
                let lines = new.lines().enumerate();
                let lines = lines.map(|(at, line)| if at == rule { line.replacen("# ", "", 1) } else { line.into() });
                let changed = Policy::parse(&lines.collect::<Vec<_>>().join("\n"), "changed.yaml").unwrap();
                let changed = changed.plan(&net).unwrap();
                assert!(changed.decisions != plan.decisions, "{base}, line {rule}: {new}");
            }
        }
    }
    let words = text(precast(&["init", &model]));
    assert!(words.contains("# LogSoftmax (3) runs low: a loss is a difference of log probabilities"), "{words}");
    assert!(words.contains("# LayerNorm (1) stays float32: full list, precast-1. To lower it:"), "{words}");
    assert!(words.contains("# Embedding (0) runs low: ") && words.contains("# 2 (Dense) is the last"), "{words}");

    let single = folder.write(
        "single.yaml",
        "version: 1\nnet: {kind: Sequential, cells: [{kind: Dense, in_features: 2, out_features: 2}]}\n",
    );
    assert_eq!(text(precast(&["init", &single])).matches("(Dense) is the").count(), 1, "the first layer is the last");

    // Products in 8 bits, but for the ends.
    let words = text(precast(&["init", "mlp", "--policy", "o2-bf16", "--low-bit", "mxfp8"]));
    let policy = Policy::parse(&words, "low.yaml").unwrap();
    let plan = policy.plan(&models::Model::named("mlp", 0).unwrap().net).unwrap();
    let quantized: Vec<&str> = plan
        .decisions
        .iter()
        .filter(|decision| decision.operands.as_ref().is_some_and(|by| by.says.operands.to_string() == "mxfp8"))
        .map(|decision| decision.path.as_str())
        .collect();
    assert_eq!(quantized, ["3"], "{words}");
    let refused = error(2, precast(&["init", "mlp", "--policy", "graph", "--low-bit", "mxfp8"]));
    assert!(refused.contains("--low-bit is for networks of cells"), "{refused}");
    assert!(error(2, precast(&["init", "mlp", "--low-bit", "fp6"])).contains("allowed"));

    // The commands it prints can be copied, with names quoted where necessary.
    let spaced = folder.write("my net.yaml", &fs::read_to_string(&single).unwrap());
    let words = text(precast(&["init", &spaced]));
    assert!(words.contains(&format!("precast plan '{spaced}' --policy FILE")), "{words}");
    assert!(words.contains("\nname: \"my net-o2\"\n"), "{words}");
    assert!(text(precast(&["init", "mlp"])).contains("\nname: mlp-o2\n"));

    // Any existing file is continued in its own style, and never replaced unasked.
    let braces = folder.write("braces.yaml", "{version: 1, level: O2, dtype: float16, rules: []}\n");
    assert!(
        text(precast(&["init", "lenet5_bn", "--policy", &braces])).contains("# { kind: \"BatchNorm2d\", run: low }\n")
    );
    let base =
        folder.write("base.yaml", "version: 1\nlevel: O2\ndtype: float16\nrules: [{ path: '13', run: float32 }]\n");
    let file = folder.0.join("new.yaml");
    let init = ["init", "lenet5_bn", "--policy", &base, "--output", file.to_str().unwrap()];
    assert!(text(precast(&init)).starts_with("written: "));
    let first = fs::read_to_string(&file).unwrap();
    assert!(first.contains("rules: [{ path: '13', run: float32 }]\n"), "{first}");
    assert!(Policy::load(&file).is_ok());
    fs::write(&file, "mine").unwrap();
    error(2, precast(&init));
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    text(precast(&[&init[..], &["--force"]].concat()));
    assert_eq!(fs::read_to_string(&file).unwrap(), first);
}

#[test]
fn a_policy_may_come_from_standard_input() {
    let run = |args: &[&str], policy: &str| {
        let mut command = command(root(), args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(policy.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let policy = fs::read_to_string(root().join("policies/o3.yaml")).unwrap();
    let shown = text(run(&["plan", "lenet5_bn", "--policy", "-"], &policy));
    assert!(shown.contains("policy  standard input\no3: level O3"), "{shown}");
    assert!(text(run(&["diff", "lenet5_bn", "-p", "o2", "-p", "-"], &policy)).ends_with("2 of 15 cells differ\n"));
    let message = error(2, run(&["plan", "mlp", "-p", "-"], "version: 1\nlevel: O9\ndtype: f16\n"));
    assert!(message.contains("standard input:2:8: unknown level `O9`"), "{message}");
}
