//! Lengths of vectors, distances and angles between them.

use precast::{Op, Tensor};

use crate::gradients::{
    inputs::Draw,
    row::{Case, Row, check_all},
};

/// Draws two shapes of equal rank that broadcast except for one axis, which has length 3 in both, and that axis.
fn beside(d: &mut Draw) -> ([Vec<usize>; 2], isize) {
    let mut shapes: [Vec<usize>; 2] = d.broadcast();
    let rank = shapes[0].len().max(shapes[1].len());
    let axis = d.number(0..=rank);
    for shape in &mut shapes {
        *shape = [vec![1; rank - shape.len()], shape.clone()].concat();
        shape.insert(axis, 3);
    }
    (shapes, axis as isize - if d.flag() { rank as isize + 1 } else { 0 })
}

/// Draws two sets that are apart, since there is no slope at a distance of 0.
fn apart(d: &mut Draw, a: &[usize], b: &[usize]) -> [Tensor; 2] {
    [d.tensor(a, 0.2..2.0), d.tensor(b, -2.0..-0.2)]
}

pub fn rows() -> Vec<Row> {
    vec![
        Row::new(Op::Cross, |d| {
            let ([a, b], axis) = beside(d);
            Case::new([d.tensor(&a, -2.0..2.0), d.tensor(&b, -2.0..2.0)], move |x| x[0].cross(&x[1], axis))
        }),
        Row::new(Op::CosineSimilarity, |d| {
            let (shape, axis) = d.shape_and_axis(4);
            Case::new(apart(d, &shape, &shape), move |x| x[0].cosine_similarity(&x[1], axis as isize, 1e-8))
        }),
        Row::new(Op::CosineSimilarity, |d| {
            let ([a, b], axis) = beside(d);
            Case::new(apart(d, &a, &b), move |x| x[0].cosine_similarity(&x[1], axis, 1e-8))
        })
        .named("of shapes that broadcast"),
        Row::new(Op::Dist, |d| {
            let (shape, p) = (d.shape(0..=4), d.pick(&[1.0, 2.0, 3.0]));
            Case::new(apart(d, &shape, &shape), move |x| x[0].dist(&x[1], p))
        }),
        Row::new(Op::Dist, |d| {
            let ([a, b], p) = (d.broadcast(), d.pick(&[1.0, 2.0, 3.0]));
            Case::new(apart(d, &a, &b), move |x| x[0].dist(&x[1], p))
        })
        .named("of shapes that broadcast"),
        Row::new(Op::Cdist, |d| {
            let ([m, n, width], p) = ([(); 3].map(|()| d.size(1..=4)), d.pick(&[1.0, 2.0, 3.0, f64::INFINITY]));
            let batch = d.shape(0..=2);
            let shorter = &batch[batch.len().min(1)..];
            let inputs = apart(d, &[&batch[..], &[m, width]].concat(), &[shorter, &[n, width]].concat());
            Case::new(inputs, move |x| x[0].cdist(&x[1], p))
        }),
        Row::new(Op::Pdist, |d| {
            let (rows, width) = (d.samples(9), d.size(1..=16));
            let data: Vec<f64> = d.tensor(&[rows, width], -0.1..0.1).to_f64();
            let spread = data.iter().enumerate().map(|(i, x)| x + 2.0 * (i / width) as f64).collect::<Vec<_>>();
            let x = Tensor::from_vec(spread, &[rows, width]).expect("one number for each");
            let p = d.pick(&[1.0, 2.0, 3.0]);
            Case::new([x], move |x| x[0].pdist(p))
        }),
        Row::new(Op::Renorm, |d| {
            let (shape, axis) = d.shape_and_axis(4);
            // All slices far above the largest norm, or far below it. A single element above it has no slope.
            let single = shape.iter().product::<usize>() == shape[axis];
            let (p, most) = (d.pick(&[1.0, 2.0]), if single { 1e3 } else { d.pick(&[0.1, 1e3]) });
            Case::new([d.tensor(&shape, 0.2..2.0)], move |x| x[0].renorm(p, axis as isize, most))
        }),
    ]
}

#[test]
fn gradients() {
    check_all(rows());
}
