//! Numbers near 1, what is left to it, and functions that end in 0, as divisors and in logarithms.

use super::*;

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

/// A high power of numbers near 1, and a root of what is left to a square of them.
#[test]
fn powers_of_numbers_near_1_are_f32() {
    let op = |op, a, b, to| node(op, &[a, b], to, &[]);
    let power = [
        node("Sigmoid", &["h"], "g", &[]),
        op("Mul", "g", "small", "s"),
        op("Sub", "one", "s", "d"),
        op("Pow", "d", "thousand", "u"),
    ];
    let root = [
        node("Sigmoid", &["h"], "g", &[]),
        op("Mul", "g", "0.9999", "s"),
        op("Mul", "s", "s", "q"),
        op("Sub", "one", "q", "d"),
        node("Sqrt", &["d"], "r", &[]),
        op("Div", "tenth", "r", "u"),
    ];
    let sigmoid = |x: f32| 1.0 / (1.0 + (-f64::from(x)).exp());
    let x = [1.0f32, -1.0, 6.0, 8.0];
    let powers = x.map(|x| (1.0 - 1e-3 * sigmoid(x)).powi(1000));
    let roots = x.map(|x| 0.1 / (1.0 - (0.9999 * sigmoid(x)).powi(2)).sqrt());
    for pack in ["onnx", "onnx-bf16"] {
        for (name, middle, full, wanted) in
            [("power", &power[..], &["d", "u"][..], powers), ("root", &root, &["g", "s", "q", "d", "u"], roots)]
        {
            let constants = [
                scalar("small", 1e-3),
                scalar("one", 1.0),
                scalar("tenth", 0.1),
                scalar("thousand", 1000.0),
                scalar("0.9999", 0.9999),
            ];
            let model = between(middle, &constants, 17);
            check(name, &model, &rows(x), &wanted, &["h", "y"], full, &policy(pack));
        }
    }
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
