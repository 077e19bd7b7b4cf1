//! Norms over batches, channels and features, and attention.

use precast::{Op, Result, Tensor};

use crate::draw::{Case, Draw};

const EPS: f64 = 1e-5;

/// Returns the optional weight and bias after the first inputs.
fn affine(x: &[Tensor], first: usize) -> (Option<&Tensor>, Option<&Tensor>) {
    (x.get(first), x.get(first + 1))
}

pub fn draw(op: Op, d: &mut Draw) -> Result<Option<Case>> {
    // Sometimes enough rows for several blocks, and enough features for several vectors.
    let (rows, features) = (d.one_of(&[1, 3, 7, 130]), d.one_of(&[2, 5, 16, 33, 100]));
    let shift = d.one_of(&[0.0, 0.0, 20.0]);
    let range = -3.0 + shift..3.0 + shift;
    let with_affine = d.flag();
    let (groups, each, places) = (d.size(1..=3), d.size(1..=3), d.size(2..=9));
    let channels = groups * each;
    let weights = |d: &mut Draw, n: usize| -> Result<Vec<Tensor>> {
        Ok(if with_affine { vec![d.between(&[n], 0.5..2.0)?, d.float(&[n])?] } else { Vec::new() })
    };
    let case = match op {
        Op::LayerNorm => {
            let x = d.between(&[rows, features], range)?;
            let inputs = [vec![x], weights(d, features)?].concat();
            Case::new(inputs, move |x| {
                let (gamma, beta) = affine(x, 1);
                x[0].layer_norm(&[features], gamma, beta, EPS)
            })
        }
        Op::RmsNorm => {
            let x = d.between(&[rows, features], range)?;
            let mut inputs = vec![x];
            if with_affine {
                inputs.push(d.float(&[features])?);
            }
            Case::new(inputs, |x| x[0].rms_norm(x.get(1), EPS))
        }
        Op::GroupNorm => {
            let n = d.size(1..=4);
            let x = d.between(&[n, channels, places], range)?;
            let inputs = [vec![x], weights(d, channels)?].concat();
            Case::new(inputs, move |x| {
                let (gamma, beta) = affine(x, 1);
                x[0].group_norm(groups, gamma, beta, EPS)
            })
            .option("groups", groups)
        }
        Op::InstanceNorm => {
            let n = d.size(1..=4);
            let x = d.between(&[n, channels, places], range)?;
            let inputs = [vec![x], weights(d, channels)?].concat();
            Case::new(inputs, |x| {
                let (gamma, beta) = affine(x, 1);
                x[0].instance_norm(gamma, beta, EPS)
            })
        }
        Op::BatchNorm => {
            let training = d.flag();
            let n = d.size(2..=20);
            let x = d.between(&[n, channels, places], range)?;
            let mut inputs = vec![x];
            if !training {
                inputs.extend([d.float(&[channels])?, d.between(&[channels], 0.5..2.0)?]);
            }
            inputs.extend(weights(d, channels)?);
            Case::new(inputs, move |x| {
                if training {
                    let (gamma, beta) = affine(x, 1);
                    return Ok(x[0].batch_norm_train(gamma, beta, EPS)?.0);
                }
                let (gamma, beta) = affine(x, 3);
                x[0].batch_norm(&x[1], &x[2], gamma, beta, EPS)
            })
            .option("training", training)
        }
        Op::ScaledDotProductAttention => {
            let [heads, queries, keys] = [d.size(1..=3), d.size(1..=9), d.one_of(&[1, 4, 9, 70])];
            let [wide, out] = [d.one_of(&[1, 4, 8, 20]), d.size(1..=9)];
            let mut inputs = vec![
                d.float(&[2, heads, queries, wide])?,
                d.float(&[2, heads, keys, wide])?,
                d.float(&[2, heads, keys, out])?,
            ];
            let causal = d.flag();
            if !causal && d.flag() {
                inputs.push(d.float(&[queries, keys])?);
            }
            let scale = d.flag().then(|| d.number(0.1..1.0));
            Case::new(inputs, move |x| x[0].scaled_dot_product_attention(&x[1], &x[2], x.get(3), causal, scale))
                .option("causal", causal)
                .option("scale", scale)
        }
        _ => return Ok(None),
    };
    Ok(Some(case))
}
