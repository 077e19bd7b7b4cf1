//! Peak and achieved throughput of this machine (`precast show bench` as a value), and [`Speeds`], the speed model behind
//! `prefer: speed`.

mod calibrate;
mod speeds;

use std::hint::black_box;

use half::{bf16, f16};
use precast_kernels::{cast::Convert, limits};
use precast_tensor::ops::{ConvOptions, Padding};
use serde::Serialize;

pub use speeds::{Rate, Rates, Speeds};

use crate::{DType, Element, Op, Tensor, error::Result, observe::Sizes};

/// Returns the number of multiply-adds of one op call; 0 for an op that multiplies no matrices.
pub(crate) fn multiply_adds(op: Op, sizes: &Sizes) -> f64 {
    speeds::Work::of(op, sizes).multiply_adds
}

/// Returns whether the kernels use vector instructions on this machine.
pub(crate) fn has_vectors() -> bool {
    limits::has_vectors()
}

/// Limits of a machine, measured on one thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Limits {
    /// Vector instructions used by the kernels.
    pub vectors: &'static str,
    /// Multiply-adds of f32 in registers, in 10⁹ per second; `None` where no vectors are used.
    pub gflops: Option<f64>,
    /// Multiply-adds of bf16 pairs, in 10⁹ per second; `None` where the machine has no instruction for them.
    pub bf16_gflops: Option<f64>,
    /// Memory copied beyond the caches, in 10⁹ bytes per second, counting reads and writes.
    pub copy: f64,
    /// Memory copied within the caches, in the same unit.
    pub copy_cached: f64,
    /// Memory read beyond the caches, in 10⁹ bytes per second.
    pub read: f64,
}

/// Limit that bounds a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Bound {
    /// [`Limits::gflops`].
    Arithmetic,
    /// The larger of [`Limits::bf16_gflops`] and [`Limits::gflops`].
    Bf16Arithmetic,
    /// [`Limits::copy`].
    Copy,
    /// [`Limits::copy_cached`].
    CopyCached,
    /// [`Limits::read`].
    Read,
}

/// Measurement of one piece of work.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Measured {
    /// Description of the work.
    pub work: String,
    /// Dtype of the work.
    pub dtype: DType,
    /// Fastest time in microseconds.
    pub micros: f64,
    /// 10⁹ multiply-adds, or bytes, per second.
    pub rate: f64,
    /// Limit that the rate is compared with.
    pub bound: Bound,
    /// Rate as a fraction of that limit.
    pub share: Option<f64>,
}

impl Limits {
    /// Measures the machine. Takes about a second.
    pub fn measure() -> Self {
        Limits {
            vectors: limits::vectors(),
            gflops: limits::multiply_adds().map(|rate| rate / 1e9),
            bf16_gflops: limits::bf16_multiply_adds().map(|rate| rate / 1e9),
            copy: limits::copied(128 << 20, 0.25) / 1e9,
            copy_cached: limits::copied(128 << 10, 0.25) / 1e9,
            read: limits::read(128 << 20) / 1e9,
        }
    }

    /// Returns the limit for a bound.
    pub fn of(&self, bound: Bound) -> Option<f64> {
        match bound {
            Bound::Arithmetic => self.gflops,
            Bound::Bf16Arithmetic => self.gflops.map(|rate| self.bf16_gflops.map_or(rate, |pairs| pairs.max(rate))),
            Bound::Copy => Some(self.copy),
            Bound::CopyCached => Some(self.copy_cached),
            Bound::Read => Some(self.read),
        }
    }

    /// Measures the kernels against these limits, calling `seen` after each. Takes about ten seconds. The limits are
    /// those of one thread, so shares are meaningful after [`set_threads(1)`](crate::set_threads).
    ///
    /// # Errors
    /// Errors of the ops; none is expected.
    pub fn kernels(&self, mut seen: impl FnMut(&Measured)) -> Result<Vec<Measured>> {
        let mut rows = Vec::new();
        for mut work in works()? {
            (work.run)()?;
            let seconds = limits::best(0.2, || _ = (work.run)(), 1).recip();
            let rate = work.units / seconds / 1e9;
            let share = self.of(work.bound).map(|limit| rate / limit);
            let Work { name, dtype, bound, .. } = work;
            let row = Measured { work: name, dtype, micros: seconds * 1e6, rate, bound, share };
            seen(&row);
            rows.push(row);
        }
        Ok(rows)
    }
}

