//! Random numbers, and initial values of parameters.

use std::cell::{Cell, RefCell};

use precast_kernels::memory;
use rand::{Rng as _, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use crate::{
    Tensor,
    error::{Error, Result},
};

/// A seeded random number generator: the same seed gives the same numbers on every machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// Creates a generator from a seed.
    ///
    /// ```
    /// use precast::layers::Rng;
    /// assert_eq!(Rng::seed(1).uniform(0.0, 1.0), Rng::seed(1).uniform(0.0, 1.0));
    /// assert_ne!(Rng::seed(1).uniform(0.0, 1.0), Rng::seed(2).uniform(0.0, 1.0));
    /// ```
    pub fn seed(seed: u64) -> Self {
        Rng(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Returns a uniformly distributed number between `low` (inclusive) and `high` (exclusive, apart from rounding).
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.random::<f64>()
    }

    /// Returns a normally distributed number.
    pub fn normal(&mut self, mean: f64, std: f64) -> f64 {
        mean + std * self.0.sample::<f64, _>(StandardNormal)
    }

    /// Returns a uniformly distributed integer from `low` to `high - 1`.
    ///
    /// # Panics
    /// When there is none, as for an empty range in `rand`.
    pub fn integer(&mut self, low: i64, high: i64) -> i64 {
        self.0.random_range(low..high)
    }

    /// Returns 64 random bits, for seeding something else.
    pub fn bits(&mut self) -> u64 {
        self.0.random()
    }

    /// Shuffles the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        items.shuffle(&mut self.0);
    }

    /// Returns an independent generator: drawing from it does not affect the numbers drawn here.
    pub fn fork(&mut self) -> Rng {
        Rng::seed(self.bits())
    }

    /// Runs `f`; cells that serde reads inside it draw their initial weights from this generator.
    ///
    /// [`models::parse`](crate::io::models::parse) does this. It is only needed to read cells from another format:
    ///
    /// ```
    /// use precast::{Child, layers::Rng};
    /// let text = r#"{"kind": "Dense", "in_features": 4, "out_features": 2}"#;
    /// let cell: Child = Rng::seed(0).reading(|| serde_json::from_str(text)).unwrap();
    /// assert_eq!(cell.named_params()[0].1.shape(), [2, 4]);
    /// ```
    pub fn reading<R>(&mut self, f: impl FnOnce() -> R) -> R {
        /// A guard that restores the generator of an outer call, also on panic.
        struct Restore<'a>(&'a mut Rng, Option<Rng>, Option<usize>);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                if let Some(rng) = READING.replace(self.1.take()) {
                    *self.0 = rng;
                }
                LEFT.set(self.2);
            }
        }
        let outer = READING.replace(Some(self.clone()));
        let _restore = Restore(self, outer, LEFT.replace(Some(MOST_READ)));
        f()
    }
}

