//! Functions of two or three tensors whose shapes broadcast.

use std::ops::Range;

use precast::{Op, Result, Tensor};

use crate::gradients::row::{Case, Row, check_all};

type Two = fn(&Tensor, &Tensor) -> Result<Tensor>;

fn pair(op: Op, f: Two, a: Range<f64>, b: Range<f64>) -> Row {
    Row::new(op, move |d| {
        let [left, right] = d.broadcast();
        let inputs = [d.tensor(&left, a.clone()), d.tensor(&right, b.clone())];
        Case::new(inputs, move |x| f(&x[0], &x[1]))
    })
}

/// Makes a row for two tensors without elements near each other, so that neither a step nor rounding changes which is
/// larger.
fn ordered(op: Op, f: Two) -> Row {
    Row::new(op, move |d| {
        let [left, right] = d.broadcast();
        let whole = d.tensor(&left, -2.4..2.4).round().expect("floating");
        let inputs = [whole, d.away(&right, WIDE, &[-2.0, -1.0, 0.0, 1.0, 2.0])];
        Case::new(inputs, move |x| f(&x[0], &x[1]))
    })
}

fn comparison(op: Op, f: Two) -> Row {
    Row::without_gradient(op, move |d| {
        let [left, right] = d.broadcast();
        let inputs = [d.tensor(&left, -1.0..1.0), d.tensor(&right, -1.0..1.0)];
        Case::new(inputs, move |x| f(&x[0], &x[1]))
    })
}

fn logic(op: Op, f: Two) -> Row {
    Row::without_gradient(op, move |d| {
        let [left, right] = d.broadcast();
        Case::new([d.mask(&left), d.mask(&right)], move |x| f(&x[0], &x[1]))
    })
}

const WIDE: Range<f64> = -2.0..2.0;

pub fn rows() -> Vec<Row> {
    vec![
        pair(Op::Add, Tensor::add, WIDE, WIDE),
        pair(Op::Sub, Tensor::sub, WIDE, WIDE),
        pair(Op::Mul, Tensor::mul, WIDE, WIDE),
        pair(Op::Div, Tensor::div, WIDE, 0.3..2.0),
        pair(Op::Pow, Tensor::pow, 0.3..2.0, WIDE),
        ordered(Op::Maximum, Tensor::maximum),
        ordered(Op::Minimum, Tensor::minimum),
        pair(Op::Atan2, Tensor::atan2, WIDE, 0.3..2.0),
        pair(Op::Hypot, Tensor::hypot, WIDE, 0.3..2.0),
        pair(Op::Lerp, |a, b| a.lerp(b, 0.25), WIDE, WIDE).named("near"),
        pair(Op::Lerp, |a, b| a.lerp(b, 1.5), WIDE, WIDE).named("far"),
        // The quotient stays away from integers, where the remainder jumps.
        pair(Op::Fmod, Tensor::fmod, 2.1..2.9, 0.95..1.02),
        pair(Op::Remainder, Tensor::remainder, -2.9..-2.1, 0.95..1.02),
        comparison(Op::Equal, |a, b| a.eq(b)),
        comparison(Op::NotEqual, |a, b| a.ne(b)),
        comparison(Op::Less, |a, b| a.lt(b)),
        comparison(Op::LessEqual, |a, b| a.le(b)),
        comparison(Op::Greater, |a, b| a.gt(b)),
        comparison(Op::GreaterEqual, |a, b| a.ge(b)),
        logic(Op::LogicalAnd, Tensor::logical_and),
        logic(Op::LogicalOr, Tensor::logical_or),
        Row::new(Op::Where, |d| {
            let [mask, a, b] = d.broadcast();
            let inputs = [d.mask(&mask), d.tensor(&a, WIDE), d.tensor(&b, WIDE)];
            Case::new(inputs, |x| x[0].select(&x[1], &x[2]))
        }),
        Row::new(Op::Addcmul, |d| {
            let [x, a, b] = d.broadcast();
            let inputs = [d.tensor(&x, WIDE), d.tensor(&a, WIDE), d.tensor(&b, WIDE)];
            Case::new(inputs, |x| x[0].addcmul(&x[1], &x[2], 0.7))
        }),
        Row::new(Op::Addcdiv, |d| {
            let [x, a, b] = d.broadcast();
            let inputs = [d.tensor(&x, WIDE), d.tensor(&a, WIDE), d.tensor(&b, 0.5..2.0)];
            Case::new(inputs, |x| x[0].addcdiv(&x[1], &x[2], -1.5))
        }),
    ]
}

#[test]
fn gradients() {
    check_all(rows());
}
