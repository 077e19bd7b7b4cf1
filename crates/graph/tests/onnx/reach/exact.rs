//! Numbers that must be exact: positions, integers, places, and what has no bfloat16.

use super::*;

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
    // With the phases of a network, and frequencies times a time that it moves.
    for (name, middle) in [
        ("phase", vec![node("Mul", &["p", "f"], "b", &[]), node("Add", &["b", "phase"], "a", &[])]),
        ("moved", vec![node("Add", &["p", "moved"], "b", &[]), node("Mul", &["b", "f"], "a", &[])]),
    ] {
        let network = [
            node("MatMul", &["z", "w"], "n", &[]),
            node("Relu", &["n"], "r", &[]),
            node("MatMul", &["r", "w"], "phase", &[]),
            node("Add", &["phase", "phase"], "moved", &[]),
        ];
        let all: Vec<Message> = network.into_iter().chain([cast.clone()]).chain(middle).chain(end("a")).collect();
        let constants = [w.clone(), floats("f", &[1, 1], &[0.5])];
        let io = [value("pos", INT64, &["1", "4"]), value("z", FLOAT, &["1", "1"]), value("y", FLOAT, &["4", "1"])];
        let model = build::model(&graph(&all, &constants, &io[..2], &io[2..]), 17);
        let x = [
            ("pos", Tensor::from_vec(pos.to_vec(), &[1, 4]).unwrap()),
            ("z", Tensor::from_vec(vec![0.25f32], &[1, 1]).unwrap()),
        ];
        let wanted = pos.map(|at| (at as f64 * 0.5 + 0.25).cos());
        for policy in ["onnx", "onnx-bf16"].map(policy) {
            check(name, &model, &x, &wanted, &["phase", "y"], &["p", "b", "a"], &policy);
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

/// Coordinates and indices that a low product makes are noted, with what makes and reads them.
#[test]
fn places_that_come_from_a_low_product_are_noted() {
    let unary = |op, from, to| node(op, &[from], to, &[]);
    let io = |name, axes: &[&str]| value(name, FLOAT, axes);
    let grid = graph(
        &[
            node("MatMul", &["base", "theta"], "m", &[]),
            node("Reshape", &["m", "shape"], "g", &[]),
            node("GridSample", &["image", "g"], "y", &[]),
        ],
        &[floats("base", &[4, 1], &[-1.0, 0.0, 0.5, 1.0]), ints("shape", &[4], &[1, 2, 2, 2])],
        &[io("theta", &["1", "2"]), io("image", &["1", "1", "4", "4"])],
        &[io("y", &["1", "1", "2", "2"])],
    );
    let boxes = graph(
        &[node("MatMul", &["x", "w"], "m", &[]), nodes("NonMaxSuppression", &["m", "scores", "most"], &["y"], &[])],
        &[floats("w", &[4, 4], &[0.5; 16]), ints("most", &[1], &[5])],
        &[io("x", &["1", "n", "4"]), io("scores", &["1", "1", "n"])],
        &[value("y", INT64, &["k", "3"])],
    );
    let regions = graph(
        &[node("MatMul", &["x", "w"], "m", &[]), node("RoiAlign", &["image", "m", "which"], "y", &[])],
        &[floats("w", &[4, 4], &[0.5; 16]), ints("which", &[2], &[0, 0])],
        &[io("x", &["2", "4"]), io("image", &["1", "1", "4", "4"])],
        &[io("y", &["2", "1", "1", "1"])],
    );
    let table = |last: Message| {
        between(
            &[
                unary("Sigmoid", "h", "s"),
                node("Mul", &["s", "many"], "p", &[]),
                nodes("Cast", &["p"], &["c"], &[int("to", INT64)]),
                last,
                node("Gather", &["table", "i"], "u", &[]),
            ],
            &[scalar("many", 100.0), floats("table", &[100], &[0.5; 100]), ints("one", &[], &[1])],
            17,
        )
    };
    let words = |reader: &str, maker: &str, what: &str| {
        format!(
            "the {what} of {reader} come from {maker}, which runs in float16 and has 11 bits; a rule for `{}` with \
             `run: float32` keeps them",
            maker.split('`').nth(1).unwrap()
        )
    };
    for (name, model, wanted) in [
        ("grid", build::model(&grid, 20), vec![words("`y` (GridSample)", "`m` (MatMul)", "coordinates")]),
        ("boxes", build::model(&boxes, 20), vec![words("`y` (NonMaxSuppression)", "`m` (MatMul)", "boxes")]),
        ("regions", build::model(&regions, 20), vec![words("`y` (RoiAlign)", "`m` (MatMul)", "boxes")]),
        ("hash", table(node("Sub", &["c", "one"], "i", &[])), vec![words("`u` (Gather)", "`h` (MatMul)", "indices")]),
        // A choice by comparison, and an index that no product makes.
        ("choice", table(nodes("ArgMax", &["p"], &["i"], &[int("axis", 1)])), vec![]),
        ("constant", table(unary("Identity", "one", "i")), vec![]),
    ] {
        assert_eq!(model.plan(&policy("onnx")).unwrap().notes(), wanted, "{name}");
    }
    let full = "version: 1\npack: onnx-1\ndtype: float16\ngraph: {}\nrules: [{ path: m, run: float32 }]\n";
    let full = GraphPolicy::parse(full, "p.yaml").unwrap();
    assert!(build::model(&grid, 20).plan(&full).unwrap().notes().is_empty());
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

/// A row of which each score got -10,000 has the softmax of its scores: ulps of float16 are 8 there.
#[test]
fn a_row_that_a_finite_mask_covers_keeps_its_scores() {
    let x = [1.0f32, 2.5, -0.5, 0.25];
    let row = |a: f64, b: f64| [1.0 / (1.0 + (b - a).exp()), 1.0 / (1.0 + (a - b).exp())];
    let wanted = [row(1.0, 2.5), row(-0.5, 0.25)].concat();
    let add = |mask| node("Add", &["h", mask], "s", &[]);
    let end = |from| node("Softmax", &[from], "u", &[]);
    for (name, middle) in [
        ("constant", vec![add("covered"), end("s")]),
        ("moved", vec![add("covered"), node("Reshape", &["s", "shape"], "t", &[]), end("t")]),
        (
            "computed",
            vec![
                node("Cast", &["zeros"], "m", &[int("to", FLOAT)]),
                node("Sub", &["one", "m"], "i", &[]),
                node("Mul", &["i", "k"], "mask", &[]),
                add("mask"),
                end("s"),
            ],
        ),
    ] {
        let constants = [
            floats("covered", &[2, 2], &[-1e4, -1e4, 0.0, 0.0]),
            ints("zeros", &[2, 2], &[0, 0, 1, 1]),
            ints("shape", &[2], &[2, 2]),
            scalar("one", 1.0),
            scalar("k", -1e4),
        ];
        let model = between(&middle, &constants, 17);
        for pack in ["onnx", "onnx-bf16"] {
            check(name, &model, &rows(x), &wanted, &["h", "y"], &["s"], &policy(pack));
        }
    }
    // A bias of usual size runs low, and so does a mask of a part of each row.
    for mask in [[-4.0; 4], [0.0, -1e4, 0.0, 0.0]] {
        let plan = between(&[add("k"), end("s")], &[floats("k", &[2, 2], &mask)], 17);
        assert!(plan.plan(&policy("onnx")).unwrap().decision("s").unwrap().dtype.is_low());
    }
}

/// A picture of 300 x 300 has 90,000 pixels, beyond float16: a sum over it, divided by them.
#[test]
fn numbers_of_pixels_are_f32() {
    let size = vec![node("Size", &["image"], "n", &[])];
    let part = |at, to| node("Gather", &["shape", at], to, &[]);
    let lengths = || vec![node("Shape", &["image"], "shape", &[]), part("2", "rows"), part("3", "columns")];
    let product = lengths().into_iter().chain([node("Mul", &["rows", "columns"], "n", &[])]).collect();
    let reduced =
        vec![node("Shape", &["image"], "shape", &[]), nodes("ReduceProd", &["shape"], &["n"], &[int("keepdims", 0)])];
    for (name, count) in [("size", size), ("product", product), ("reduced", reduced)] {
        let rest = [
            node("Cast", &["n"], "c", &[int("to", FLOAT)]),
            node("Div", &["h", "c"], "d", &[]),
            node("Mul", &["d", "c"], "u", &[]),
        ];
        let first = node("MatMul", &["x", "eye"], "h", &[]);
        let last = node("MatMul", &["u", "eye"], "y", &[]);
        let all: Vec<Message> = std::iter::once(first).chain(count).chain(rest).chain([last]).collect();
        let constants = [floats("eye", &[2, 2], &[1.0, 0.0, 0.0, 1.0]), ints("2", &[], &[2]), ints("3", &[], &[3])];
        let io = [
            value("x", FLOAT, &["2", "2"]),
            value("image", FLOAT, &["1", "1", "height", "width"]),
            value("y", FLOAT, &["2", "2"]),
        ];
        let model = build::model(&graph(&all, &constants, &io[..2], &io[2..]), 17);
        let x = [
            ("x", Tensor::from_vec(vec![1f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap()),
            ("image", Tensor::zeros(&[1, 1, 300, 300], DType::F32)),
        ];
        check(name, &model, &x, &[1.0, 2.0, 3.0, 4.0], &["h"], &["c", "d", "u"], &policy("onnx"));
    }
}

/// onnxruntime makes one op of a product and the batch norm after it.
#[test]
fn batch_norms_of_products_are_f32() {
    let channels = |name: &str, number: f32| floats(name, &[2], &[number; 2]);
    let norm = node("BatchNormalization", &["h", "g", "b", "m", "v"], "n", &[]);
    let constants = [channels("g", 2.0), channels("b", 1.0), channels("m", 1.0), channels("v", 4.0)];
    let model = between(&[norm, node("Relu", &["n"], "u", &[])], &constants, 17);
    let x = rows([1.0, 2.0, 3.0, -4.0]);
    check("batch norm", &model, &x, &[1.0, 2.0, 3.0, 0.0], &["h", "u", "y"], &["n"], &policy("onnx"));
}

/// onnxruntime makes one op of the nodes, and reads `a` in the dtype of the scale.
#[test]
fn layer_norms_that_are_written_out_read_one_dtype() {
    let nodes = [
        node("Add", &["h", "h"], "a", &[]),
        node("ReduceMean", &["a"], "m", &[axes(&[1])]),
        node("Sub", &["a", "m"], "d", &[]),
        node("Pow", &["d", "two"], "q", &[]),
        node("ReduceMean", &["q"], "v", &[axes(&[1])]),
        node("Add", &["v", "e"], "w", &[]),
        node("Sqrt", &["w"], "r", &[]),
        node("Div", &["d", "r"], "n", &[]),
        node("Mul", &["n", "g"], "s", &[]),
        node("Add", &["s", "b"], "u", &[]),
    ];
    let constants =
        [scalar("two", 2.0), scalar("e", 1e-12), floats("g", &[2], &[1.0, 2.0]), floats("b", &[2], &[0.0; 2])];
    for (opset, full) in [(17, &["a"][..]), (16, &[])] {
        let low = if opset == 17 { &["h", "y"][..] } else { &["h", "a", "y"] };
        let model = between(&nodes, &constants, opset);
        check("layer norm", &model, &rows([1.0, 2.0, 4.0, 3.0]), &[-1.0, 2.0, 1.0, -2.0], low, full, &policy("onnx"));
    }
}
