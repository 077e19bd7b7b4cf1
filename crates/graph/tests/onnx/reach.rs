//! Facts about numbers, followed to the node that needs more than a low dtype holds. Results have closed forms.

use precast::{DType, Tensor, policy::GraphPolicy};
use precast_graph::onnx::{OnnxConvertOptions, OnnxModel};

use super::build::{self, BOOL, FLOAT, INT64, Message, body, float, floats, graph, int, ints, text, value};

/// A node with a name, which is that of its output.
fn node(op: &str, inputs: &[&str], name: &str, attributes: &[Message]) -> Message {
    nodes(op, inputs, &[name], attributes)
}

fn nodes(op: &str, inputs: &[&str], outputs: &[&str], attributes: &[Message]) -> Message {
    let node = inputs.iter().fold(Message::default(), |node, name| node.bytes(1, name));
    let node = outputs.iter().fold(node, |node, name| node.bytes(2, name));
    let node = node.bytes(3, outputs[0]).bytes(4, op);
    attributes.iter().fold(node, |node, attribute| node.message(5, attribute))
}

fn scalar(name: &str, number: f32) -> Message {
    floats(name, &[], &[number])
}

fn truths(name: &str, shape: &[i64], numbers: &[u8]) -> Message {
    let truths = shape.iter().fold(Message::default(), |truths, axis| truths.int(1, *axis));
    truths.int(2, BOOL).bytes(8, name).bytes(9, numbers)
}

fn axes(numbers: &[i64]) -> Message {
    numbers.iter().fold(Message::default().bytes(1, "axes"), |axes, axis| axes.int(8, *axis)).int(20, 7)
}

/// A model between two products with the identity: `h` is the first one, and `u` is read by the last one.
fn between(middle: &[Message], constants: &[Message], opset: i64) -> OnnxModel {
    let first = node("MatMul", &["x", "eye"], "h", &[]);
    let last = node("MatMul", &["u", "eye"], "y", &[]);
    let eye = floats("eye", &[2, 2], &[1.0, 0.0, 0.0, 1.0]);
    let all: Vec<Message> = std::iter::once(first).chain(middle.to_vec()).chain([last]).collect();
    let constants: Vec<Message> = std::iter::once(eye).chain(constants.to_vec()).collect();
    let io = |name| value(name, FLOAT, &["2", "2"]);
    build::model(&graph(&all, &constants, &[io("x")], &[io("y")]), opset)
}

fn policy(name: &str) -> GraphPolicy {
    GraphPolicy::named(name).unwrap()
}

/// Checks which nodes run low and which do not, and the first output of both forms of the converted model.
fn check(
    name: &str,
    model: &OnnxModel,
    x: &[(&str, Tensor)],
    wanted: &[f64],
    low: &[&str],
    full: &[&str],
    policy: &GraphPolicy,
) {
    let plan = model.plan(policy).unwrap();
    for (nodes, is_low) in [(low, true), (full, false)] {
        for node in nodes {
            let met = plan.decision(node).unwrap();
            assert_eq!(met.dtype.is_low(), is_low, "{name}: {node} {met}");
        }
    }
    for explicit in [false, true] {
        let bytes = plan.to_bytes(&OnnxConvertOptions::new().explicit(explicit)).unwrap();
        let met = OnnxModel::from_bytes(bytes).unwrap().run(x).unwrap()[0].1.to_f64();
        let near = |(met, wanted): (&f64, &f64)| (met - wanted).abs() <= 0.01 * wanted.abs() + 1e-3;
        assert!(met.len() == wanted.len() && met.iter().zip(wanted).all(near), "{name}: {met:?}, wanted {wanted:?}");
    }
}

fn rows(numbers: [f32; 4]) -> Vec<(&'static str, Tensor)> {
    vec![("x", Tensor::from_vec(numbers.to_vec(), &[2, 2]).unwrap())]
}

/// The odds of a probability, the logarithm of a slope, a quotient of differences, and an inverse function.
#[test]
fn what_is_left_to_1_reaches_the_division() {
    let one = || {
        let numbers = [("one", 1.0), ("e", 1e-6), ("minus", -1.0), ("small", 1e-4), ("large", 1e4)];
        let numbers = numbers.map(|(name, number)| scalar(name, number)).into_iter();
        numbers.chain([ints("many", &[3], &[2000, 2, 2])]).collect::<Vec<_>>()
    };
    let unary = |op, from, to| node(op, &[from], to, &[]);
    let binary = |op, a, b, to| node(op, &[a, b], to, &[]);
    // A name, the nodes, the closed form and where it is computed, and the nodes in 16 and in 32 bits.
    type Case<'a> = (&'a str, Vec<Message>, fn(f64) -> f64, f64, &'a [&'a str], &'a [&'a str]);
    let cases: [Case<'_>; 9] = [
        (
            "transmittance",
            vec![
                binary("Mul", "h", "small", "p"),
                binary("Sub", "one", "p", "q"),
                unary("Log", "q", "l"),
                binary("Mul", "l", "large", "u"),
            ],
            |x| 1e4 * (-f64::from(1e-4f32) * x).ln_1p(),
            5.0,
            &[],
            &["q"],
        ),
        (
            "product of many",
            vec![
                binary("Mul", "h", "small", "p"),
                binary("Sub", "one", "p", "q"),
                node("Expand", &["q", "many"], "a", &[]),
                nodes("ReduceProd", &["a"], &["u"], &[axes(&[0]), int("keepdims", 0)]),
            ],
            |x| (1.0 - f64::from(1e-4f32) * x).powi(2000),
            5.0,
            &[],
            &["q", "a"],
        ),
        (
            "odds",
            vec![unary("Sigmoid", "h", "p"), binary("Sub", "one", "p", "q"), binary("Div", "p", "q", "u")],
            |x| x.exp(),
            5.0,
            &[],
            &["p", "q", "u"],
        ),
        (
            "odds by a power",
            vec![
                unary("Sigmoid", "h", "p"),
                unary("Neg", "p", "n"),
                binary("Add", "n", "one", "q"),
                binary("Pow", "q", "minus", "u"),
            ],
            |x| 1.0 + x.exp(),
            5.0,
            &[],
            &["p", "n", "q", "u"],
        ),
        (
            "slope",
            vec![
                unary("Tanh", "h", "t"),
                binary("Mul", "t", "t", "s"),
                binary("Sub", "one", "s", "q"),
                binary("Add", "q", "e", "r"),
                unary("Log", "r", "u"),
            ],
            |x| (1.0 - x.tanh().powi(2) + 1e-6).ln(),
            4.0,
            &[],
            &["t", "s", "q", "r"],
        ),
        (
            "root",
            vec![
                unary("Cos", "h", "t"),
                binary("Mul", "t", "t", "s"),
                binary("Sub", "one", "s", "q"),
                unary("Sqrt", "q", "r"),
                unary("Reciprocal", "r", "u"),
            ],
            |x| 1.0 / x.sin().abs(),
            0.0625,
            &[],
            &["t", "s", "q", "r", "u"],
        ),
        (
            "difference",
            vec![unary("Exp", "h", "p"), binary("Sub", "p", "one", "q"), binary("Div", "q", "h", "u")],
            |x| x.exp_m1() / x,
            0.001953125,
            &[],
            &["p", "q", "u"],
        ),
        ("inverse", vec![unary("Tanh", "h", "p"), unary("Atanh", "p", "u")], |x| x, 3.5, &[], &["p", "u"]),
        (
            "gate",
            vec![unary("Sigmoid", "h", "p"), binary("Sub", "one", "p", "q"), binary("Mul", "h", "q", "u")],
            |x| x / (1.0 + x.exp()),
            0.5,
            &["p", "q", "u"],
            &[],
        ),
    ];
    for pack in ["onnx", "onnx-bf16"] {
        for (name, middle, right, x, low, full) in &cases {
            let numbers = [*x, *x, *x, *x].map(|x| x as f32);
            let wanted = [right(*x); 4];
            check(name, &between(middle, &one(), 17), &rows(numbers), &wanted, low, full, &policy(pack));
        }
    }
}

