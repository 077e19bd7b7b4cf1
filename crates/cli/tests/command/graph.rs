//! `precast graph`, and `plan`, `explain` and `diff` under policies for graphs: output, files, and exit codes.

use std::fs;

use precast::{
    DType, Policy, Tensor,
    io::models::{self, Model},
    plan::Diff,
};
use precast_graph::{Graph, GraphPolicy, NodeDecision};
use precast_train::report::{graph_summary, graph_table};
use serde_json::Value;

use crate::program::{Folder, error, json_of, precast, precast_in, root, text};

/// Traces a built-in model on its declared input.
fn traced(name: &str) -> Graph {
    let Model { net, input, .. } = Model::named(name, 0).unwrap();
    let shape: Vec<usize> = [32].into_iter().chain(input.unwrap()).collect();
    Graph::trace(&net, &[Tensor::ones(&shape, DType::F32)]).unwrap()
}

fn rewritten(model: &str, policy: &str) -> precast_graph::Rewritten {
    traced(model).rewrite(&GraphPolicy::named(policy).unwrap()).unwrap()
}

#[test]
fn a_graph_is_a_table_with_reasons_and_a_summary() {
    let low = rewritten("lenet5", "graph").decisions();
    let mut net = Model::named("lenet5", 0).unwrap().net;
    let _applied = Policy::named("o1").unwrap().apply(&mut net).unwrap();
    let at_o1 = Graph::trace(&net, &[Tensor::ones(&[2, 1, 32, 32], DType::F32)]).unwrap().casts();
    let shown = text(precast(&["graph", "lenet5", "--policy", "graph"]));
    let (table, summary) = (graph_table(&low), graph_summary(&low));
    assert_eq!(
        shown,
        format!(
            "model   lenet5 (built in)\npolicy  graph (built in)\ngraph: graph, float16, lists of precast-1\n\
             {table}\n{summary}, at O1 {at_o1}\n"
        )
    );
    // Five layers with weight and bias, the input, and the output back to f32.
    assert_eq!(summary, "12 of 12 ops run in float16; 12 casts");
    let row = table.lines().find(|row| row.starts_with("| max_pool2d_2 ")).unwrap();
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let because = "between conv2d_2 and linear_1, which are on the allow list";
    assert_eq!(cells[1..6], ["max_pool2d_2", "MaxPool2d", "5", "f16", because]);
}

#[test]
fn json_says_what_the_table_says() {
    let json = json_of(&["graph", "lenet5_bn", "-p", "graph-bf16", "--format", "json"]);
    let low = rewritten("lenet5_bn", "graph-bf16").decisions();
    assert_eq!(json["nodes"], serde_json::to_value(&low).unwrap());
    assert_eq!((&json["policy"]["graph"], &json["policy"]["dtype"]), (&"usual".into(), &"bfloat16".into()));
    let of_ops = |low: bool| {
        let nodes = json["nodes"].as_array().unwrap().iter();
        let ops = nodes.filter(|node| !["Input", "Parameter", "Cast"].contains(&node["op"].as_str().unwrap()));
        ops.filter(|node| !low || node["dtype"] == "bfloat16").count()
    };
    assert_eq!((json["ops"].as_u64(), json["low"].as_u64()), (Some(of_ops(false) as u64), Some(of_ops(true) as u64)));
    assert!(json["casts"].as_u64() < json["casts_at_o1"].as_u64());
}

#[test]
fn without_a_policy_the_graph_is_as_it_was_recorded() {
    let shown = text(precast(&["graph", "lenet5"]));
    let nodes = traced("lenet5").decisions();
    assert_eq!(shown, format!("model   lenet5 (built in)\n{}\n{}\n", graph_table(&nodes), graph_summary(&nodes)));
    assert!(shown.ends_with("0 of 12 ops run in 16 bits; 0 casts\n"), "{shown}");
}

#[test]
fn a_policy_with_a_level_shows_the_casts_of_its_plan() {
    let casts = |args: &[&str]| {
        let json = json_of(&[&["graph", "lenet5", "--format", "json"], args].concat());
        assert!(json.get("casts_at_o1").is_none());
        json["casts"].as_u64().unwrap()
    };
    let mut net = models::load(root().join("models/lenet5.yaml"), 0).unwrap();
    let _applied = Policy::named("o1").unwrap().apply(&mut net).unwrap();
    let graph = Graph::trace(&net, &[Tensor::ones(&[2, 1, 32, 32], DType::F32)]).unwrap();
    assert_eq!(casts(&["-p", "o1"]), graph.casts() as u64);
    let fewer = graph.with_fewer_casts().casts();
    assert!(fewer < graph.casts());
    assert_eq!(casts(&["-p", "o1", "--fewer-casts"]), fewer as u64);
    assert_eq!(casts(&["-p", "o0"]), 0);
}

