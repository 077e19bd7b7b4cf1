//! Squares up to the sum or the root, and variances of means.

use super::*;

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
    // Squares that a mask, a weight or a factor makes small, or a ratio.
    let op = |op, a, b, to| node(op, &[a, b], to, &[]);
    let e = |x: f64| (-x * x / 90_000.0).exp();
    for (name, middle, full, wanted) in [
        (
            "masked",
            vec![mul("h", "h", "q"), mul("q", "mask", "m"), sum("m", "s"), root("s", "r"), div("r")],
            &["q", "m", "s", "r"][..],
            [1.0, 4.0 / 3.0, -1.0, 4.0 / 3.0],
        ),
        (
            "ratio",
            vec![mul("h", "h", "q"), op("Add", "q", "one", "a"), op("Div", "q", "a", "u")],
            &["q", "a", "u"],
            [1.0; 4],
        ),
        (
            "shrunk",
            vec![mul("h", "h", "q"), mul("q", "minus", "a"), node("Exp", &["a"], "u", &[])],
            &["q", "a"],
            [e(300.0), e(400.0), e(300.0), e(400.0)],
        ),
        (
            "cube",
            vec![mul("h", "h", "q"), mul("q", "h", "k"), mul("k", "1e-6", "a"), node("Tanh", &["a"], "u", &[])],
            &["q", "k", "a"],
            [27f64.tanh(), 64f64.tanh(), -27f64.tanh(), 64f64.tanh()],
        ),
        // Half the harmonic mean of |x| and |x| + 1.
        (
            "harmonic",
            vec![
                node("Abs", &["h"], "b", &[]),
                op("Add", "b", "one", "c"),
                mul("b", "c", "q"),
                op("Add", "b", "c", "a"),
                op("Div", "q", "a", "u"),
            ],
            &["q", "u"],
            [150.25, 200.25, 150.25, 200.25].map(|x: f64| x - 0.25 / (4.0 * x)),
        ),
        (
            "three factors",
            vec![
                node("Abs", &["h"], "b", &[]),
                op("Add", "b", "one", "c"),
                mul("b", "c", "q"),
                mul("q", "h", "k"),
                mul("k", "1e-6", "u"),
            ],
            &["q", "k", "u"],
            [27.09, 64.16, -27.09, 64.16],
        ),
        (
            "huber",
            vec![
                node("Abs", &["h"], "a", &[]),
                op("LessOrEqual", "a", "one", "b"),
                node("Cast", &["b"], "m", &[int("to", FLOAT)]),
                mul("h", "h", "q"),
                mul("q", "half", "p"),
                mul("p", "m", "left"),
                op("Sub", "one", "m", "other"),
                op("Sub", "a", "half", "d"),
                mul("d", "other", "right"),
                op("Add", "left", "right", "u"),
            ],
            &["q", "p", "left"],
            [299.5, 399.5, 299.5, 399.5],
        ),
    ] {
        let constants = vec![
            axis(),
            floats("mask", &[2], &[1.0, 0.0]),
            scalar("one", 1.0),
            scalar("half", 0.5),
            scalar("minus", -1.0 / 90_000.0),
            scalar("1e-6", 1e-6),
        ];
        let model = between(&middle, &constants, 17);
        check(name, &model, &rows([300.0, 400.0, -300.0, 400.0]), &wanted, &["h", "y"], full, &policy("onnx"));
    }
    // The packs of other converters lower all that is on no list: what is kept is kept up to the root.
    let pack = GraphPolicy::parse("version: 1\npack: modelopt-0.47\ndtype: float16\ngraph: {}\n", "p.yaml").unwrap();
    let middle = [mul("h", "h", "q"), sum("q", "s"), root("s", "r"), div("r")];
    let model = between(&middle, &[axis()], 17);
    let x = [1800.0, 2400.0, -3000.0, 4000.0];
    check("pack", &model, &rows(x), &[0.6, 0.8, -0.6, 0.8], &[], &["q", "s", "r"], &pack);
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

