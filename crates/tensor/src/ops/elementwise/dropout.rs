//! Dropout.

use precast_kernels::{
    float::{Float, Real},
    memory::{Pooled, with_capacity},
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{
    Op, Tensor,
    error::{Error, Result},
    ops::{by_float, call, dispatch, elements},
    tensor::{Array, Forward, Stored},
};

impl Tensor {
    /// Sets each element to 0 with probability `p` and divides the others by `1 - p`, which preserves the mean
    /// (Srivastava et al. 2014). With `p = 1` all are 0. A seed drops the same elements on every machine (ChaCha8), in
    /// every dtype.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when `p` is not within 0 to 1,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    pub fn dropout(&self, p: f64, seed: u64) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&p) {
            let message = format!("a probability of {p}; allowed: 0 to 1");
            return Err(Error::value(message).in_op(Op::Dropout.name()));
        }
        dispatch(call!(Op::Dropout, &[self]; p, seed), |inputs| {
            let x = &inputs[0];
            let kept = mask(x.len(), p, seed);
            let words = kept.len();
            let value = by_float!(x, T => masked::<T>(x, &kept, 1.0 - p))?;
            let mask = Tensor::from_array(Array::from_vec(kept, &[words])?);
            Ok(Forward::new(value, vec![mask], move |back| {
                let mask = elements::<i64>(&back.saved[0]);
                let grad = by_float!(back.grad, T => masked::<T>(back.grad, &mask, 1.0 - p))?;
                Ok(vec![Some(Tensor::from_array(grad))])
            }))
        })
    }
}

/// Draws a bit for each element: 0 for one that is dropped.
fn mask(len: usize, p: f64, seed: u64) -> Pooled<i64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut words = with_capacity(len.div_ceil(64));
    words.extend((0..len.div_ceil(64)).map(|i| {
        let bits = 0..64.min(len - 64 * i);
        bits.fold(0, |word, bit| word | i64::from(!rng.random_bool(p)) << bit)
    }));
    words
}

/// Computes `x / keep` where the bit of the mask is set, else 0, rounded once.
fn masked<T: Stored + Float>(x: &Tensor, mask: &[i64], keep: f64) -> Result<Array> {
    let keep = T::Wide::of(keep);
    let elements = elements::<T>(x);
    let mut masked = T::widen_slice(&elements).into_buffer();
    for (part, word) in masked.chunks_mut(64).zip(mask) {
        for (bit, x) in part.iter_mut().enumerate() {
            *x = if word >> bit & 1 == 1 { *x / keep } else { T::Wide::default() };
        }
    }
    Array::from_vec(T::narrow_vec(masked), x.shape())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_dropped_as_one_by_one() {
        for (len, p) in [(0, 0.5), (1, 0.5), (64, 0.1), (1000, 0.25), (129, 0.0), (70, 1.0), (300, 0.999_999)] {
            let (mask, mut rng) = (mask(len, p, 7), ChaCha8Rng::seed_from_u64(7));
            for i in 0..len {
                assert_eq!(mask[i / 64] >> (i % 64) & 1 == 0, rng.random_bool(p), "{i} of {len}, {p}");
            }
        }
    }
}
