//! Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1).

use precast_kernels::{
    attention::{Attention, BroadcastMatrix, Mask},
    gemm::Gemm,
    strides::broadcast_indices,
};

use crate::{
    DType, Op, Tensor,
    error::{Error, Result},
    ops::{
        by_float, call,
        composed::floating,
        dispatch, elements,
        elementwise::pairwise::{broadcast_shape, sum_to},
        spatial::windows::checked_shape,
    },
    tensor::{Array, Backward, Forward, Stored},
};

impl Tensor {
    /// Computes `softmax(q · kᵀ * scale + mask) · v` with this tensor as queries `[..., l, d]`, keys `[..., s, d]` and
    /// values `[..., s, e]`. The result is `[..., l, e]`. Leading axes broadcast.
    ///
    /// The mask broadcasts to `[..., l, s]`: a boolean mask selects the keys that a query attends to, a floating one is
    /// added to the scores. With `causal`, query i attends only to keys 0 to i. `scale` defaults to `1 / sqrt(d)`. A
    /// query that attends to no key gives zeros. Masked keys have weight 0, and 0 times infinity is NaN: a NaN or an
    /// infinity in their values may reach the result of the query, and one in the keys its gradient.
    ///
    /// Everything is computed in f32 and rounded once, one block of queries at a time, so the score matrix is never
    /// stored. The inputs are saved; the backward pass recomputes the scores, and rounds the weights and the scaled
    /// gradients of the scores to the dtype of the inputs.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when dtypes differ and no policy casts them, or the mask has
    /// integers.
    ///
    /// ```
    /// # use precast_tensor as precast;
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
        dispatch(call!(Op::ScaledDotProductAttention, &inputs; causal, scale), |inputs| {
            floating(inputs)?;
            let fitted = Fitted::new(inputs, causal, scale)?;
            let value = by_float!(inputs[0], T => {
                let value = with_attention::<T, _>(&fitted, inputs, |attention| attention.forward());
                Array::from_vec(value, &fitted.shape())
            })?;
            Ok(Forward::new(
                value,
                inputs.to_vec(),
                move |back| by_float!(back.saved[0], T => fitted.backward::<T>(back)),
            ))
        })
    }
}

/// Inputs of attention with matching shapes.
struct Fitted {
    /// Leading axes of the result, to which those of the inputs broadcast.
    batch: Vec<usize>,
    /// Numbers of queries, of keys, of features of a key and of features of a value.
    lengths: [usize; 4],
    causal: bool,
    scale: f64,
}

impl Fitted {
    fn new(inputs: &[Tensor], causal: bool, scale: Option<f64>) -> Result<Fitted> {
        let (lengths, batch) = check(inputs)?;
        let scale = scale.unwrap_or(1.0 / (lengths[2].max(1) as f64).sqrt());
        Ok(Fitted { batch, lengths, causal, scale })
    }

    fn shape(&self) -> Vec<usize> {
        let [l, _, _, e] = self.lengths;
        [&self.batch[..], &[l, e]].concat()
    }

    fn backward<T: Stored + Gemm<Wide: Gemm + Stored>>(&self, back: &Backward) -> Result<Vec<Option<Tensor>>> {
        let of_scores = back.needs.get(3).is_some_and(|&needed| needed);
        let grad = elements::<T>(back.grad);
        let grads = with_attention::<T, _>(self, back.saved, |attention| attention.backward(&grad, of_scores));
        let [l, s, d, e] = self.lengths;
        let all = [(grads.q, [l, d]), (grads.k, [s, d]), (grads.v, [s, e]), (grads.scores, [l, s])];
        back.saved
            .iter()
            .zip(back.needs)
            .zip(all)
            .map(|((x, &needed), (grad, matrix))| {
                if !needed {
                    return Ok(None);
                }
                let stretched = [&self.batch[..], &matrix].concat();
                let grad = sum_to(grad, &stretched, x.shape());
                Array::from_vec(T::narrow_vec(grad), x.shape()).map(Tensor::from_array).map(Some)
            })
            .collect()
    }
}

/// Prepares the inputs for the kernel and runs `f` on them.
fn with_attention<T: Stored + Gemm<Wide: Gemm>, R>(
    fitted: &Fitted,
    inputs: &[Tensor],
    f: impl FnOnce(&Attention<T>) -> R,
) -> R {
    let &Fitted { ref batch, lengths, causal, scale } = fitted;
    // Leading axes determine which matrix of an input belongs to each item.
    let places = |x: &Tensor| broadcast_indices(batch, &x.shape()[..x.rank().saturating_sub(2)]);
    let [of_q, of_k, of_v] = [0, 1, 2].map(|i| places(&inputs[i]));
    let [q, k, v] = [0, 1, 2].map(|i| elements::<T>(&inputs[i]));
    let stretch = |x: &Tensor| {
        let axis = |from_last: usize| x.shape().iter().rev().nth(from_last).copied().unwrap_or(1);
        let (rows, columns) = (axis(1), axis(0));
        let step = |own: usize, step: usize| if own == 1 { 0 } else { step };
        let starts = places(x).into_iter().map(|place| place * rows * columns).collect();
        (starts, [step(rows, columns), step(columns, 1)])
    };
    let (seen, added) = match inputs.get(3) {
        Some(mask) if mask.dtype() == DType::Bool => (Some(elements::<bool>(mask)), None),
        Some(mask) => (None, Some(T::widen_slice(&elements::<T>(mask)).into_buffer())),
        None => (None, None),
    };
    let mask = match (inputs.get(3).map(stretch), seen.as_deref(), added.as_deref()) {
        (Some((starts, steps)), Some(data), _) => Mask::Keys(BroadcastMatrix { data, starts, steps }),
        (Some((starts, steps)), _, Some(data)) => Mask::Added(BroadcastMatrix { data, starts, steps }),
        _ => Mask::All,
    };
    let places = of_q.into_iter().zip(of_k).zip(of_v).map(|((q, k), v)| [q, k, v]).collect();
    f(&Attention { lengths, q: &q, k: &k, v: &v, places, mask, causal, scale })
}

/// Checks the shapes, and returns the numbers of queries, of keys, of features of a key and of features of a value,
/// with the leading axes of the result.
fn check(inputs: &[Tensor]) -> Result<([usize; 4], Vec<usize>)> {
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
            let mut message = format!("the mask {:?} does not stretch to the scores {scores:?}", mask.shape());
            // A mask of the keys of each sequence.
            if let (&[b, keys], &[batch, _, _, s]) = (mask.shape(), &scores[..])
                && (b, keys) == (batch, s)
            {
                message += &format!(
                    "; a mask [batch, keys] gets the axes of heads and queries by `reshape(&[{b}, 1, 1, {keys}])`"
                );
            }
            return Err(Error::shape(message));
        }
    }
    Ok(([*l, *s, *d, *e], all))
}