/// Places 0 to 199 with weights that are a half at two neighbours: a variance of 1/4 at 150, by products with known numbers.
/// Numbers next to an offset of 3000.
#[test]
fn variances_of_known_places_and_offsets_are_f32() {
    let op = |op, a, b, to| node(op, &[a, b], to, &[]);
    let places: Vec<f32> = (0..200).map(|place| place as f32).collect();
    let squares: Vec<f32> = places.iter().map(|place| place * place).collect();
    let middle = [
        op("MatMul", "p", "places", "m"),
        op("MatMul", "p", "squares", "q"),
        op("Mul", "m", "m", "m2"),
        op("Sub", "q", "m2", "u"),
    ];
    let first = op("MatMul", "x", "eye", "p");
    let last = op("MatMul", "u", "minus", "y");
    let all: Vec<Message> = std::iter::once(first).chain(middle).chain([last]).collect();
    let eye: Vec<f32> = (0..200 * 200).map(|at| f32::from(u8::from(at % 201 == 0))).collect();
    let constants = [
        floats("eye", &[200, 200], &eye),
        floats("places", &[200, 1], &places),
        floats("squares", &[200, 1], &squares),
        floats("minus", &[1, 1], &[-1.0]),
    ];
    let io = [value("x", FLOAT, &["1", "200"]), value("y", FLOAT, &["1", "1"])];
    let model = build::model(&graph(&all, &constants, &io[..1], &io[1..]), 17);
    let x = (0..200).map(|place| if (150..152).contains(&place) { 0.5f32 } else { 0.0 }).collect();
    let x = [("x", Tensor::from_vec(x, &[1, 200]).unwrap())];
    for pack in ["onnx", "onnx-bf16"] {
        check("places", &model, &x, &[-0.25], &["p", "y"], &["m", "q", "m2", "u"], &policy(pack));
    }
    let middle = [op("Add", "h", "offset", "a"), op("Sub", "a", "offset", "u")];
    let model = between(&middle, &[floats("offset", &[2], &[3000.0, 3004.0])], 17);
    let x = [3.25f32, -4.5, 0.5, 0.25];
    for pack in ["onnx", "onnx-bf16"] {
        check("offset", &model, &rows(x), &x.map(f64::from), &["h", "y"], &["a", "u"], &policy(pack));
    }
}

