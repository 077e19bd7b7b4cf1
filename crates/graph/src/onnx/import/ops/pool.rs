//! Pools.

use super::{
    super::{
        call::one,
        step::Call,
        value::{Item, Value, room},
    },
    Table,
    convolution::{Windows, spatial},
    taps::{Taps, maxima, means, places_of_maxima, sums},
    tools::{count, in_floats, number},
};
use crate::onnx::tensor::Elem;
use precast::{
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

/// The settings of a pool.
struct Pool {
    windows: Windows,
    ceil: bool,
    count_padding: bool,
}

impl Pool {
    fn read(call: &Call<'_>, x: &Tensor) -> Result<Pool> {
        let kernel =
            call.lengths("kernel_shape")?.ok_or_else(|| Error::value("its attribute `kernel_shape` is missing"))?;
        Ok(Pool {
            windows: Windows::read(call, spatial(call, x)?, kernel)?,
            ceil: call.flag("ceil_mode", false)?,
            count_padding: call.flag("count_include_pad", false)?,
        })
    }

    /// Returns the options of the pools of this library; `None` for windows that these do not have.
    fn options(&self) -> Option<PoolOptions> {
        let Windows { kernel, stride, dilation, pads, .. } = &self.windows;
        let narrow = pads.iter().zip(kernel).all(|((before, after), len)| before.max(after) < len);
        (narrow && dilation.iter().all(|dilation| *dilation == 1)).then(|| {
            PoolOptions::default()
                .kernel(kernel.clone())
                .stride(stride.clone())
                .padding(Padding::Explicit(pads.clone()))
                .ceil(self.ceil)
                .count_include_pad(self.count_padding)
        })
    }

    /// Returns the windows tap by tap, for each axis.
    fn taps(&self, x: &Tensor) -> Result<Vec<Taps>> {
        let Windows { kernel, stride, dilation, pads, .. } = &self.windows;
        let axis = |(axis, len): (usize, &usize)| {
            let (before, after) = pads[axis];
            let reach = dilation[axis].saturating_mul(kernel[axis] - 1).saturating_add(1);
            let space = (len + before + after).checked_sub(reach).filter(|_| *len > 0);
            let space = space.ok_or_else(|| Error::shape(format!("a window of {reach} is longer than its axis")))?;
            let whole = space / stride[axis] + 1;
            let part = self.ceil && space % stride[axis] != 0 && whole * stride[axis] < len + before;
            let windows = whole + usize::from(part);
            room(&[windows, kernel[axis]])?;
            let place =
                |tap: usize, window: usize| (window * stride[axis] + tap * dilation[axis]) as i64 - before as i64;
            let places = (0..kernel[axis]).map(|tap| (0..windows).map(|window| place(tap, window)).collect());
            Ok(Taps { len: *len, places: places.collect(), end: (len + after) as i64 })
        };
        x.shape()[2..].iter().enumerate().map(axis).collect()
    }
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
    let pool = Pool::read(call, &item.x)?;
    let y = in_floats(item, |x| match (pool.options(), largest) {
        (Some(options), true) => match options.kernel.len() {
            1 => x.max_pool1d_with(&options),
            2 => x.max_pool2d_with(&options),
            _ => x.max_pool3d_with(&options),
        },
        (Some(options), false) => averages(x, &options),
        (None, true) => maxima(x, &pool.taps(x)?),
        (None, false) => means(x, &pool.taps(x)?, pool.count_padding),
    })?;
    let mut made: Vec<Value> = vec![Item::computed(y, item.elem).into()];
    if largest && call.step.outputs.get(1).is_some_and(|name| !name.is_empty()) {
        let places = places_of_maxima(&item.x, &pool.taps(&item.x)?, call.flag("storage_order", false)?)?;
        made.push(Item::computed(places, Elem::INT64).into());
    }
    Ok(made)
}

fn lp_pool(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let p = match call.maybe_int("p") {
        Ok(p) => p.unwrap_or(2) as f64,
        // The first opset has a float.
        Err(_) => call.float("p", 2.0)?,
    };
    let pool = Pool { count_padding: true, ..Pool::read(call, &item.x)? };
    let powers = if p == 2.0 { item.x.square()? } else { item.x.abs()?.powf(p)? };
    let sums = match pool.options() {
        // A part of a window has fewer elements than the kernel.
        Some(options) if !options.ceil => {
            let means = averages(&powers, &options)?;
            means.mul(&number(&means, count(&options.kernel)? as f64))?
        }
        _ => sums(&powers, &pool.taps(&powers)?)?,
    };
    one(sums.powf(1.0 / p)?, item.elem)
}