/// A row of zeros divided by its bounded length is 0, and [3, 4] is [0.6, 0.8].
#[test]
fn small_bounds_reach_the_division() {
    let norm = || node("ReduceL2", &["h"], "n", &[axes(&[1])]);
    let div = |by| node("Div", &["h", by], "u", &[]);
    let squares = || node("ReduceSumSquare", &["h"], "q", &[axes(&[1])]);
    let e = |number| vec![scalar("e", number)];
    for (name, middle, constants, full) in [
        ("clip", vec![norm(), node("Clip", &["n", "e"], "c", &[]), div("c")], e(1e-12), &["c", "u"][..]),
        ("max", vec![norm(), node("Max", &["n", "e"], "c", &[]), div("c")], e(1e-12), &["c", "u"]),
        ("sum", vec![norm(), node("Add", &["n", "e"], "c", &[]), div("c")], e(1e-12), &["c", "u"]),
        (
            "where",
            vec![
                norm(),
                node("Less", &["n", "e"], "b", &[]),
                node("Where", &["b", "e", "n"], "c", &[]),
                node("Identity", &["c"], "i", &[]),
                div("i"),
            ],
            e(1e-12),
            &["c", "u"],
        ),
        (
            "root",
            vec![squares(), node("Max", &["q", "e"], "c", &[]), node("Sqrt", &["c"], "r", &[]), div("r")],
            e(1e-24),
            &["c", "r", "u"],
        ),
        (
            "reciprocal root",
            vec![
                squares(),
                node("Add", &["q", "e"], "c", &[]),
                node("Sqrt", &["c"], "r", &[]),
                node("Reciprocal", &["r"], "i", &[]),
                node("Mul", &["h", "i"], "u", &[]),
            ],
            e(1e-20),
            &["c", "r", "i", "u"],
        ),
        // The bound is in range, and its reciprocal is not.
        (
            "reciprocal",
            vec![
                norm(),
                node("Clip", &["n", "e"], "c", &[]),
                node("Reciprocal", &["c"], "i", &[]),
                node("Mul", &["h", "i"], "u", &[]),
            ],
            e(1e-6),
            &["i", "u"],
        ),
        (
            "power",
            vec![
                squares(),
                node("Add", &["q", "e"], "c", &[]),
                node("Pow", &["c", "half"], "i", &[]),
                node("Mul", &["h", "i"], "u", &[]),
            ],
            vec![scalar("e", 1e-20), scalar("half", -0.5)],
            &["c", "i", "u"],
        ),
    ] {
        let model = between(&middle, &constants, 17);
        check(name, &model, &rows([3.0, 4.0, 0.0, 0.0]), &[0.6, 0.8, 0.0, 0.0], &["h", "y"], full, &policy("onnx"));
        // bfloat16 has the range of float32.
        let plan = model.plan(&policy("onnx-bf16")).unwrap();
        assert!(plan.decision("y").unwrap().dtype == DType::Bf16, "{name}");
    }
    // A bound that is one number of many.
    let table = || vec![floats("table", &[3], &[1e-12, 1.0, 2.0]), ints("0", &[1], &[0]), ints("1", &[1], &[1])];
    let ones = || ints("sizes", &[2], &[1, 2]);
    for (op, node_of_it) in [
        ("Gather", node("Gather", &["table", "0"], "e", &[])),
        ("GatherElements", node("GatherElements", &["table", "0"], "e", &[])),
        ("Slice", node("Slice", &["table", "0", "1"], "e", &[])),
        ("Split", nodes("Split", &["table", "sizes"], &["e", "rest"], &[])),
    ] {
        let moved = node("Unsqueeze", &["e", "0"], "f", &[]);
        let middle = [norm(), node_of_it, moved, node("Add", &["n", "f"], "c", &[]), div("c")];
        let constants: Vec<Message> = table().into_iter().chain([ones()]).collect();
        let model = between(&middle, &constants, 17);
        check(
            op,
            &model,
            &rows([3.0, 4.0, 0.0, 0.0]),
            &[0.6, 0.8, 0.0, 0.0],
            &["h", "y"],
            &["c", "u"],
            &policy("onnx"),
        );
        // The others fit.
        let one = node("Gather", &["table", "1"], "e", &[]);
        let fits = [node("Relu", &["h"], "n", &[]), one, node("Add", &["n", "e"], "c", &[]), div("c")];
        let plan = between(&fits, &constants, 17);
        assert!(plan.plan(&policy("onnx")).unwrap().decision("u").unwrap().dtype.is_low(), "{op}");
    }
    // Before opset 11 the bound is an attribute.
    let least = build::float("min", 1e-12);
    let model = between(&[norm(), node("Clip", &["n"], "c", &[least]), div("c")], &[], 10);
    check(
        "attribute",
        &model,
        &rows([3.0, 4.0, 0.0, 0.0]),
        &[0.6, 0.8, 0.0, 0.0],
        &["h", "y"],
        &["u"],
        &policy("onnx"),
    );
    // A bound that float16 holds keeps nothing, and neither does a small number that nothing divides by.
    let fits = between(&[node("Clip", &["h", "e"], "c", &[]), div("c")], &e(1e-3), 17);
    let unread = between(&[node("Clip", &["h", "e"], "c", &[]), node("Tanh", &["c"], "u", &[])], &e(1e-12), 17);
    for node in ["c", "u"] {
        assert!(fits.plan(&policy("onnx")).unwrap().decision(node).unwrap().dtype.is_low(), "{node}");
    }
    let unread = unread.plan(&policy("onnx")).unwrap();
    assert!(!unread.decisions().iter().any(|node| node.to_string().contains("division")));
}