#[test]
fn a_call_in_training_is_recorded_if_it_is_asked_for() {
    let folder = Folder::new("graph-train");
    let model = folder.write(
        "drops.yaml",
        "version: 1\ninput: [4]\nnet: {kind: Sequential, cells: [{kind: Dense, in_features: 4, out_features: 4}, {kind: Dropout, p: 0.5}]}\n",
    );
    let drops = |args: &[&str]| text(precast(&[&["graph", &model], args].concat())).contains("| Dropout");
    assert_eq!((drops(&[]), drops(&["--train"])), (false, true));
    assert_eq!((drops(&["-p", "graph"]), drops(&["-p", "graph", "--train"])), (false, true));
}

#[test]
fn files_are_written_as_the_library_writes_them() {
    let folder = Folder::new("graph-files");
    let file = |name: &str| folder.0.join(name).to_str().unwrap().to_string();
    let (svg, dot, json) = (file("a.svg"), file("a.dot"), file("a.json"));
    text(precast(&["graph", "mlp", "-p", "graph", "--svg", &svg, "--dot", &dot, "--json", &json]));
    assert_eq!(folder.names(), ["a.dot", "a.json", "a.svg"]);
    let low = rewritten("mlp", "graph");
    assert_eq!(fs::read_to_string(svg).unwrap(), low.to_svg());
    assert_eq!(fs::read_to_string(dot).unwrap(), low.graph.to_dot());
    let read = Graph::from_json(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(read.to_string(), low.graph.to_string());
}

/// `precast graph lenet5 --svg docs/lenet5-traced.svg --force`, and with `--policy graph` docs/lenet5-graph.svg.
#[test]
fn the_drawings_of_the_guide_are_those_of_the_command() {
    let folder = Folder::new("graph-docs");
    let file = folder.0.join("drawn.svg");
    for (kept, policy) in [("lenet5-traced.svg", &[][..]), ("lenet5-graph.svg", &["--policy", "graph"])] {
        text(precast(&[&["graph", "lenet5", "--force", "--svg", file.to_str().unwrap()], policy].concat()));
        let kept = root().join("docs").join(kept);
        assert!(fs::read(&file).unwrap() == fs::read(&kept).unwrap(), "{} is not what is drawn now", kept.display());
    }
}

#[test]
fn plan_explain_and_diff_know_graphs() {
    let graph = text(precast(&["graph", "mlp", "-p", "graph"]));
    for format in [&[][..], &["--format", "table"]] {
        assert_eq!(text(precast(&[&["plan", "mlp", "-p", "graph"], format].concat())), graph);
    }
    let json = json_of(&["plan", "mlp", "-p", "graph", "--format", "json"]);
    assert_eq!(json, json_of(&["graph", "mlp", "-p", "graph", "--format", "json"]));

    let said = text(precast(&["explain", "mlp", "relu_2", "-p", "graph"]));
    let because = "between linear_2 and linear_3, which are on the allow list";
    assert!(said.contains("\nrelu_2 (Relu)\n") && said.contains(&format!("\n  because  {because}\n")), "{said}");
    let json = json_of(&["explain", "mlp", "linear_3-0-CastToFp32-0", "-p", "graph", "--format", "json"]);
    assert_eq!(
        (&json["because"], &json["dtype"]),
        (&serde_json::json!({"read_by": ["the caller"]}), &"float32".into())
    );
    assert_eq!(json_of(&["explain", "mlp", "input", "-p", "graph", "--format", "json"])["op"], "Input");

    let names = ["graph", "graph-bf16"];
    let [f16, bf16] = names.map(|name| rewritten("mlp", name).decisions());
    let [from, to] = names.map(|name| GraphPolicy::named(name).unwrap().to_string());
    let diff = Diff::between((&from, &f16), (&to, &bf16));
    let [first, second] = [f16, bf16].map(|nodes| nodes.iter().filter(|node: &&NodeDecision| node.is_cast()).count());
    let shown = text(precast(&["diff", "mlp", "-p", "graph", "-p", "graph-bf16"]));
    assert_eq!(
        shown,
        format!(
            "model   mlp (built in)\npolicy  graph (built in)\npolicy  graph-bf16 (built in)\n{diff}; casts: {first}, then {second}\n"
        )
    );
    let of_training = json_of(&["plan", "lenet5_bn", "-p", "graph", "--train", "--format", "json"]);
    assert_eq!(of_training, json_of(&["graph", "lenet5_bn", "-p", "graph", "--train", "--format", "json"]));
    assert_ne!(of_training, json_of(&["plan", "lenet5_bn", "-p", "graph", "--format", "json"]));
    let refused = precast(&["diff", "mlp", "-p", "o2", "-p", "o3", "--train"]);
    assert!(error(2, refused).contains("--train is for a policy for graphs"));
    let shown = text(precast(&["diff", "mlp", "-p", "graph", "-p", "graph"]));
    assert!(shown.contains("no difference in "), "{shown}");
    // O2 keeps the norms in f32, the graph lowers them between two products.
    let json: Value = json_of(&["diff", "mlp", "-p", "o2", "-p", "graph", "--format", "json"]);
    let nodes: Vec<&str> =
        json["changes"].as_array().unwrap().iter().map(|change| change["path"].as_str().unwrap()).collect();
    assert_eq!(nodes, ["batch_norm_1", "batch_norm_2"]);
}

#[test]
fn wrong_use_is_refused_and_nothing_is_written() {
    let folder = Folder::new("graph-wrong");
    let model = |name: &str, rest: &str| folder.write(name, &format!("version: 1\n{rest}\n"));
    let dense = "{kind: Dense, in_features: 4, out_features: 2}";
    let no_input = model("no_input.yaml", &format!("net: {dense}"));
    let unfit = model("unfit.yaml", &format!("input: [5]\nnet: {dense}"));
    let asked = model("asked.yaml", &format!("input: [4]\nnet: {{to_float: float32, cell: {dense}}}"));
    let large = model("large.yaml", &format!("input: [1000000, 4]\nnet: {dense}"));
    let rules = model("rules.yaml", "dtype: float16\ngraph: {}\nrules: [{ path: zero, run: float32 }]");
    let full = folder.write("full", "a file where a folder should be");
    let beside = |name: &str| folder.0.join(name).to_str().unwrap().to_string();
    let (a, nowhere, inside) = (beside("a.svg"), beside("no/such/folder.svg"), format!("{full}/a.svg"));
    let before = folder.names();
    let cases: &[(&[&str], &[&str])] = &[
        (&["graph"], &["<MODEL>"]),
        (&["graph", "lent5"], &["there is no file `lent5`", "did you mean `lenet5`?"]),
        (&["graph", "lenet5", "-p", "grpah"], &["no policy is called `grpah` (did you mean `graph`?)"]),
        (&["graph", &no_input], &["a graph depends on the size of the input", "`input: [1, 28, 28]`"]),
        (&["graph", &unfit, "--svg", &a], &["[32, 5]"]),
        (&["graph", &asked, "-p", "graph", "--svg", &a], &["the root cell has a `to_float`"]),
        (&["graph", &large, "--batch", "5"], &["a batch of 5 makes inputs of [5, 1000000, 4]", "at most 16777216"]),
        (&["graph", "lenet5", "--batch", "0"], &["--batch"]),
        (&["graph", "lenet5", "-p", &rules], &["rules.yaml", "the rule for path zero fits no node"]),
        (&["graph", "lenet5", "--svg", &nowhere], &["--svg: ", "no/such/folder.svg"]),
        (&["graph", "lenet5", "--svg", &a, "--json", &inside], &["--json: ", "full"]),
        (&["graph", "lenet5", "--svg", &a, "--dot", &a], &["--svg and --dot name one file"]),
        (&["graph", "lenet5", "--format", "tree"], &["tree", "text, json"]),
        (&["explain", "lenet5", "relu_9", "-p", "graph"], &["no node is called `relu_9` (did you mean `relu_1`?)"]),
        (&["explain", "lenet5", "0", "-p", "graph"], &["`precast graph lenet5 --policy graph` shows every node"]),
        (&["plan", "lenet5", "-p", "graph", "--predict"], &["--predict", "not for those for graphs"]),
        (&["plan", "lenet5", "-p", "graph", "--batch", "4"], &["--batch is for"]),
        (&["plan", &no_input, "-p", "graph"], &["a graph depends on the size of the input"]),
        (&["diff", &unfit, "-p", "o2", "-p", "graph"], &["[32, 5]"]),
    ];
    for (args, words) in cases {
        let message = error(2, precast_in(&folder.0, args));
        for word in *words {
            assert!(message.contains(word), "{args:?}: no {word:?} in {message}");
        }
    }
    assert_eq!(folder.names(), before, "nothing was written");
}
