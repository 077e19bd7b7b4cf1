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
