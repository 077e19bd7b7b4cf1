//! Sums of products of matrices and vectors.

use precast::{Op, Result, Tensor};

use super::plain;
use crate::draw::{Case, Draw};

pub fn draw(op: Op, d: &mut Draw) -> Result<Option<Case>> {
    let long = d.one_of(&[1, 2, 3, 8, 17, 33, 130]);
    let [m, n, k] = [d.size(1..=9), d.size(1..=20), long];
    let batch = d.size(1..=3);
    let case = match op {
        Op::MatMul => return plain(op, vec![d.float(&[m, k])?, d.float(&[k, n])?]),
        Op::MatMulExt => {
            let batches: [(&[usize], &[usize]); 4] =
                [(&[], &[]), (&[batch], &[]), (&[2, batch], &[batch]), (&[], &[batch])];
            let (a, b) = d.one_of(&batches);
            return plain(op, vec![d.float(&[a, &[m, k]].concat())?, d.float(&[b, &[k, n]].concat())?]);
        }
        Op::BatchMatMul => return plain(op, vec![d.float(&[batch, m, k])?, d.float(&[batch, k, n])?]),
        Op::Mv => return plain(op, vec![d.float(&[m, k])?, d.float(&[k])?]),
        Op::Dot => return plain(op, vec![d.float(&[k])?, d.float(&[k])?]),
        Op::Vecdot => return plain(op, vec![d.float(&[batch, k])?, d.float(&[batch, k])?]),
        Op::Inner => return plain(op, vec![d.float(&[batch, m, k])?, d.float(&[n, k])?]),
        Op::Ger => return plain(op, vec![d.float(&[m])?, d.float(&[n])?]),
        Op::Linear => {
            let mut inputs = vec![d.float(&[batch, m, k])?, d.float(&[n, k])?];
            if d.flag() {
                inputs.push(d.float(&[n])?);
            }
            return plain(op, inputs);
        }
        Op::BiasAdd => {
            let shape = d.shape(2..=4);
            return plain(op, vec![d.float(&shape)?, d.float(&[shape[1]])?]);
        }
        Op::Addmm => return plain(op, vec![d.float(&[m, n])?, d.float(&[m, k])?, d.float(&[k, n])?]),
        Op::Addmv => return plain(op, vec![d.float(&[m])?, d.float(&[m, k])?, d.float(&[k])?]),
        Op::Addr => return plain(op, vec![d.float(&[m, n])?, d.float(&[m])?, d.float(&[n])?]),
        Op::Addbmm => {
            return plain(op, vec![d.float(&[m, n])?, d.float(&[batch, m, k])?, d.float(&[batch, k, n])?]);
        }
        Op::Baddbmm => {
            return plain(op, vec![d.float(&[batch, m, n])?, d.float(&[batch, m, k])?, d.float(&[batch, k, n])?]);
        }
        Op::Tensordot => {
            let inputs = vec![d.float(&[batch, m, k])?, d.float(&[k, n, batch])?];
            Case::new(inputs, |x| x[0].tensordot(&x[1], &[0, -1], &[2, 0]))
        }
        Op::Einsum => {
            let forms: [(&'static str, &[usize], &[usize]); 5] = [
                ("ij,jk->ik", &[m, k], &[k, n]),
                ("bij,bkj->bik", &[batch, m, k], &[batch, n, k]),
                ("ij,ij->ij", &[m, n], &[m, n]),
                ("bi,bi->", &[batch, k], &[batch, k]),
                ("ij,k->jik", &[m, n], &[batch]),
            ];
            let (equation, a, b) = d.one_of(&forms);
            let call = move |x: &[Tensor]| Tensor::einsum(equation, &[&x[0], &x[1]]);
            Case::new(vec![d.float(a)?, d.float(b)?], call).option("equation", equation)
        }
        _ => return Ok(None),
    };
    Ok(Some(case))
}

/// Draws products of three tensors.
pub fn three(op: Op, d: &mut Draw) -> Result<Option<Case>> {
    let [m, n, k] = [d.size(1..=9), d.size(1..=20), d.one_of(&[1, 2, 3, 8, 17, 33])];
    match op {
        Op::Bilinear => {
            let k = k.min(17);
            let mut inputs = vec![d.float(&[m, k])?, d.float(&[m, 3])?, d.float(&[n, k, 3])?];
            if d.flag() {
                inputs.push(d.float(&[n])?);
            }
            plain(op, inputs)
        }
        Op::MultiDot => {
            let inner = d.size(1..=6);
            plain(op, vec![d.float(&[m, inner])?, d.float(&[inner, k])?, d.float(&[k, n])?])
        }
        _ => Ok(None),
    }
}
