//! Functions of a model: their nodes are decided as those of the graph are. Results have closed forms.

use precast::{DType, Tensor, policy::GraphPolicy};
use precast_graph::onnx::{OnnxConvertOptions, OnnxModel};

use super::{
    build::{self, BOOL, FLOAT, Message, body, floats, graph, int, value},
    pb::fields,
};

const OPSET: i64 = 17;

/// A node named as its first output.
fn node(domain: &str, op: &str, inputs: &[&str], outputs: &[&str], attributes: &[Message]) -> Message {
    let node = inputs.iter().fold(Message::default(), |node, name| node.bytes(1, name));
    let node = outputs.iter().fold(node, |node, name| node.bytes(2, name));
    let node = node.bytes(3, outputs.iter().find(|name| !name.is_empty()).unwrap()).bytes(4, op);
    attributes.iter().fold(node, |node, attribute| node.message(5, attribute)).bytes(7, domain)
}

fn own(op: &str, inputs: &[&str], outputs: &[&str], attributes: &[Message]) -> Message {
    node("own", op, inputs, outputs, attributes)
}

fn op(op: &str, inputs: &[&str], output: &str) -> Message {
    node("", op, inputs, &[output], &[])
}

fn scalar(name: &str, number: f32) -> Message {
    let value = Message::default().bytes(1, "value").message(5, &floats("", &[], &[number])).int(20, 4);
    node("", "Constant", &[], &[name], &[value])
}

/// An attribute that takes its value from one of the function's.
fn given(name: &str, from: &str) -> Message {
    Message::default().bytes(1, name).int(20, 2).bytes(21, from)
}

fn opset(domain: &str, version: i64) -> Message {
    Message::default().bytes(1, domain).int(2, version)
}

fn function(name: &str, inputs: &[&str], outputs: &[&str], nodes: &[Message], version: i64) -> Message {
    let function = inputs.iter().fold(Message::default().bytes(1, name), |function, name| function.bytes(4, name));
    let function = outputs.iter().fold(function, |function, name| function.bytes(5, name));
    let function = nodes.iter().fold(function, |function, node| function.message(7, node));
    function.message(9, &opset("", version)).message(9, &opset("own", 1)).bytes(10, "own")
}

fn bytes(nodes: &[Message], functions: &[Message]) -> Vec<u8> {
    let eye = floats("eye", &[2, 2], &[1.0, 0.0, 0.0, 1.0]);
    let io = |name| value(name, FLOAT, &["2", "2"]);
    let graph = graph(nodes, &[eye], &[io("x")], &[io("y")]);
    let model = Message(build::bytes(&graph, OPSET)).message(8, &opset("own", 1));
    functions.iter().fold(model, |model, function| model.message(25, function)).0
}

/// A model whose nodes are between two products with the identity: `h` is the first one, the last one reads `u`.
fn between(nodes: &[Message], functions: &[Message]) -> OnnxModel {
    let ends = [op("MatMul", &["x", "eye"], "h"), op("MatMul", &["u", "eye"], "y")];
    let all: Vec<Message> = ends[..1].iter().chain(nodes).chain(&ends[1..]).cloned().collect();
    OnnxModel::from_bytes(bytes(&all, functions)).unwrap()
}

const X: [f32; 4] = [0.5, -2.0, 3.0, 1.25];

/// Checks the result of a model and of its conversion, whose functions are gone, and which nodes run low.
fn check(model: &OnnxModel, wanted: impl Fn(f64) -> f64, low: &[&str], full: &[&str]) {
    let plan = model.plan(&GraphPolicy::named("onnx").unwrap()).unwrap();
    for (nodes, is_low) in [(low, true), (full, false)] {
        for node in nodes {
            let met = plan.decision(node).unwrap();
            assert_eq!(met.dtype.is_low(), is_low, "{node} {met}");
        }
    }
    let converted = plan.to_bytes(&OnnxConvertOptions::new()).unwrap();
    assert!(fields(&converted).unwrap().iter().all(|(number, _)| *number != 25));
    let converted = OnnxModel::from_bytes(converted).unwrap();
    for (model, bound) in [(model, 1e-6), (&converted, 4e-3)] {
        let x = Tensor::from_vec(X.to_vec(), &[2, 2]).unwrap();
        let met = model.run(&[("x", x)]).unwrap()[0].1.to_f64();
        for (x, met) in X.iter().zip(met) {
            let wanted = wanted(f64::from(*x));
            assert!((met - wanted).abs() <= bound * wanted.abs().max(1.0), "{met}, wanted {wanted}");
        }
    }
}