/// Large factors are taken back after a product: the result is `x`, in range.
#[test]
fn factors_and_divisors_reach_the_next_product() {
    let product = |from, to| node("MatMul", &[from, "eye"], to, &[]);
    for (name, middle, constants, full) in [
        (
            "factor",
            vec![node("Mul", &["h", "k"], "a", &[]), product("a", "p"), node("Mul", &["p", "back"], "u", &[])],
            vec![scalar("k", 1e6), scalar("back", 1e-6)],
            &["a", "p", "u"][..],
        ),
        (
            "divisor",
            vec![node("Div", &["h", "k"], "a", &[]), product("a", "p"), node("Mul", &["p", "k"], "u", &[])],
            vec![scalar("k", 1e-6)],
            &["a", "p", "u"],
        ),
        (
            "reciprocal",
            vec![
                node("Reciprocal", &["k"], "r", &[]),
                node("Mul", &["h", "r"], "a", &[]),
                product("a", "p"),
                node("Mul", &["p", "k"], "u", &[]),
            ],
            vec![scalar("k", 1e-7)],
            &["a", "p", "u"],
        ),
        (
            "factor of a product",
            vec![
                nodes("Gemm", &["h", "eye"], &["a"], &[float("alpha", 1e6)]),
                product("a", "p"),
                node("Mul", &["p", "back"], "u", &[]),
            ],
            vec![scalar("back", 1e-6)],
            &["a", "p", "u"],
        ),
        (
            "small factor of a product",
            vec![nodes("Gemm", &["h", "eye"], &["a"], &[float("alpha", 1e-9)]), node("Mul", &["a", "back"], "u", &[])],
            vec![scalar("back", 1e9)],
            &["a", "u"],
        ),
        (
            "slope",
            vec![
                node("Neg", &["h"], "n", &[]),
                nodes("PRelu", &["n", "k"], &["a"], &[]),
                product("a", "p"),
                node("Mul", &["p", "back"], "b", &[]),
                node("Neg", &["b"], "c", &[]),
                node("Where", &["is_above", "c", "h"], "u", &[]),
            ],
            vec![scalar("k", 1e6), scalar("back", 1e-6), truths("is_above", &[2, 2], &[1, 0, 1, 1])],
            &["a", "p", "b"],
        ),
        // Neither factor is out of range.
        (
            "two factors",
            vec![
                node("Mul", &["h", "k"], "a", &[]),
                node("Mul", &["a", "k"], "b", &[]),
                product("b", "p"),
                node("Div", &["p", "k"], "c", &[]),
                node("Div", &["c", "k"], "u", &[]),
            ],
            vec![scalar("k", 1000.0)],
            &["b", "p"],
        ),
        (
            "two small factors",
            vec![
                node("Mul", &["h", "k"], "a", &[]),
                node("Mul", &["a", "k"], "b", &[]),
                product("b", "p"),
                node("Div", &["p", "k"], "c", &[]),
                node("Div", &["c", "k"], "u", &[]),
            ],
            vec![scalar("k", 1e-5)],
            &["b", "p"],
        ),
    ] {
        let model = between(&middle, &constants, 17);
        let x = [3.0, -4.0, 0.5, 0.25];
        check(name, &model, &rows(x), &x.map(f64::from), &["h", "y"], full, &policy("onnx"));
    }
    // A mask is meant to be large, and what it is added to goes through a softmax.
    let mask = [
        node("Sub", &["one", "h"], "a", &[]),
        node("Mul", &["a", "k"], "b", &[]),
        node("Add", &["h", "b"], "c", &[]),
        node("Softmax", &["c"], "u", &[]),
    ];
    let model = between(&mask, &[scalar("one", 1.0), scalar("k", -1e9)], 17);
    assert!(model.plan(&policy("onnx")).unwrap().decision("y").unwrap().dtype.is_low());
}

