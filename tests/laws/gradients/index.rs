//! Ops that read and write at indices, and sorting.

use precast::{Op, Result, Tensor};

use crate::gradients::{
    inputs::{Draw, Form},
    row::{Case, Row, check_all},
};

const WIDE: std::ops::Range<f64> = -2.0..2.0;

/// Draws a tensor's shape, an axis, and the shape of an index that fits along that axis.
fn along(d: &mut Draw) -> (Vec<usize>, usize, Vec<usize>) {
    let (shape, axis) = d.shape_and_axis(4);
    let mut index: Vec<usize> = shape.iter().map(|&len| d.number(len.min(1)..=len)).collect();
    index[axis] = if d.form == Form::Empty && d.flag() { 0 } else { d.size(1..=5) };
    (shape, axis, index)
}

/// Makes a row for an op that puts values of the index's shape along an axis.
fn put(op: Op, f: fn(&Tensor, isize, &Tensor, &Tensor) -> Result<Tensor>) -> Row {
    Row::new(op, move |d| {
        let (shape, axis, index) = along(d);
        let inputs = [d.tensor(&shape, WIDE), d.indices(shape[axis], &index), d.tensor(&index, WIDE)];
        let axis = axis as isize - if d.flag() { shape.len() as isize } else { 0 };
        Case::new(inputs, move |x| f(&x[0], axis, &x[1], &x[2]))
    })
}

/// Makes a row for an op that puts whole slices along an axis.
fn put_slices(op: Op, f: fn(&Tensor, isize, &Tensor, &Tensor) -> Result<Tensor>) -> Row {
    Row::new(op, move |d| {
        let (shape, axis) = d.shape_and_axis(4);
        let count = if d.form == Form::Empty && d.flag() { 0 } else { d.size(1..=5) };
        let mut values = shape.clone();
        values[axis] = count;
        let inputs = [d.tensor(&shape, WIDE), d.indices(shape[axis], &[count]), d.tensor(&values, WIDE)];
        Case::new(inputs, move |x| f(&x[0], axis as isize, &x[1], &x[2]))
    })
}

fn index_put(accumulate: bool) -> Row {
    Row::new(Op::IndexPut, move |d| {
        let mut shape = d.shape(1..=4);
        shape[0] = shape[0].max(1);
        let index = d.shape(0..=2);
        let inputs =
            [d.tensor(&shape, WIDE), d.indices(shape[0], &index), d.tensor(&[&index[..], &shape[1..]].concat(), WIDE)];
        Case::new(inputs, move |x| x[0].index_put(&x[1], &x[2], accumulate))
    })
}

pub fn rows() -> Vec<Row> {
    vec![
        Row::new(Op::Gather, |d| {
            let (shape, axis, index) = along(d);
            let inputs = [d.tensor(&shape, WIDE), d.indices(shape[axis], &index)];
            Case::new(inputs, move |x| x[0].gather(axis as isize, &x[1]))
        }),
        Row::new(Op::IndexSelect, |d| {
            let (shape, axis) = d.shape_and_axis(4);
            let count = if d.form == Form::Empty && d.flag() { 0 } else { d.size(1..=5) };
            let inputs = [d.tensor(&shape, WIDE), d.indices(shape[axis], &[count])];
            let axis = axis as isize - shape.len() as isize;
            Case::new(inputs, move |x| x[0].index_select(axis, &x[1]))
        }),
        Row::new(Op::Embedding, |d| {
            let (index, table) = (d.shape(0..=4), d.sizes(2, 1..=4));
            let inputs = [d.indices(table[0], &index), d.tensor(&table, WIDE)];
            Case::new(inputs, |x| x[0].embedding(&x[1]))
        }),
        Row::without_gradient(Op::OneHot, |d| {
            let (shape, classes) = (d.shape(0..=4), d.number(1..=5));
            Case::new([d.indices(classes, &shape)], move |x| x[0].one_hot(classes))
        }),
        put(Op::Scatter, Tensor::scatter),
        put(Op::ScatterAdd, Tensor::scatter_add),
        put_slices(Op::IndexAdd, Tensor::index_add),
        put_slices(Op::IndexCopy, Tensor::index_copy),
        index_put(false),
        index_put(true).named("and add"),
        Row::new(Op::Sort, |d| {
            let (shape, axis) = d.shape_and_axis(4);
            let descending = d.flag();
            Case::new([d.apart(&shape)], move |x| Ok(x[0].sort(axis as isize, descending)?.0))
        }),
        Row::new(Op::TopK, |d| {
            let (shape, axis) = d.shape_and_axis(4);
            let (k, largest) = (d.number(1..=shape[axis]), d.flag());
            Case::new([d.apart(&shape)], move |x| Ok(x[0].topk(k, axis as isize, largest)?.0))
        }),
    ]
}

#[test]
fn gradients() {
    check_all(rows());
}
