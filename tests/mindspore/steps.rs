//! Functions whose results in MindSpore and here differ in roundings, and two ways to show that nothing else differs.
//!
//! The networks call them here; normally they are the library's ops.
//! - Four f16 kernels of MindSpore round after every step (they are written with f16 arithmetic), where ours round once.
//!   Inside [`taken`], in a low region, these functions go in MindSpore's steps, so that its numbers can be had bit for bit.
//! - In f32, sums are taken in another order and functions approximated by other polynomials. A low op that reads such a
//!   result may round to a neighbour. Inside [`unsettled`] the last digits of f32 results are drawn at random.

use std::cell::Cell;

use precast::{
    DType, Result, Tensor,
    cells::Rng,
    precision::{self, Frame, Scope},
};

thread_local! {
    static TAKEN: Cell<bool> = const { Cell::new(false) };
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// How far an f32 function of MindSpore was met to be off, of the largest magnitude: its sigmoid.
const F32_ERROR: f64 = 7e-7;

/// Runs `f` with f32 results off by as much as MindSpore's may be.
pub fn unsettled<R>(seed: u64, f: impl FnOnce() -> R) -> R {
    SEED.set(Some(seed));
    let result = f();
    SEED.set(None);
    result
}

/// A result of a norm or an approximated function.
pub fn settled(y: Tensor) -> Result<Tensor> {
    let Some(seed) = SEED.get().filter(|_| y.dtype() == DType::F32) else { return Ok(y) };
    SEED.set(Some(seed.wrapping_mul(6364136223846793005).wrapping_add(1)));
    let mut rng = Rng::seed(seed);
    let numbers = y.to_f64();
    let largest = numbers.iter().fold(0.0f64, |m, y| m.max(y.abs()));
    let moved: Vec<f64> = numbers.iter().map(|y| y + rng.uniform(-1.0, 1.0) * F32_ERROR * largest).collect();
    Tensor::from_f64(&moved, y.shape(), DType::F32)
}

/// Runs `f` with MindSpore's steps.
pub fn taken<R>(f: impl FnOnce() -> R) -> R {
    TAKEN.set(true);
    let result = f();
    TAKEN.set(false);
    result
}

/// The low dtype of the region when steps are taken; the region is left, so that each step rounds as written.
fn low() -> Option<(DType, Scope)> {
    match precision::current() {
        Some(Frame::Fixed(dtype)) if TAKEN.get() && dtype.is_low() => Some((dtype, precision::enter(Frame::Off))),
        _ => None,
    }
}

pub fn sigmoid(x: &Tensor) -> Result<Tensor> {
    let Some((low, _off)) = low() else { return settled(x.sigmoid()?) };
    (x.cast(low).neg()?.exp()? + 1.0)?.reciprocal()
}

/// Over the last axis.
pub fn softmax(x: &Tensor) -> Result<Tensor> {
    let Some((low, _off)) = low() else { return settled(x.softmax(-1)?) };
    let x = x.cast(low);
    let e = (&x - &x.max(&[-1], true)?)?.exp()?;
    &e / &e.sum(&[-1], true)?
}

/// Over the last axis. Mean and variance are taken in f32.
pub fn layer_norm(x: &Tensor, gamma: &Tensor, beta: &Tensor, eps: f64) -> Result<Tensor> {
    let Some((low, _off)) = low() else {
        return settled(x.layer_norm(gamma.shape(), Some(gamma), Some(beta), eps)?);
    };
    let x = x.cast(low);
    let wide = x.cast(DType::F32);
    let mean = wide.mean(&[-1], true)?;
    let deviation = (wide.var(&[-1], 0, true)? + eps)?.sqrt()?;
    let y = ((x - &mean.cast(low))? / &deviation.cast(low))?;
    (y * &gamma.cast(low))? + &beta.cast(low)
}

/// Over the channels of each group. Mean and variance are taken in f64.
pub fn group_norm(x: &Tensor, groups: usize, gamma: &Tensor, beta: &Tensor, eps: f64) -> Result<Tensor> {
    let Some((low, _off)) = low() else {
        return settled(x.group_norm(groups, Some(gamma), Some(beta), eps)?);
    };
    let shape: Vec<isize> = x.shape().iter().map(|&len| len as isize).collect();
    let x = x.cast(low).reshape(&[shape[0], groups as isize, -1])?;
    let wide = x.cast(DType::F64);
    let mean = wide.mean(&[-1], true)?;
    let deviation = (wide.var(&[-1], 0, true)? + eps)?.sqrt()?;
    let y = ((x - &mean.cast(low))? * &deviation.reciprocal()?.cast(low))?.reshape(&shape)?;
    let of_channels = |w: &Tensor| w.cast(low).reshape(&[1, -1, 1, 1]);
    (y * &of_channels(gamma)?)? + &of_channels(beta)?
}