/// The length of [1800, 2400] is 3000, and its squares are beyond float16.
#[test]
fn squares_are_f32_up_to_the_sum_or_the_root() {
    let mul = |a, b, to| node("Mul", &[a, b], to, &[]);
    let sum = |of, to| nodes("ReduceSum", &[of, "axis"], &[to], &[int("keepdims", 1)]);
    let axis = || ints("axis", &[1], &[1]);
    let root = |of, to| node("Sqrt", &[of], to, &[]);
    let div = |by| node("Div", &["h", by], "u", &[]);
    let part = |from, to, name| node("Slice", &["h", from, to, "axis"], name, &[]);
    let ends = || vec![axis(), ints("0", &[1], &[0]), ints("1", &[1], &[1]), ints("2", &[1], &[2])];
    let magnitude = vec![
        part("0", "1", "re"),
        part("1", "2", "im"),
        mul("re", "re", "a"),
        mul("im", "im", "b"),
        node("Add", &["a", "b"], "c", &[]),
        root("c", "r"),
        div("r"),
    ];
    let moved = vec![
        node("Abs", &["h"], "a", &[]),
        node("Identity", &["a"], "i", &[]),
        mul("a", "i", "b"),
        mul("b", "sign", "c"),
        node("Reshape", &["c", "shape"], "d", &[]),
        sum("d", "s"),
        root("s", "r"),
        div("r"),
    ];
    let shape = vec![axis(), ints("shape", &[2], &[2, 2]), floats("sign", &[1], &[1.0])];
    let weights = |number| floats("ones", &[2, 2], &[1.0, number, 1.0, 1.0]);
    let weighted = || vec![mul("h", "h", "q"), node("MatMul", &["q", "ones"], "s", &[]), root("s", "r"), div("r")];
    for (name, middle, constants, full) in [
        ("sum", vec![mul("h", "h", "q"), sum("q", "s"), root("s", "r"), div("r")], vec![axis()], &["q"][..]),
        ("magnitude", magnitude, ends(), &["a", "b", "c", "r"]),
        ("moved", moved, shape, &["b", "c", "d"]),
        ("weights", weighted(), vec![weights(1.0)], &["q", "s"]),
        (
            "product",
            vec![
                nodes("Einsum", &["h", "h"], &["q"], &[text("equation", "bi,bi->b")]),
                root("q", "r0"),
                nodes("Unsqueeze", &["r0", "axis"], &["r"], &[]),
                div("r"),
            ],
            vec![axis()],
            &["q", "r0"],
        ),
    ] {
        let model = between(&middle, &constants, 17);
        let x = [1800.0, 2400.0, -3000.0, 4000.0];
        check(name, &model, &rows(x), &[0.6, 0.8, -0.6, 0.8], &["h", "y"], full, &policy("onnx"));
    }
    // A cube, as in a GELU, and a gate run low.
    let cube = between(&[mul("h", "h", "q"), mul("q", "h", "u")], &[], 17);
    let gate = [
        node("Sigmoid", &["h"], "g", &[]),
        mul("h", "g", "q"),
        sum("q", "s"),
        nodes("Expand", &["s", "shape"], &["u"], &[]),
    ];
    let gate = between(&gate, &[axis(), ints("shape", &[2], &[2, 2])], 17);
    for model in [&cube, &gate] {
        assert!(model.plan(&policy("onnx")).unwrap().decision("q").unwrap().dtype.is_low());
    }
}

/// Pairs of numbers at a distance of 1 and 2 are -1 and 1 from their mean, in units of their deviation.
#[test]
fn variances_of_means_by_products_are_f32() {
    let binary = |op, a, b, to| node(op, &[a, b], to, &[]);
    let moved = |from, to, name| node("Reshape", &[from, to], name, &[]);
    for (op, weights) in [("MatMul", &[2i64, 2][..]), ("Conv", &[1, 1, 1, 2])] {
        let middle = [
            moved("h", if op == "Conv" { "image" } else { "matrix" }, "x0"),
            binary("Mul", "x0", "x0", "q"),
            binary(op, "q", "weights", "e"),
            binary(op, "x0", "weights", "m"),
            binary("Mul", "m", "m", "s"),
            binary("Sub", "e", "s", "v"),
            node("Sqrt", &["v"], "r", &[]),
            binary("Sub", "x0", "m", "d"),
            binary("Div", "d", "r", "z"),
            moved("z", "matrix", "u"),
        ];
        let half = vec![0.5; weights.iter().product::<i64>() as usize];
        let constants =
            [ints("matrix", &[2], &[2, 2]), ints("image", &[4], &[2, 1, 1, 2]), floats("weights", weights, &half)];
        let model = between(&middle, &constants, 17);
        let full = ["q", "e", "m", "s", "v", "r", "d"];
        let x = rows([100.0, 101.0, 302.0, 300.0]);
        check(op, &model, &x, &[-1.0, 1.0, 1.0, -1.0], &["h", "y"], &full, &policy("onnx"));
    }
    // Layers have weights of both signs.
    let gated = [
        binary("MatMul", "h", "eye", "a"),
        binary("MatMul", "h", "signs", "b"),
        binary("Mul", "b", "b", "c"),
        binary("Sub", "a", "c", "d"),
        node("Tanh", &["d"], "u", &[]),
    ];
    let plan = between(&gated, &[floats("signs", &[2, 2], &[1.0, -1.0, 1.0, 1.0])], 17);
    let plan = plan.plan(&policy("onnx")).unwrap();
    assert!(["a", "b", "c", "d", "u"].iter().all(|node| plan.decision(node).unwrap().dtype.is_low()));
}

