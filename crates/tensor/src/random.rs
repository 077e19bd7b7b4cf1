//! Random numbers: the same seed gives the same numbers on every machine, whatever the number of threads.

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
    /// # use precast_tensor::{self as precast, DType, Tensor, random::Rng};
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
    /// `io::models::parse` of precast does this. It is only needed to read cells from another format, such as
    /// `Rng::seed(0).reading(|| serde_json::from_str::<Child>(text))`.
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
///
/// # Errors
/// [`ErrorKind::Model`](crate::ErrorKind::Model) outside of it; those of `build`.
pub fn with_reading_rng<R>(build: impl FnOnce(&mut Rng) -> Result<R>) -> Result<R> {
    // Not taken out: a panic in `build` leaves the generator as it was.
    let mut rng = READING.with_borrow(Clone::clone).ok_or_else(|| {
        Error::model("cells draw their initial weights from a generator: read them with `models::parse`, or inside `Rng::reading`")
    })?;
    let built = build(&mut rng);
    READING.set(Some(rng));
    built
}

/// Returns an f32 tensor of drawn numbers, each rounded once.
///
/// # Errors
/// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the tensor does not fit into memory, or into the
/// [limit](Rng::reading) of a file that is being read.
pub fn filled(shape: &[usize], mut draw: impl FnMut() -> f64) -> Result<Tensor> {
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
    /// # use precast_tensor::{self as precast, DType, Tensor, random::Rng};
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
    /// # use precast_tensor::{self as precast, DType, Tensor, random::Rng};
    /// let (x, y) = (Tensor::randn(&[2, 3], &mut Rng::seed(1))?, Tensor::randn(&[2, 3], &mut Rng::seed(1))?);
    /// assert_eq!(x.to_f64(), y.to_f64()); // the same seed, the same numbers
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn randn(shape: &[usize], rng: &mut Rng) -> Result<Tensor> {
        filled(shape, || rng.normal(0.0, 1.0))
    }
}

/// Returns an empty vector with room for the numbers of a tensor, and their count.
fn room(shape: &[usize]) -> Result<(Vec<i64>, usize)> {
    let too_large = || Error::shape(format!("a tensor of shape {shape:?} does not fit into memory"));
    let len = shape.iter().copied().try_fold(1, usize::checked_mul).ok_or_else(too_large)?;
    Ok((memory::reserved(len).map_err(|_| too_large())?, len))
}

impl Tensor {
    /// Returns random i64 numbers, uniformly distributed from `low` to `high - 1`.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) unless `low < high`,
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the tensor does not fit into memory.
    ///
    /// ```
    /// # use precast_tensor::{self as precast, DType, Tensor, random::Rng};
    /// let dice = Tensor::randint(1, 7, &[100], &mut Rng::seed(1))?;
    /// assert!(dice.to_vec::<i64>()?.iter().all(|x| (1..7).contains(x)));
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn randint(low: i64, high: i64, shape: &[usize], rng: &mut Rng) -> Result<Tensor> {
        if low >= high {
            return Err(Error::value(format!("there is no integer from {low} up to but excluding {high}")));
        }
        let (mut data, len) = room(shape)?;
        data.extend((0..len).map(|_| rng.integer(low, high)));
        Tensor::from_vec(data, shape)
    }

    /// Returns the integers from 0 to `n - 1` in random order, as i64.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the tensor does not fit into memory.
    pub fn randperm(n: usize, rng: &mut Rng) -> Result<Tensor> {
        let (mut all, len) = room(&[n])?;
        all.extend(0..len as i64);
        rng.shuffle(&mut all);
        Tensor::from_vec(all, &[n])
    }

