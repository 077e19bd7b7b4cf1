//! Sums and other reductions along axes.

use precast::{Op, Result, Tensor};

use super::plain;
use crate::draw::{Case, Draw};

/// Draws plain sums of the elements.
pub fn sums(op: Op, d: &mut Draw) -> Result<Option<Case>> {
    let shape = d.shape(1..=4);
    let (axes, axis, keep) = (d.axes(shape.len()), d.axis(shape.len()), d.flag());
    let case = match op {
        Op::Sum | Op::Mean => {
            let along = axes.clone();
            let call = move |x: &[Tensor]| if op == Op::Sum { x[0].sum(&along, keep) } else { x[0].mean(&along, keep) };
            Case::new(vec![d.float(&shape)?], call).option("axes", axes).option("keep", keep)
        }
        Op::CumSum => Case::new(vec![d.float(&shape)?], move |x| x[0].cumsum(axis)).option("axis", axis),
        Op::Trace => {
            let n = d.size(1..=20);
            return plain(op, vec![d.float(&[n, n])?]);
        }
        _ => return Ok(None),
    };
    Ok(Some(case))
}

pub fn draw(op: Op, d: &mut Draw) -> Result<Option<Case>> {
    let shape = d.shape(1..=4);
    let rank = shape.len();
    let (axes, axis, keep) = (d.axes(rank), d.axis(rank), d.flag());
    let p = d.one_of(&[1.0, 2.0, 3.0, f64::INFINITY]);
    let [n, m, k] = [d.size(2..=6), d.size(1..=6), d.size(1..=20)];
    let case = match op {
        Op::Prod => {
            let along = axes.clone();
            let x = d.between(&shape, 0.5..1.5)?;
            Case::new(vec![x], move |x| x[0].prod(&along, keep)).option("axes", axes).option("keep", keep)
        }
        Op::CumProd => {
            let x = d.between(&shape, 0.5..1.5)?;
            Case::new(vec![x], move |x| x[0].cumprod(axis)).option("axis", axis)
        }
        Op::Var | Op::Std => {
            // A single element has no sample variance.
            let correction = d.size(0..=1);
            let mut shape = vec![d.size(1..=5), d.size(2..=80)];
            if d.flag() {
                shape.remove(0);
            }
            let axes = if d.flag() { vec![-1] } else { Vec::new() };
            let along = axes.clone();
            let call = move |x: &[Tensor]| match op {
                Op::Var => x[0].var(&along, correction, keep),
                _ => x[0].std(&along, correction, keep),
            };
            let x = if d.flag() { d.between(&shape, 100.0..101.0)? } else { d.float(&shape)? };
            Case::new(vec![x], call).option("axes", axes).option("correction", correction).option("keep", keep)
        }
        Op::Norm => {
            let along = axes.clone();
            Case::new(vec![d.float(&shape)?], move |x| x[0].norm(p, &along, keep))
                .option("p", p.to_string())
                .option("axes", axes)
                .option("keep", keep)
        }
        Op::Dist => {
            let inputs = vec![d.float(&shape)?, d.float(&shape)?];
            Case::new(inputs, move |x| x[0].dist(&x[1], p)).option("p", p.to_string())
        }
        Op::Cdist => {
            let inputs = vec![d.float(&[2, n, k])?, d.float(&[2, m, k])?];
            Case::new(inputs, move |x| x[0].cdist(&x[1], p)).option("p", p.to_string())
        }
        Op::Pdist => Case::new(vec![d.float(&[n, k])?], move |x| x[0].pdist(p)).option("p", p.to_string()),
        Op::Renorm => {
            let most = d.number(0.5..4.0);
            let x = d.float(&[&shape[..], &[2]].concat())?;
            let (p, axis) = (d.one_of(&[1.0, 2.0]), 0);
            Case::new(vec![x], move |x| x[0].renorm(p, axis, most))
                .option("p", p)
                .option("axis", axis)
                .option("most", most)
        }
        Op::CosineSimilarity => {
            let inputs = vec![d.float(&shape)?, d.float(&shape)?];
            Case::new(inputs, move |x| x[0].cosine_similarity(&x[1], axis, 1e-8)).option("axis", axis)
        }
        Op::LogSumExp => {
            let along = axes.clone();
            let x = d.between(&shape, -20.0..20.0)?;
            Case::new(vec![x], move |x| x[0].logsumexp(&along, keep)).option("axes", axes).option("keep", keep)
        }
        Op::Softmax | Op::LogSoftmax | Op::Softmin => {
            let x = d.between(&shape, -10.0..10.0)?;
            let call = move |x: &[Tensor]| match op {
                Op::Softmax => x[0].softmax(axis),
                Op::LogSoftmax => x[0].log_softmax(axis),
                _ => x[0].softmin(axis),
            };
            Case::new(vec![x], call).option("axis", axis)
        }
        Op::Prelu => {
            let shape = d.shape(2..=4);
            let weights = if d.flag() { shape[1] } else { 1 };
            return plain(op, vec![d.float(&shape)?, d.float(&[weights])?]);
        }
        Op::Glu => {
            let mut shape = shape;
            shape[axis.rem_euclid(rank as isize) as usize] *= 2;
            Case::new(vec![d.float(&shape)?], move |x| x[0].glu(axis)).option("axis", axis)
        }
        _ => return Ok(None),
    };
    Ok(Some(case))
}