/// Positions above 2048, and above 256, have the angles of float64.
#[test]
fn angles_are_f32_back_to_positions_and_times() {
    let cast = node("Cast", &["pos"], "p", &[int("to", FLOAT)]);
    let pos = [1i64, 257, 2049, 40001];
    let cos = |scale: f64| pos.map(|at| (at as f64 * scale).cos());
    let end = |from| {
        [node("Transpose", &[from], "t", &[]), node("Cos", &["t"], "c", &[]), node("MatMul", &["c", "w"], "y", &[])]
    };
    let w = floats("w", &[1, 1], &[1.0]);
    for (name, middle, freq, full) in [
        ("matmul", vec![node("MatMul", &["f", "p"], "a", &[])], floats("f", &[1, 1], &[0.5]), &["p", "a"][..]),
        ("gemm", vec![node("Gemm", &["f", "p"], "a", &[])], floats("f", &[1, 1], &[0.5]), &["p", "a"]),
        (
            "chosen",
            vec![
                node("Where", &["is_long", "f", "z"], "g", &[]),
                node("MatMul", &["g", "p"], "b", &[]),
                node("Max", &["b", "z"], "a", &[]),
            ],
            floats("f", &[1, 1], &[0.5]),
            &["p", "b", "a"],
        ),
        (
            "scaled",
            vec![
                node("MatMul", &["f", "p"], "b", &[]),
                node("Mul", &["b", "b2"], "d", &[]),
                node("Add", &["d", "z"], "a", &[]),
            ],
            floats("f", &[1, 1], &[0.25]),
            &["p", "b", "d", "a"],
        ),
    ] {
        let all: Vec<Message> = std::iter::once(cast.clone()).chain(middle).chain(end("a")).collect();
        let is_long = truths("is_long", &[1, 1], &[1]);
        let constants = [w.clone(), freq, scalar("b2", 2.0), scalar("z", 0.0), is_long];
        let io = [value("pos", INT64, &["1", "4"]), value("y", FLOAT, &["4", "1"])];
        let model = build::model(&graph(&all, &constants, &io[..1], &io[1..]), 17);
        let x = [("pos", Tensor::from_vec(pos.to_vec(), &[1, 4]).unwrap())];
        for policy in ["onnx", "onnx-bf16"].map(policy) {
            check(name, &model, &x, &cos(0.5), &["y"], full, &policy);
        }
    }
    // The sine of a hidden layer is one of activations, not of positions.
    let hidden = [
        node("MatMul", &["h", "eye"], "a", &[]),
        node("Relu", &["a"], "r", &[]),
        node("MatMul", &["r", "eye"], "b", &[]),
        node("Sin", &["b"], "u", &[]),
    ];
    let plan = between(&hidden, &[], 17);
    let plan = plan.plan(&policy("onnx")).unwrap();
    assert!(["h", "a", "b"].iter().all(|node| plan.decision(node).unwrap().dtype.is_low()));
}

/// Positions above 2048 have the remainders of float64.
#[test]
fn remainders_are_f32_back_to_positions_and_times() {
    let pos = [1i64, 257, 2049, 40001];
    let wanted = pos.map(|at| (at as f64 * f64::from(0.3f32)).fract());
    let w = floats("w", &[1, 1], &[1.0]);
    let rounded = vec![node("Floor", &["a"], "whole", &[]), node("Sub", &["a", "whole"], "r", &[])];
    for middle in [rounded, vec![node("Mod", &["a", "w"], "r", &[int("fmod", 1)])]] {
        let first = [node("Cast", &["pos"], "p", &[int("to", FLOAT)]), node("MatMul", &["p", "f"], "a", &[])];
        let all: Vec<Message> =
            first.into_iter().chain(middle).chain([node("MatMul", &["r", "w"], "y", &[])]).collect();
        let io = [value("pos", INT64, &["4", "1"]), value("y", FLOAT, &["4", "1"])];
        let model = build::model(&graph(&all, &[w.clone(), floats("f", &[1, 1], &[0.3])], &io[..1], &io[1..]), 17);
        let x = [("pos", Tensor::from_vec(pos.to_vec(), &[4, 1]).unwrap())];
        check("remainder", &model, &x, &wanted, &["y"], &["p", "a", "r"], &policy("onnx"));
    }
}

/// Counts by a product with a triangle of ones: 1001, 2001 and 3001, of which float16 has none but the first.
#[test]
fn integers_are_exact_through_products() {
    let all = [
        node("Cast", &["n"], "f", &[int("to", FLOAT)]),
        node("MatMul", &["ones", "f"], "c", &[]),
        node("Cast", &["c"], "y", &[int("to", INT64)]),
        node("MatMul", &["x", "w"], "z", &[]),
    ];
    let ones = floats("ones", &[3, 3], &[1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]);
    let inputs = [value("n", INT64, &["3", "1"]), value("x", FLOAT, &["1", "1"])];
    let outputs = [value("y", INT64, &["3", "1"]), value("z", FLOAT, &["1", "1"])];
    let model = build::model(&graph(&all, &[ones, floats("w", &[1, 1], &[1.0])], &inputs, &outputs), 17);
    let x = [
        ("n", Tensor::from_vec(vec![1001i64, 1000, 1000], &[3, 1]).unwrap()),
        ("x", Tensor::ones(&[1, 1], DType::F32)),
    ];
    let plan = model.plan(&policy("onnx")).unwrap();
    assert_eq!(plan.decision("c").unwrap().to_string(), "MatMul f32: leads to an integer (y)");
    let bytes = plan.to_bytes(&OnnxConvertOptions::new()).unwrap();
    assert_eq!(OnnxModel::from_bytes(bytes).unwrap().run(&x).unwrap()[0].1.to_f64(), [1001.0, 2001.0, 3001.0]);
    // The length of what is left depends on the numbers.
    for (op, inputs, outputs) in [("NonZero", &["s"][..], &["u0"][..]), ("Unique", &["s"], &["u0"])] {
        let all = [node("Mul", &["h", "k"], "s", &[]), nodes(op, inputs, outputs, &[]), node("Relu", &["h"], "u", &[])];
        let model = between(&all, &[scalar("k", 1e-5)], 17);
        let met = model.plan(&policy("onnx")).unwrap().decision("s").unwrap().to_string();
        assert_eq!(met, "Mul f32: leads to a length (u0)");
    }
}

