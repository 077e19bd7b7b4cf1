//! Losses.

use std::ops::Range;

use precast::{CrossEntropy, DType, Op, Reduction, Result, Tensor};

use crate::gradients::{
    inputs::{Draw, Form},
    row::{Case, Row, check_all},
};

type Loss = fn(&Tensor, &Tensor, Reduction) -> Result<Tensor>;

/// Draws a reduction. An empty mean does not exist.
fn reduction(d: &mut Draw) -> Reduction {
    match d.form {
        Form::Empty => d.pick(&[Reduction::Sum, Reduction::None]),
        _ => d.pick(&[Reduction::Mean, Reduction::Sum, Reduction::None]),
    }
}

/// Makes a row for a loss of two tensors of the same shape, with ranges away from its kinks.
fn pair(op: Op, f: Loss, x: Range<f64>, target: Range<f64>) -> Row {
    Row::new(op, move |d| {
        let (shape, reduction) = (d.shape(0..=4), reduction(d));
        let inputs = [d.tensor(&shape, x.clone()), d.tensor(&shape, target.clone())];
        Case::new(inputs, move |x| f(&x[0], &x[1], reduction))
    })
}

/// Draws `[samples, classes, ...]`, or one sample's `[classes]`: its shape, the shape of class indices, and the number
/// of classes.
fn classes(d: &mut Draw) -> (Vec<usize>, Vec<usize>, usize) {
    let count = d.size(1..=5);
    if d.form == Form::Scalar {
        return (vec![3], vec![], 3);
    }
    // Many samples make many differences to compute.
    let most = if let Form::Tall(_) = d.form { 0 } else { 2 };
    let (samples, rank) = (d.samples(4), d.number(0..=most));
    let inner = d.sizes(rank, 1..=3);
    ([&[samples, count], &inner[..]].concat(), [&[samples], &inner[..]].concat(), count)
}

fn cross_entropy(d: &mut Draw, soft: bool) -> Case {
    let (shape, samples, count) = classes(d);
    let x = d.tensor(&shape, -3.0..3.0);
    let target = if soft { d.tensor(&shape, 0.0..1.0) } else { d.indices(count, &samples) };
    let reduction = reduction(d);
    // The first class is ignored, unless no sample would be left for the mean.
    let ignored = (!soft && d.flag() && target.to_f64().iter().any(|&class| class > 0.0)).then_some(0);
    let options = CrossEntropy::default()
        .reduction(reduction)
        .ignore_index(ignored)
        .label_smoothing(if d.flag() { 0.2 } else { 0.0 })
        .weight(d.flag().then(|| d.tensor(&[count], 0.5..2.0)));
    Case::new([x, target], move |x| x[0].cross_entropy_with(&x[1], &options))
}

/// Draws `[samples, classes]`, all scores at least 0.1 apart from each other and from a margin of 1.
fn scores(d: &mut Draw) -> (Tensor, [usize; 2]) {
    let [samples, classes] = [d.samples(30), d.size(1..=5)];
    let turn = d.number(0..=4);
    let score = |i: usize| ((i * 2 + turn) % classes) as f64 * 0.45 + (i / classes) as f64 * 0.01;
    let scores: Vec<f64> = (0..samples * classes).map(score).collect();
    (Tensor::from_vec(scores, &[samples, classes]).expect("one score for each"), [samples, classes])
}

