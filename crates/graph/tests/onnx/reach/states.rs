//! States that loops carry.

use super::*;

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
    Ok(super::super::pb::body_inputs(&bytes, "Loop")
        .into_iter()
        .map(|(name, elem)| (name, elem == "float16"))
        .collect())
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

/// 200 steps of 0.001, one after the other as nodes: `x` becomes `x (1 + 0.001)^200`.
#[test]
fn small_steps_one_after_the_other_are_f32() {
    let steps = |count: usize| {
        let name = |i: usize| if i == 0 { "h".to_string() } else { format!("s{i}") };
        let step = |i: usize| {
            let (a, d) = (format!("a{i}"), format!("d{i}"));
            [
                node("MatMul", &[&name(i), "eye"], &a, &[]),
                node("Mul", &[&a, "dt"], &d, &[]),
                node("Add", &[&name(i), &d], &(if i + 1 == count { "u".into() } else { name(i + 1) }), &[]),
            ]
        };
        (0..count).flat_map(step).collect::<Vec<_>>()
    };
    let x = [3.0f32, -4.0, 0.5, 0.25];
    for pack in ["onnx", "onnx-bf16"] {
        let model = between(&steps(200), &[scalar("dt", 1e-3)], 17);
        let wanted = x.map(|x| f64::from(x) * (1.0 + f64::from(1e-3f32)).powi(200));
        check("steps", &model, &rows(x), &wanted, &["h", "a0", "d0", "a199", "y"], &["s1", "s100", "u"], &policy(pack));
    }
    // A moving average of h from 2h on.
    let average = |i: usize| {
        let (from, decayed, new) =
            (if i == 0 { "d".into() } else { format!("s{i}") }, format!("k{i}"), format!("n{i}"));
        let to = if i == 199 { "u".to_string() } else { format!("s{}", i + 1) };
        [
            node("Mul", &[&from, "decay"], &decayed, &[]),
            node("Mul", &["h", "rate"], &new, &[]),
            node("Add", &[&decayed, &new], &to, &[]),
        ]
    };
    let averages: Vec<Message> =
        std::iter::once(node("Add", &["h", "h"], "d", &[])).chain((0..200).flat_map(average)).collect();
    for pack in ["onnx", "onnx-bf16"] {
        let model = between(&averages, &[scalar("decay", 0.98), scalar("rate", 0.02)], 17);
        let wanted = x.map(|x| f64::from(x) * (1.0 + 0.98f64.powi(200)));
        check("average", &model, &rows(x), &wanted, &["h", "y"], &["s20", "s100", "u"], &policy(pack));
    }
    // A few steps, and residual blocks without a small factor.
    for (count, dt) in [(8, 1e-3), (48, 0.5)] {
        let plan = between(&steps(count), &[scalar("dt", dt)], 17);
        let plan = plan.plan(&policy("onnx")).unwrap();
        assert!(["s1", "s7", "u"].iter().filter_map(|node| plan.decision(node).ok()).all(|met| met.dtype.is_low()));
    }
}

/// After 5,000 rounds from 0: the root of the sum of as many ones, and the sum itself behind a leaky activation.
#[test]
fn sums_behind_roots_and_leaky_activations_are_carried_in_f32() {
    let root =
        [node("Mul", &["s", "s"], "q", &[]), node("Add", &["q", "one"], "a", &[]), node("Sqrt", &["a"], "s2", &[])];
    let leaky = [node("Add", &["s", "one"], "a", &[]), node("LeakyRelu", &["a"], "s2", &[])];
    for (name, inner, factor, wanted) in
        [("root", &root[..], 0.01, 0.01 * 5000f64.sqrt()), ("leaky", &leaky, 1e-4, 0.5)]
    {
        let condition = node("Identity", &["c"], "go", &[]);
        let inner: Vec<Message> = inner.iter().cloned().chain([condition]).collect();
        let inputs = [value("i", INT64, &[]), value("c", BOOL, &[]), value("s", FLOAT, &["2", "2"])];
        let inner = graph(&inner, &[], &inputs, &[value("go", BOOL, &[]), value("s2", FLOAT, &["2", "2"])]);
        let middle = [
            nodes("Loop", &["m", "true", "zero"], &["sn"], &[body("body", &inner)]),
            node("Mul", &["sn", "k"], "v", &[]),
            node("Mul", &["h", "v"], "u", &[]),
        ];
        let constants = [
            ints("m", &[], &[5000]),
            truths("true", &[], &[1]),
            scalar("one", 1.0),
            scalar("k", factor),
            floats("zero", &[2, 2], &[0.0; 4]),
        ];
        let model = between(&middle, &constants, 17);
        for policy in ["onnx", "onnx-bf16"].map(policy) {
            check(name, &model, &rows([1.0; 4]), &[wanted; 4], &["h", "y"], &[], &policy);
        }
    }
}
