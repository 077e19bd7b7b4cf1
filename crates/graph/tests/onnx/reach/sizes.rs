//! Factors, divisors and scales that take numbers out of the range.

use super::*;

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
            "batch norm",
            vec![
                node("BatchNormalization", &["h", "g", "0", "0", "1"], "a", &[]),
                product("a", "p"),
                node("Mul", &["p", "back"], "u", &[]),
            ],
            vec![
                floats("g", &[2], &[1e6; 2]),
                floats("0", &[2], &[0.0; 2]),
                floats("1", &[2], &[1.0; 2]),
                scalar("back", 1e-6),
            ],
            &["a", "p", "u"],
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

/// Constants that nodes make: casts of integers and f64, ranges, squares.
#[test]
fn constants_that_nodes_make_have_their_size() {
    let op = |op, a, b, to| node(op, &[a, b], to, &[]);
    let cast = |of| node("Cast", &[of], "c", &[int("to", FLOAT)]);
    let x = [300.0f32, -4.0, 0.5, 0.25];
    let by = |factor: f64| x.map(|x| f64::from(x) * factor);
    for (name, middle, full, wanted) in [
        ("integer", vec![cast("many"), op("Div", "h", "c", "v"), op("Mul", "v", "1e5", "u")], &["v"][..], by(1.0)),
        ("double", vec![cast("tiny"), op("Mul", "h", "c", "v"), op("Mul", "v", "1e9", "u")], &["v"], by(1.0)),
        (
            "range",
            vec![
                node("Range", &["0", "160000", "80000"], "i", &[]),
                cast("i"),
                op("Add", "h", "c", "v"),
                op("Mul", "v", "1e-5", "u"),
            ],
            &["v"],
            [0.003, 0.8, 0.0, 0.8],
        ),
        (
            "square",
            vec![op("Mul", "places", "places", "c"), op("Mul", "h", "c", "v"), op("Mul", "v", "1e-6", "u")],
            &["v"],
            by(1.0),
        ),
        (
            "pixels",
            vec![
                node("Shape", &["picture"], "shape", &[]),
                node("Cast", &["shape"], "sides", &[int("to", FLOAT)]),
                node("ReduceProd", &["sides"], "n", &[int("keepdims", 0)]),
                op("Div", "h", "n", "v"),
                op("Mul", "v", "1e5", "u"),
            ],
            &["n", "v"],
            by(1e5 / 90_000.0),
        ),
    ] {
        let constants = [
            ints("many", &[], &[100_000]),
            floats("picture", &[300, 300], &[0.0; 90_000]),
            double("tiny", 1e-9),
            ints("0", &[], &[0]),
            ints("160000", &[], &[160_000]),
            ints("80000", &[], &[80_000]),
            floats("places", &[2], &[1000.0, 1000.0]),
            scalar("1e5", 1e5),
            scalar("1e-5", 1e-5),
            scalar("1e9", 1e9),
            scalar("1e-6", 1e-6),
        ];
        let model = between(&middle, &constants, 17);
        check(name, &model, &rows(x), &wanted, &["h"], full, &policy("onnx"));
    }
}

/// `s = (q · 1e-4) · (k · 1e-4)ᵀ`.
#[test]
fn small_factors_of_both_operands_reach_the_next_factor() {
    let middle = [
        node("Mul", &["h", "small"], "q", &[]),
        node("Transpose", &["q"], "k", &[]),
        node("MatMul", &["q", "k"], "s", &[]),
        node("Mul", &["s", "large"], "u", &[]),
    ];
    let model = between(&middle, &[scalar("small", 1e-4), scalar("large", 1e8)], 17);
    let x = rows([1.0, 2.0, 3.0, 4.0]);
    check("scores", &model, &x, &[5.0, 11.0, 11.0, 25.0], &["h", "q", "y"], &["s", "u"], &policy("onnx"));
}

