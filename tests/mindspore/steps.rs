//! Four functions whose f16 kernels in MindSpore round after every step (those kernels are written with f16
//! arithmetic), where ours round once.
//!
//! The networks call them here. Normally they are the library's ops; inside [`taken`], in a low region, they go in
//! MindSpore's steps, so that its numbers can be had bit for bit.

use std::cell::Cell;

use precast::{
    DType, Result, Tensor,
    precision::{self, Frame, Scope},
};

thread_local! {
    static TAKEN: Cell<bool> = const { Cell::new(false) };
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
    let Some((low, _off)) = low() else { return x.sigmoid() };
    (x.cast(low).neg()?.exp()? + 1.0)?.reciprocal()
}

/// Over the last axis.
pub fn softmax(x: &Tensor) -> Result<Tensor> {
    let Some((low, _off)) = low() else { return x.softmax(-1) };
    let x = x.cast(low);
    let e = (&x - &x.max(&[-1], true)?)?.exp()?;
    &e / &e.sum(&[-1], true)?
}

/// Over the last axis. Mean and variance are taken in f32.
pub fn layer_norm(x: &Tensor, gamma: &Tensor, beta: &Tensor, eps: f64) -> Result<Tensor> {
    let Some((low, _off)) = low() else { return x.layer_norm(gamma.shape(), Some(gamma), Some(beta), eps) };
    let x = x.cast(low);
    let wide = x.cast(DType::F32);
    let mean = wide.mean(&[-1], true)?;
    let deviation = (wide.var(&[-1], 0, true)? + eps)?.sqrt()?;
    let y = ((x - &mean.cast(low))? / &deviation.cast(low))?;
    (y * &gamma.cast(low))? + &beta.cast(low)
}

/// Over the channels of each group. Mean and variance are taken in f64.
pub fn group_norm(x: &Tensor, groups: usize, gamma: &Tensor, beta: &Tensor, eps: f64) -> Result<Tensor> {
    let Some((low, _off)) = low() else { return x.group_norm(groups, Some(gamma), Some(beta), eps) };
    let shape: Vec<isize> = x.shape().iter().map(|&len| len as isize).collect();
    let x = x.cast(low).reshape(&[shape[0], groups as isize, -1])?;
    let wide = x.cast(DType::F64);
    let mean = wide.mean(&[-1], true)?;
    let deviation = (wide.var(&[-1], 0, true)? + eps)?.sqrt()?;
    let y = ((x - &mean.cast(low))? * &deviation.reciprocal()?.cast(low))?.reshape(&shape)?;
    let of_channels = |w: &Tensor| w.cast(low).reshape(&[1, -1, 1, 1]);
    (y * &of_channels(gamma)?)? + &of_channels(beta)?
}
