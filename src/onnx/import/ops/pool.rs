//! Pools.

use super::{
    super::{call::one, step::Call, value::Value},
    Table,
    convolution::{Windows, spatial},
    tools::{count, in_floats, number},
};
use crate::{
    Padding, PoolOptions, Tensor,
    error::{Error, Result},
};

pub(super) const OPS: Table = &[
    ("AveragePool", |call| pool(call, false)),
    ("MaxPool", |call| pool(call, true)),
    ("LpPool", lp_pool),
    ("GlobalAveragePool", |call| global(call, |x, axes| x.mean(axes, true))),
    ("GlobalMaxPool", |call| global(call, |x, axes| x.max(axes, true))),
    ("GlobalLpPool", |call| {
        let p = call.int("p", 2)? as f64;
        global(call, |x, axes| x.norm(p, axes, true))
    }),
];

fn global(call: &Call<'_>, f: impl FnOnce(&Tensor, &[isize]) -> Result<Tensor>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let axes: Vec<isize> = (2..item.x.rank() as isize).collect();
    if axes.is_empty() {
        return Err(Error::shape(format!("needs [n, c, spatial...], got {:?}", item.x.shape())));
    }
    one(f(&item.x, &axes)?, item.elem)
}

/// Returns the windows of a pool.
fn options(call: &Call<'_>, x: &Tensor) -> Result<PoolOptions> {
    let kernel =
        call.lengths("kernel_shape")?.ok_or_else(|| Error::value("its attribute `kernel_shape` is missing"))?;
    let windows = Windows::read(call, spatial(call, x)?, kernel)?;
    if windows.dilation.iter().any(|dilation| *dilation != 1) {
        return Err(call.refuse("its windows are dilated, which pools here are not"));
    }
    let wide = |(axis, pair): (usize, &(usize, usize))| pair.0.max(pair.1) >= windows.kernel[axis];
    if windows.pads.iter().enumerate().any(wide) {
        return Err(call.refuse("its padding is not less than its windows; such windows may be empty"));
    }
    Ok(PoolOptions {
        kernel: windows.kernel,
        stride: windows.stride,
        padding: Padding::Explicit(windows.pads),
        ceil: call.flag("ceil_mode", false)?,
        count_include_pad: call.flag("count_include_pad", false)?,
    })
}

fn averages(x: &Tensor, options: &PoolOptions) -> Result<Tensor> {
    match options.kernel.len() {
        1 => x.avg_pool1d_with(options),
        2 => x.avg_pool2d_with(options),
        _ => x.avg_pool3d_with(options),
    }
}

fn pool(call: &Call<'_>, largest: bool) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    if largest && call.step.outputs.get(1).is_some_and(|name| !name.is_empty()) {
        return Err(call.refuse("its second output, the places of the largest numbers, has no counterpart here"));
    }
    let options = options(call, &item.x)?;
    let y = in_floats(item, |x| match (largest, options.kernel.len()) {
        (false, _) => averages(x, &options),
        (true, 1) => x.max_pool1d_with(&options),
        (true, 2) => x.max_pool2d_with(&options),
        (true, _) => x.max_pool3d_with(&options),
    })?;
    one(y, item.elem)
}

fn lp_pool(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let p = match call.maybe_int("p") {
        Ok(p) => p.unwrap_or(2) as f64,
        // The first opset has a float.
        Err(_) => call.float("p", 2.0)?,
    };
    let options = PoolOptions { count_include_pad: true, ..options(call, &item.x)? };
    let powers = if p == 2.0 { item.x.square()? } else { item.x.abs()?.powf(p)? };
    let size = count(&options.kernel)? as f64;
    let means = averages(&powers, &options)?;
    one(means.mul(&number(&means, size))?.powf(1.0 / p)?, item.elem)
}
