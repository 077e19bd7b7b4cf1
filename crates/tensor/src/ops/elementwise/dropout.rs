//! Dropout.

use precast_kernels::{
    float::{Float, Real},
    memory::with_capacity,
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
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            // A bit for each element.
            let words = x.len().div_ceil(64);
            let mut word = |i: usize| {
                (0..64.min(x.len() - 64 * i)).fold(0, |all, bit| all | i64::from(!rng.random_bool(p)) << bit)
            };
            let mut kept = with_capacity(words);
            kept.extend((0..words).map(&mut word));
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

/// Computes `x / keep` where the bit of the mask is set, else 0, rounded once.
fn masked<T: Stored + Float>(x: &Tensor, mask: &[i64], keep: f64) -> Result<Array> {
    let keep = T::Wide::of(keep);
    let x_elements = elements::<T>(x);
    let wide = T::widen_slice(&x_elements);
    let mut masked = with_capacity(wide.len());
    let parts = wide.chunks(64).zip(mask);
    masked.extend(parts.flat_map(|(part, word)| {
        part.iter().enumerate().map(move |(bit, &x)| if word >> bit & 1 == 1 { x / keep } else { T::Wide::default() })
    }));
    Array::from_vec(T::narrow_vec(masked), x.shape())
}
