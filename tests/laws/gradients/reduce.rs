//! Reductions along axes, running sums and products, and softmax with its relatives.

use precast::{DType, Op, Result, Tensor};

use crate::gradients::{
    inputs::{Draw, Form},
    row::{Case, ONCE, Row, check_all},
};

type Reduce = fn(&Tensor, &[isize], bool) -> Result<Tensor>;
type Along = fn(&Tensor, isize) -> Result<Tensor>;

/// Draws a shape, and axes to reduce: some that are not empty, counted from either end. An empty list reduces all.
fn shape_and_axes(d: &mut Draw) -> (Vec<usize>, Vec<isize>) {
    if d.form == Form::Scalar {
        return (vec![], vec![]);
    }
    let (shape, axis) = d.shape_and_axis(4);
    let rank = shape.len();
    let mut axes: Vec<usize> = (0..rank).filter(|&a| a == axis || (shape[a] > 0 && d.number(0..=2) == 0)).collect();
    if d.form == Form::Random && d.number(0..=4) == 0 {
        axes.clear();
    }
    let back = if d.flag() { rank as isize } else { 0 };
    (shape, axes.into_iter().map(|axis| axis as isize - back).collect())
}

/// Makes a row for a reduction over any axes of numbers between -2 and 2, not near 0. Its rounded intermediate results
/// make it off by `kept`.
fn reduce(op: Op, f: Reduce, kept: f64) -> Row {
    Row::new(op, move |d| {
        let (shape, axes) = shape_and_axes(d);
        let keep_dims = d.flag();
        Case::new([d.away(&shape, -2.0..2.0, &[0.0])], move |x| f(&x[0], &axes, keep_dims)).low(ONCE + kept)
    })
}

fn extreme(op: Op, f: Reduce) -> Row {
    Row::new(op, move |d| {
        let (shape, axes) = shape_and_axes(d);
        let keep_dims = d.flag();
        Case::new([d.apart(&shape)], move |x| f(&x[0], &axes, keep_dims))
    })
}

/// Makes a row for numbers with products of moderate magnitude.
fn product(op: Op, f: Reduce) -> Row {
    Row::new(op, move |d| {
        let (shape, axes) = shape_and_axes(d);
        let keep_dims = d.flag();
        Case::new([d.tensor(&shape, 0.8..1.25)], move |x| f(&x[0], &axes, keep_dims))
    })
}

fn along(op: Op, f: Along, range: std::ops::Range<f64>, kept: f64) -> Row {
    Row::new(op, move |d| {
        let (shape, axis) = d.shape_and_axis(4);
        let axis = axis as isize - if d.flag() { shape.len() as isize } else { 0 };
        Case::new([d.tensor(&shape, range.clone())], move |x| f(&x[0], axis)).low(ONCE + kept)
    })
}

fn place(op: Op, f: Reduce) -> Row {
    Row::without_gradient(op, move |d| {
        let (shape, axis) = d.shape_and_axis(4);
        let keep_dims = d.flag();
        Case::new([d.apart(&shape)], move |x| f(&x[0], &[axis as isize], keep_dims))
    })
}

pub fn rows() -> Vec<Row> {
    vec![
        reduce(Op::Sum, |x, axes, keep| x.sum(axes, keep), 0.0),
        reduce(Op::Mean, |x, axes, keep| x.mean(axes, keep), 0.0),
        reduce(Op::Var, |x, axes, keep| x.var(axes, 0, keep), 0.0),
        extreme(Op::Max, |x, axes, keep| x.max(axes, keep)),
        extreme(Op::Min, |x, axes, keep| x.min(axes, keep)),
        product(Op::Prod, |x, axes, keep| x.prod(axes, keep)),
        reduce(Op::LogSumExp, |x, axes, keep| x.logsumexp(axes, keep), 0.0),
        reduce(Op::Norm, |x, axes, keep| x.norm(1.0, axes, keep), 0.0).named("1"),
        reduce(Op::Norm, |x, axes, keep| x.norm(2.0, axes, keep), 0.0).named("2"),
        reduce(Op::Norm, |x, axes, keep| x.norm(3.0, axes, keep), 0.0).named("3"),
        reduce(Op::Norm, |x, axes, keep| x.norm(1.5, axes, keep), 0.0).named("1.5"),
        Row::new(Op::Norm, |d| {
            let (shape, axes) = shape_and_axes(d);
            // Positive, since two of the same magnitude and different signs are both the largest.
            let x = d.apart(&shape).add(&Tensor::scalar(20.0, DType::F64)).expect("floating");
            Case::new([x], move |x| x[0].norm(f64::INFINITY, &axes, false))
        })
        .named("infinity"),
        Row::new(Op::Std, |d| {
            let (mut shape, axis) = d.shape_and_axis(4);
            // At least two numbers, and spread out, since the slope is infinite where all are equal.
            shape[axis] = shape[axis].max(2);
            let (keep_dims, len) = (d.flag(), shape[axis]);
            let mut along = vec![1; shape.len()];
            along[axis] = len;
            let ramp: Vec<f64> = (0..len).map(|i| 3.0 * i as f64).collect();
            let ramp = Tensor::from_vec(ramp, &along).expect("one axis");
            let x = d.tensor(&shape, -1.0..1.0).add(&ramp).expect("they broadcast");
            let correction = d.number(0..=1);
            Case::new([x], move |x| x[0].std(&[axis as isize], correction, keep_dims))
        }),
        along(Op::CumSum, Tensor::cumsum, -2.0..2.0, 0.0),
        along(Op::CumProd, Tensor::cumprod, 0.7..1.4, 0.0),
        // The rounded probabilities are kept: y is off by half an epsilon, and so, at most, is the mean of the
        // gradient.
        along(Op::Softmax, Tensor::softmax, -3.0..3.0, 1.0),
        // The rounded logarithm is kept: half an epsilon of y, times exp(y), is below half of one.
        along(Op::LogSoftmax, Tensor::log_softmax, -3.0..3.0, 0.5),
        along(Op::Softmin, Tensor::softmin, -3.0..3.0, 0.0),
        Row::new(Op::Glu, |d| {
            let (mut shape, axis) = d.shape_and_axis(4);
            shape[axis] *= 2;
            Case::new([d.tensor(&shape, -3.0..3.0)], move |x| x[0].glu(axis as isize))
        }),
        Row::new(Op::Trace, |d| {
            let n = d.length();
            Case::new([d.tensor(&[n, n], -2.0..2.0)], |x| x[0].trace())
        }),
        place(Op::ArgMax, |x, axes, keep| x.argmax(axes[0], keep)),
        place(Op::ArgMin, |x, axes, keep| x.argmin(axes[0], keep)),
    ]
}

#[test]
fn gradients() {
    check_all(rows());
}