/// A loop of a body, whose states are a counter `t`, which is its condition as well, and a sum `s`.
fn looped(policy: &str, words: &str) -> precast::Result<Vec<(String, bool)>> {
    let inner = graph(
        &[
            node("Add", &["t", "one"], "t2", &[]),
            node("MatMul", &["h", "eye"], "p", &[]),
            node("Add", &["p", "s"], "s2", &[]),
            node("MatMul", &["o", "eye"], "q", &[]),
            node("Tanh", &["q"], "o2", &[]),
            node("Less", &["t2", "most"], "go", &[]),
        ],
        &[],
        &[
            value("i", INT64, &[]),
            value("c", BOOL, &[]),
            value("t", FLOAT, &[]),
            value("s", FLOAT, &["2", "2"]),
            value("o", FLOAT, &["2", "2"]),
        ],
        &[
            value("go", BOOL, &[]),
            value("t2", FLOAT, &[]),
            value("s2", FLOAT, &["2", "2"]),
            value("o2", FLOAT, &["2", "2"]),
        ],
    );
    let truth = truths("true", &[], &[1]);
    let middle = [
        nodes("ReduceMax", &["h"], &["t0"], &[int("keepdims", 0)]),
        nodes("Loop", &["m", "true", "t0", "zero", "h"], &["tn", "sn", "on"], &[body("body", &inner)]),
        node("Mul", &["on", "tn"], "v", &[]),
        node("MatMul", &["v", "eye"], "w", &[]),
        node("Add", &["w", "sn"], "u", &[]),
    ];
    let constants = [
        ints("m", &[], &[10_000]),
        truth,
        scalar("one", 1.0),
        scalar("most", 3000.0),
        floats("zero", &[2, 2], &[0.0; 4]),
    ];
    let model = between(&middle, &constants, 17);
    let text = format!("version: 1\npack: {policy}\ndtype: float16\ngraph: {{}}\nrules: [{words}]\n");
    let plan = model.plan(&GraphPolicy::parse(&text, "p.yaml")?)?;
    // The declared types of the states of the body.
    let bytes = plan.to_bytes(&OnnxConvertOptions::new())?;
    Ok(super::pb::body_inputs(&bytes, "Loop").into_iter().map(|(name, elem)| (name, elem == "float16")).collect())
}

#[test]
fn conditions_and_sums_that_a_loop_carries_are_f32() {
    let states = |words| {
        let all = looped("onnx-1", words).unwrap();
        all.into_iter().filter(|(_, low)| *low).map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(states(""), ["o"]);
    // A rule holds for the states.
    assert_eq!(states("{ op: Loop, run: float32 }"), Vec::<String>::new());
    let message = looped("onnx-1", "{ op: Loop, run: low }").unwrap_err().to_string();
    assert!(message.contains("a rule runs it low, and it computes nothing itself"), "{message}");
}

/// The nodes that make the values of a node with bodies are float32 with them.
#[test]
fn a_rule_for_a_node_with_bodies_holds_for_what_makes_its_values() {
    let state = |name: &str| value(name, FLOAT, &["2", "2"]);
    let inner = graph(
        &[
            node("Mul", &["s", "step"], "t", &[]),
            node("Transpose", &["t"], "s2", &[]),
            node("Identity", &["c"], "go", &[]),
        ],
        &[],
        &[value("i", INT64, &[]), value("c", BOOL, &[]), state("s")],
        &[value("go", BOOL, &[]), state("s2")],
    );
    let branch = |op, name| {
        let nodes = [node(op, &["h", "step"], name, &[]), node("Transpose", &[name], &format!("{name}2"), &[])];
        body(
            if op == "Mul" { "then_branch" } else { "else_branch" },
            &graph(&nodes, &[], &[], &[state(&format!("{name}2"))]),
        )
    };
    let constants = [ints("m", &[], &[10]), truths("true", &[], &[1]), scalar("step", 1.0 + 1.0 / 4096.0)];
    for (op, middle, makers) in [
        ("Loop", nodes("Loop", &["m", "true", "h"], &["u"], &[body("body", &inner)]), &["t", "s2"][..]),
        ("If", nodes("If", &["true"], &["u"], &[branch("Mul", "a"), branch("Div", "b")]), &["a", "a2", "b", "b2"]),
    ] {
        let model = between(&[middle], &constants, 17);
        for (rules, is_low) in [("", true), (&format!("{{ op: {op}, run: float32 }}")[..], false)] {
            let text = format!("version: 1\npack: onnx-1\ndtype: float16\ngraph: {{}}\nrules: [{rules}]\n");
            let plan = model.plan(&GraphPolicy::parse(&text, "p.yaml").unwrap()).unwrap();
            for maker in makers {
                let met = plan.decision(maker).unwrap();
                assert_eq!(met.dtype.is_low(), is_low, "{op}: {maker} {met}");
            }
        }
    }
}

/// A moving average of 4,000 rounds ends near what it averages.
#[test]
fn moving_averages_that_a_loop_carries_are_f32() {
    let inner = graph(
        &[
            node("Mul", &["s", "keep"], "a", &[]),
            node("Mul", &["h", "new"], "b", &[]),
            node("Add", &["a", "b"], "s2", &[]),
            node("Identity", &["c"], "go", &[]),
        ],
        &[],
        &[value("i", INT64, &[]), value("c", BOOL, &[]), value("s", FLOAT, &["2", "2"])],
        &[value("go", BOOL, &[]), value("s2", FLOAT, &["2", "2"])],
    );
    let middle = [nodes("Loop", &["m", "true", "zero"], &["u"], &[body("body", &inner)])];
    let constants = [
        ints("m", &[], &[4000]),
        truths("true", &[], &[1]),
        floats("zero", &[2, 2], &[0.0; 4]),
        scalar("keep", 0.999),
        scalar("new", 0.001),
    ];
    let share = 1.0 - 0.999f64.powi(4000);
    let x = [3.0, -4.0, 0.5, 0.25];
    for pack in ["onnx", "onnx-bf16"] {
        let model = between(&middle, &constants, 17);
        check("average", &model, &rows(x), &x.map(|x| share * f64::from(x)), &["h", "y"], &[], &policy(pack));
    }
}

/// The state of a sum is the last operand of a `Gemm`, to which 4,000 rounds add 0.001 of a product.
#[test]
fn sums_that_a_gemm_adds_to_are_f32() {
    let inner = graph(
        &[node("Gemm", &["h", "part", "s"], "s2", &[]), node("Identity", &["c"], "go", &[])],
        &[],
        &[value("i", INT64, &[]), value("c", BOOL, &[]), value("s", FLOAT, &["2", "2"])],
        &[value("go", BOOL, &[]), value("s2", FLOAT, &["2", "2"])],
    );
    let middle = [nodes("Loop", &["m", "true", "zero"], &["u"], &[body("body", &inner)])];
    let constants = [
        ints("m", &[], &[4000]),
        truths("true", &[], &[1]),
        floats("zero", &[2, 2], &[0.0; 4]),
        floats("part", &[2, 2], &[0.001, 0.0, 0.0, 0.001]),
    ];
    let x = [3.0, -4.0, 0.5, 0.25];
    let model = between(&middle, &constants, 17);
    check("gemm", &model, &rows(x), &x.map(|x| 4.0 * f64::from(x)), &["h", "y"], &[], &policy("onnx"));
}

/// States of 3,000 rounds that gates, factors and products carry, as in an LSTM, a GRU and a linear recurrence.
#[test]
fn states_that_gates_and_products_carry_are_f32() {
    let binary = |op, a, b, to| node(op, &[a, b], to, &[]);
    let gate = || node("Sigmoid", &["h"], "g", &[]);
    let left = || [binary("Sub", "one", "g", "z"), binary("Mul", "z", "two", "b")];
    let gated = || vec![binary("Mul", "g", "s", "a"), binary("Add", "a", "b", "s2")];
    let around = |inner: Vec<Message>| [vec![gate()], left().to_vec(), inner].concat();
    let rounds = 3000;
    let average = |x: f64| 2.0 * (1.0 - (1.0 / (1.0 + (-x).exp())).powi(rounds));
    let decay = |x: f64| {
        let keep = f64::from(0.9995f32);
        0.001 * x * (1.0 - keep.powi(rounds)) / (1.0 - keep)
    };
    // A name, the nodes before the loop and in it, the first state, the closed form, and the nodes in 32 bits.
    type Case<'a> = (&'a str, Vec<Message>, Vec<Message>, &'a str, &'a dyn Fn(f64) -> f64, &'a [&'a str]);
    let cases: [Case<'_>; 6] = [
        ("gate", vec![], around(gated()), "zero", &average, &["g", "z", "a", "s2"]),
        ("gate outside", [vec![gate()], left().to_vec()].concat(), gated(), "zero", &average, &["g", "z", "a", "s2"]),
        (
            "difference",
            vec![],
            vec![
                gate(),
                binary("Sub", "s", "twos", "d"),
                binary("Mul", "g", "d", "e"),
                binary("Add", "twos", "e", "s2"),
            ],
            "zero",
            &average,
            &["g", "d", "e", "s2"],
        ),
        (
            "factor",
            vec![binary("Mul", "h", "small", "t"), binary("Add", "t", "one", "f")],
            vec![binary("Mul", "s", "f", "s2")],
            "ones",
            &|x| (1.0 + 1e-4 * x).powi(rounds),
            &["f", "s2"],
        ),
        (
            "product",
            vec![],
            vec![
                binary("MatMul", "s", "keep", "a"),
                binary("Mul", "h", "thousandth", "b"),
                binary("Add", "a", "b", "s2"),
            ],
            "zero",
            &decay,
            &["a", "s2"],
        ),
        // A layer forgets.
        (
            "layer",
            vec![],
            vec![binary("MatMul", "s", "eye", "a"), binary("Add", "a", "h", "b"), node("Tanh", &["b"], "s2", &[])],
            "zero",
            &|x| (0..rounds).fold(0.0, |s, _| f64::tanh(s + x)),
            &[],
        ),
    ];
    for (name, before, inner, first, right, full) in cases {
        let inner: Vec<Message> = inner.into_iter().chain([node("Identity", &["c"], "go", &[])]).collect();
        let state = |name| value(name, FLOAT, &["2", "2"]);
        let inner = graph(
            &inner,
            &[],
            &[value("i", INT64, &[]), value("c", BOOL, &[]), state("s")],
            &[value("go", BOOL, &[]), state("s2")],
        );
        let looped = nodes("Loop", &["m", "true", first], &["u"], &[body("body", &inner)]);
        let middle: Vec<Message> = before.into_iter().chain([looped]).collect();
        let constants = [
            ints("m", &[], &[i64::from(rounds)]),
            truths("true", &[], &[1]),
            scalar("one", 1.0),
            scalar("two", 2.0),
            scalar("small", 1e-4),
            scalar("thousandth", 0.001),
            floats("zero", &[2, 2], &[0.0; 4]),
            floats("ones", &[2, 2], &[1.0; 4]),
            floats("twos", &[2, 2], &[2.0; 4]),
            floats("keep", &[2, 2], &[0.9995, 0.0, 0.0, 0.9995]),
        ];
        let model = between(&middle, &constants, 17);
        let x = [7.0, 6.5, 5.0, 7.5];
        let low = if full.is_empty() { &["h", "y", "a", "s2"][..] } else { &["h", "y"] };
        check(name, &model, &rows(x), &x.map(|x| right(f64::from(x))), low, full, &policy("onnx"));
    }
}