thread_local! {
    /// The generator of the innermost [`Rng::reading`].
    static READING: RefCell<Option<Rng>> = const { RefCell::new(None) };
    /// The number of values that further cells of the current file may hold.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The maximum number of values in the cells of one file: 4 GiB of them, so that a few words in a file cannot exhaust
/// memory. Cells created in code may be larger.
const MOST_READ: usize = if cfg!(fuzzing) { 1 << 16 } else { 1 << 30 };

/// Builds a cell read from a file, with the generator of [`Rng::reading`].
pub(super) fn with_reading_rng<R>(build: impl FnOnce(&mut Rng) -> Result<R>) -> Result<R> {
    // Not taken out: a panic in `build` leaves the generator as it was.
    let mut rng = READING.with_borrow(Clone::clone).ok_or_else(|| {
        Error::model("cells draw their initial weights from a generator: read them with `models::parse`, or inside `Rng::reading`")
    })?;
    let built = build(&mut rng);
    READING.set(Some(rng));
    built
}

/// Distribution of the initial values of a parameter.
///
/// `fan_in` is the number of values that contribute to one output, `fan_out` the number of outputs that one value
/// contributes to: for a weight `[a, b, k...]` they are `b * k...` and `a * k...`, as in torch (`torch/nn/init.py`,
/// `_calculate_fan_in_and_fan_out`) and MindSpore (`common/initializer.py`).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Init {
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// All equal to this number.
    Constant(f64),
    /// Uniform between `-bound` and `bound`.
    Uniform {
        /// The largest absolute value.
        bound: f64,
    },
    /// Normal with mean 0.
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// Uniform with the bound `gain * sqrt(6 / (fan_in + fan_out))` (Glorot & Bengio 2010, eq. 16).
    XavierUniform {
        /// 1 for linear and sigmoid units.
        gain: f64,
    },
    /// Normal with the standard deviation `gain * sqrt(2 / (fan_in + fan_out))` (Glorot & Bengio 2010).
    XavierNormal {
        /// 1 for linear and sigmoid units.
        gain: f64,
    },
    /// Uniform with the bound `sqrt(6 / ((1 + a^2) * fan_in))` (He et al. 2015, eq. 15).
    HeUniform {
        /// The `a` of the formula: the slope of the following rectifier below zero.
        negative_slope: f64,
    },
    /// Normal with the standard deviation `sqrt(2 / ((1 + a^2) * fan_in))` (He et al. 2015, eq. 15).
    HeNormal {
        /// The `a` of the formula: the slope of the following rectifier below zero.
        negative_slope: f64,
    },
}

impl Init {
    /// Returns the initialisation of dense and convolution weights in torch and MindSpore: uniform with the bound
    /// `1 / sqrt(fan_in)`.
    pub(super) fn weight() -> Init {
        Init::HeUniform { negative_slope: 5f64.sqrt() }
    }

    /// Returns the initialisation of biases (fan = fan-in of the weight) and recurrent cells (fan = hidden size) in
    /// torch and MindSpore: uniform with the bound `1 / sqrt(fan)`. All 0 when the fan is 0.
    pub(super) fn uniform_of(fan: usize) -> Init {
        Init::Uniform { bound: if fan == 0 { 0.0 } else { 1.0 / (fan as f64).sqrt() } }
    }

    /// Returns an f32 tensor of such values, each drawn in f64 and rounded once.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when a formula needs a fan and the shape has fewer than 2 axes, or
    /// when the tensor does not fit into memory.
    ///
    /// ```
    /// use precast::layers::{Init, Rng};
    /// let weight = Init::XavierUniform { gain: 1.0 }.sample(&[4, 2], &mut Rng::seed(0))?;
    /// assert!(weight.to_f64().iter().all(|w| w.abs() <= 1.0));
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn sample(self, shape: &[usize], rng: &mut Rng) -> Result<Tensor> {
        let draw: Box<dyn FnMut() -> f64 + '_> = match self {
            Init::Zeros => Box::new(|| 0.0),
            Init::Ones => Box::new(|| 1.0),
            Init::Constant(value) => Box::new(move || value),
            Init::Uniform { bound } => Box::new(move || rng.uniform(-bound, bound)),
            Init::Normal { std } => Box::new(move || rng.normal(0.0, std)),
            Init::XavierUniform { gain } => {
                let bound = gain * spread(6.0, fans(shape)?.iter().sum());
                Box::new(move || rng.uniform(-bound, bound))
            }
            Init::XavierNormal { gain } => {
                let std = gain * spread(2.0, fans(shape)?.iter().sum());
                Box::new(move || rng.normal(0.0, std))
            }
            Init::HeUniform { negative_slope } => {
                let bound = spread(6.0 / (1.0 + negative_slope * negative_slope), fans(shape)?[0]);
                Box::new(move || rng.uniform(-bound, bound))
            }
            Init::HeNormal { negative_slope } => {
                let std = spread(2.0 / (1.0 + negative_slope * negative_slope), fans(shape)?[0]);
                Box::new(move || rng.normal(0.0, std))
            }
        };
        filled(shape, draw)
    }
}

