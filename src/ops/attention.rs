//! Scaled dot product attention (Vaswani et al. 2017, section 3.2.1).

use super::{composed::composed, padding::checked_shape, pairwise::broadcast_shape};
use crate::{
    DType, Op, Tensor,
    error::{Error, Result},
};

impl Tensor {
    /// `softmax(q · kᵀ * scale + mask) · v` with these queries `[..., l, d]`, keys `[..., s, d]` and values `[..., s, e]`;
    /// the result is `[..., l, e]`. Leading axes broadcast.
    ///
    /// The mask stretches to `[..., l, s]`: a boolean one says which keys a query sees, a floating one is added to the
    /// scores. With `causal`, query i sees only the keys 0 to i. `scale` is `1 / sqrt(d)` unless given. A query that sees
    /// no key gives zeros.
    ///
    /// All of it is computed in f32 and rounded once. Kept for the way back are the inputs; the scores are computed anew.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when dtypes differ and no policy casts them, or the mask is of integers.
    ///
    /// ```
    /// # use precast::{DType, Tensor};
    /// let (q, k) = (Tensor::ones(&[2, 3, 4], DType::F16), Tensor::ones(&[2, 5, 4], DType::F16));
    /// let v = Tensor::ones(&[2, 5, 6], DType::F16);
    /// assert_eq!(q.scaled_dot_product_attention(&k, &v, None, false, None)?.shape(), [2, 3, 6]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn scaled_dot_product_attention(
        &self,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Tensor>,
        causal: bool,
        scale: Option<f64>,
    ) -> Result<Tensor> {
        let inputs: Vec<&Tensor> = [Some(self), Some(k), Some(v), mask].into_iter().flatten().collect();
        composed(Op::ScaledDotProductAttention, &inputs, |inputs| {
            let [l, s, d] = check(inputs)?;
            let scale = scale.unwrap_or(1.0 / (d.max(1) as f64).sqrt());
            Ok(move |inputs: &[Tensor]| {
                let (q, k, v, mask) = (&inputs[0], &inputs[1], &inputs[2], inputs.get(3));
                let mut scores = (q.matmul_ext(&k.transpose(-1, -2)?)? * scale)?;
                let unseen = Tensor::scalar(f64::NEG_INFINITY, scores.dtype());
                if causal {
                    scores = lower_triangle(l, s)?.select(&scores, &unseen)?;
                }
                match mask {
                    Some(mask) if mask.dtype() == DType::Bool => scores = mask.select(&scores, &unseen)?,
                    Some(mask) => scores = scores.add(mask)?,
                    None => {}
                }
                if s == 0 {
                    return scores.matmul_ext(v);
                }
                // Softmax has no answer where all scores are minus infinity; those rows go around it.
                let blind = scores.max(&[-1], true)?.eq(&unseen)?;
                let zero = Tensor::zeros(&[], scores.dtype());
                let weights = blind.select(&zero, &scores)?.softmax(-1)?;
                blind.select(&zero, &weights)?.matmul_ext(v)
            })
        })
    }
}

/// Numbers of queries, keys and features, if all shapes fit.
fn check(inputs: &[Tensor]) -> Result<[usize; 3]> {
    let (q, k, v) = (inputs[0].shape(), inputs[1].shape(), inputs[2].shape());
    let ([q_batch @ .., l, d], [k_batch @ .., s, kd], [v_batch @ .., vs, e]) = (q, k, v) else {
        return Err(Error::shape(format!(
            "needs [..., l, d], [..., s, d] and [..., s, e], got {q:?}, {k:?} and {v:?}"
        )));
    };
    if let Some(x) = inputs[..3].iter().find(|x| !x.dtype().is_float()) {
        return Err(Error::dtype(format!("queries, keys and values are floating tensors, got {}", x.dtype())));
    }
    if d != kd {
        return Err(Error::shape(format!("queries {q:?} and keys {k:?}: {d} features meet {kd}")));
    }
    if s != vs {
        return Err(Error::shape(format!("keys {k:?} and values {v:?}: {s} keys meet {vs} values")));
    }
    let mismatch = |_| Error::shape(format!("the leading axes of {q:?}, {k:?} and {v:?} do not broadcast"));
    let batch = broadcast_shape(q_batch, k_batch).map_err(mismatch)?;
    let all = broadcast_shape(&batch, v_batch).map_err(mismatch)?;
    let scores = checked_shape([&batch[..], &[*l, *s]].concat())?;
    checked_shape([&all[..], &[*l, *e]].concat())?;
    if let Some(mask) = inputs.get(3) {
        if mask.dtype() == DType::I64 {
            return Err(Error::dtype("a mask is boolean or floating, got i64; compare first, or cast"));
        }
        if broadcast_shape(mask.shape(), &scores).ok().as_ref() != Some(&scores) {
            let message = format!("the mask {:?} does not stretch to the scores {scores:?}", mask.shape());
            return Err(Error::shape(message));
        }
    }
    Ok([*l, *s, *d])
}

/// Where the column is not right of the diagonal that begins in the first corner: `[rows, columns]`, boolean.
fn lower_triangle(rows: usize, columns: usize) -> Result<Tensor> {
    Tensor::arange(columns).le(&Tensor::arange(rows).unsqueeze(-1)?)
}
