//! Losses.

use precast::{CrossEntropy, Op, Reduction, Result, Tensor};

use super::reduction;
use crate::draw::{Case, Draw};

/// Computes a loss of two tensors of the same shape.
fn pair(op: Op, x: &[Tensor], reduction: Reduction, number: f64) -> Result<Tensor> {
    let (a, b) = (&x[0], &x[1]);
    match op {
        Op::MseLoss => a.mse_loss(b, reduction),
        Op::L1Loss => a.l1_loss(b, reduction),
        Op::BceWithLogits => a.bce_with_logits(b, reduction),
        Op::BinaryCrossEntropy => a.binary_cross_entropy(b, reduction),
        Op::KlDiv => a.kl_div(b, reduction),
        Op::SoftMarginLoss => a.soft_margin_loss(b, reduction),
        Op::SmoothL1Loss => a.smooth_l1_loss(b, number, reduction),
        Op::HuberLoss => a.huber_loss(b, number, reduction),
        Op::HingeEmbeddingLoss => a.hinge_embedding_loss(b, number, reduction),
        _ => a.poisson_nll_loss(b, number > 1.0, reduction),
    }
}

pub fn draw(op: Op, d: &mut Draw) -> Result<Option<Case>> {
    let shape = d.shape(1..=3);
    let (reduction, word) = reduction(d);
    let number = d.number(0.5..2.0);
    let [samples, classes] = [d.size(1..=8), d.one_of(&[2, 5, 10, 33])];
    let case = match op {
        Op::MseLoss | Op::L1Loss | Op::SmoothL1Loss | Op::HuberLoss => {
            let inputs = vec![d.float(&shape)?, d.float(&shape)?];
            Case::new(inputs, move |x| pair(op, x, reduction, number)).option("number", number)
        }
        Op::PoissonNllLoss => {
            let inputs = vec![d.between(&shape, 0.5..3.0)?, d.between(&shape, 0.0..5.0)?];
            Case::new(inputs, move |x| pair(op, x, reduction, number)).option("number", number)
        }
        Op::BceWithLogits => {
            let inputs = vec![d.between(&shape, -8.0..8.0)?, d.between(&shape, 0.0..1.0)?];
            Case::new(inputs, move |x| pair(op, x, reduction, number))
        }
        Op::BinaryCrossEntropy => {
            let inputs = vec![d.between(&shape, 0.05..0.95)?, d.between(&shape, 0.0..1.0)?];
            Case::new(inputs, move |x| pair(op, x, reduction, number))
        }
        Op::KlDiv => {
            let inputs = vec![d.between(&shape, -6.0..0.0)?, d.between(&shape, 0.05..1.0)?];
            Case::new(inputs, move |x| pair(op, x, reduction, number))
        }
        Op::SoftMarginLoss | Op::HingeEmbeddingLoss => {
            let inputs = vec![d.float(&shape)?, d.signs(&shape)?];
            Case::new(inputs, move |x| pair(op, x, reduction, number)).option("number", number).fixed(1)
        }
        Op::GaussianNllLoss => {
            let inputs = vec![d.float(&shape)?, d.float(&shape)?, d.between(&shape, 0.25..3.0)?];
            Case::new(inputs, move |x| x[0].gaussian_nll_loss(&x[1], &x[2], 1e-6, reduction))
        }
        Op::MarginRankingLoss => {
            let inputs = vec![d.float(&shape)?, d.float(&shape)?, d.signs(&shape)?];
            let call = move |x: &[Tensor]| x[0].margin_ranking_loss(&x[1], &x[2], number, reduction);
            Case::new(inputs, call).option("number", number).fixed(2)
        }
        Op::CosineEmbeddingLoss => {
            let inputs = vec![d.float(&[samples, classes])?, d.float(&[samples, classes])?, d.signs(&[samples])?];
            let call = move |x: &[Tensor]| x[0].cosine_embedding_loss(&x[1], &x[2], 0.25, reduction);
            Case::new(inputs, call).fixed(2)
        }
        Op::TripletMarginLoss => {
            let inputs = (0..3).map(|_| d.float(&[samples, classes])).collect::<Result<_>>()?;
            let call = move |x: &[Tensor]| x[0].triplet_margin_loss(&x[1], &x[2], number, 2.0, reduction);
            Case::new(inputs, call).option("number", number)
        }
        Op::MultiMarginLoss => {
            let p = d.size(1..=2) as u32;
            let inputs = vec![d.float(&[samples, classes])?, d.indices(&[samples], classes)?];
            let call = move |x: &[Tensor]| x[0].multi_margin_loss(&x[1], p, number, reduction);
            Case::new(inputs, call).option("number", number).option("p", p)
        }
        Op::MultilabelMarginLoss => {
            let mut labels = vec![-1i64; samples * classes];
            for row in labels.chunks_mut(classes) {
                let right = d.size(0..=classes - 1);
                let chosen = d.places(right, classes)?.to_vec::<i64>()?;
                row[..right].copy_from_slice(&chosen);
            }
            let labels = Tensor::from_vec(labels, &[samples, classes])?;
            let call = move |x: &[Tensor]| x[0].multilabel_margin_loss(&x[1], reduction);
            Case::new(vec![d.float(&[samples, classes])?, labels], call)
        }
        Op::NllLoss => {
            let inputs = vec![d.between(&[samples, classes], -6.0..0.0)?, d.indices(&[samples], classes)?];
            Case::new(inputs, move |x| x[0].nll_loss(&x[1], reduction))
        }
        Op::CrossEntropy => {
            let (smoothing, soft) = (d.one_of(&[0.0, 0.125]), d.flag());
            let places = if d.flag() { vec![d.size(1..=4)] } else { Vec::new() };
            let shape = [&[samples, classes], &places[..]].concat();
            let x = d.between(&shape, -8.0..8.0)?;
            let ignored = (!soft && d.flag()).then_some(1);
            let options = CrossEntropy::default().reduction(reduction).label_smoothing(smoothing).ignore_index(ignored);
            let target = if soft {
                d.between(&shape, 0.0..1.0)?
            } else {
                d.indices(&[&[samples], &places[..]].concat(), classes)?
            };
            let call = move |x: &[Tensor]| x[0].cross_entropy_with(&x[1], &options);
            Case::new(vec![x, target], call).option("smoothing", smoothing).option("ignored", ignored)
        }
        Op::CtcLoss => {
            let [longest, length, samples] = [d.size(0..=3), d.size(2..=9), d.size(1..=3)];
            let x = d.between(&[length, samples, classes], -6.0..0.0)?;
            let mut drawn = |shape: &[usize], range: std::ops::RangeInclusive<usize>| {
                let numbers = (0..shape.iter().product()).map(|_| d.size(range.clone()) as i64).collect();
                Tensor::from_vec(numbers, shape)
            };
            let labels = drawn(&[samples, longest], 1..=classes - 1)?;
            let inputs = vec![x, labels, drawn(&[samples], 1..=length)?, drawn(&[samples], 0..=longest)?];
            // Some samples have no alignment.
            Case::new(inputs, move |x| x[0].ctc_loss(&x[1], &x[2], &x[3], 0, true, reduction))
        }
        _ => return Ok(None),
    };
    Ok(Some(case.option("reduction", word)))
}
