//! Numbers that the bodies of `If` and `Loop` hand on.

use super::*;

const X: [f32; 4] = [3.0, 4.0, -300.0, 400.0];

fn out(name: &str) -> Message {
    value(name, FLOAT, &["2", "2"])
}

/// Numbers out of range, too small, or squares of one branch leave it in float32.
#[test]
fn branches_give_float32_if_one_makes_it() {
    let op = |op, a, b, to| node(op, &[a, b], to, &[]);
    let root = || {
        vec![
            nodes("ReduceSum", &["z", "axis"], &["s"], &[int("keepdims", 1)]),
            node("Sqrt", &["s"], "r", &[]),
            op("Div", "h", "r", "u"),
        ]
    };
    let unit = [0.6, 0.8, -0.6, 0.8];
    for (name, branch, middle, wanted) in [
        ("large", op("Mul", "h", "4e5", "a"), vec![op("Mul", "z", "1e-5", "u")], X.map(|x| 4.0 * f64::from(x))),
        ("small", op("Mul", "h", "1e-9", "a"), vec![op("Mul", "z", "1e9", "u")], X.map(f64::from)),
        ("squares", op("Mul", "h", "h", "a"), root(), unit),
    ] {
        let other = node("Identity", &["h"], "b", &[]);
        let bodies = [
            body("then_branch", &graph(&[branch], &[], &[], &[out("a")])),
            body("else_branch", &graph(&[other], &[], &[], &[out("b")])),
        ];
        let all: Vec<Message> = std::iter::once(nodes("If", &["yes"], &["z"], &bodies)).chain(middle).collect();
        let constants = [
            truths("yes", &[], &[1]),
            ints("axis", &[1], &[1]),
            scalar("4e5", 4e5),
            scalar("1e-5", 1e-5),
            scalar("1e-9", 1e-9),
            scalar("1e9", 1e9),
        ];
        let model = between(&all, &constants, 17);
        check(name, &model, &rows(X), &wanted, &["h"], &["a"], &policy("onnx"));
    }
}

/// 300 · 10^6 and back, in few rounds.
#[test]
fn states_that_grow_in_few_rounds_are_f32() {
    let inner = graph(
        &[node("Mul", &["s", "ten"], "s2", &[]), node("Identity", &["c"], "go", &[])],
        &[],
        &[value("i", INT64, &[]), value("c", BOOL, &[]), out("s")],
        &[value("go", BOOL, &[]), out("s2")],
    );
    let middle =
        [nodes("Loop", &["m", "yes", "h"], &["n"], &[body("body", &inner)]), node("Mul", &["n", "1e-6"], "u", &[])];
    let constants = [ints("m", &[], &[6]), truths("yes", &[], &[1]), scalar("ten", 10.0), scalar("1e-6", 1e-6)];
    let model = between(&middle, &constants, 17);
    check("grows", &model, &rows(X), &X.map(f64::from), &["h", "y"], &["s2"], &policy("onnx"));
}
