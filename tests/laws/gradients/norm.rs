//! Normalizations.

use precast::{Op, Tensor};

use crate::gradients::{
    inputs::{Draw, Form},
    row::{Case, Row, check_all},
};

const EPS: f64 = 0.1;

/// Draws `[n, c, ...]`, with c channels in groups. The number of samples can be 0.
fn channels(d: &mut Draw, groups: usize) -> (Vec<usize>, usize) {
    let (n, c, rank) = (d.samples(3), groups * d.size(1..=3), d.number(0..=2));
    ([vec![n, c], d.sizes(rank, 1..=3)].concat(), c)
}

/// Draws the input, and gamma and beta as requested.
fn inputs(d: &mut Draw, x: &[usize], params: &[usize], which: [bool; 2]) -> Vec<Tensor> {
    let mut inputs = vec![d.tensor(x, -1.0..1.0)];
    inputs.extend(which.into_iter().filter(|&with| with).map(|_| d.tensor(params, 0.2..1.0)));
    inputs
}

/// Returns gamma and beta from the inputs after the first ones.
fn params(x: &[Tensor], which: [bool; 2]) -> [Option<&Tensor>; 2] {
    match which {
        [true, true] => [x.first(), x.get(1)],
        [true, false] => [x.first(), None],
        [false, true] => [None, x.first()],
        [false, false] => [None, None],
    }
}

const WHICH: [[bool; 2]; 4] = [[true, true], [true, false], [false, true], [false, false]];

/// Number of f32 epsilons lost when two numbers are normalized: they become 1 and -1, whatever they are, so the terms
/// of their gradients cancel except for the part left by `EPS`.
const OF_TWO: f64 = 256.0;

pub fn rows() -> Vec<Row> {
    vec![
        Row::new(Op::BatchNorm, |d| {
            let ((x, c), which) = (channels(d, 1), d.pick(&WHICH));
            let mut all = vec![d.tensor(&x, -1.0..1.0), d.tensor(&[c], -1.0..1.0), d.tensor(&[c], 0.5..2.0)];
            all.extend(inputs(d, &[], &[c], which).split_off(1));
            Case::new(all, move |x| {
                let [gamma, beta] = params(&x[3..], which);
                x[0].batch_norm(&x[1], &x[2], gamma, beta, EPS)
            })
        })
        .named("given statistics"),
        Row::new(Op::BatchNorm, |d| {
            let ((mut x, c), which) = (channels(d, 1), d.pick(&WHICH));
            // Without samples there are no statistics.
            x[0] = x[0].max(1);
            let x = inputs(d, &x, &[c], which);
            Case::new(x, move |x| {
                let [gamma, beta] = params(&x[1..], which);
                Ok(x[0].batch_norm_train(gamma, beta, EPS)?.0)
            })
            .single(OF_TWO)
        })
        .named("training"),
        Row::new(Op::GroupNorm, |d| {
            let (groups, which) = (d.size(1..=2), d.pick(&WHICH));
            let (x, c) = channels(d, groups);
            Case::new(inputs(d, &x, &[c], which), move |x| {
                let [gamma, beta] = params(&x[1..], which);
                x[0].group_norm(groups, gamma, beta, EPS)
            })
        }),
        Row::new(Op::InstanceNorm, |d| {
            let ((x, c), which) = (channels(d, 1), d.pick(&WHICH));
            Case::new(inputs(d, &x, &[c], which), move |x| {
                let [gamma, beta] = params(&x[1..], which);
                x[0].instance_norm(gamma, beta, EPS)
            })
            .single(OF_TWO)
        }),
        Row::new(Op::LayerNorm, |d| {
            let (x, which) = (leading_and_full(d), d.pick(&WHICH));
            let count = if d.form == Form::Empty { 1 } else { d.number(1..=x.len()) };
            let last = x[x.len() - count..].to_vec();
            Case::new(inputs(d, &x, &last, which), move |x| {
                let [gamma, beta] = params(&x[1..], which);
                x[0].layer_norm(&last, gamma, beta, EPS)
            })
        }),
        Row::new(Op::RmsNorm, |d| {
            let (x, which) = (leading_and_full(d), d.pick(&[[true, false], [false, false]]));
            let last = x[x.len() - 1..].to_vec();
            Case::new(inputs(d, &x, &last, which), |x| x[0].rms_norm(x.get(1), EPS))
        }),
    ]
}

/// Draws a shape whose last axis is not empty.
fn leading_and_full(d: &mut Draw) -> Vec<usize> {
    let mut shape = d.shape(0..=3);
    shape.push(d.size(1..=4));
    shape
}

#[test]
fn gradients() {
    check_all(rows());
}