/// Pairs of numbers at a distance of 1 and 2 are -1 and 1 from their mean, in units of their deviation.
#[test]
fn variances_of_means_by_products_are_f32() {
    let binary = |op, a, b, to| node(op, &[a, b], to, &[]);
    let moved = |from, to, name| node("Reshape", &[from, to], name, &[]);
    for (op, weights) in [("MatMul", &[2i64, 2][..]), ("Conv", &[1, 1, 1, 2]), ("AveragePool", &[1, 1, 1, 2])] {
        let mean = |of, to| match op {
            "AveragePool" => {
                node(op, &[of], to, &[Message::default().bytes(1, "kernel_shape").int(8, 1).int(8, 2).int(20, 7)])
            }
            _ => binary(op, of, "weights", to),
        };
        let middle = [
            moved("h", if op == "MatMul" { "matrix" } else { "image" }, "x0"),
            binary("Mul", "x0", "x0", "q"),
            mean("q", "e"),
            mean("x0", "m"),
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

/// [100, 101] and [100.5, 101.5] have a squared distance of 0.5, which is 1e-5 of their squares.
#[test]
fn distances_by_squares_and_products_are_f32() {
    let op = |op, inputs: &[&str], to: &str| node(op, inputs, to, &[]);
    let sum = |of, to| nodes("ReduceSum", &[of, "axis"], &[to], &[int("keepdims", 1)]);
    let constants = || {
        vec![
            ints("axis", &[1], &[1]),
            scalar("two", 2.0),
            floats("shift", &[2], &[0.5, 0.5]),
            floats("points", &[2, 2], &[100.5, 300.0, 101.5, 300.0]),
            floats("squares", &[1, 2], &[20402.5, 180_000.0]),
        ]
    };
    let all = [
        op("Add", &["h", "shift"], "g"),
        op("Mul", &["h", "h"], "a"),
        op("Pow", &["g", "two"], "b"),
        op("Mul", &["h", "g"], "c"),
        op("Mul", &["c", "two"], "d"),
        op("Sub", &["a", "d"], "e"),
        op("Add", &["e", "b"], "u"),
    ];
    let pairs = [
        op("Mul", &["h", "h"], "a"),
        sum("a", "s"),
        op("Transpose", &["s"], "t"),
        op("Transpose", &["h"], "k"),
        op("MatMul", &["h", "k"], "c"),
        op("Mul", &["c", "two"], "d"),
        op("Sub", &["s", "d"], "e"),
        op("Add", &["e", "t"], "u"),
    ];
    let known = [
        op("Mul", &["h", "h"], "a"),
        sum("a", "s"),
        op("MatMul", &["h", "points"], "c"),
        op("Mul", &["c", "two"], "d"),
        op("Sub", &["s", "d"], "e"),
        op("Add", &["e", "squares"], "u"),
    ];
    let squared = |x: [f64; 2], y: [f64; 2]| (x[0] - y[0]).powi(2) + (x[1] - y[1]).powi(2);
    let (p, q) = ([100.0, 101.0], [100.5, 101.5]);
    let to_points = [squared(p, q), squared(p, [300.0; 2]), squared(q, q), squared(q, [300.0; 2])];
    let x = || rows([100.0, 101.0, 100.5, 101.5]);
    for (name, middle, wanted, full) in [
        ("all", &all[..], [0.25; 4], &["a", "b", "c", "d", "e", "u"][..]),
        ("pairs", &pairs[..], [0.0, 0.5, 0.5, 0.0], &["a", "c", "d", "e", "u"]),
        ("known points", &known[..], to_points, &["a", "c", "d", "e", "u"]),
    ] {
        check(name, &between(middle, &constants(), 17), &x(), &wanted, &["h"], full, &policy("onnx"));
    }
    // A residual of a gate, and a layer beside squares of other numbers.
    let end = || [op("Tanh", &["s"], "u")];
    let gate = [
        op("Mul", &["h", "h"], "a"),
        op("Tanh", &["a"], "t"),
        op("Mul", &["h", "t"], "c"),
        op("Add", &["h", "c"], "s"),
    ];
    let layer = [
        op("MatMul", &["h", "eye"], "c"),
        op("Tanh", &["h"], "t"),
        op("Mul", &["t", "t"], "a"),
        op("Add", &["a", "c"], "s"),
    ];
    for middle in [gate, layer] {
        let model = between(&[&middle[..], &end()[..]].concat(), &[], 17);
        let plan = model.plan(&policy("onnx")).unwrap();
        assert!(["a", "c", "s"].iter().all(|node| plan.decision(node).unwrap().dtype.is_low()));
    }
}

/// Scores that are divided by the root of a length, as by `16 ^ 0.5`, are low.
#[test]
fn powers_of_constants_keep_nothing() {
    let middle = [node("Pow", &["length", "half"], "p", &[]), node("Div", &["h", "p"], "u", &[])];
    for (length, is_low) in [(16.0, true), (1e12, false)] {
        let model = between(&middle, &[scalar("length", length), scalar("half", 0.5)], 17);
        let wanted = [8.0, 16.0, 4.0, 2.0].map(|x| x / f64::from(length).sqrt());
        let (low, full) = if is_low { (&["h", "u", "y"][..], &["p"][..]) } else { (&["h"][..], &["p", "u"][..]) };
        check("root of a length", &model, &rows([8.0, 16.0, 4.0, 2.0]), &wanted, low, full, &policy("onnx"));
    }
}
