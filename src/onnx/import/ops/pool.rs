//! Pools.

use super::{
    super::{
        call::one,
        step::Call,
        value::{Item, Value, room},
    },
    Table,
    convolution::{Windows, spatial},
    taps::Taps,
    tools::{count, in_floats, number},
};
use crate::{
    Padding, PoolOptions, Tensor,
    error::{Error, Result},
    onnx::tensor::Elem,
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

/// Elements of a window that is read tap by tap, at most.
const TAPS: usize = 1 << 16;

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
        (narrow && dilation.iter().all(|dilation| *dilation == 1)).then(|| PoolOptions {
            kernel: kernel.clone(),
            stride: stride.clone(),
            padding: Padding::Explicit(pads.clone()),
            ceil: self.ceil,
            count_include_pad: self.count_padding,
        })
    }

    /// Returns the windows tap by tap.
    fn taps(&self, x: &Tensor) -> Result<Taps> {
        let Windows { kernel, stride, dilation, pads, .. } = &self.windows;
        let spatial = &x.shape()[2..];
        let mut lengths = Vec::new();
        for axis in 0..spatial.len() {
            let reach = dilation[axis].saturating_mul(kernel[axis] - 1).saturating_add(1);
            let room = (spatial[axis] + pads[axis].0 + pads[axis].1).checked_sub(reach);
            let room = room.ok_or_else(|| Error::shape(format!("a window of {reach} is longer than its axis")))?;
            let whole = room / stride[axis] + 1;
            let part = self.ceil && room % stride[axis] != 0 && whole * stride[axis] < spatial[axis] + pads[axis].0;
            lengths.push(whole + usize::from(part));
        }
        if count(kernel)? > TAPS {
            return Err(Error::unsupported(format!(
                "windows of {kernel:?}; at most {TAPS} elements are read one by one"
            )));
        }
        room(&[&x.shape()[..2], &lengths[..], &[count(kernel)?]].concat())?;
        let mut taps = Taps { lengths, places: vec![], padded: vec![] };
        for tap in 0..count(kernel)? {
            let (mut rest, mut places, mut padded) = (tap, vec![], vec![]);
            for axis in (0..kernel.len()).rev() {
                let offset = (rest % kernel[axis] * dilation[axis]) as i64 - pads[axis].0 as i64;
                rest /= kernel[axis];
                let at = (0..taps.lengths[axis]).map(|i| (i * stride[axis]) as i64 + offset).collect::<Vec<i64>>();
                padded.insert(0, at.iter().map(|at| *at < (spatial[axis] + pads[axis].1) as i64).collect());
                places.insert(0, at);
            }
            taps.places.push(places);
            taps.padded.push(padded);
        }
        Ok(taps)
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
        (None, true) => pool.taps(x)?.maxima(x),
        (None, false) => {
            let taps = pool.taps(x)?;
            taps.sums(x)?.div(&taps.counts(x, pool.count_padding)?)
        }
    })?;
    let mut made: Vec<Value> = vec![Item::computed(y, item.elem).into()];
    if largest && call.step.outputs.get(1).is_some_and(|name| !name.is_empty()) {
        let places = pool.taps(&item.x)?.places_of_maxima(&item.x, call.flag("storage_order", false)?)?;
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
        _ => pool.taps(&powers)?.sums(&powers)?,
    };
    one(sums.powf(1.0 / p)?, item.elem)
}
