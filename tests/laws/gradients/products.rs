//! Products of vectors, matrices and batches of them, and sums of products in Einstein notation.

use precast::{Op, Result, Tensor};

use crate::gradients::{
    inputs::{Draw, Form},
    row::{Case, Row, check_all},
};

fn of(d: &mut Draw, shapes: &[&[usize]]) -> Vec<Tensor> {
    shapes.iter().map(|shape| d.tensor(shape, -1.0..1.0)).collect()
}

/// Draws rows, inner length and columns of a product. Without elements it has no rows, or empty sums.
fn sizes(d: &mut Draw) -> [usize; 3] {
    let [m, k, n] = [d.size(1..=4), d.size(1..=5), d.size(1..=4)];
    match (d.form, d.flag()) {
        (Form::Empty, true) => [0, k, n],
        (Form::Empty, false) => [m, 0, n],
        _ => [m, k, n],
    }
}

fn plus_product(
    op: Op,
    shapes: fn(&mut Draw) -> Vec<Vec<usize>>,
    f: fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>,
) -> Row {
    Row::new(op, move |d| {
        let shapes = shapes(d);
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        Case::new(of(d, &shapes), move |x| f(&x[0], &x[1], &x[2]))
    })
}

pub fn rows() -> Vec<Row> {
    vec![
        Row::new(Op::MatMul, |d| {
            let [m, k, n] = sizes(d);
            Case::new(of(d, &[&[m, k], &[k, n]]), |x| x[0].matmul(&x[1]))
        }),
        Row::new(Op::MatMul, |d| {
            let [n, m, k] = sizes(d);
            Case::new(of(d, &[&[m, k], &[n, k]]), |x| x[0].matmul(&x[1].t()?))
        })
        .named("of a transpose"),
        Row::new(Op::BatchMatMul, |d| {
            let [m, k, n] = sizes(d);
            let batch = d.sizes(2, 1..=3);
            let (a, b) = ([&batch[..], &[m, k]].concat(), [&batch[..], &[k, n]].concat());
            Case::new(of(d, &[&a, &b]), |x| x[0].batch_matmul(&x[1]))
        }),
        Row::new(Op::MatMulExt, |d| {
            let [m, k, n] = sizes(d);
            let [b, c] = [d.size(1..=3), d.size(1..=3)];
            let shapes: [&[usize]; 2] = match d.number(0..=6) {
                0 => [&[b, c, m, k], &[k, n]],
                1 => [&[b, c, m, k], &[b, 1, k, n]],
                2 => [&[1, m, k], &[b, c, k, n]],
                3 => [&[b, c, m, k], &[k]],
                4 => [&[k], &[b, c, k, n]],
                5 => [&[k], &[k, n]],
                _ => [&[k], &[k]],
            };
            Case::new(of(d, &shapes), |x| x[0].matmul_ext(&x[1]))
        }),
        Row::new(Op::Linear, |d| {
            let (mut x, [out, width]) = (d.shape(0..=3), [d.size(1..=4), d.size(1..=5)]);
            x.push(width);
            let mut inputs = of(d, &[&x, &[out, width]]);
            if d.flag() {
                inputs.extend(of(d, &[&[out]]));
            }
            Case::new(inputs, |x| x[0].linear(&x[1], x.get(2)))
        }),
        Row::new(Op::BiasAdd, |d| {
            let (n, c, rank) = (d.samples(4), d.size(1..=4), d.number(0..=2));
            let shape = [vec![n, c], d.sizes(rank, 1..=3)].concat();
            Case::new(of(d, &[&shape, &[c]]), |x| x[0].bias_add(&x[1]))
        }),
        Row::new(Op::Mv, |d| {
            let (m, k) = (d.samples(20), d.samples(20));
            Case::new(of(d, &[&[m, k], &[k]]), |x| x[0].mv(&x[1]))
        }),
        Row::new(Op::Dot, |d| {
            let k = d.length();
            // One sum is the whole result, and its terms may cancel.
            Case::new(of(d, &[&[k], &[k]]), |x| x[0].dot(&x[1])).single(2048.0)
        }),
        Row::new(Op::Vecdot, |d| {
            // Broadcast before the axis of the products.
            let k = d.samples(4);
            let shapes: [Vec<usize>; 2] = d.broadcast();
            let [a, b] = shapes.map(|shape| [&shape[..], &[k]].concat());
            Case::new(of(d, &[&a, &b]), |x| x[0].vecdot(&x[1]))
        }),
        Row::new(Op::Inner, |d| {
            let [i, k, j] = sizes(d);
            let l = d.size(1..=3);
            Case::new(of(d, &[&[i, l, k], &[j, k]]), |x| x[0].inner(&x[1]))
        }),
        Row::new(Op::Ger, |d| {
            let (m, n) = (d.samples(20), d.size(1..=20));
            Case::new(of(d, &[&[m], &[n]]), |x| x[0].outer(&x[1]))
        }),
        plus_product(
            Op::Addmm,
            |d| {
                let [m, k, n] = sizes(d);
                let added = [vec![], vec![n], vec![m, 1], vec![1, n], vec![m, n]];
                vec![added[d.number(0..=4)].clone(), vec![m, k], vec![k, n]]
            },
            Tensor::addmm,
        ),
        plus_product(
            Op::Addbmm,
            |d| {
                let ([m, k, n], b) = (sizes(d), d.size(1..=3));
                let added = [vec![], vec![n], vec![m, 1], vec![1, n], vec![m, n]];
                vec![added[d.number(0..=4)].clone(), vec![b, m, k], vec![b, k, n]]
            },
            Tensor::addbmm,
        ),
        plus_product(
            Op::Baddbmm,
            |d| {
                let ([m, k, n], b) = (sizes(d), d.size(1..=3));
                let added = [vec![b, 1, n], vec![1, m, n], vec![n], vec![b, m, n]];
                vec![added[d.number(0..=3)].clone(), vec![b, m, k], vec![b, k, n]]
            },
            Tensor::baddbmm,
        ),
        plus_product(
            Op::Addmv,
            |d| {
                let (m, k) = (d.samples(9), d.samples(9));
                vec![[vec![1], vec![m], vec![]][d.number(0..=2)].clone(), vec![m, k], vec![k]]
            },
            Tensor::addmv,
        ),
        plus_product(
            Op::Addr,
            |d| {
                let (m, n) = (d.size(1..=9), d.samples(9));
                vec![[vec![m, 1], vec![n], vec![m, n]][d.number(0..=2)].clone(), vec![m], vec![n]]
            },
            Tensor::addr,
        ),
        Row::new(Op::Einsum, einsum),
        Row::new(Op::Tensordot, |d| {
            let ([i, j, k], l) = (sizes(d), d.size(1..=3));
            Case::new(of(d, &[&[i, j, k], &[k, l, j]]), |x| x[0].tensordot(&x[1], &[1, -1], &[-1, 0]))
        }),
        Row::new(Op::MultiDot, |d| {
            let ([i, j, k], l) = (sizes(d), d.size(1..=3));
            Case::new(of(d, &[&[i, j], &[j, k], &[k, l]]), |x| Tensor::multi_dot(&[&x[0], &x[1], &x[2]]))
        }),
        Row::new(Op::Bilinear, |d| {
            let ([n, i, j], k) = (sizes(d), d.size(1..=3));
            let mut inputs = of(d, &[&[n, i], &[n, j], &[k, i, j]]);
            if d.flag() {
                inputs.extend(of(d, &[&[k]]));
            }
            Case::new(inputs, |x| x[0].bilinear(&x[1], &x[2], x.get(3)))
        }),
    ]
}