/// The gates of 3,000 rounds are computed before the `Scan` that reads them.
#[test]
fn gates_that_a_scan_reads_are_f32() {
    let inner = graph(
        &[
            node("Mul", &["gi", "s"], "a", &[]),
            node("Sub", &["one", "gi"], "z", &[]),
            node("Mul", &["z", "two"], "b", &[]),
            node("Add", &["a", "b"], "s2", &[]),
        ],
        &[],
        &[value("s", FLOAT, &["2", "2"]), value("gi", FLOAT, &["2", "2"])],
        &[value("s2", FLOAT, &["2", "2"])],
    );
    let middle = [
        node("Expand", &["h", "shape"], "all", &[]),
        node("Sigmoid", &["all"], "g", &[]),
        nodes("Scan", &["zero", "g"], &["u"], &[body("body", &inner), int("num_scan_inputs", 1)]),
    ];
    let constants = [
        ints("shape", &[3], &[3000, 2, 2]),
        scalar("one", 1.0),
        scalar("two", 2.0),
        floats("zero", &[2, 2], &[0.0; 4]),
    ];
    let x = [7.0, 6.5, 5.0, 7.5];
    let wanted = x.map(|x| 2.0 * (1.0 - (1.0 / (1.0 + (-f64::from(x)).exp())).powi(3000)));
    let model = between(&middle, &constants, 17);
    check("scan", &model, &rows(x), &wanted, &["h", "y"], &["g", "z", "a", "s2"], &policy("onnx"));
}

