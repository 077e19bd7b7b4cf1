//! `precast plan`, `explain` and `diff` for runs, and for policies whose decisions change during a run; mistakes in run
//! files that are found when a run begins.

use crate::program::{Folder, error, json, precast_in, text};

const CHANGING: &str = "
version: 1
level: O2
dtype: float16
rules:
  - path: '**'
    run: float32
    until: { step: 500 }
  - path: '1'
    after_stall: raise
";

#[test]
fn a_policy_that_changes_is_planned_explained_and_compared() {
    let folder = Folder::new("changing");
    folder.write("warm-up.yaml", CHANGING);
    folder.write("later.yaml", &CHANGING.replace("500", "600"));
    let run = |args: &[&str]| text(precast_in(&folder.0, args));
    let plan = run(&["plan", "lenet5_bn", "--policy", "warm-up.yaml"]);
    assert!(plan.contains("runs f32 until step 500, then runs f16"), "{plan}");
    let said = run(&["explain", "lenet5_bn", "1", "--policy", "warm-up.yaml"]);
    for words in [
        "  because  rule path ** (run: float32 until step 500), warm-up.yaml:6:5",
        "  then     after step 500, runs f32, returns f16: full list, precast-1",
        "  stall    raised to f32 if it stalls a run, which then continues",
    ] {
        assert!(said.contains(words), "{said}");
    }
    let json =
        json(precast_in(&folder.0, &["explain", "lenet5_bn", "0", "--policy", "warm-up.yaml", "--format", "json"]));
    assert_eq!(
        (&json["decision"]["later"][0]["after"], &json["decision"]["raise_after_stall"]),
        (&500.into(), &().into())
    );
    let diff = run(&["diff", "lenet5_bn", "--policy", "warm-up.yaml", "--policy", "later.yaml"]);
    assert!(diff.contains("until step 500") && diff.contains("until step 600"), "{diff}");
    // A file for another library is about the policy in the end, and lists the rules that it leaves out.
    let torch = run(&["export", "lenet5_bn", "--policy", "warm-up.yaml", "--to", "torch"]);
    let left_out = "# - 1 cell with `after_stall: raise`: no stall raises them\n\
                    # - the rule for the path ** (run: float32) until step 500: this is what holds after it\n";
    assert!(torch.contains(left_out), "{torch}");
    assert_eq!(
        torch.replace(left_out, ""),
        run(&["export", "lenet5_bn", "--policy", "o2", "--to", "torch"]).replace("o2: ", "")
    );
}

#[test]
fn the_folder_of_a_run_is_planned_and_explained_with_its_numbers() {
    let folder = Folder::new("plans-of-runs");
    let policy = CHANGING.replace("500", "2").replace("float16", "bfloat16");
    folder.write("policy.yaml", &policy);
    folder.write(
        "run.yaml",
        "{version: 1, name: digits, model: mlp, policy: policy.yaml, data: digits, epochs: 1, batch: 256}",
    );
    let run = |args: &[&str]| text(precast_in(&folder.0, args));
    let before = run(&["plan", "run.yaml"]);
    assert!(before.contains("model   run.yaml\npolicy  policy.yaml\n") && before.contains("until step 2"), "{before}");
    run(&["train", "run.yaml", "--quiet"]);
    let plan = run(&["plan", "runs/digits"]);
    assert!(plan.contains("policy  runs/digits/policy-now.yaml") && !plan.contains("until"), "{plan}");
    let said = run(&["explain", "runs/digits", "0"]);
    let numbers = said.lines().find(|line| line.starts_with("  numbers  forward pass: at most ")).expect(&said);
    assert!(numbers.contains(" in bf16, ") && numbers.ends_with(" % zeros"), "{said}");
    let json = json(precast_in(&folder.0, &["explain", "runs/digits", "0", "--format", "json"]));
    assert_eq!((&json["headroom"][0]["cell"], &json["headroom"][0]["phase"]), (&"0".into(), &"forward".into()));
    assert!(run(&["explain", "runs/digits", "0", "--policy", "o3-bf16"]).contains("level O3"));
    assert!(run(&["diff", "runs/digits", "-p", "o2", "-p", "o3"]).contains(" cells"));
    error(2, precast_in(&folder.0, &["plan", "mlp"]));
    // A changed file is not the run's, as for `predict`.
    folder.write("runs/digits/policy.yaml", &policy.replace("O2", "O1"));
    for command in [&["plan", "runs/digits"][..], &["explain", "runs/digits", "0"], &["lint", "runs/digits"]] {
        let said = error(2, precast_in(&folder.0, command));
        assert!(said.contains("runs/digits: `policy.yaml` is not the one with which the run began"), "{said}");
    }
}

#[test]
fn mistakes_that_a_run_meets_are_placed_in_its_file() {
    let folder = Folder::new("placed");
    let rows: String = (0..20).map(|i| format!("{i},{},{}\n", 20 - i, ["a", "b"][i % 2])).collect();
    folder.write("points.csv", &format!("x,y,side\n{rows}"));
    let net = |features| {
        format!(
            "{{version: 1, input: [2], net: {{kind: Sequential, cells: [{{kind: Dense, in_features: 2, out_features: {features}}}]}}}}"
        )
    };
    folder.write("net.yaml", &net(2));
    folder.write("none.yaml", &net(0));
    let head = "version: 1\nmodel: net.yaml\npolicy: o2-bf16\ndata:\n  csv:\n    file: points.csv\n    target: side\n";
    for (text, place, words) in [
        (head.replace("side", "sied"), "run.yaml:7:13: ", "no column `sied`"),
        (head.replace("side", "4"), "run.yaml:7:13: ", "no column 4; the file has 3"),
        (format!("{head}loss: mse\n"), "run.yaml:8:7: ", "the targets are classes; allowed: cross_entropy"),
        (format!("{head}checkpoint:\n  every: 0\n"), "run.yaml:9:10: ", "`every` is 0"),
        (format!("{head}optimizer: {{adam: {{betas: [0.9, 0.9], eps: -1}}}}\n"), "run.yaml:8:44: ", "`eps` is -1"),
        (format!("{head}schedule: {{step: {{every: 0, factor: 0.1}}}}\n"), "run.yaml:8:26: ", "`every` is 0"),
        (head.replace("net.yaml", "none.yaml"), "none.yaml", "`out_features` is 0; allowed: at least 1"),
    ] {
        folder.write("run.yaml", &text);
        let output = precast_in(&folder.0, &["train", "run.yaml"]);
        let message = error(output.status.code().unwrap(), output);
        assert!(message.contains(place) && message.contains(words), "{message}");
    }
}