/// Draws an equation of up to three operands and four letters: a letter can occur twice in one operand, and sums run
/// over the letters missing from the result.
fn einsum(d: &mut Draw) -> Case {
    let mut lens = d.sizes(4, 1..=3);
    lens[0] = d.samples(3);
    let count = d.number(1..=3);
    let labels: Vec<Vec<usize>> = (0..count).map(|_| (0..d.number(0..=3)).map(|_| d.number(0..=3)).collect()).collect();
    let shapes: Vec<Vec<usize>> = labels.iter().map(|axes| axes.iter().map(|&i| lens[i]).collect()).collect();
    let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    let written = |axes: &[usize]| axes.iter().map(|&i| "abcd".as_bytes()[i] as char).collect::<String>();
    let mut output: Vec<usize> = (0..4).filter(|i| labels.iter().flatten().any(|l| l == i) && d.flag()).collect();
    if d.flag() {
        output.reverse();
    }
    let operands: Vec<String> = labels.iter().map(|axes| written(axes)).collect();
    let equation = format!("{} -> {}", operands.join(", "), written(&output));
    Case::new(of(d, &shapes), move |x| Tensor::einsum(&equation, &x.iter().collect::<Vec<_>>()))
}

#[test]
fn gradients() {
    check_all(rows());
}
