//! Speeds of the parts of a training step on a machine, and the cost of one op call at these speeds.

use precast_kernels::threads;
use serde::{Deserialize, Serialize};

use crate::{
    DType, Op,
    catalogue::Family,
    error::{Error, Result},
    observe::Sizes,
    printable::printable,
};

/// Speeds of a machine for the building blocks of networks, in each dtype: the model behind
/// [`prefer: speed`](crate::policy::Prefer). Times are in nanoseconds, on one thread. All fields are plain numbers, so
/// a plan for another machine can be made from its file.
///
/// [`Speeds::here`] are those of this machine.
///
/// ```no_run
/// use precast::{cost::Speeds, policy::Prefer, prelude::*};
/// let mut net = Child::new(Dense::new(784, 10, &mut Rng::seed(1)));
/// let policy = Policy::new("O2", DType::Bf16)?.with_prefer(Prefer::Speed);
/// let (y, trace) = net.trace(|net| net.call(&Tensor::ones(&[32, 784], DType::F32))); // as large as a batch will be
/// y?;
/// let plan = policy.plan_for(&net, &trace, &Speeds::here())?;
/// println!("{plan}"); // times and bytes of each cell; where f32 is faster: `cost: bf16 would take 41.0 us, f32 38.2 us`
/// plan.apply(&mut net)?;
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speeds {
    /// Processor, vector instructions, threads and version of this library.
    pub host: String,
    /// Overhead of one op call, forward and backward.
    pub call: f64,
    /// Bytes that stay in the caches.
    pub cache: f64,
    /// Time of a byte read or written beyond the caches.
    pub byte: f64,
    /// Speedup of large products on all threads.
    pub parallel: f64,
    /// Rates in f32.
    pub f32: Rates,
    /// Rates in f16.
    pub f16: Rates,
    /// Rates in bf16.
    pub bf16: Rates,
}

/// Speeds of a machine in one dtype.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// Matrix products.
    pub product: Rate,
    /// Convolutions.
    pub convolution: Rate,
    /// Light elementwise work: relu, sums, copies.
    pub elementwise: Rate,
    /// Heavy elementwise work: tanh, gelu, softmax.
    pub function: Rate,
    /// Normalizations.
    pub norm: Rate,
    /// Pooling.
    pub pool: Rate,
    /// Scaled dot-product attention, including its softmax. The scores count as elements.
    pub attention: Rate,
    /// Cast of an element from or to f32; 0 for f32.
    pub cast: f64,
}

/// Time per unit of one kind of op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Time of one multiply-add.
    #[serde(default)]
    pub multiply_add: f64,
    /// Time of an element read or written.
    pub element: f64,
}

impl Speeds {
    /// Checks that every number is usable.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a number that is negative or not finite, and for a `parallel`
    /// below 1.
    pub fn check(&self) -> Result<()> {
        let host = printable(&self.host);
        let Speeds { host: _, call, cache, byte, parallel, f32, f16, bf16 } = self;
        let rates = [f32, f16, bf16].into_iter().flat_map(|rates| {
            let Rates { product, convolution, elementwise, function, norm, pool, attention, cast } = *rates;
            let both = |Rate { multiply_add, element }: Rate| [multiply_add, element];
            [product, convolution, elementwise, function, norm, pool, attention]
                .map(both)
                .concat()
                .into_iter()
                .chain([cast])
        });
        match [*call, *cache, *byte, *parallel].into_iter().chain(rates).find(|n| !(n.is_finite() && *n >= 0.0)) {
            None if *parallel < 1.0 => {
                Err(Error::value(format!("among the speeds of {host}, `parallel` is {parallel}; it is at least 1")))
            }
            None => Ok(()),
            Some(met) => Err(Error::value(format!("invalid speed for {host}: {met}"))),
        }
    }

    /// Returns the rates of a dtype. f64, integers and booleans count as f32.
    pub fn of(&self, dtype: DType) -> &Rates {
        match dtype {
            DType::F16 => &self.f16,
            DType::Bf16 => &self.bf16,
            _ => &self.f32,
        }
    }

    /// Returns the nanoseconds of a cast of `elements` elements.
    pub fn cast(&self, from: DType, to: DType, elements: usize) -> f64 {
        if from == to || elements == 0 {
            return 0.0;
        }
        self.call + elements as f64 * (self.of(from).cast + self.of(to).cast)
    }