/// Functions that end in 0 as divisors, and in logarithms.
#[test]
fn what_vanishes_reaches_the_division() {
    let unary = |op, from, to| node(op, &[from], to, &[]);
    for (op, middle, right) in [
        (
            "Sigmoid",
            vec![unary("Neg", "p", "n"), unary("Reciprocal", "n", "u")],
            (|x| -1.0 - f64::exp(-x)) as fn(f64) -> f64,
        ),
        ("Softplus", vec![unary("Transpose", "p", "t"), unary("Transpose", "t", "n"), unary("Log", "n", "u")], |x| {
            x.exp().ln_1p().ln()
        }),
    ] {
        let middle: Vec<Message> = std::iter::once(unary(op, "h", "p")).chain(middle).collect();
        let x = [-10.0, -9.0, 1.0, 0.5];
        let model = between(&middle, &[], 17);
        check(op, &model, &rows(x), &x.map(|x| right(f64::from(x))), &["h", "y"], &["p", "n"], &policy("onnx"));
    }
}

/// Runtimes compute a clip of bfloat16 by its function, which has the dtype from opset 16 on.
#[test]
fn a_clip_of_an_early_opset_has_no_bfloat16() {
    let middle = [node("Clip", &["h", "low", "high"], "u", &[])];
    for (pack, opset, is_low) in [("onnx-bf16", 13, false), ("onnx-bf16", 16, true), ("onnx", 13, true)] {
        let model = between(&middle, &[scalar("low", -1.0), scalar("high", 1.0)], opset);
        let plan = model.plan(&policy(pack)).unwrap();
        assert_eq!(plan.decision("u").unwrap().dtype.is_low(), is_low, "{pack} {opset}");
    }
}

/// 4,096 numbers of 30 add up to 122,880.
#[test]
fn an_einsum_that_only_adds_is_a_sum() {
    for (equation, is_sum) in [("ij->j", true), ("ii", true), ("i...->...", true), ("ij->ji", false), ("ii->i", false)]
    {
        let first = node("MatMul", &["x", "w"], "h", &[]);
        let nodes = [first, nodes("Einsum", &["h"], &["y"], &[text("equation", equation)])];
        let (x, y) = (value("x", FLOAT, &["n", "1"]), value("y", FLOAT, &["k"]));
        let model = build::model(&graph(&nodes, &[floats("w", &[1, 1], &[1.0])], &[x], &[y]), 17);
        let met = model.plan(&policy("onnx")).unwrap().decision("y").unwrap().clone();
        assert_eq!(met.dtype.is_low(), !is_sum, "{equation}: {met}");
        if equation == "ij->j" {
            let x = [("x", Tensor::full(&[4096, 1], 30.0, DType::F32))];
            check(equation, &model, &x, &[122_880.0], &["h"], &["y"], &policy("onnx"));
        }
    }
    // One of squares.
    let middle = [
        node("Mul", &["h", "h"], "q", &[]),
        nodes("Einsum", &["q"], &["s"], &[text("equation", "ij->i")]),
        node("Sqrt", &["s"], "r", &[]),
        node("Unsqueeze", &["r", "1"], "t", &[]),
        node("Div", &["h", "t"], "u", &[]),
    ];
    let model = between(&middle, &[ints("1", &[1], &[1])], 17);
    let x = rows([1800.0, 2400.0, -3000.0, 4000.0]);
    check("squares", &model, &x, &[0.6, 0.8, -0.6, 0.8], &["h", "y"], &["q", "s"], &policy("onnx"));
}

#[test]
fn sums_by_scattering_are_denied() {
    for (reduction, is_low) in [("add", false), ("mul", false), ("max", true), ("none", true)] {
        let middle = [nodes("ScatterElements", &["zero", "i", "h"], &["u"], &[text("reduction", reduction)])];
        let constants = [floats("zero", &[2, 2], &[0.0; 4]), ints("i", &[2, 2], &[0, 1, 0, 1])];
        let model = between(&middle, &constants, 18);
        let met = model.plan(&policy("onnx")).unwrap().decision("u").unwrap().clone();
        assert_eq!(met.dtype.is_low(), is_low, "{met}");
    }
}

/// An order, an overlap and a place in an image are those of the numbers, not of their 11 bits.
#[test]
fn what_is_compared_or_is_a_place_is_exact() {
    let middle = [
        node("Add", &["h", "thousand"], "s", &[]),
        nodes("TopK", &["s", "two"], &["v", "i"], &[]),
        node("Cast", &["i"], "u", &[int("to", FLOAT)]),
    ];
    let model = between(&middle, &[scalar("thousand", 1000.0), ints("two", &[1], &[2])], 17);
    let x = rows([1.0, 1.2, 1.2, 1.0]);
    check("top k", &model, &x, &[1.0, 0.0, 0.0, 1.0], &["h", "y"], &["s"], &policy("onnx"));
}

/// Integers with a scale are numbers as large as the scale says.
#[test]
fn dequantized_numbers_have_the_size_of_their_scale() {
    let middle = [
        node("Mul", &["h", "large"], "b", &[]),
        node("QuantizeLinear", &["b", "scale"], "q", &[]),
        node("DequantizeLinear", &["q", "other"], "d", &[]),
        node("MatMul", &["d", "eye"], "e", &[]),
        node("Mul", &["e", "small"], "u", &[]),
    ];
    let constants = [scalar("large", 100.0), scalar("scale", 2.0), scalar("other", 2000.0), scalar("small", 1e-5)];
    let model = between(&middle, &constants, 17);
    let x = rows([1.0, 2.0, 0.4, 0.8]);
    check("quantized", &model, &x, &[1.0, 2.0, 0.4, 0.8], &["h", "y"], &["d", "e"], &policy("onnx"));
    // A usual scale changes nothing.
    let usual = [scalar("large", 1.0), scalar("scale", 0.01), scalar("other", 0.01), scalar("small", 1.0)];
    let model = between(&middle, &usual, 17);
    let plan = model.plan(&policy("onnx")).unwrap();
    assert!(plan.decision("e").unwrap().dtype.is_low());
}