/// Returns an f32 tensor with every element `value`, for a parameter without random initial values.
///
/// # Errors
/// As [`Init::sample`].
pub(super) fn constant(shape: &[usize], value: f64) -> Result<Tensor> {
    filled(shape, || value)
}

/// Returns an f32 tensor of drawn numbers, each rounded once.
fn filled(shape: &[usize], mut draw: impl FnMut() -> f64) -> Result<Tensor> {
    let len = shape.iter().try_fold(1usize, |n, &axis| n.checked_mul(axis));
    if let (Some(len), Some(left)) = (len, LEFT.get()) {
        LEFT.set(Some(left.checked_sub(len).ok_or_else(|| {
            Error::shape(format!(
                "a parameter of shape {shape:?} has {len} numbers; a file may ask for {MOST_READ} in all, and {left} are left"
            ))
        })?));
    }
    let Some((len, Ok(mut data))) = len.map(|len| (len, memory::reserved(len))) else {
        return Err(Error::shape(format!("a tensor of shape {shape:?} does not fit into memory")));
    };
    data.extend(std::iter::repeat_with(|| draw() as f32).take(len));
    Tensor::from_vec(data, shape)
}

impl Tensor {
    /// Returns random f32 numbers, uniformly distributed between 0 (inclusive) and 1 (exclusive, apart from rounding).
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the tensor does not fit into memory.
    ///
    /// ```
    /// use precast::prelude::*;
    /// let x = Tensor::rand(&[2, 3], &mut Rng::seed(1))?;
    /// assert!(x.to_f64().iter().all(|x| (0.0..=1.0).contains(x)));
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn rand(shape: &[usize], rng: &mut Rng) -> Result<Tensor> {
        filled(shape, || rng.uniform(0.0, 1.0))
    }

    /// Returns random f32 numbers of the normal distribution with mean 0 and standard deviation 1.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the tensor does not fit into memory.
    ///
    /// ```
    /// use precast::prelude::*;
    /// let (x, y) = (Tensor::randn(&[2, 3], &mut Rng::seed(1))?, Tensor::randn(&[2, 3], &mut Rng::seed(1))?);
    /// assert_eq!(x.to_f64(), y.to_f64()); // the same seed, the same numbers
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn randn(shape: &[usize], rng: &mut Rng) -> Result<Tensor> {
        filled(shape, || rng.normal(0.0, 1.0))
    }
}

/// Returns `[fan_in, fan_out]` as floating-point numbers, which do not overflow.
fn fans(shape: &[usize]) -> Result<[f64; 2]> {
    let [outputs, inputs, kernel @ ..] = shape else {
        return Err(Error::shape(format!(
            "the fan-in of the shape {shape:?} is not defined: at least 2 axes are needed"
        )));
    };
    let field: f64 = kernel.iter().map(|&k| k as f64).product();
    Ok([*inputs as f64 * field, *outputs as f64 * field])
}

