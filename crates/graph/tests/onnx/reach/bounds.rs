//! Bounds that keep a divisor from 0.

use super::*;

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
        (
            "one divided by it",
            vec![
                norm(),
                node("Clip", &["n", "e"], "c", &[]),
                node("Div", &["one", "c"], "i", &[]),
                node("Mul", &["h", "i"], "u", &[]),
            ],
            vec![scalar("e", 1e-12), scalar("one", 1.0)],
            &["c", "i", "u"],
        ),
        (
            "gated",
            vec![
                norm(),
                node("Clip", &["n", "e"], "c", &[]),
                node("Reciprocal", &["c"], "i", &[]),
                node("Softsign", &["big"], "g", &[]),
                node("Mul", &["g", "i"], "gi", &[]),
                node("Mul", &["h", "gi"], "u", &[]),
            ],
            vec![scalar("e", 1e-12), floats("big", &[2, 1], &[1e4; 2])],
            &["i", "gi", "u"],
        ),
        (
            "numbers of each row",
            vec![norm(), node("Add", &["n", "each"], "c", &[]), div("c")],
            vec![floats("each", &[2, 1], &[1e-10, 1e-12])],
            &["c", "u"],
        ),
        (
            "subtracted",
            vec![norm(), node("Sub", &["n", "minus"], "c", &[]), div("c")],
            vec![scalar("minus", -1e-12)],
            &["c", "u"],
        ),
    ] {
        let model = between(&middle, &constants, 17);
        check(name, &model, &rows([3.0, 4.0, 0.0, 0.0]), &[0.6, 0.8, 0.0, 0.0], &["h", "y"], full, &policy("onnx"));
        // bfloat16 has the range of float32.
        let plan = model.plan(&policy("onnx-bf16")).unwrap();
        assert!(plan.decision("y").unwrap().dtype == DType::Bf16, "{name}");
    }
    // Upper bounds of numbers below 0.
    let minus = || vec![norm(), node("Neg", &["n"], "m", &[])];
    let negative = || vec![scalar("e", -1e-12)];
    for (name, bounded, constants) in [
        ("clip", node("Clip", &["m", "", "e"], "c", &[]), negative()),
        ("min", node("Min", &["m", "e"], "c", &[]), negative()),
        ("sum", node("Add", &["m", "e"], "c", &[]), negative()),
        ("difference", node("Sub", &["m", "e"], "c", &[]), e(1e-12)),
        ("turned difference", node("Sub", &["e", "n"], "c", &[]), negative()),
    ] {
        let middle: Vec<Message> = minus().into_iter().chain([bounded, div("c")]).collect();
        let (model, x) = (between(&middle, &constants, 17), rows([3.0, 4.0, 0.0, 0.0]));
        check(name, &model, &x, &[-0.6, -0.8, 0.0, 0.0], &["h", "y"], &["c", "u"], &policy("onnx"));
    }
    let rest = between(&[node("Sub", &["one", "h"], "c", &[]), div("c")], &[scalar("one", 1.0)], 17);
    assert!(rest.plan(&policy("onnx")).unwrap().decision("u").unwrap().dtype.is_low());
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

