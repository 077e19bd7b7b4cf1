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

/// The mean of 4,096 numbers of 30 is 30, and that of their squares 900: the sums before the division are beyond float16.
#[test]
fn sums_written_as_products_are_f32_up_to_the_division() {
    let product = |op, a, b| node(op, &[a, b], "s", &[]);
    let div = || node("Div", &["s", "n"], "u", &[]);
    let turn = || node("Transpose", &["h"], "t", &[]);
    let count = [
        node("Cast", &["mask"], "mf", &[int("to", FLOAT)]),
        node("MatMul", &["mf", "h"], "s", &[]),
        nodes("ReduceSum", &["mf", "axis"], &["k"], &[]),
        node("Clip", &["k", "small"], "c", &[]),
        node("Div", &["s", "c"], "u", &[]),
    ];
    let share = |by| {
        vec![product("MatMul", "ones", "h"), node("Div", &["one", by], "r", &[]), node("Mul", &["s", "r"], "u", &[])]
    };
    for (name, middle, wanted) in [
        ("ones", vec![product("MatMul", "ones", "h"), div()], 30.0),
        ("moved", vec![node("MatMul", &["ones", "h"], "p", &[]), node("Neg", &["p"], "s", &[]), div()], -30.0),
        ("share", share("n"), 30.0),
        ("gemm", vec![nodes("Gemm", &["ones", "h", "zero"], &["s"], &[]), div()], 30.0),
        (
            "conv",
            vec![
                node("Reshape", &["h", "image"], "i", &[]),
                node("Conv", &["i", "window"], "q", &[]),
                node("Reshape", &["q", "one by one"], "s", &[]),
                node("Mul", &["s", "1/n"], "u", &[]),
            ],
            30.0,
        ),
        ("gram", vec![turn(), product("MatMul", "t", "h"), div()], 900.0),
        ("einsum", vec![nodes("Einsum", &["h", "h"], &["s"], &[text("equation", "ij,ik->jk")]), div()], 900.0),
        ("mask", count.to_vec(), 30.0),
        // A mean by weights that are not constants.
        (
            "weights",
            vec![
                node("Transpose", &["h"], "t", &[]),
                node("Relu", &["t"], "p", &[]),
                product("MatMul", "p", "h"),
                nodes("ReduceSum", &["p", "axis"], &["k"], &[]),
                node("Div", &["s", "k"], "u", &[]),
            ],
            30.0,
        ),
        (
            "weights, added up by a product",
            vec![
                node("Transpose", &["h"], "t", &[]),
                node("Relu", &["t"], "p", &[]),
                product("MatMul", "p", "h"),
                node("Transpose", &["ones"], "column", &[]),
                node("MatMul", &["p", "column"], "k", &[]),
                node("Div", &["s", "k"], "u", &[]),
            ],
            30.0,
        ),
    ] {
        let first = node("MatMul", &["x", "w"], "h", &[]);
        let last = node("MatMul", &["u", "w"], "y", &[]);
        let all: Vec<Message> = std::iter::once(first).chain(middle).chain([last]).collect();
        let constants = [
            floats("w", &[1, 1], &[1.0]),
            floats("zero", &[1, 1], &[0.0]),
            floats("ones", &[1, 4096], &[1.0; 4096]),
            floats("window", &[1, 1, 4096, 1], &[1.0; 4096]),
            ints("image", &[4], &[1, 1, 4096, 1]),
            ints("one by one", &[2], &[1, 1]),
            ints("axis", &[1], &[1]),
            scalar("one", 1.0),
            scalar("small", 1e-9),
            scalar("n", 4096.0),
            scalar("1/n", 1.0 / 4096.0),
        ];
        let io =
            [value("x", FLOAT, &["4096", "1"]), value("mask", INT64, &["1", "4096"]), value("y", FLOAT, &["1", "1"])];
        let model = build::model(&graph(&all, &constants, &io[..2], &io[2..]), 17);
        let x = [
            ("x", Tensor::full(&[4096, 1], 30.0, DType::F32)),
            ("mask", Tensor::from_vec(vec![1i64; 4096], &[1, 4096]).unwrap()),
        ];
        check(name, &model, &x, &[wanted], &["h", "y"], &["s", "u"], &policy("onnx"));
        // bfloat16 has the range of float32, and a product rounds its sum once, if the opset has it.
        let plan = model.plan(&policy("onnx-bf16")).unwrap();
        assert!(["conv", "einsum"].contains(&name) || plan.decision("s").unwrap().dtype.is_low(), "{name}");
    }
    // Scores of an attention, a layer with a small factor, and a blur.
    for (name, by, divisor) in [("scores", "t", 16.0), ("layer", "signs", 1000.0), ("blur", "blur", 255.0)] {
        let middle = [turn(), product("MatMul", "h", by), div()];
        let constants = [
            scalar("n", divisor),
            floats("signs", &[2, 2], &[1.0, -1.0, 1.0, 1.0]),
            floats("blur", &[2, 2], &[0.5; 4]),
        ];
        let plan = between(&middle, &constants, 17);
        let plan = plan.plan(&policy("onnx")).unwrap();
        assert!(["s", "u"].iter().all(|node| plan.decision(node).unwrap().dtype.is_low()), "{name}");
    }
}