    /// Returns the nanoseconds of a sum of two gradients of `elements` elements.
    pub fn sum(&self, dtype: DType, elements: usize) -> f64 {
        // Two are read and one is written, in the backward pass only.
        0.5 * 3.0 * elements as f64 * self.of(dtype).elementwise.element
    }

    /// Returns the nanoseconds of one call of an op in a dtype, including its backward pass where a gradient is wanted.
    pub fn op(&self, op: Op, sizes: &Sizes, dtype: DType) -> f64 {
        let Work { kind, multiply_adds, elements } = Work::of(op, sizes);
        let rates = self.of(dtype);
        let rate = match kind {
            Kind::View => return self.call,
            Kind::Product => rates.product,
            Kind::Convolution => rates.convolution,
            Kind::Elementwise => rates.elementwise,
            Kind::Function => rates.function,
            Kind::Norm => rates.norm,
            Kind::Pool => rates.pool,
            Kind::Attention => rates.attention,
        };
        // A product has one product of the same size per gradient. The rates of other ops cover the forward and
        // backward pass together.
        let gradients = sizes.needs.iter().take(2).filter(|needs| **needs).count();
        let passes = match kind {
            Kind::Product | Kind::Convolution => (1 + gradients) as f64 / 3.0,
            _ if gradients == 0 => 0.5,
            _ => 1.0,
        };
        let in_cache = multiply_adds * rate.multiply_add + elements * rate.element;
        let bytes = elements * dtype.bytes() as f64;
        let threads = if multiply_adds >= threads::SMALL as f64 { self.parallel } else { 1.0 };
        // Memory is read in the forward pass and in the backward pass.
        let beyond = if bytes > self.cache { 2.0 * bytes * self.byte } else { 0.0 };
        self.call + passes * (in_cache / threads).max(beyond)
    }
}

/// Kind of work of an op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// No data is moved.
    View,
    Product,
    Convolution,
    Elementwise,
    Function,
    Norm,
    Pool,
    Attention,
}

/// Amount of work in one op call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Work {
    pub kind: Kind,
    pub multiply_adds: f64,
    /// Elements read and written.
    pub elements: f64,
}

