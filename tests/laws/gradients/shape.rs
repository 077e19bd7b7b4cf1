//! Ops that move elements, take a part of them, or join tensors.

use precast::{Op, Result, Tensor};

use crate::gradients::{
    inputs::Form,
    row::{Case, Row, check_all},
};

const WIDE: std::ops::Range<f64> = -2.0..2.0;

fn triangle(op: Op, f: fn(&Tensor, isize) -> Result<Tensor>) -> Row {
    Row::new(op, move |d| {
        let mut shape = d.shape(1..=3);
        shape.push(d.size(1..=6));
        let diagonal = d.number(0..=6) as isize - 3;
        Case::new([d.tensor(&shape, WIDE)], move |x| f(&x[0], diagonal))
    })
}

pub fn rows() -> Vec<Row> {
    vec![
        Row::new(Op::Reshape, |d| {
            let shape = d.shape(0..=4);
            let mut to: Vec<isize> = shape.iter().rev().map(|&len| len as isize).collect();
            if d.form == Form::Random && !to.is_empty() {
                to[0] = -1;
            }
            Case::new([d.tensor(&shape, WIDE)], move |x| x[0].reshape(&to))
        }),
        Row::new(Op::Flatten, |d| {
            let shape = d.shape(0..=4);
            let start = d.number(0..=shape.len().saturating_sub(1));
            Case::new([d.tensor(&shape, WIDE)], move |x| x[0].flatten(start))
        }),
        Row::new(Op::Unsqueeze, |d| {
            let shape = d.shape(0..=4);
            let axis = d.number(0..=shape.len()) as isize - if d.flag() { shape.len() as isize + 1 } else { 0 };
            Case::new([d.tensor(&shape, WIDE)], move |x| x[0].unsqueeze(axis))
        }),
        Row::new(Op::Squeeze, |d| {
            let mut shape = d.shape(0..=3);
            let axis = d.number(0..=shape.len());
            shape.insert(axis, 1);
            Case::new([d.tensor(&shape, WIDE)], move |x| x[0].squeeze(axis as isize))
        }),
        Row::new(Op::Transpose, |d| {
            let shape = d.shape(1..=4);
            let [a, b] = [(); 2].map(|()| d.number(0..=shape.len() - 1) as isize);
            Case::new([d.tensor(&shape, WIDE)], move |x| x[0].transpose(a, b - shape.len() as isize))
        }),
        Row::new(Op::Transpose, |d| {
            let shape = d.shape(1..=4);
            let turn = d.number(0..=shape.len() - 1);
            let order: Vec<usize> = (0..shape.len()).map(|i| (i + turn) % shape.len()).collect();
            Case::new([d.tensor(&shape, WIDE)], move |x| x[0].permute(&order))
        })
        .named("permute"),
        Row::new(Op::Broadcast, |d| {
            let [from, other] = d.broadcast();
            let rank = from.len().max(other.len());
            let of = |shape: &[usize], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
            let to: Vec<usize> =
                (0..rank).map(|i| if of(&from, i) == 1 { of(&other, i) } else { of(&from, i) }).collect();
            Case::new([d.tensor(&from, WIDE)], move |x| x[0].broadcast_to(&to))
        }),
        Row::new(Op::Broadcast, |d| {
            let (shape, new) = (d.shape(0..=3), d.number(0..=3));
            let to = [&[new], &shape[..]].concat();
            Case::new([d.tensor(&shape, WIDE)], move |x| x[0].broadcast_to(&to))
        })
        .named("to a new axis"),
        Row::new(Op::Slice, |d| {
            let shape = d.shape(1..=4);
            let axis = d.number(0..=shape.len() - 1);
            let start = d.number(0..=shape[axis]);
            let end = d.number(start..=shape[axis]);
            Case::new([d.tensor(&shape, WIDE)], move |x| x[0].slice(axis as isize, start..end))
        }),
        Row::new(Op::Concat, |d| {
            let shape = d.shape(1..=4);
            let (axis, mut other) = (d.number(0..=shape.len() - 1), shape.clone());
            other[axis] = d.number(0..=3);
            let inputs = [&shape, &other, &shape].map(|shape| d.tensor(shape, WIDE));
            Case::new(inputs, move |x| Tensor::concat(&[&x[0], &x[1], &x[2]], axis as isize))
        }),
        Row::new(Op::Stack, |d| {
            let shape = d.shape(0..=4);
            let axis = d.number(0..=shape.len()) as isize;
            let inputs = [(); 2].map(|()| d.tensor(&shape, WIDE));
            Case::new(inputs, move |x| Tensor::stack(&[&x[0], &x[1]], axis))
        }),
        Row::new(Op::Split, |d| {
            let shape = d.shape(1..=4);
            let axis = d.number(0..=shape.len() - 1);
            let first = d.number(0..=shape[axis]);
            let lengths = [first, shape[axis] - first];
            Case::new([d.tensor(&shape, WIDE)], move |x| {
                let parts = x[0].split(&lengths, axis as isize)?;
                Tensor::concat(&[&parts[1], &parts[0]], axis as isize)
            })
        }),
        Row::new(Op::Split, |d| {
            let (shape, axis) = d.shape_and_axis(4);
            let (count, chosen) = (shape[axis], d.number(0..=shape[axis] - 1));
            // One part of several: the others get no gradient.
            Case::new([d.tensor(&shape, WIDE)], move |x| Ok(x[0].chunk(count, axis as isize)?[chosen].clone()))
        })
        .named("chunk"),
        Row::new(Op::Pad, |d| {
            let shape = d.shape(0..=4);
            let pairs: Vec<_> = shape.iter().map(|_| (d.number(0..=2), d.number(0..=2))).collect();
            Case::new([d.tensor(&shape, WIDE)], move |x| x[0].pad(&pairs, 0.5))
        }),
        Row::new(Op::ReflectionPad, |d| {
            let (samples, rank) = (d.samples(2), d.number(1..=3));
            let shape = [vec![samples, d.size(1..=2)], d.sizes(rank, 1..=4)].concat();
            let most =
                |d: &mut crate::gradients::inputs::Draw, len: usize| (d.number(0..=len - 1), d.number(0..=len - 1));
            let inner: Vec<_> = shape[2..].iter().map(|&len| most(d, len)).collect();
            let pairs = [vec![(0, 0); 2], inner].concat();
            Case::new([d.tensor(&shape, WIDE)], move |x| x[0].reflection_pad(&pairs))
        }),
        Row::new(Op::ReplicationPad, |d| {
            let (samples, rank) = (d.samples(2), d.number(1..=3));
            let shape = [vec![samples, d.size(1..=2)], d.sizes(rank, 1..=4)].concat();
            let inner: Vec<_> = shape[2..].iter().map(|_| (d.number(0..=3), d.number(0..=3))).collect();
            let pairs = [vec![(0, 0); 2], inner].concat();
            Case::new([d.tensor(&shape, WIDE)], move |x| x[0].replication_pad(&pairs))
        }),
        Row::new(Op::Reverse, |d| {
            let shape = d.shape(0..=4);
            let axes: Vec<isize> = (0..shape.len() as isize).filter(|_| d.flag()).collect();
            let back = if d.flag() { shape.len() as isize } else { 0 };
            let axes: Vec<isize> = axes.iter().map(|axis| axis - back).collect();
            Case::new([d.tensor(&shape, WIDE)], move |x| x[0].flip(&axes))
        }),
        Row::new(Op::Roll, |d| {
            let shape = d.shape(0..=4);
            let axes: Vec<isize> = (0..shape.len() as isize).filter(|_| d.flag()).collect();
            let shifts: Vec<isize> = axes.iter().map(|_| d.number(0..=14) as isize - 7).collect();
            Case::new([d.tensor(&shape, WIDE)], move |x| x[0].roll(&shifts, &axes))
        }),
        Row::new(Op::Tile, |d| {
            let shape = d.shape(0..=4);
            let count = d.number(0..=shape.len() + 1);
            let repeats: Vec<usize> = (0..count).map(|_| d.size(1..=3)).collect();
            Case::new([d.tensor(&shape, WIDE)], move |x| x[0].tile(&repeats))
        }),
        triangle(Op::Tril, Tensor::tril),
        triangle(Op::Triu, Tensor::triu),
        Row::new(Op::PixelShuffle, |d| {
            let (n, [c, h, w], r) = (d.samples(2), [(); 3].map(|()| d.size(1..=3)), d.size(1..=2));
            Case::new([d.tensor(&[n, c * r * r, h, w], WIDE)], move |x| x[0].pixel_shuffle(r))
        }),
        Row::new(Op::SpaceToDepth, |d| {
            let (n, [c, h, w], r) = (d.samples(2), [(); 3].map(|()| d.size(1..=3)), d.size(1..=2));
            Case::new([d.tensor(&[n, c, h * r, w * r], WIDE)], move |x| x[0].pixel_unshuffle(r))
        }),
    ]
}

#[test]
fn gradients() {
    check_all(rows());
}