/// Bounds behind sums: log(1 + 1/x) of a bounded x, and a divisor to which a small number is added where it is 0.
#[test]
fn sums_of_reciprocals_and_masks_are_bounded() {
    let logarithm = [
        node("Max", &["h", "e"], "c", &[]),
        node("Reciprocal", &["c"], "i", &[]),
        node("Add", &["i", "one"], "a", &[]),
        node("Log", &["a"], "u", &[]),
    ];
    let masked = [
        node("ReduceL2", &["h"], "n", &[axes(&[1])]),
        node("LessOrEqual", &["n", "zero"], "b", &[]),
        node("Cast", &["b"], "m", &[int("to", FLOAT)]),
        node("Mul", &["m", "e"], "g", &[]),
        node("Add", &["n", "g"], "c", &[]),
        node("Div", &["h", "c"], "u", &[]),
    ];
    // A floor that float16 holds, and whose reciprocal may be out of range.
    let chosen = [
        node("Relu", &["h"], "n", &[]),
        node("Greater", &["n", "zero"], "b", &[]),
        node("Cast", &["b"], "m", &[int("to", FLOAT)]),
        node("Add", &["n", "1e-5"], "c", &[]),
        node("Div", &["one", "c"], "g", &[]),
        node("Mul", &["g", "m"], "u", &[]),
    ];
    let e = f64::from(1e-8f32);
    let log = |x: f64| (1.0 + 1.0 / x).ln();
    for (name, middle, full, wanted) in [
        ("logarithm", &logarithm[..], &["i", "a", "u"][..], [log(3.0), log(4.0), log(e), log(e)]),
        ("mask", &masked, &["g", "c", "u"], [0.6, 0.8, 0.0, 0.0]),
        ("chosen", &chosen, &["g"], [1.0 / 3.0, 0.25, 0.0, 0.0]),
    ] {
        let constants = [scalar("e", 1e-8), scalar("1e-5", 1e-5), scalar("one", 1.0), scalar("zero", 0.0)];
        let model = between(middle, &constants, 17);
        check(name, &model, &rows([3.0, 4.0, 0.0, 0.0]), &wanted, &["h", "y"], full, &policy("onnx"));
    }
}

/// Cosines of rows, the last of which is 0: products of lengths, each of which float16 holds.
#[test]
fn products_of_bounds_reach_the_division() {
    let norm = [node("ReduceL2", &["h"], "n", &[axes(&[1])]), node("Clip", &["n", "e"], "c", &[])];
    let turned = |of, to| node("Transpose", &[of], to, &[]);
    let product = |a, b, to| node("MatMul", &[a, b], to, &[]);
    let dots = || [turned("h", "ht"), product("h", "ht", "d")];
    let divided = [turned("c", "ct"), product("c", "ct", "p"), node("Div", &["d", "p"], "u", &[])];
    let multiplied = [
        node("Reciprocal", &["c"], "i", &[]),
        turned("i", "it"),
        product("i", "it", "p"),
        node("Mul", &["d", "p"], "u", &[]),
    ];
    for (name, end) in [("divided", &divided[..]), ("reciprocals", &multiplied)] {
        let middle: Vec<Message> = norm.iter().cloned().chain(dots()).chain(end.to_vec()).collect();
        let model = between(&middle, &[scalar("e", 1e-4)], 17);
        let x = rows([3.0, 4.0, 0.0, 0.0]);
        check(name, &model, &x, &[1.0, 0.0, 0.0, 0.0], &["h", "y"], &["p", "u"], &policy("onnx"));
    }
}

/// A dead channel of sixteen: its deviation would be 0.
#[test]
fn constants_that_divide_are_not_rounded_to_0() {
    let mut deviations = [1.0f32; 16];
    deviations[7] = 1e-9;
    let part = [
        node("Reshape", &["h", "row"], "r", &[]),
        node("Mul", &["r", "zero but the first"], "z", &[]),
        node("Div", &["z", "deviations"], "v", &[]),
        node("ReduceSum", &["v"], "s", &[]),
        node("Mul", &["ones", "s"], "u", &[]),
    ];
    let mut mask = [0.0f32; 16];
    mask[0] = 1.0;
    let constants = [
        ints("row", &[2], &[4, 1]),
        floats("zero but the first", &[1, 16], &mask),
        floats("deviations", &[16], &deviations),
        floats("ones", &[2, 2], &[1.0; 4]),
    ];
    let model = between(&part, &constants, 17);
    check("deviations", &model, &rows([1.0, 2.0, 3.0, 4.0]), &[10.0; 4], &["h", "y"], &["v"], &policy("onnx"));
}