impl Work {
    pub fn of(op: Op, sizes: &Sizes) -> Work {
        let count = |shape: &[usize]| shape.iter().map(|n| *n as f64).product::<f64>();
        let input = |i: usize| sizes.inputs.get(i).map_or(&[][..], Vec::as_slice);
        let output = count(&sizes.output);
        let elements = sizes.inputs.iter().map(|shape| count(shape)).sum::<f64>() + output;
        let axis = |shape: &[usize], back: usize| shape.len().checked_sub(back).map_or(1.0, |i| shape[i] as f64);
        // Traces only contain ops that this library can run.
        let (kind, multiply_adds) = match op.family().unwrap_or(Family::Elementwise) {
            Family::View => (Kind::View, 0.0),
            Family::Product => (Kind::Product, output * axis(input(0), 1)),
            Family::SummedProduct => (Kind::Product, count(input(0)) * axis(input(1), 1)),
            // For [m, k] and [k, n] this is m k n; an einsum may have more or less.
            Family::Contraction => (Kind::Product, (count(input(0)) * count(input(1)) * output).sqrt()),
            Family::Bilinear => {
                (Kind::Product, count(input(0)) * count(input(2)).max(1.0) / axis(input(0), 1).max(1.0))
            }
            Family::ProductChain => {
                let products = sizes.inputs.windows(2).map(|pair| count(&pair[0]) * axis(&pair[1], 1));
                (Kind::Product, products.sum())
            }
            Family::Attention => {
                let (q, keys, width) = (count(input(0)), axis(input(1), 2), axis(input(0), 1));
                let elements = elements + q / width.max(1.0) * keys;
                return Work { kind: Kind::Attention, multiply_adds: 2.0 * q * keys, elements };
            }
            // Each step multiplies the input and the state by their weights.
            Family::Recurrent => {
                let steps = count(input(0)) / axis(input(0), 1).max(1.0);
                (Kind::Product, steps * (count(input(1)) + count(input(2))))
            }
            Family::Convolution => (Kind::Convolution, output * count(input(1).get(1..).unwrap_or_default())),
            Family::TransposedConvolution => {
                (Kind::Convolution, count(input(0)) * count(input(1).get(1..).unwrap_or_default()))
            }
            Family::Norm => (Kind::Norm, 0.0),
            Family::Pool => (Kind::Pool, 0.0),
            // Each result reads two rows.
            Family::Distance => {
                let elements = output * 2.0 * axis(input(0), 1);
                return Work { kind: Kind::Elementwise, multiply_adds: 0.0, elements };
            }
            Family::Function => (Kind::Function, 0.0),
            Family::Elementwise => (Kind::Elementwise, 0.0),
        };
        Work { kind, multiply_adds, elements }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(inputs: &[&[usize]], output: &[usize]) -> Sizes {
        let needs = vec![true; inputs.len()];
        Sizes {
            inputs: inputs.iter().map(|shape| shape.to_vec()).collect(),
            output: output.into(),
            needs,
            kept: vec![],
        }
    }

    #[test]
    fn multiplications_are_counted_by_the_textbook() {
        let of = |op, inputs: &[&[usize]], output: &[usize]| Work::of(op, &sizes(inputs, output)).multiply_adds;
        assert_eq!(of(Op::MatMul, &[&[3, 5], &[5, 7]], &[3, 7]), 105.0);
        assert_eq!(of(Op::BatchMatMul, &[&[2, 3, 5], &[2, 5, 7]], &[2, 3, 7]), 210.0);
        assert_eq!(of(Op::Linear, &[&[2, 3, 5], &[7, 5], &[7]], &[2, 3, 7]), 210.0);
        assert_eq!(of(Op::Einsum, &[&[3, 5], &[5, 7]], &[3, 7]), 105.0);
        assert_eq!(of(Op::Addmm, &[&[3, 5], &[5, 7], &[7]], &[3, 7]), 105.0);
        assert_eq!(of(Op::MultiDot, &[&[3, 5], &[5, 7], &[7, 2]], &[3, 2]), 105.0 + 70.0);
        // Each output of a convolution uses each weight of its channel once; in a transposed one, each input does.
        assert_eq!(of(Op::Conv2d, &[&[1, 4, 6, 6], &[8, 4, 3, 3], &[8]], &[1, 8, 4, 4]), 8.0 * 16.0 * 36.0);
        assert_eq!(of(Op::ConvTranspose2d, &[&[1, 8, 4, 4], &[8, 4, 3, 3]], &[1, 4, 6, 6]), 8.0 * 16.0 * 36.0);
        let lstm = [&[2, 7, 3][..], &[16, 3], &[16, 4], &[2, 4], &[2, 4]];
        assert_eq!(of(Op::LstmCell, &lstm, &[2, 7, 4]), 14.0 * 16.0 * (3.0 + 4.0));
        // Scores and weighted values: [6, 10] by [10, 9], then [6, 9] by [9, 10].
        let attention = [&[2, 6, 10][..], &[2, 9, 10], &[2, 9, 10]];
        assert_eq!(of(Op::ScaledDotProductAttention, &attention, &[2, 6, 10]), 2.0 * 2.0 * 6.0 * 9.0 * 10.0);
        assert_eq!(of(Op::Relu, &[&[3, 5]], &[3, 5]), 0.0);
        // A distance reads two rows for each result.
        let cdist = Work::of(Op::Cdist, &sizes(&[&[3, 5], &[4, 5]], &[3, 4]));
        assert_eq!((cdist.kind, cdist.elements), (Kind::Elementwise, 2.0 * 12.0 * 5.0));
        for function in [Op::Asin, Op::Erfinv, Op::Log2, Op::KlDiv, Op::Exp, Op::Softmax] {
            assert_eq!(Work::of(function, &sizes(&[&[3]], &[3])).kind, Kind::Function, "{function}");
        }
        assert_eq!(Work::of(Op::AdaptiveAvgPool2d, &sizes(&[&[1, 2, 4, 4]], &[1, 2, 2, 2])).kind, Kind::Pool);
        // Shapes that no kernel accepts must not panic.
        for op in Op::ALL {
            assert!(of(*op, &[], &[]) >= 0.0 && of(*op, &[&[], &[]], &[0]) >= 0.0, "{op}");
        }
    }
}
