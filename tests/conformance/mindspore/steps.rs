//! Functions whose f16 kernels in MindSpore round after every step (they are written in f16 arithmetic), where ours
//! round once. A [repeated](crate::mindspore::calls::repeated) run takes MindSpore's steps, which reproduces its numbers bit for
//! bit.

use precast::{DType, Result, Tensor};

use crate::mindspore::calls;

pub fn sigmoid(x: &Tensor) -> Result<Tensor> {
    calls::in_steps([x], |[x]| x.sigmoid(), |_, [x]| (x.neg()?.exp()? + 1.0)?.reciprocal())
}

/// Computes softmax over the last axis.
pub fn softmax(x: &Tensor) -> Result<Tensor> {
    calls::in_steps(
        [x],
        |[x]| x.softmax(-1),
        |_, [x]| {
            let e = (x - &x.max(&[-1], true)?)?.exp()?;
            &e / &e.sum(&[-1], true)?
        },
    )
}

/// Returns a norm's parameter as its kernel gets it: MindSpore's norm layers round it to the dtype of their input
/// first.
fn read(w: &Tensor, x: &Tensor) -> Tensor {
    if calls::is_repeated() { w.cast(x.dtype()) } else { w.clone() }
}

/// Normalizes over the last axis. Mean and variance are computed in f32.
pub fn layer_norm(x: &Tensor, gamma: &Tensor, beta: &Tensor, eps: f64) -> Result<Tensor> {
    calls::in_steps(
        [x, &read(gamma, x), &read(beta, x)],
        |[x, gamma, beta]| x.layer_norm(gamma.shape(), Some(gamma), Some(beta), eps),
        |low, [x, gamma, beta]| {
            let wide = x.cast(DType::F32);
            let mean = wide.mean(&[-1], true)?;
            let deviation = (wide.var(&[-1], 0, true)? + eps)?.sqrt()?;
            let y = ((x - &mean.cast(low))? / &deviation.cast(low))?;
            (y * gamma)? + beta
        },
    )
}

/// Normalizes over the channels of each group. Mean and variance are computed in f64.
pub fn group_norm(x: &Tensor, groups: usize, gamma: &Tensor, beta: &Tensor, eps: f64) -> Result<Tensor> {
    calls::in_steps(
        [x, &read(gamma, x), &read(beta, x)],
        |[x, gamma, beta]| x.group_norm(groups, Some(gamma), Some(beta), eps),
        |low, [x, gamma, beta]| {
            let shape: Vec<isize> = x.shape().iter().map(|&len| len as isize).collect();
            let x = x.reshape(&[shape[0], groups as isize, -1])?;
            let wide = x.cast(DType::F64);
            let mean = wide.mean(&[-1], true)?;
            let deviation = (wide.var(&[-1], 0, true)? + eps)?.sqrt()?;
            let y = ((x - &mean.cast(low))? * &deviation.reciprocal()?.cast(low))?.reshape(&shape)?;
            let of_channels = |w: &Tensor| w.reshape(&[1, -1, 1, 1]);
            (y * &of_channels(gamma)?)? + &of_channels(beta)?
        },
    )
}