/// A bound of 1 behind a factor makes a step function of small numbers.
#[test]
fn bounds_end_large_sizes() {
    let middle = [
        node("Mul", &["h", "k"], "a", &[]),
        node("Clip", &["a", "zero", "one"], "c", &[]),
        node("MatMul", &["c", "eye"], "p", &[]),
        node("Tanh", &["p"], "u", &[]),
    ];
    let model = between(&middle, &[scalar("k", 1e6), scalar("zero", 0.0), scalar("one", 1.0)], 17);
    let step = |x: f64| (1e6 * x).clamp(0.0, 1.0).tanh();
    let wanted = [2.0, -1.0, 0.5, -0.5].map(step);
    check("step", &model, &rows([2.0, -1.0, 0.5, -0.5]), &wanted, &["h", "p", "y"], &["a"], &policy("onnx"));
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

/// Factors that float16 holds, and with which numbers near 1 leave its range or lose their digits in between.
#[test]
fn factors_near_the_end_of_the_range_reach_the_next_product() {
    let product = |from, to| node("MatMul", &[from, "eye"], to, &[]);
    let binary = |op, a, b, to| node(op, &[a, b], to, &[]);
    let norm = |scale| nodes("LayerNormalization", &["h", scale], &["a"], &[]);
    let x = [3.0f32, -4.0, 0.25, 0.5];
    let same = x.map(f64::from).to_vec();
    // Of two numbers, one is a deviation below the mean, and one above.
    let signs = vec![1.0, -1.0, -1.0, 1.0];
    // Multiples of a quarter from 0 to 255.
    let quarters: Vec<f64> = same.iter().map(|x| x.max(0.0)).collect();
    for (name, middle, numbers, wanted, full) in [
        ("large", vec![binary("Mul", "h", "k", "a"), binary("Div", "a", "k", "u")], [4e4, 1.0], &same, &["a", "u"][..]),
        (
            "large, product",
            vec![binary("Mul", "h", "k", "a"), product("a", "p"), binary("Div", "p", "k", "u")],
            [4e4, 1.0],
            &same,
            &["a", "p", "u"],
        ),
        (
            "small",
            vec![binary("Mul", "h", "k", "a"), product("a", "p"), binary("Mul", "p", "back", "u")],
            [1e-6, 1e6],
            &same,
            &["a", "p", "u"],
        ),
        (
            "small divisor",
            vec![binary("Div", "h", "k", "a"), product("a", "p"), binary("Mul", "p", "k", "u")],
            [1e-4, 1.0],
            &same,
            &["a", "p", "u"],
        ),
        (
            "norm",
            vec![norm("many"), product("a", "p"), binary("Mul", "p", "back", "u")],
            [1e5, 1e-5],
            &signs,
            &["a", "p"],
        ),
        (
            "norm, near",
            vec![norm("many"), product("a", "p"), binary("Mul", "p", "back", "u")],
            [4e4, 2.5e-5],
            &signs,
            &["a", "p"],
        ),
        (
            "scale",
            vec![
                nodes("QuantizeLinear", &["h", "quarter"], &["q"], &[]),
                binary("DequantizeLinear", "q", "k", "d"),
                product("d", "p"),
                binary("Mul", "p", "back", "u"),
            ],
            [1e-9, 0.25e9],
            &quarters,
            &["d", "p", "u"],
        ),
    ] {
        let constants = [
            scalar("k", numbers[0]),
            scalar("back", numbers[1]),
            scalar("quarter", 0.25),
            floats("many", &[2], &[numbers[0]; 2]),
        ];
        let model = between(&middle, &constants, 17);
        check(name, &model, &rows(x), wanted, &["h", "y"], full, &policy("onnx"));
    }
    // Factors that leave room run low.
    for k in [100.0, 1e-3] {
        let plan = between(&[binary("Mul", "h", "k", "a"), product("a", "u")], &[scalar("k", k)], 17);
        let plan = plan.plan(&policy("onnx")).unwrap();
        assert!(["a", "u"].iter().all(|node| plan.decision(node).unwrap().dtype.is_low()), "{k}");
    }
}
