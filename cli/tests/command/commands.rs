//! The command `precast`: its output, its files, and its exit codes.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use precast::{
    DType, Level, Plan, Policy,
    io::models,
    policy::{Pack, PolicyFile},
    precision::Treatment,
};

use crate::program::{Folder, command, error, json, json_of, messages, precast, precast_in, root, text};

mod own_command {
    include!("../../examples/own_command.rs");

    /// Runs the program with a command line.
    pub fn run(args: &[String]) -> ExitCode {
        Cli::new().model("gated", gated).run(args)
    }

    pub fn without_arguments() {
        let _: fn() -> ExitCode = main;
    }
}

#[test]
fn help_tells_a_newcomer_how_to_begin() {
    let help = text(precast(&["--help"]));
    for word in
        ["train", "plan", "init", "cells", "show", "completions", "Examples:", "Exit status", "lenet5", "o2-bf16"]
    {
        assert!(help.contains(word), "{word}: {help}");
    }
    let commands = [
        "train", "runs", "predict", "plan", "explain", "diff", "convert", "export", "graph", "levels", "lint", "ops",
        "init", "cells", "show", "schema", "bench",
    ];
    for command in commands.into_iter().chain(["completions", "man"]) {
        assert!(text(precast(&[command, "--help"])).contains(&format!("Usage: precast {command}")), "{command}");
    }
    assert!(text(precast(&["--version"])).contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn levels_are_listed_with_their_policies_and_lists() {
    let shown = text(precast(&["levels"]));
    let levels = json(precast(&["levels", "--format", "json"]));
    assert_eq!(levels["levels"].as_array().unwrap().len(), Level::ALL.len());
    for (row, level) in levels["levels"].as_array().unwrap().iter().zip(Level::ALL) {
        assert_eq!((row["level"].as_str(), row["meaning"].as_str()), (Some(level.name()), Some(level.meaning())));
        assert!(shown.contains(level.meaning()));
    }
    assert!(levels["graph"]["level"].is_null() && shown.contains("| graph: {}"), "{shown}");
    assert_eq!(levels["graph"]["policies"][0], serde_json::json!({"name": "graph", "dtype": "float16"}));
    assert_eq!(levels["levels"][2]["policies"][1], serde_json::json!({"name": "o2-bf16", "dtype": "bfloat16"}));
    // The lists of `white_list` and `black_list`, and no others.
    let cells = |i: usize| -> Vec<&str> {
        levels["lists"][i]["cells"].as_array().unwrap().iter().map(|cell| cell.as_str().unwrap()).collect()
    };
    assert!(cells(0).into_iter().eq(precast::policy::low_list().cells().keys()));
    assert!(cells(1).into_iter().eq(precast::policy::full_list().cells().keys()));
    let pack = Pack::named(Pack::DEFAULT).unwrap();
    for (i, treatment) in [Treatment::Low, Treatment::Full, Treatment::Widest].into_iter().enumerate() {
        let names: Vec<&str> = pack.region(None).unwrap().ops_with(treatment).map(|op| op.name()).collect();
        let row = serde_json::json!({"list": treatment.name(), "level": "auto", "cells": [], "ops": names});
        assert_eq!(levels["lists"][2 + i], row);
    }
}

/// Returns the cells of the rows of the first table in a text, without its head.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let table = text.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    table.skip(2).map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

#[test]
fn an_op_is_shown_in_all_packs_side_by_side() {
    let shown = text(precast(&["ops", "aten::softmax"]));
    assert!(shown.starts_with("op          Softmax\nkernel      yes\n"), "{shown}");
    assert!(shown.contains("\nmindspore   Softmax\npaddle      softmax\n"), "{shown}");
    let rows = rows(&shown);
    let of = |pack: &str, level: &str| {
        let row = rows.iter().find(|row| (row[0], row[1]) == (pack, level)).unwrap_or_else(|| panic!("{pack} {level}"));
        [row[2], row[3]]
    };
    // The behaviour of the systems, by their own lists.
    assert_eq!(of("mindspore-2.10", "auto"), ["full", "full"]);
    assert_eq!(of("paddle-3.3", "O1"), ["full", "full"]);
    assert_eq!(of("paddle-3.3", "O2"), ["gray", "gray"]);
    assert_eq!(of("torch-2.15-cpu", "auto"), ["as_is", "as_is"]);
    assert_eq!(of("torch-2.15-cuda", "auto"), ["full", "full"]);
    assert_eq!(of("tensorflow-2.21-fp16", "auto"), ["infer", "-"]);
    // Every pack with lists of ops has its rows, and JSON has the same.
    let json = json_of(&["ops", "aten::softmax", "--format", "json"]);
    let decisions = json["ops"][0]["decisions"].as_array().unwrap();
    assert_eq!(decisions.len(), rows.iter().filter(|row| !row[0].is_empty()).count());
    for name in Pack::names() {
        let pack = Pack::named(name).unwrap();
        let lists_ops = pack.levels.values().any(|lists| !lists.ops().is_empty()) || !pack.regions.is_empty();
        let shown = decisions.iter().any(|decision| decision["pack"] == name);
        assert_eq!(shown, lists_ops || pack.graph.is_some(), "{name}");
    }
    assert_eq!((&json["ops"][0]["op"], &json["ops"][0]["kernel"]), (&"Softmax".into(), &true.into()));
    assert_eq!(json["ops"][0]["names"]["torch"], serde_json::json!(["softmax", "_softmax"]));
}

#[test]
fn an_op_that_onnx_alone_names_is_shown() {
    for (name, op) in [("Gemm", "Addmm"), ("GlobalAveragePool", "onnx::GlobalAveragePool")] {
        let json = json_of(&["ops", name, "--format", "json"]);
        assert_eq!(json["ops"][0]["op"], op);
        let decisions = json["ops"][0]["decisions"].as_array().unwrap();
        let of = |pack: &str| &decisions.iter().find(|decision| decision["pack"] == pack).unwrap()["float16"];
        assert_eq!(of("onnxruntime-1.32"), "low", "{name}");
        assert_eq!(of("onnx-1"), if name == "Gemm" { "low" } else { "full" });
    }
    let shown = text(precast(&["ops", "--pack", "onnxruntime-1.32"]));
    assert!(shown.contains("\nany other op: graph low\n"), "{shown}");
    assert_eq!(rows(&shown).iter().find(|row| row[1] == "TreeEnsemble").unwrap()[2], "full");
}

#[test]
fn an_op_in_one_pack_is_named_as_its_users_name_it() {
    // In Paddle `mul` is the old name of a product.
    let json = json_of(&["ops", "mul", "--pack", "paddle-3.3", "--format", "json"]);
    assert_eq!(json["ops"][0]["op"], "MatMul");
    let decisions = json["ops"][0]["decisions"].as_array().unwrap();
    let levels: Vec<&str> = decisions.iter().map(|decision| decision["level"].as_str().unwrap()).collect();
    assert_eq!(levels, ["O1", "O2", "OD"]);
    assert!(decisions.iter().all(|d| d["float16"] == "low" && d["bfloat16"] == "low" && d["listed"] == true));
    // Listed for one dtype only; and an op that is decided but not run.
    let shown = text(precast(&["ops", "fused_attention", "-p", "paddle-3.3"]));
    assert!(shown.contains("kernel      no: "), "{shown}");
    let row = rows(&shown).into_iter().find(|row| row[1] == "O1").unwrap();
    assert_eq!(row[..4], ["paddle-3.3", "O1", "low", "gray"]);
    // The reasons are the pack's own.
    let pack = Pack::named("precast-1").unwrap();
    let because = pack.region(None).unwrap().op(precast::Op::Exp, DType::F16).unwrap().because.clone();
    let json = json_of(&["ops", "Exp", "--pack", "precast-1", "--format", "json"]);
    let words = format!("{}; listed for float16 only", because.unwrap());
    assert_eq!(json["ops"][0]["decisions"][1]["because"], words);
}

#[test]
fn a_pack_is_shown_with_every_op_that_it_lists() {
    for name in Pack::names() {
        let pack = Pack::named(name).unwrap();
        let json = json_of(&["ops", "--pack", name, "--format", "json"]);
        assert_eq!((&json["pack"], &json["source"]), (&name.into(), &pack.source.as_str().into()));
        for (op_level, lists) in &pack.regions {
            assert_eq!(json["unlisted"][&**op_level], lists.unlisted.name());
            for (op, entry) in lists.ops() {
                let row = json["ops"].as_array().unwrap().iter().find(|row| row["op"] == op.name()).unwrap();
                assert_eq!(row["kernel"], op.has_kernel());
                let decided = row["decisions"].as_array().unwrap();
                let decided = decided.iter().rfind(|decision| decision["level"] == **op_level).unwrap();
                let dtype = entry.only.unwrap_or(pack.dtypes[0]).long_name();
                assert_eq!((&decided[dtype], &decided["listed"]), (&entry.treatment.name().into(), &true.into()));
            }
        }
        let shown = text(precast(&["ops", "-p", name]));
        let first = if json["ops"].as_array().unwrap().is_empty() { "cell" } else { "op" };
        let begins = shown.trim_start_matches(&format!("{name}: {}", pack.source)).trim_start();
        assert!(begins.starts_with(&format!("| {first} ")), "{shown}");
        for lists in pack.levels.values() {
            let kinds = || shown.lines().filter_map(|line| line.strip_prefix("| "));
            assert!(lists.cells().keys().all(|kind| kinds().any(|row| row.starts_with(kind.as_str()))), "{shown}");
        }
    }
    let default = text(precast(&["ops"]));
    assert_eq!(default, text(precast(&["ops", "--pack", Pack::DEFAULT])));
    let exp = rows(&default).into_iter().find(|row| row[0] == "Exp").unwrap();
    assert_eq!((exp[1], exp[2], exp[3], exp[5]), ("as_is", "full / as_is", "full", "yes"), "{exp:?}");
}

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
#[cfg_attr(debug_assertions, ignore = "kernels without optimisation take long to measure")]
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

/// Runs the example `own_command` in a separate process, with its standard output between two markers.
#[test]
#[ignore = "run by the tests of a program's own command"]
fn the_own_command() {
    let args: Vec<String> = std::env::var("OWN_ARGS").unwrap().split('\n').map(String::from).collect();
    println!("\n-- begin");
    own_command::without_arguments();
    let status = own_command::run(&args);
    println!("-- end, {status:?}");
}

/// Returns standard output of the example with these arguments, its exit status, and standard error.
fn own(args: &[&str]) -> (String, String, String) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    let program = program.args(["--exact", "commands::the_own_command", "--ignored", "--nocapture"]);
    let output = program.env("OWN_ARGS", args.join("\n")).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let (out, status) = printed.split_once("-- begin\n").unwrap().1.split_once("-- end, ").unwrap();
    let status = status.lines().next().unwrap();
    (out.to_string(), status.to_string(), messages(output.stderr))
}

#[test]
fn own_programs_have_the_command_with_their_networks_and_cells() {
    let done = format!("{:?}", std::process::ExitCode::SUCCESS);
    let (out, status, _) = own(&["plan", "gated", "--policy", "o2"]);
    assert!(out.starts_with("model   gated (of this program)\n") && status == done, "{status}: {out}");
    assert!(out.contains("├─ 1         Gate         runs f16") && out.contains("│  └─ gate   Dense"), "{out}");
    let (out, ..) = own(&["graph", "gated", "--batch", "2"]);
    assert!(out.contains("| sigmoid_"), "the network is called: {out}");
    // A model file names a kind of the program, and so do the table and the page of kinds.
    let folder = Folder::new("own");
    let dense = "{kind: Dense, in_features: 4, out_features: 4}";
    let file = folder.write("gate.yaml", &format!("version: 1\nnet: {{kind: Gate, value: {dense}, gate: {dense}}}\n"));
    let (out, ..) = own(&["plan", &file, "--policy", "o1"]);
    assert!(out.contains("(root)    Gate ") && out.contains("\n└─ gate   Dense * runs f16"), "{out}");
    assert!(own(&["cells"]).0.contains("| Gate "));
    let (out, ..) = own(&["cells", "Gate"]);
    assert!(out.contains("Half of the features open or close the other half."), "{out}");
    assert!(out.contains("{kind: Gate, value: {kind: Identity}, gate: {kind: Identity}}"), "made up: {out}");
    // Its help and its messages use its own name and its networks.
    let (help, ..) = own(&["--help"]);
    let name = std::env::current_exe().unwrap().file_stem().unwrap().to_string_lossy().into_owned();
    assert!(help.contains(&format!("Usage: {name} ")) && help.contains("models    gated lenet5"), "{help}");
    assert!(help.contains(&format!("  {name} plan lenet5")) && !help.contains(" precast plan"), "{help}");
    let (_, status, message) = own(&["plan", "gatd", "--policy", "o2"]);
    assert!(
        message.contains("did you mean `gated`?); allowed: gated, lenet5") && status != done,
        "{status}: {message}"
    );
    let (_, _, message) = own(&["explain", "gated", "7", "--policy", "o2"]);
    assert!(message.contains(&format!("`{name} plan gated --policy o2` shows every path")), "{message}");
}

#[test]
fn kinds_are_listed_with_their_options_and_other_names() {
    let shown = text(precast(&["cells"]));
    let listed: Vec<String> =
        rows(&shown).iter().map(|row| row[0].to_string()).filter(|kind| !kind.is_empty()).collect();
    // The example above adds a kind of its own.
    let kinds = precast::layers::kinds().unwrap().into_iter().filter(|kind| *kind != "Gate");
    assert_eq!(listed, kinds.collect::<Vec<_>>());
    let row = |kind: &str| rows(&shown).into_iter().find(|row| row[0] == kind).unwrap()[2..].to_vec();
    assert_eq!(row("Dense"), ["Linear", "Dense", "low", "low"]);
    assert_eq!(row("LayerNorm"), ["LayerNorm", "LayerNorm", "-", "float32"]);
    let dense = text(precast(&["cells", "nn.Linear"]));
    assert!(dense.starts_with("`nn.Linear` is Dense here.\n"), "{dense}");
    assert!(dense.contains("example     {kind: Dense, in_features: 64, out_features: 10}"), "{dense}");
    assert_eq!(rows(&dense)[0], ["in_features", "a whole number of at least 1", "(required)"]);
    assert_eq!(rows(&dense)[2], ["bias", "true or false", "true"]);
    assert!(text(precast(&["cells", "ReLU"])).contains("It has no options."));
    let json = json_of(&["cells", "ConvTranspose2d", "--format", "json"]);
    assert_eq!((&json["kind"], &json["o1"], &json["o2"]), (&"Conv2dTranspose".into(), &"low".into(), &"low".into()));
    assert_eq!(json["elsewhere"]["torch"], serde_json::json!(["ConvTranspose2d"]));
    assert_eq!(json["options"][4]["default"], "valid");
    assert_eq!(json_of(&["cells", "--format", "json"])["cells"].as_array().unwrap().len(), listed.len());
}

#[test]
fn shipped_files_are_shown_as_they_are() {
    let file = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let list = text(precast(&["show"]));
    let mut shown = 0;
    for row in rows(&list).iter().filter(|row| !row[0].is_empty()) {
        assert_eq!(text(precast(&["show", row[0]])), file(row[1]), "{}", row[0]);
        assert!(!row[2].is_empty(), "{}", row[0]);
        shown += 1;
    }
    assert_eq!(shown, PolicyFile::names().count() + Pack::names().count() + models::Model::names().count() + 2);
    assert_eq!(json_of(&["schema", "run"]), precast_train::RunFile::schema());
    assert_eq!(text(precast(&["schema"])), file("policies/schema.json"));
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

    // The commands it prints can be copied, with names quoted where necessary.
    let spaced = folder.write("my net.yaml", &fs::read_to_string(&single).unwrap());
    let words = text(precast(&["init", &spaced]));
    assert!(words.contains(&format!("precast plan '{spaced}' --policy FILE")), "{words}");
    assert!(words.contains("\nname: 'my net-o2'\n"), "{words}");
    assert!(text(precast(&["init", "mlp"])).contains("\nname: mlp-o2\n"));

    // Any existing file is continued in its own style, and never replaced unasked.
    let braces = folder.write("braces.yaml", "{version: 1, level: O2, dtype: float16, rules: []}\n");
    assert!(
        text(precast(&["init", "lenet5_bn", "--policy", &braces])).contains("# { kind: 'BatchNorm2d', run: low }\n")
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

#[test]
fn shells_and_man_get_what_they_read() {
    for (shell, word) in [("bash", "_precast()"), ("zsh", "#compdef precast"), ("fish", "complete -c precast")] {
        assert!(text(precast(&["completions", shell])).contains(word), "{shell}");
    }
    for shell in ["elvish", "powershell"] {
        assert!(text(precast(&["completions", shell])).contains("explain"), "{shell}");
    }
    assert!(text(precast(&["man"])).contains(".TH precast 1"));
    let page = text(precast(&["man", "plan"]));
    assert!(page.contains(".TH precast-plan 1") && page.contains(".SH NOTES\n") && !page.contains("EXTRA"), "{page}");
}

#[test]
fn colours_are_for_terminals_or_for_those_who_ask() {
    let args = ["plan", "lenet5_bn", "-p", "o2-bf16"];
    let plain = text(precast(&args));
    assert!(!plain.contains('\u{1b}'), "a pipe has no colours");
    let colored = text(precast(&[&args[..], &["--color", "always"]].concat()));
    assert!(
        colored.contains("runs \u{1b}[36mbf16\u{1b}[0m") && colored.contains("\u{1b}[33mf32\u{1b}[0m"),
        "{colored}"
    );
    let without = ["\u{1b}[36m", "\u{1b}[33m", "\u{1b}[0m"].iter().fold(colored, |text, code| text.replace(code, ""));
    assert_eq!(without, plain);
    let raw = ["--color", "always", "show", "o2"];
    assert!(!text(precast(&raw)).contains('\u{1b}'), "a file is shown as it is");
    let json = text(precast(&[&args[..], &["--color", "always", "--format", "json"]].concat()));
    assert!(!json.contains('\u{1b}'));
    let refused = precast(&["plan", "nothing", "-p", "o2", "--color", "always"]);
    assert!(
        String::from_utf8(refused.stderr).unwrap().starts_with("\u{1b}[1m\u{1b}[31merror:\u{1b}[0m there is no file")
    );
}

#[test]
fn built_in_files_are_found_anywhere_after_files_of_that_name() {
    let folder = Folder::new("anywhere");
    let shown = text(precast_in(&folder.0, &["plan", "mlp", "--policy", "o1-bf16"]));
    assert!(shown.starts_with("model   mlp (built in)\npolicy  o1-bf16 (built in)\n"), "{shown}");
    // A folder, such as one of results, is not a model.
    fs::create_dir(folder.0.join("lenet5")).unwrap();
    text(precast_in(&folder.0, &["plan", "lenet5", "--policy", "o1"]));
    folder.write("mlp", "version: 1\nnet: {kind: Dense, in_features: 64, out_features: 10}\n");
    let shown = text(precast_in(&folder.0, &["plan", "mlp", "--policy", "o1-bf16"]));
    assert!(shown.starts_with("model   mlp\n") && shown.contains("\n1 cell ("), "{shown}");
}

#[test]
fn wrong_use_is_refused_and_changes_nothing() {
    let folder = Folder::new("wrong");
    let policy = |name: &str, rest: &str| folder.write(name, &format!("version: 1\n{rest}"));
    let level = policy("level.yaml", "level: O7\ndtype: float16\n");
    let dtype = policy("dtype.yaml", "level: O2\ndtype: float64\n");
    let nothing = policy("nothing.yaml", "level: O2\ndtype: float16\nrules: [{ path: head, run: float32 }]\n");
    let model = folder.write("model.yaml", "version: 1\nnet: {kind: Dens, in_features: 1, out_features: 1}\n");
    let torch = folder.write("torch.yaml", "version: 1\nnet: {kind: Linear, in_features: 1, out_features: 1}\n");
    let narrow =
        folder.write("narrow.yaml", "version: 1\ninput: [64]\nnet: {kind: Dense, in_features: 64, out_features: 3}\n");
    let unfit =
        folder.write("unfit.yaml", "version: 1\ninput: [64]\nnet: {kind: Dense, in_features: 65, out_features: 10}\n");
    let odd = folder.write("odd.yaml", "version: 1\ninput: [3, 32, 32]\nnet: {kind: Flatten}\n");
    let nested = "{kind: Sequential, cells: [{kind: Sequential, cells: [{kind: ReLU}]}]}";
    let nested = folder.write("nested.yaml", &format!("version: 1\nnet: {{kind: Sequential, cells: [{nested}]}}\n"));
    let full = folder.write("full", "a file where a folder should be");
    let before = folder.names();
    let cases: &[(&[&str], &[&str])] = &[
        (&["plan", "lent5", "-p", "o2"], &["there is no file `lent5`", "did you mean `lenet5`?"]),
        (&["plan", "none.yaml", "-p", "o2"], &["there is no file `none.yaml`", "lenet5_bn"]),
        (&["plan", "lenet5", "-p", "O2"], &["no policy is called `O2` (did you mean `o2`?)"]),
        (&["plan", "lenet5", "-p", &level], &["level.yaml:2:8: unknown level `O7`", "O0, O1, O2, O3"]),
        (&["plan", "lenet5", "-p", &dtype], &["dtype.yaml:3:8: ", "float64", "float16 or bfloat16"]),
        (&["plan", "lenet5", "-p", &nothing], &["nothing.yaml:4:", "path head matches no cell"]),
        (&["plan", &model, "-p", "o2"], &["model.yaml:2:", "no kind of cell is called `Dens` (did you mean `Dense`?)"]),
        (
            &["plan", ".", "-p", "o2"],
            &[".: no `model.safetensors` and no `model.safetensors.index.json` in the folder"],
        ),
        (&["train", "."], &["`.` is a folder, and no model is called `.`"]),
        (&["explain", "lenet5", "77", "-p", "o2"], &["no cell at `77`", "`precast plan lenet5 --policy o2`"]),
        (&["explain", "lenet5_bn", "relu_1", "-p", "o2"], &["cells of the kind ReLU are at", "a policy for graphs"]),
        (&["explain", "lenet5_bn", "batch_norm_2d", "-p", "o2"], &["cells of the kind BatchNorm2d are at `1`"]),
        (&["train", "lenet5", "--batch", "5000"], &["--batch 5000 is more than the 1200 training digits"]),
        (&["explain", &nested, "0.0.1", "-p", "o2"], &["no cell at `0.0.1` (did you mean `0.0.0`?)"]),
        (&["diff", "lenet5", "-p", "o2"], &["diff compares two policies; --policy was given once"]),
        (&["plan", "lenet5"], &["--policy"]),
        (&["plan", "lenet5", "-p", "o2", "--format", "xml"], &["xml", "tree, table, json"]),
        (&["train", "lenet5", "--epochs", "0"], &["--epochs"]),
        (&["train", "lenet5", "--lr", "nan"], &["--lr", "finite and above 0"]),
        (&["train", "lenet5", "--lr", "-1"], &["invalid value '-1' for '--lr", "finite and above 0"]),
        (&["train", "lenet5", "--lr", "-1e-3"], &["invalid value '-1e-3' for '--lr"]),
        (&["train", "lenet5", "--seed", "-1"], &["invalid value '-1' for '--seed"]),
        (&["graph", "lenet5", "--batch", "-1"], &["invalid value '-1' for '--batch"]),
        (&["plan", &torch, "-p", "o2"], &["torch.yaml:2:", "`Linear`; what torch calls so is `Dense` here"]),
        (&["plan", "lenet5", "-p", "o2", "--color", "red"], &["red", "auto, always, never"]),
        (&["cells", "Linaer"], &["did you mean `Linear`, as torch calls Dense?", "`precast cells` lists every kind"]),
        (&["cells", "Resistor"], &["no kind of cell is called `Resistor`;"]),
        (&["show", "oo2"], &["no file is called `oo2` (did you mean `o2`?)", "precast-1", "lenet5_bn", "schema"]),
        (&["init", "mlp", "--output", &full], &["is there already; --force replaces it"]),
        (&["init", "mlp", "--force"], &["--output"]),
        (&["init", "mlp", "--policy", &nothing], &["matches no cell"]),
        (&["man", "plam"], &["no command is called `plam` (did you mean `plan`?)"]),
        (&["completions", "tcsh"], &["tcsh", "bash, elvish, fish, powershell, zsh"]),
        (&["train", "lenet5", "--examples", "1797"], &["1797 of 1797 examples"]),
        (&["train", "lenet5", "-p", "o2", "-p", "o2"], &["two policies are named `o2`"]),
        (&["train", &narrow], &["[2, 3]", "10 numbers"]),
        (&["train", &unfit], &["does not take digits of shape [64]", "65"]),
        (&["train", &odd], &["shape [3, 32, 32]", "[1, 32, 32]"]),
        (&["train", "mlp", "--output", &full], &["--output"]),
        (&["ops", "elementwise_ad"], &["did you mean `elementwise_add`, as paddle calls Add?"]),
        (&["ops", "mul"], &["`paddle:mul` is MatMul, `torch:mul` is Mul"]),
        (&["ops", "torch:mull"], &["no op of torch is called `mull` (did you mean `mul`?)"]),
        (&["ops", "--pack", "torch-2.15-cp"], &["no pack is called `torch-2.15-cp` (did you mean `torch-2.15-cpu`?)"]),
        (&["ops", "MatMull", "--pack", "paddle-3.3"], &["did you mean `matmul`, as paddle calls MatMul?"]),
        (&["ops", "--format", "tree"], &["tree", "text, json"]),
        (&["trian"], &["unrecognized subcommand 'trian'", "'train'"]),
    ];
    for (args, words) in cases {
        let message = error(2, precast_in(&folder.0, args));
        for word in *words {
            assert!(message.contains(word), "{args:?}: no {word:?} in {message}");
        }
    }
    assert_eq!(folder.names(), before, "nothing was written");
    assert_eq!(fs::read_to_string(full).unwrap(), "a file where a folder should be");
}

#[test]
fn threads_and_vectors_of_the_environment_mean_something() {
    let run = |name: &str, value: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_precast"));
        command.args(["levels"]).env(name, value).output().unwrap()
    };
    let cases = [
        ("PRECAST_THREADS", &["0", "3", ""][..], "two", "0 for one for each core"),
        ("PRECAST_VECTORS", &["1", "4", "8", "16", ""], "2", "1, 4, 8 or 16"),
        ("PRECAST_AMX", &["0", "1", ""], "yes", "1, which multiplies bf16 by AMX"),
    ];
    for (name, good, bad, allowed) in cases {
        assert!(good.iter().all(|value| run(name, value).status.success()), "{name}");
        let refused = run(name, bad);
        assert_eq!(refused.status.code(), Some(2));
        let message = String::from_utf8(refused.stderr).unwrap();
        assert!(message.contains(&format!("{name} is {bad:?}")) && message.contains(allowed), "{message}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for args in [&["levels"][..], &["cells"], &["show", "o2"], &["man"], &["plan", "lenet5", "-p", "o2"], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_precast"));
        let output = command.args(args).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", output.status);
        assert_eq!(messages(output.stderr), "", "{args:?}");
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "kernels without optimisation take minutes")]
fn bench_measures_limits_and_kernels() {
    let report = json(precast(&["bench", "--format", "json"]));
    let rate = |name: &str| report["limits"][name].as_f64().unwrap();
    assert!(rate("copy") > 0.0 && rate("copy_cached") > 0.0 && rate("read") > 0.0);
    let rows = report["kernels"].as_array().unwrap();
    for dtype in ["float32", "float16", "bfloat16"] {
        assert!(rows.iter().filter(|row| row["dtype"] == dtype).count() >= 10, "{dtype}");
    }
    for row in rows {
        assert!(row["micros"].as_f64().unwrap() > 0.0 && row["rate"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(
            row["share"].is_null(),
            row["bound"].as_str().unwrap().ends_with("arithmetic") && report["limits"]["gflops"].is_null(),
            "{row}"
        );
    }
}
