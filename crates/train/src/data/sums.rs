//! Means and deviations of many numbers, in f64.

use precast::error::{Error, Result};

/// A sum with the rounding errors of its additions (Neumaier 1974).
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum {
    sum: f64,
    errors: f64,
}

impl Sum {
    pub fn add(&mut self, x: f64) {
        let sum = self.sum + x;
        self.errors += if self.sum.abs() >= x.abs() { (self.sum - sum) + x } else { (x - sum) + self.sum };
        self.sum = sum;
    }

    pub fn total(self) -> f64 {
        // The error of an infinite sum is NaN.
        if self.sum.is_finite() { self.sum + self.errors } else { self.sum }
    }
}

/// Returns whether numbers with this mean and variance differ by rounding alone: by that of sums of so many f64, as in
/// scikit-learn, or by a few of the last digits of f32.
pub(crate) fn is_rounding(count: f64, mean: f64, variance: f64, are_f32: bool) -> bool {
    let few = if are_f32 { 4.0 * f64::from(f32::EPSILON) } else { 0.0 };
    variance <= count * f64::EPSILON * variance + (mean * few.max(count * f64::EPSILON)).powi(2)
}

/// Sums of the numbers of each feature, taken in three passes over all numbers in order.
pub(super) struct Sums {
    features: Features,
    count: f64,
    pass: Pass,
    /// Index of the next number in this pass.
    next: usize,
    largest: Vec<f64>,
    first: Vec<Option<f64>>,
    constant: Vec<bool>,
    /// `true` if all numbers are in f32, and if all are whole.
    in_f32: Vec<bool>,
    whole: Vec<bool>,
    scale: Vec<f64>,
    mean: Vec<f64>,
    /// Sums of the numbers, or of their distances from the mean, and of the squares of these.
    sums: Vec<Sum>,
    squares: Vec<Sum>,
}

#[derive(Clone, Copy, PartialEq)]
enum Pass {
    Largest,
    Mean,
    Deviation,
    Done,
}

impl Sums {
    /// Takes the sums of the numbers that each call of `numbers` yields.
    pub fn of<I: Iterator<Item = f64>>(numbers: impl Fn() -> I, shape: &[usize]) -> Result<Self> {
        let mut sums = Sums::new(shape, numbers().count())?;
        while sums.is_unfinished() {
            numbers().for_each(|x| sums.put(x));
            sums.end_pass();
        }
        Ok(sums)
    }

    /// Begins the sums of so many numbers, those of examples of a shape.
    pub fn new(shape: &[usize], numbers: usize) -> Result<Self> {
        let features = Features::of(shape);
        let n = features.count;
        let count = (numbers / n.max(1)) as f64;
        if count == 0.0 {
            return Err(Error::data("there are no examples to take the mean of"));
        }
        let [largest, scale, mean] = [(); 3].map(|()| vec![0.0; n]);
        let [constant, in_f32, whole] = [(); 3].map(|()| vec![true; n]);
        let [sums, squares] = [(); 2].map(|()| vec![Sum::default(); n]);
        let (pass, next, first) = (Pass::Largest, 0, vec![None; n]);
        Ok(Sums { features, count, pass, next, largest, first, constant, in_f32, whole, scale, mean, sums, squares })
    }

    /// Returns whether another pass is needed.
    pub fn is_unfinished(&self) -> bool {
        self.pass != Pass::Done
    }

    /// Takes the next number.
    pub fn put(&mut self, x: f64) {
        let feature = self.features.at(self.next);
        self.next += 1;
        match self.pass {
            Pass::Largest => {
                self.largest[feature] = self.largest[feature].max(x.abs());
                self.constant[feature] &= *self.first[feature].get_or_insert(x) == x;
                self.in_f32[feature] &= f64::from(x as f32) == x;
                self.whole[feature] &= x.fract() == 0.0;
            }
            Pass::Mean => self.sums[feature].add(x * self.scale[feature]),
            Pass::Deviation => {
                let distance = x * self.scale[feature] - self.mean[feature];
                self.sums[feature].add(distance);
                self.squares[feature].add(distance.powi(2));
            }
            Pass::Done => {}
        }
    }

    /// Ends a pass over all numbers.
    pub fn end_pass(&mut self) {
        self.next = 0;
        self.pass = match self.pass {
            Pass::Largest => {
                // Powers of two round nothing, and bring the numbers of each feature near 1: no square leaves the range of f64.
                self.scale = self.largest.iter().copied().map(to_one).collect();
                Pass::Mean
            }
            Pass::Mean => {
                let sums = std::mem::replace(&mut self.sums, vec![Sum::default(); self.mean.len()]);
                self.mean = sums.into_iter().map(|sum| sum.total() / self.count).collect();
                Pass::Deviation
            }
            Pass::Deviation | Pass::Done => Pass::Done,
        };
    }

    /// Returns mean and deviation of each feature; no deviation of a constant.
    pub fn features(self) -> Vec<(f64, Option<f64>)> {
        let Sums { count, first, constant, in_f32, whole, scale, mean, sums, squares, .. } = self;
        let of = |feature: usize| {
            if constant[feature] {
                // The sums leave only rounding errors.
                return (first[feature].unwrap_or_default(), None);
            }
            let (scale, mean) = (scale[feature], mean[feature]);
            // The mean is rounded, so the distances from it have a sum.
            let variance = (squares[feature].total() - sums[feature].total().powi(2) / count) / count;
            let is_constant = is_rounding(count, mean, variance, in_f32[feature] && !whole[feature]);
            // A divisor is not 0.
            let deviation = (variance.sqrt() / scale).clamp(f64::from_bits(1), f64::MAX);
            ((mean / scale).clamp(-f64::MAX, f64::MAX), (!is_constant).then_some(deviation))
        };
        (0..constant.len()).map(of).collect()
    }
}

/// Returns a power of two that brings a number near 1, as far as f64 has it.
fn to_one(number: f64) -> f64 {
    const BITS: u32 = f64::MANTISSA_DIGITS - 1;
    // The exponent of 2^-k is that of 1, twice, less that of 2^k.
    let exponent = (number.to_bits() >> BITS).clamp(1, 2045);
    f64::from_bits((2046 - exponent) << BITS)
}

/// Map from the elements of an input to features.
pub(super) struct Features {
    pub count: usize,
    /// Number of contiguous elements of one feature.
    together: usize,
}

impl Features {
    pub fn of(shape: &[usize]) -> Self {
        match shape {
            [] => Features { count: 1, together: 1 },
            [count] | [_, count] => Features { count: *count, together: 1 },
            [count, inner @ ..] => Features { count: *count, together: inner.iter().product() },
        }
    }

    pub fn at(&self, element: usize) -> usize {
        element / self.together % self.count
    }
}