pub fn rows() -> Vec<Row> {
    vec![
        pair(Op::MseLoss, |x, t, r| x.mse_loss(t, r), -3.0..3.0, -1.0..1.0),
        pair(Op::L1Loss, |x, t, r| x.l1_loss(t, r), -3.0..0.0, 0.05..1.0),
        // Differences below, then above the bend at 0.7.
        pair(Op::SmoothL1Loss, |x, t, r| x.smooth_l1_loss(t, 0.7, r), -0.3..0.0, 0.05..0.3).named("near"),
        pair(Op::SmoothL1Loss, |x, t, r| x.smooth_l1_loss(t, 0.7, r), -3.0..-0.8, 0.05..1.0).named("far"),
        pair(Op::HuberLoss, |x, t, r| x.huber_loss(t, 0.7, r), -0.3..0.0, 0.05..0.3).named("near"),
        pair(Op::HuberLoss, |x, t, r| x.huber_loss(t, 0.7, r), -3.0..-0.8, 0.05..1.0).named("far"),
        pair(Op::BceWithLogits, |x, t, r| x.bce_with_logits(t, r), -3.0..3.0, 0.05..1.0),
        pair(Op::BinaryCrossEntropy, |x, t, r| x.binary_cross_entropy(t, r), 0.2..0.8, 0.1..0.9),
        pair(Op::KlDiv, |x, t, r| x.kl_div(t, r), -3.0..0.0, 0.05..1.0),
        pair(Op::SoftMarginLoss, |x, t, r| x.soft_margin_loss(t, r), -3.0..3.0, 0.05..1.0),
        pair(Op::PoissonNllLoss, |x, t, r| x.poisson_nll_loss(t, true, r), -3.0..1.0, 0.05..2.0).named("of logs"),
        pair(Op::PoissonNllLoss, |x, t, r| x.poisson_nll_loss(t, false, r), 1.0..4.0, 0.05..2.0),
        Row::new(Op::GaussianNllLoss, |d| {
            let (shape, reduction) = (d.shape(0..=4), reduction(d));
            let inputs = [d.tensor(&shape, -1.0..1.0), d.tensor(&shape, -1.0..1.0), d.tensor(&shape, 0.5..2.0)];
            Case::new(inputs, move |x| x[0].gaussian_nll_loss(&x[1], &x[2], 1e-6, reduction))
        }),
        Row::new(Op::GaussianNllLoss, |d| {
            let ([a, b, c], reduction) = (d.broadcast(), reduction(d));
            let inputs = [d.tensor(&a, -1.0..1.0), d.tensor(&b, -1.0..1.0), d.tensor(&c, 0.5..2.0)];
            Case::new(inputs, move |x| x[0].gaussian_nll_loss(&x[1], &x[2], 1e-6, reduction))
        })
        .named("of shapes that broadcast"),
        Row::new(Op::CtcLoss, |d| {
            let (count, most, reduction) = (d.size(1..=3), d.number(0..=3), reduction(d));
            // At least as many places as the labels and the blanks between equal ones need. Without a label, the blank may
            // be the only class.
            let (length, classes) = (2 * most + d.size(1..=5), d.size(if most > 0 { 2..=5 } else { 1..=5 }));
            let of_targets: Vec<i64> = (0..count).map(|_| d.number(0..=most) as i64).collect();
            let labels = d.indices((classes - 1).max(1), &[count, most]);
            let labels = labels.add(&Tensor::ones(&[], DType::I64)).expect("the blank is 0");
            let of_inputs = Tensor::from_vec(vec![length as i64; count], &[count]).expect("one for each");
            let of_targets = Tensor::from_vec(of_targets, &[count]).expect("one for each");
            let x = d.tensor(&[length, count, classes], -3.0..0.0);
            Case::new([x, labels, of_inputs, of_targets], move |x| {
                x[0].ctc_loss(&x[1], &x[2], &x[3], 0, false, reduction)
            })
        }),
        Row::new(Op::HingeEmbeddingLoss, |d| {
            let (shape, reduction) = (d.shape(0..=4), reduction(d));
            let inputs = [d.away(&shape, -1.0..1.0, &[0.2]), d.signs(&shape)];
            Case::new(inputs, move |x| x[0].hinge_embedding_loss(&x[1], 0.2, reduction))
        }),
        Row::new(Op::MarginRankingLoss, |d| {
            let (shape, reduction) = (d.shape(0..=4), reduction(d));
            // Differences of -0.4 and below are far from the margin on either side.
            let inputs = [d.tensor(&shape, -2.0..-0.5), d.tensor(&shape, 0.5..2.0), d.signs(&shape)];
            Case::new(inputs, move |x| x[0].margin_ranking_loss(&x[1], &x[2], 0.3, reduction))
        }),
        Row::new(Op::MarginRankingLoss, |d| {
            let ([a, b, c], reduction) = (d.broadcast(), reduction(d));
            let inputs = [d.tensor(&a, -2.0..-0.5), d.tensor(&b, 0.5..2.0), d.signs(&c)];
            Case::new(inputs, move |x| x[0].margin_ranking_loss(&x[1], &x[2], 0.3, reduction))
        })
        .named("of shapes that broadcast"),
        Row::new(Op::CosineEmbeddingLoss, |d| {
            let (shape, reduction) = (vec![d.samples(20), d.size(1..=20)], reduction(d));
            let inputs = [d.tensor(&shape, -2.0..-0.5), d.tensor(&shape, 0.5..2.0), d.signs(&shape[..1])];
            // The cosine is above -1, so the margin is always exceeded.
            Case::new(inputs, move |x| x[0].cosine_embedding_loss(&x[1], &x[2], -1.5, reduction))
        }),
        Row::new(Op::TripletMarginLoss, |d| {
            let (mut shape, reduction) = (d.shape(0..=3), reduction(d));
            shape.push(d.size(1..=4));
            let p = d.pick(&[1.0, 2.0, 3.0]);
            // Apart from each other, since there is no slope at a distance of 0.
            let inputs = [d.tensor(&shape, -0.2..0.2), d.tensor(&shape, 0.5..2.0), d.tensor(&shape, -2.0..-0.5)];
            Case::new(inputs, move |x| x[0].triplet_margin_loss(&x[1], &x[2], 9.0, p, reduction))
        }),
        Row::new(Op::CrossEntropy, |d| cross_entropy(d, false)).named("of classes"),
        Row::new(Op::CrossEntropy, |d| cross_entropy(d, true)).named("of probabilities"),
        Row::new(Op::NllLoss, |d| {
            let ((shape, samples, count), reduction) = (classes(d), reduction(d));
            let inputs = [d.tensor(&shape, -3.0..0.0), d.indices(count, &samples)];
            Case::new(inputs, move |x| x[0].nll_loss(&x[1], reduction))
        }),
        Row::new(Op::MultiMarginLoss, |d| {
            let ((x, [samples, classes]), reduction, p) = (scores(d), reduction(d), d.pick(&[1, 2]));
            let target = d.indices(classes, &[samples]);
            Case::new([x, target], move |x| x[0].multi_margin_loss(&x[1], p, 1.0, reduction))
        }),
        Row::new(Op::MultilabelMarginLoss, |d| {
            let ((x, [samples, classes]), reduction) = (scores(d), reduction(d));
            // One right class for each sample, and the end of the list.
            let first = |i: usize, class: usize| if i.is_multiple_of(classes) { class as i64 } else { -1 };
            let listed: Vec<i64> = (0..samples * classes).map(|i| first(i, d.number(0..=classes - 1))).collect();
            let target = Tensor::from_vec(listed, &[samples, classes]).expect("one for each score");
            Case::new([x, target], move |x| x[0].multilabel_margin_loss(&x[1], reduction))
        }),
    ]
}

#[test]
fn gradients() {
    check_all(rows());
}