/// A guard, a factor and an angle on one side of a call, and what needs them on the other.
#[test]
fn facts_about_numbers_hold_across_calls() {
    let guard = function("Guard", &["a"], &["b"], &[scalar("c", 1e-9), op("Add", &["a", "c"], "b")], OPSET);
    let nodes = [
        op("Sub", &["h", "h"], "zero"),
        own("Guard", &["zero"], &["some"], &[]),
        op("Div", &["zero", "some"], "quotient"),
        op("Add", &["h", "quotient"], "u"),
    ];
    check(&between(&nodes, &[guard]), |x| x, &["h", "y"], &["quotient"]);

    let large = function("Large", &["a"], &["b"], &[scalar("c", 1e6), op("Mul", &["a", "c"], "b")], OPSET);
    let nodes = [scalar("c", 1e-6), own("Large", &["h"], &["million"], &[]), op("Mul", &["million", "c"], "u")];
    check(&between(&nodes, &[large]), |x| x, &["h", "y"], &["million.b"]);

    let turn = function("Turn", &["a"], &["b"], &[op("Cos", &["a"], "b")], OPSET);
    let nodes = [
        scalar("c", 1000.5),
        op("Mul", &["x", "c"], "angle"),
        own("Turn", &["angle"], &["turned"], &[]),
        op("Add", &["h", "turned"], "u"),
    ];
    check(&between(&nodes, &[turn]), |x| x + (x * 1000.5).cos(), &["h", "y"], &["angle"]);
}

/// Functions within functions and bodies, called twice, with attributes, an input that is left out, outputs that are
/// inputs or given twice, and names that are taken.
#[test]
fn calls_become_the_nodes_of_functions() {
    // Twice its input by a product, which runs low; and the input itself.
    let twice = {
        let two = Message::default().bytes(1, "value").message(5, &floats("", &[2, 2], &[2.0, 0.0, 0.0, 2.0]));
        let nodes = [node("", "Constant", &[], &["t"], &[two.int(20, 4)]), op("MatMul", &["a", "t"], "p")];
        function("Twice", &["a"], &["p", "a", "p"], &nodes, OPSET)
    };
    // Four times its input, and no less than the second one if it is given.
    let sum = {
        let nodes = [
            own("Twice", &["a"], &["q"], &[]),
            own("Twice", &["q"], &["", "t", "r"], &[]),
            op("Sub", &["r", "q"], "d"),
            op("Add", &["d", "t"], "f"),
            op("Clip", &["f", "b"], "s"),
        ];
        function("Sum", &["a", "b"], &["s"], &nodes, OPSET)
    };
    // A body that reads a value of the function; its own value has the name of an outer one.
    let chosen = {
        let side = |of: &str| {
            let nodes = [own("Twice", &[of], &["h"], &[])];
            graph(&nodes, &[], &[], &[value("h", FLOAT, &["2", "2"])])
        };
        let branches = [body("then_branch", &side("n")), body("else_branch", &side("a"))];
        let nodes = [op("Neg", &["a"], "n"), node("", "If", &["if"], &["c"], &branches)];
        function("Chosen", &["if", "a"], &["c"], &nodes, OPSET)
    };
    let turned = {
        let nodes = [node("", "Concat", &["a", "a"], &["two"], &[given("axis", "along")]), scalar("n", 0.5)];
        let nodes = nodes.into_iter().chain([
            node("", "ReduceMean", &["two"], &["m"], &[given("keepdims", "keep")]),
            op("Mul", &["m", "n"], "half"),
        ]);
        let nodes: Vec<Message> = nodes.collect();
        function("Halved", &["a"], &["half"], &nodes, OPSET).bytes(6, "along").message(11, &int("keep", 0))
    };
    let truth = Message::default().int(2, BOOL).bytes(9, [1]);
    let truth = Message::default().bytes(1, "value").message(5, &truth).int(20, 4);
    let nodes = [
        // Taken: the names that a call of Twice with the output `k` would give.
        op("Identity", &["h"], "k/t"),
        own("Twice", &["k/t"], &["k"], &[]),
        own("Sum", &["k"], &["s"], &[]),
        scalar("least", -1e4),
        own("Sum", &["s", "least"], &["e"], &[]),
        node("", "Constant", &[], &["yes"], &[truth]),
        own("Chosen", &["yes", "e"], &["c"], &[]),
        own("Halved", &["c"], &["mean"], &[int("along", 0)]),
        op("Sub", &["c", "mean"], "away"),
        op("Add", &["away", "mean"], "u"),
    ];
    let model = between(&nodes, &[twice, sum, chosen, turned]);
    // h = x, k = 2 x, s = 4 k = 8 x, e = 4 s = 32 x, c = -2 e.
    check(&model, |x| -64.0 * x, &["k.p", "s.q.p", "s.t.p", "y"], &[]);
    let names: Vec<String> =
        model.plan(&GraphPolicy::named("onnx").unwrap()).unwrap().decisions().iter().map(|d| d.node.clone()).collect();
    assert!(names.iter().any(|name| name == "c.h.p"), "{names:?}");
}

