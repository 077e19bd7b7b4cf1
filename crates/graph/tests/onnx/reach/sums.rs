//! Sums that are written as other ops.

use super::*;

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