    /// Returns 1 with the probability that is the element of this tensor, and 0 otherwise, in its dtype. The result has
    /// no gradient.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a probability outside 0 to 1,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when this tensor is not floating.
    pub fn bernoulli(&self, rng: &mut Rng) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Err(Error::dtype(format!("probabilities are floating-point numbers, got {}", self.dtype())));
        }
        let draw = |p: &f64| match (0.0..=1.0).contains(p) {
            true => Ok(f64::from(rng.uniform(0.0, 1.0) < *p)),
            false => Err(Error::value(format!("{p} is not a probability; allowed: 0 to 1"))),
        };
        let drawn = self.to_f64().iter().map(draw).collect::<Result<Vec<f64>>>()?;
        Tensor::from_f64(&drawn, self.shape(), self.dtype())
    }

    /// Draws `count` categories with these weights, as i64: `[categories] -> [count]`, or for each row
    /// `[rows, categories] -> [rows, count]`. Weights need not add up to 1. Without replacement no category is drawn
    /// twice, and each draw is among those left. A category of weight 0 is never drawn.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the weights have other axes or the draws do not fit into memory,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a negative or non-finite weight, and when fewer than `count`
    /// categories (one, with replacement) have a positive weight,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when this tensor is not floating.
    ///
    /// ```
    /// # use precast_tensor::{self as precast, DType, Tensor, random::Rng};
    /// let logits = Tensor::from_vec(vec![2f32, 0., -1.], &[3])?;
    /// let next = logits.softmax(-1)?.multinomial(1, false, &mut Rng::seed(1))?;
    /// assert_eq!((next.shape(), next.dtype()), (&[1][..], DType::I64));
    /// # Ok::<(), precast::Error>(())
    /// ```
    #[doc(alias = "categorical")]
    pub fn multinomial(&self, count: usize, replacement: bool, rng: &mut Rng) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Err(Error::dtype(format!("weights are floating-point numbers, got {}", self.dtype())));
        }
        let (categories, shape) = match *self.shape() {
            [categories] => (categories, vec![count]),
            [rows, categories] => (categories, vec![rows, count]),
            _ => {
                return Err(Error::shape(format!(
                    "weights are [categories] or [rows, categories], got {:?}",
                    self.shape()
                )));
            }
        };
        let weights = self.to_f64();
        if let Some(weight) = weights.iter().find(|weight| !(weight.is_finite() && **weight >= 0.0)) {
            return Err(Error::value(format!("a weight is {weight}; allowed: finite numbers from 0 on")));
        }
        let rows = shape[..shape.len() - 1].iter().product();
        let (mut all, _) = room(&shape).map_err(|error| error.in_op("multinomial"))?;
        for row in 0..rows {
            let weights = &weights[row * categories..(row + 1) * categories];
            let positive = weights.iter().filter(|weight| **weight > 0.0).count();
            let wanted = if replacement { count.min(1) } else { count };
            if positive < wanted {
                return Err(Error::value(format!("{wanted} of {positive} categories with a positive weight")));
            }
            match replacement {
                true => all.extend(with_replacement(weights, count, rng)),
                false => all.extend(without_replacement(weights, count, rng)),
            }
        }
        Tensor::from_vec(all, &shape)
    }
}

/// Draws by the running sum of the weights.
fn with_replacement(weights: &[f64], count: usize, rng: &mut Rng) -> impl Iterator<Item = i64> {
    // Relative to the largest, so that the sum is finite.
    let largest = weights.iter().copied().fold(0.0, f64::max);
    let mut total = 0.0;
    let sums: Vec<f64> = weights
        .iter()
        .map(|weight| {
            total += weight / largest;
            total
        })
        .collect();
    let last = weights.iter().rposition(|weight| *weight > 0.0).unwrap_or(0);
    let draw = move |_| {
        let at = rng.uniform(0.0, total);
        sums.partition_point(|sum| *sum <= at).min(last) as i64
    };
    (0..count).map(draw)
}

/// Draws by exponentially distributed waiting times, whose rates are the weights: the order in which the categories
/// arrive is that of one draw after another among those left (Efraimidis and Spirakis 2006).
fn without_replacement(weights: &[f64], count: usize, rng: &mut Rng) -> Vec<i64> {
    let largest = weights.iter().copied().fold(0.0, f64::max);
    let mut arrivals: Vec<(f64, i64)> = weights
        .iter()
        .enumerate()
        .map(|(place, weight)| (-(1.0 - rng.uniform(0.0, 1.0)).ln() / (weight / largest), place as i64, *weight))
        .filter(|(_, _, weight)| *weight > 0.0)
        .map(|(time, place, _)| (time, place))
        .collect();
    arrivals.sort_by(|a, b| a.0.total_cmp(&b.0));
    arrivals.into_iter().take(count).map(|(_, place)| place).collect()
}