/// The nodes of a function of another opset mean something else, so the call stays.
#[test]
fn a_function_whose_ops_have_other_versions_stays_a_call() {
    let axes = |name: &str| node("", "Squeeze", &[name], &["b"], &[]);
    let nodes = |version| {
        let old = function("Old", &["a"], &["b"], &[axes("a")], version);
        between(&[own("Old", &["h"], &["u"], &[])], &[old])
    };
    for (version, is_call) in [(11, true), (13, false), (OPSET, false)] {
        let model = nodes(version);
        let plan = model.plan(&GraphPolicy::named("onnx").unwrap()).unwrap();
        assert_eq!(plan.decision("u.b").is_err(), is_call, "{version}");
        if is_call {
            let call = plan.decision("u").unwrap();
            assert_eq!(
                (call.dtype, call.because.as_ref().unwrap().to_string()),
                (DType::F32, "a function of the model".into())
            );
            let rule = "version: 1\npack: onnx-1\ndtype: float16\ngraph: {}\nrules: [{ path: u, run: low }]\n";
            let message = model.plan(&GraphPolicy::parse(rule, "p.yaml").unwrap()).unwrap_err().to_string();
            let words = "a rule runs it low, and it is a function of the model, which runs as it is";
            assert!(message.ends_with(words), "{message}");
            let converted = plan.to_bytes(&OnnxConvertOptions::new()).unwrap();
            assert_eq!(fields(&converted).unwrap().iter().filter(|(number, _)| *number == 25).count(), 1);
        }
    }
}

/// It still finds the functions that it calls.
#[test]
fn a_function_that_stays_a_call_calls_others() {
    let negative = function("Negative", &["a"], &["b"], &[op("Neg", &["a"], "b")], OPSET);
    let inner = [op("Squeeze", &["a"], "s"), own("Negative", &["s"], &["b"], &[])];
    let old = function("Old", &["a"], &["b"], &inner, 11);
    let nodes = [own("Negative", &["h"], &["n"], &[]), own("Old", &["n"], &["u"], &[])];
    let model = between(&nodes, &[negative, old]);
    let x = Tensor::from_vec(X.to_vec(), &[2, 2]).unwrap();
    assert_eq!(model.run(&[("x", x)]).unwrap()[0].1.to_f64(), X.map(f64::from));
}

#[test]
fn wrong_calls_are_errors() {
    let refused = |nodes: &[Message], functions: &[Message], words: &str| {
        let error = OnnxModel::from_bytes(bytes(nodes, functions)).unwrap_err().to_string();
        assert_eq!(error, words);
    };
    let call = |of: &str| own(of, &["a"], &["b"], &[]);
    let names = ["A", "B", "C", "D", "E"];
    let chain = |len: usize| -> Vec<Message> {
        let next = |at: usize| call(names[(at + 1) % len]);
        (0..len).map(|at| function(names[at], &["a"], &["b"], &[next(at)], OPSET)).collect()
    };
    let nodes = [own("A", &["x"], &["y"], &[])];
    refused(&nodes, &chain(1), "the function `A` calls itself: A > A");
    refused(&nodes, &chain(2), "the function `A` calls itself: A > B > A");
    refused(&nodes, &chain(5), "the function `A` calls itself: A > B > C > D > ... > A");

    let one = [function("A", &["a"], &["b"], &[op("Neg", &["a"], "b")], OPSET)];
    let words = "node `y` (A): it has 2 inputs, and the function has 1";
    refused(&[own("A", &["x", "x"], &["y"], &[])], &one, words);

    // Nobody knows the one that a call means.
    let other = function("A", &["a"], &["b"], &[op("Abs", &["a"], "b")], OPSET);
    let words = "two functions of the model have the name `own.A`; expected one for each name";
    refused(&nodes, &[one[0].clone(), other], words);
    // Some runtimes mean the op.
    let standard = Message::default().bytes(1, "Relu").bytes(4, "a").bytes(5, "b").message(7, &op("Neg", &["a"], "b"));
    let standard = standard.message(9, &opset("", OPSET)).bytes(10, "");
    let words = "node `y` (Relu): a function of the model has the name of this op, and runtimes differ in the one that a \
                 node means; rename the function";
    refused(&[op("Relu", &["x"], "y")], std::slice::from_ref(&standard), words);
    let caller = function("B", &["a"], &["b"], &[op("Relu", &["a"], "b")], OPSET);
    let of_function = words.replace("`y`", "`b`");
    refused(&[own("B", &["x"], &["y"], &[])], &[standard.clone(), caller], &of_function);
    let unused = OnnxModel::from_bytes(bytes(&[op("Neg", &["x"], "y")], &[standard]));
    assert!(unused.is_ok());

    // 2^21 nodes.
    let double = |at: usize| {
        let name = format!("F{at}");
        let next = format!("F{}", at + 1);
        let nodes = match at {
            20 => vec![op("Neg", &["a"], "b"), op("Neg", &["b"], "c")],
            _ => vec![own(&next, &["a"], &["b"], &[]), own(&next, &["b"], &["c"], &[])],
        };
        function(&name, &["a"], &["c"], &nodes, OPSET)
    };
    let bomb: Vec<Message> = (0..21).map(double).collect();
    let nodes = [own("F0", &["x"], &["y"], &[])];
    refused(&nodes, &bomb, "calls of functions become more than 1048576 nodes");
}