struct Work {
    name: String,
    dtype: DType,
    bound: Bound,
    /// Multiply-adds, or bytes.
    units: f64,
    run: Box<dyn FnMut() -> Result<()>>,
}

/// Returns the work to measure: the parts of a training step.
fn works() -> Result<Vec<Work>> {
    let mut works = Vec::new();
    let mut add = |name: &str, dtype, bound, units: usize, op: Box<dyn Fn() -> Result<Tensor>>| {
        let run = Box::new(move || op().map(|y| _ = black_box(y)));
        works.push(Work { name: name.into(), dtype, bound, units: units as f64, run });
    };
    let floats = [DType::F32, DType::F16, DType::Bf16];
    for dtype in floats {
        let x = |shape: &[usize]| {
            let count = shape.iter().product();
            let numbers = (0..count).map(|i| ((i * 7919 % 1000) as f32 - 500.0) / 300.0).collect();
            Tensor::from_vec::<f32>(numbers, shape).map(|x| x.cast(dtype))
        };
        let bytes = dtype.bytes();
        let arithmetic = if dtype == DType::Bf16 { Bound::Bf16Arithmetic } else { Bound::Arithmetic };
        let (a, b) = (x(&[512, 512])?, x(&[512, 512])?);
        add("matmul 512x512x512", dtype, arithmetic, 2 << 27, Box::new(move || a.matmul(&b)));
        let (a, w) = (x(&[64, 784])?, x(&[512, 784])?);
        add("linear 64x784 to 512", dtype, arithmetic, 2 * 64 * 784 * 512, Box::new(move || a.linear(&w, None)));
        let (a, w) = (x(&[8, 32, 32, 32])?, x(&[32, 32, 3, 3])?);
        let same = ConvOptions::default().padding(Padding::Same);
        let products = 2 * 8 * 32 * 32 * 32 * 32 * 9;
        add("conv2d 8x32x32x32, 3x3", dtype, arithmetic, products, Box::new(move || a.conv2d(&w, None, &same)));
        let (a, w) = (x(&[1, 4096])?, x(&[4096, 4096])?);
        add("linear 1x4096 to 4096", dtype, Bound::Read, (4096 * 4096) * bytes, Box::new(move || a.linear(&w, None)));
        let cached = 64 << 10;
        let moved = |tensors: usize| tensors * cached * bytes;
        let (a, b) = (x(&[cached])?, x(&[cached])?);
        add("add, 64 Ki", dtype, Bound::CopyCached, moved(3), Box::new(move || a.add(&b)));
        type Function = fn(&Tensor) -> Result<Tensor>;
        let functions: [(&str, Function); 5] = [
            ("relu, 64 Ki", Tensor::relu),
            ("exp, 64 Ki", Tensor::exp),
            ("gelu, 64 Ki", Tensor::gelu),
            ("softmax, 128x512", |x| x.softmax(-1)),
            ("layer norm, 128x512", |x| x.layer_norm(&[512], None, None, 1e-5)),
        ];
        for (name, f) in functions {
            let a = x(&[128, 512])?;
            add(name, dtype, Bound::CopyCached, moved(2), Box::new(move || f(&a)));
        }
    }
    for (size, len, bound) in [("64 Ki", 64 << 10, Bound::CopyCached), ("16 Mi", 16 << 20, Bound::Copy)] {
        works.push(cast::<f32, f16>(size, len, bound));
        works.push(cast::<f16, f32>(size, len, bound));
        works.push(cast::<f32, bf16>(size, len, bound));
        works.push(cast::<bf16, f32>(size, len, bound));
    }
    Ok(works)
}

/// Returns the work of a cast into memory that is already allocated.
fn cast<A: Element + Convert<B>, B: Element>(size: &str, len: usize, bound: Bound) -> Work {
    let (mut from, mut to) = (vec![A::default(); len], vec![B::default(); len]);
    // The system maps memory only once it is written; reading it before would be too fast.
    from.fill(black_box(A::default()));
    to.fill(black_box(B::default()));
    Work {
        name: format!("cast {} to {}, {size}", A::DTYPE, B::DTYPE),
        dtype: B::DTYPE,
        bound,
        units: (len * (A::DTYPE.bytes() + B::DTYPE.bytes())) as f64,
        run: Box::new(move || {
            A::convert(black_box(&from), black_box(&mut to));
            Ok(())
        }),
    }
}