/// Returns `sqrt(numerator / fan)`, or 0 for an empty weight.
fn spread(numerator: f64, fan: f64) -> f64 {
    if fan == 0.0 { 0.0 } else { (numerator / fan).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the mean and standard deviation of 20,000 draws, and the largest absolute value.
    fn moments(init: Init, shape: &[usize]) -> (f64, f64, f64) {
        let x = init.sample(shape, &mut Rng::seed(5)).unwrap().to_f64();
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n;
        let std = (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
        (mean, std, x.iter().fold(0.0, |m, x| x.abs().max(m)))
    }

    #[test]
    fn distributions_have_their_closed_form_moments() {
        // A weight [100, 20, 2, 5]: fan_in 200, fan_out 1000. A uniform distribution of bound b has the deviation b /
        // sqrt(3).
        let shape = [100, 20, 2, 5];
        let s = |x: f64| x.sqrt();
        let uniforms = [
            (Init::Uniform { bound: 0.3 }, 0.3),
            (Init::XavierUniform { gain: 2.0 }, 2.0 * s(6.0 / 1200.0)),
            (Init::HeUniform { negative_slope: 0.5 }, s(6.0 / 1.25 / 200.0)),
            (Init::weight(), 1.0 / s(200.0)),
            (Init::uniform_of(25), 0.2),
        ];
        for (init, bound) in uniforms {
            let (mean, std, max) = moments(init, &shape);
            assert!(max <= bound && max > 0.999 * bound, "{init:?}: {max} against {bound}");
            assert!((std / (bound / s(3.0)) - 1.0).abs() < 0.02 && mean.abs() < 0.02 * bound, "{init:?}: {mean} {std}");
        }
        let normals = [
            (Init::Normal { std: 0.7 }, 0.7),
            (Init::XavierNormal { gain: 1.0 }, s(2.0 / 1200.0)),
            (Init::HeNormal { negative_slope: 0.0 }, s(2.0 / 200.0)),
        ];
        for (init, expected) in normals {
            let (mean, std, max) = moments(init, &shape);
            assert!((std / expected - 1.0).abs() < 0.02 && mean.abs() < 0.03 * expected, "{init:?}: {mean} {std}");
            assert!(max > 3.0 * expected && max < 6.0 * expected, "{init:?}: {max}");
        }
    }

    #[test]
    fn shapes_without_a_fan_or_too_large_are_errors() {
        let mut rng = Rng::seed(0);
        let error = Init::weight().sample(&[3], &mut rng).unwrap_err();
        assert_eq!(error.to_string(), "the fan-in of the shape [3] is not defined: at least 2 axes are needed");
        for shape in [vec![usize::MAX, 2], vec![usize::MAX / 2]] {
            assert!(Init::Ones.sample(&shape, &mut rng).unwrap_err().to_string().contains("does not fit into memory"));
        }
        assert!(Init::weight().sample(&[4, 0], &mut rng).unwrap().is_empty());
    }

    #[test]
    fn a_fork_does_not_move_its_origin() {
        let (mut a, mut b) = (Rng::seed(3), Rng::seed(3));
        let mut fork = a.fork();
        b.fork();
        let from_fork: Vec<f64> = (0..4).map(|_| fork.uniform(0.0, 1.0)).collect();
        let rest: Vec<f64> = (0..4).map(|_| a.uniform(0.0, 1.0)).collect();
        assert_eq!(rest, (0..4).map(|_| b.uniform(0.0, 1.0)).collect::<Vec<_>>());
        assert_ne!(rest, from_fork);
    }

    #[test]
    fn reading_nests_and_gives_back_the_advanced_generator() {
        let draw = || with_reading_rng(|rng| Ok(rng.bits()));
        assert!(draw().is_err());
        let (mut outer, mut same) = (Rng::seed(1), Rng::seed(1));
        let inside = outer.reading(|| {
            let first = draw().unwrap();
            let inner = Rng::seed(2).reading(|| draw().unwrap());
            [first, inner, draw().unwrap()]
        });
        assert_eq!(inside, [same.bits(), Rng::seed(2).bits(), same.bits()]);
        assert_eq!(outer, same);
        assert!(draw().is_err());
    }

    #[test]
    fn a_cell_that_panics_leaves_the_generator() {
        let draw = |rng: &mut Rng| Ok(rng.normal(0.0, 1.0));
        let [whole, after] = [false, true].map(|panics| {
            Rng::seed(1).reading(|| {
                if panics {
                    assert!(
                        std::panic::catch_unwind(|| with_reading_rng(|_| -> Result<f64> { panic!("in a cell") }))
                            .is_err()
                    );
                }
                with_reading_rng(draw)
            })
        });
        assert_eq!(after.unwrap(), whole.unwrap());
    }
}
