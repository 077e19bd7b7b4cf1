//! The command `precast`: its output, its files, and its exit codes.

use std::{
    fs,
    process::{Command, Stdio},
};

use crate::program::{Folder, error, json, messages, precast, precast_in, text};

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
    for word in ["train", "plan", "init", "show", "Examples:", "Exit status", "lenet5", "o2-bf16"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    let commands = [
        "train", "predict", "generate", "run", "replay", "tune", "shadow", "plan", "explain", "diff", "graph",
        "convert", "export", "lint", "init", "show",
    ];
    for command in commands {
        assert!(text(precast(&[command, "--help"])).contains(&format!("Usage: precast {command}")), "{command}");
    }
    // What was a command of its own is shown.
    for shown in ["levels", "ops", "cells", "schema", "runs", "bench", "completions", "man"] {
        let help = text(precast(&["show", shown, "--help"]));
        assert!(help.contains(&format!("Usage: precast show {shown}")), "{help}");
        assert!(error(2, precast(&[shown])).contains(&format!("tip: `precast show {shown}")), "{shown}");
    }
    assert!(text(precast(&["--version"])).contains(env!("CARGO_PKG_VERSION")));
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
    assert!(own(&["show", "cells"]).0.contains("| Gate "));
    let (out, ..) = own(&["show", "cells", "Gate"]);
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
fn shells_and_man_get_what_they_read() {
    for (shell, word) in [("bash", "_precast()"), ("zsh", "#compdef precast"), ("fish", "complete -c precast")] {
        assert!(text(precast(&["show", "completions", shell])).contains(word), "{shell}");
    }
    for shell in ["elvish", "powershell"] {
        assert!(text(precast(&["show", "completions", shell])).contains("explain"), "{shell}");
    }
    assert!(text(precast(&["show", "man"])).contains(".TH precast 1"));
    let page = text(precast(&["show", "man", "plan"]));
    assert!(
        page.contains(".TH precast-plan 1")
            && page.contains(".SH EXAMPLES\n.nf\n")
            && !page.contains("EXTRA")
            && page.ends_with(".SH SEE ALSO\nprecast(1)\n"),
        "{page}"
    );
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
fn wrong_use_is_refused_and_changes_nothing() {
    let folder = Folder::new("wrong");
    let policy = |name: &str, rest: &str| folder.write(name, &format!("version: 1\n{rest}"));
    let level = policy("level.yaml", "level: O7\ndtype: float16\n");
    let dtype = policy("dtype.yaml", "level: O2\ndtype: float64\n");
    let nothing = policy("nothing.yaml", "level: O2\ndtype: float16\nrules: [{ path: head, run: float32 }]\n");
    let model = folder.write("model.yaml", "version: 1\nnet: {kind: Dens, in_features: 1, out_features: 1}\n");
    let near = model.replace("model", "modle");
    let unsaid = "level: O2\ndtype: float16\nrules: [{ kind: Dense, run: float32, because: \"\" }]\n";
    let unsaid = policy("unsaid.yaml", unsaid);
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
        (&["plan", &near, "-p", "o2"], &["modle.yaml` (did you mean `model.yaml`?)"]),
        (
            &["plan", "lenet5", "-p", "onnx"],
            &["the policy has the ops of ONNX files (onnx-1)", "`graph` or `graph-bf16`"],
        ),
        (&["plan", "lenet5", "-p", &unsaid], &["unsaid.yaml:4:47: `because` is empty"]),
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
        (
            &["show", "cells", "Linaer"],
            &["did you mean `Linear`, as torch calls Dense?", "`precast show cells` lists every kind"],
        ),
        (&["show", "cells", "Resistor"], &["no kind of cell is called `Resistor`;"]),
        (&["show", "oo2"], &["no file is called `oo2` (did you mean `o2`?)", "precast-1", "lenet5_bn", "schema"]),
        (&["init", "mlp", "--output", &full], &["already exists; --force replaces it"]),
        (&["init", "mlp", "--policy", &nothing], &["matches no cell"]),
        (&["show", "man", "plam"], &["no command is called `plam` (did you mean `plan`?)"]),
        (&["show", "completions", "tcsh"], &["tcsh", "bash, elvish, fish, powershell, zsh"]),
        (&["train", "lenet5", "--examples", "1797"], &["1797 of 1797 examples"]),
        (&["train", "lenet5", "-p", "o2", "-p", "o2"], &["two policies are named `o2`"]),
        (&["train", &narrow], &["[2, 3]", "10 numbers"]),
        (&["train", &unfit], &["digits of shape [64], by its input, fails", "65"]),
        (&["train", &odd], &["shape [3, 32, 32]", "[1, 32, 32]"]),
        (&["train", "mlp", "--output", &full], &["--output"]),
        (&["show", "ops", "elementwise_ad"], &["did you mean `elementwise_add`, as paddle calls Add?"]),
        (&["show", "ops", "mul"], &["`paddle:mul` is MatMul, `torch:mul` is Mul"]),
        (&["show", "ops", "torch:mull"], &["no op of torch is called `mull` (did you mean `mul`?)"]),
        (
            &["show", "ops", "--pack", "torch-2.15-cp"],
            &["no pack is called `torch-2.15-cp` (did you mean `torch-2.15-cpu`?)"],
        ),
        (&["show", "ops", "MatMull", "--pack", "paddle-3.3"], &["did you mean `matmul`, as paddle calls MatMul?"]),
        (&["show", "ops", "--format", "tree"], &["tree", "text, json"]),
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
        command.args(["show", "levels"]).env(name, value).output().unwrap()
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
    for args in [
        &["show", "levels"][..],
        &["show", "cells"],
        &["show", "o2"],
        &["show", "man"],
        &["plan", "lenet5", "-p", "o2"],
        &["--help"],
    ] {
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
fn bench_measures_limits_and_kernels() {
    let report = json(precast(&["show", "bench", "--format", "json"]));
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
