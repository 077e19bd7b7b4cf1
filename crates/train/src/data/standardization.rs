//! Standardization of inputs and targets to mean 0 and variance 1.

use precast::error::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{
    Dataset, Inputs, Targets,
    sums::{Features, Sums},
};

/// Mean and standard deviation of the inputs or the targets of a dataset, for [standardizing](Dataset::standardized) it
/// and others. Both are computed in f64 from the numbers as in their file, as are the subtraction and the division; the
/// results are f32.
///
/// | examples | one mean and one deviation for each |
/// | --- | --- |
/// | `[columns]` | column |
/// | `[length, features]` | feature |
/// | `[channels, ...]` of three or more axes | channel |
///
/// ```
/// use precast_train::data::{Dataset, Standardization};
/// let data = Dataset::new(vec![1.0, 5.0, 3.0, 5.0], &[2], vec![0, 1])?;
/// let standardization = Standardization::of(&data)?;
/// let x = data.standardized(&standardization)?.batches(2)?.next().unwrap().x;
/// assert_eq!(x.to_f64(), [-1.0, 0.0, 1.0, 0.0]); // a column that is constant is only centred
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standardization {
    /// Mean to subtract.
    pub mean: Vec<f64>,
    /// Divisor after that: the root mean square; 1 where all values are equal, but for rounding.
    pub deviation: Vec<f64>,
}

impl Standardization {
    /// Computes the standardization of a dataset's inputs.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) when there are no examples, or inputs are indices.
    pub fn of(data: &Dataset) -> Result<Self> {
        if !matches!(data.form(), Inputs::Numbers(_)) {
            return Err(Error::data(INDICES));
        }
        if let Inputs::Stored(_) = data.inputs() {
            return Standardization::of_stored(data);
        }
        Standardization::of_numbers(|| data.exact_inputs().into_iter().flatten(), data.shape())
    }

    /// Computes the standardization of a dataset's numeric targets.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) when there are no examples, or the targets are not numbers.
    pub fn of_targets(data: &Dataset) -> Result<Self> {
        let Targets::Numbers { shape, .. } = data.targets() else { return Err(Error::data(NO_NUMBERS)) };
        Standardization::of_numbers(|| data.exact_targets(0).into_iter().flatten(), shape)
    }

    /// Reverts the standardization of numbers; `shape` is that of one example.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) for another number of features.
    pub fn undo(&self, numbers: &mut [f64], shape: &[usize]) -> Result<()> {
        let features = self.features(shape)?;
        for (i, x) in numbers.iter_mut().enumerate() {
            let feature = features.at(i);
            let (mean, deviation) = (self.mean[feature], self.deviation[feature]);
            // Half of each: the product may exceed the range of f64 where the sum does not.
            let half = if deviation > 1.0 { 0.5 } else { 1.0 };
            *x = (*x * (deviation * half) + mean * half) / half;
        }
        Ok(())
    }

    /// Returns the deviation of the feature of a number of examples of a shape.
    pub(crate) fn unit(&self, number: usize, shape: &[usize]) -> f64 {
        self.deviation[Features::of(shape).at(number)]
    }

    /// Returns the features of examples of a shape, which must be as many as there are means.
    fn features(&self, shape: &[usize]) -> Result<Features> {
        let (features, met) = (Features::of(shape), (self.mean.len(), self.deviation.len()));
        if met == (features.count, features.count) {
            return Ok(features);
        }
        let ((means, deviations), count) = (met, features.count);
        Err(Error::data(format!(
            "{means} means and {deviations} deviations for numbers of shape {shape:?}, which have {count} features"
        )))
    }

    fn standardized(&self, numbers: impl Iterator<Item = f64>, shape: &[usize]) -> Result<Vec<f32>> {
        let features = self.features(shape)?;
        let one = |(i, x): (usize, f64)| {
            let feature = features.at(i);
            let (mean, deviation) = (self.mean[feature], self.deviation[feature]);
            // Half of each: the difference may exceed the range of f64 where the quotient does not.
            let half = if deviation > 1.0 { 0.5 } else { 1.0 };
            ((x * half - mean * half) / (deviation * half)) as f32
        };
        Ok(numbers.enumerate().map(one).collect())
    }

    /// Returns the standardization by some sums, after their last pass; constants are only centred.
    pub(super) fn of_sums(sums: Sums) -> Self {
        let (mean, deviation) = sums.features().into_iter().map(|(mean, by)| (mean, by.unwrap_or(1.0))).unzip();
        Standardization { mean, deviation }
    }

    /// Computes the standardization of the numbers that each call of `numbers` yields.
    fn of_numbers<I: Iterator<Item = f64>>(numbers: impl Fn() -> I, shape: &[usize]) -> Result<Self> {
        Sums::of(numbers, shape).map(Standardization::of_sums)
    }
}

const INDICES: &str = "inputs that are indices have no mean; an array of NumPy of int32 or int64 is read as indices (of an \
                       embedding), one of float64 as numbers";
const NO_NUMBERS: &str = "targets that are classes have no mean; whole numbers are read as numbers with `as: numbers`";

impl Dataset {
    /// Returns the examples with each input minus the mean of its feature, divided by its deviation.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) when inputs are indices, have another number of features, or become
    /// non-finite.
    pub fn standardized(&self, by: &Standardization) -> Result<Dataset> {
        if let Inputs::Stored(_) = self.inputs() {
            let by = by.clone();
            return self.later(move |part| part.standardized(&by));
        }
        let numbers = self.exact_inputs().ok_or_else(|| Error::data(INDICES))?;
        self.with_inputs(by.standardized(numbers, self.shape())?)
    }

    /// Returns the examples with each numeric target minus the mean of its feature, divided by its deviation.
    ///
    /// # Errors
    /// As [`standardized`](Dataset::standardized), for targets.
    pub fn targets_standardized(&self, by: &Standardization) -> Result<Dataset> {
        let (Targets::Numbers { shape, .. }, Some(numbers)) = (self.targets(), self.exact_targets(0)) else {
            return Err(Error::data(NO_NUMBERS));
        };
        self.with_targets(Targets::Numbers { shape: shape.clone(), values: by.standardized(numbers, shape)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The standardization of multiples of a power of two has the bits of that of the multiples.
    #[test]
    fn mean_and_deviation_are_right_in_all_the_range_of_f64() {
        let numbers = [1.0, 3.0, 2.5, -7.0, 0.1, 0.0];
        let of = |numbers: &[f64]| Standardization::of_numbers(|| numbers.iter().copied(), &[1]).unwrap();
        let plain = of(&numbers);
        let mean = numbers.iter().sum::<f64>() / 6.0;
        let deviation = (numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 6.0).sqrt();
        assert!((plain.mean[0] - mean).abs() < 1e-15 && (plain.deviation[0] - deviation).abs() < 1e-15, "{plain:?}");
        let standardized = plain.standardized(numbers.into_iter(), &[1]).unwrap();
        for exponent in [-960, -665, -600, 600, 665, 1000, 1020] {
            let by = 2f64.powi(exponent);
            let many = numbers.map(|x| x * by);
            let met = of(&many);
            assert_eq!((met.mean[0], met.deviation[0]), (plain.mean[0] * by, plain.deviation[0] * by), "2^{exponent}");
            assert_eq!(met.standardized(many.into_iter(), &[1]).unwrap(), standardized, "2^{exponent}");
            let mut back: Vec<f64> = standardized.iter().map(|&x| f64::from(x)).collect();
            met.undo(&mut back, &[1]).unwrap();
            let near = |(x, y): (&f64, &f64)| (x - y).abs() <= 1e-6 * met.deviation[0];
            assert!(back.iter().zip(&many).all(near), "{back:?} {many:?}");
        }
    }

    #[test]
    fn the_ends_of_the_range_of_f64_are_standardized() {
        let (most, least) = (f64::MAX, f64::from_bits(1));
        for (numbers, mean, deviation, standardized) in [
            (vec![most, -most], 0.0, most, vec![1.0, -1.0]),
            (vec![least, -least], 0.0, least, vec![1.0, -1.0]),
            // The deviation, half the least number, is rounded up.
            (vec![least, 0.0], 0.0, least, vec![1.0, 0.0]),
            (vec![least * 4.0, 0.0], least * 2.0, least * 2.0, vec![1.0, -1.0]),
            // Mean -0.5 and deviation sqrt(0.75) of the largest number, which the first is further away from than f64 holds.
            (vec![most, -most, -most, -most], -most / 2.0, most * 0.75f64.sqrt(), vec![1.7320508, -0.57735026]),
            (vec![most, most], most, 1.0, vec![0.0, 0.0]),
            (vec![0.0, 1e-300], 5e-301, 5e-301, vec![-1.0, 1.0]),
            (vec![1e308, 0.0], 5e307, 5e307, vec![1.0, -1.0]),
        ] {
            let by = Standardization::of_numbers(|| numbers.iter().copied(), &[1]).unwrap();
            let near = |met: f64, right: f64| met == right || (met / right - 1.0).abs() < 1e-15;
            assert!(near(by.mean[0], mean) && near(by.deviation[0], deviation), "{numbers:?}: {by:?}");
            let met = by.standardized(numbers.iter().copied(), &[1]).unwrap();
            assert!(met.iter().zip(&standardized).all(|(x, y)| (x - y).abs() < 1e-6), "{numbers:?}: {met:?}");
            let mut back: Vec<f64> = met.iter().map(|&x| f64::from(x)).collect();
            by.undo(&mut back, &[1]).unwrap();
            assert!(back.iter().all(|x| x.is_finite()), "{numbers:?}: {back:?}");
        }
    }
    /// Recorded from `sklearn.preprocessing.StandardScaler`, whose scale is 1 for all of these but the last, and NaN for
    /// 1e200, whose square it does not hold.
    #[test]
    fn numbers_that_differ_by_rounding_are_only_centred() {
        let many = |x: [f64; 2]| (0..300).map(|i| x[i % 2]).collect::<Vec<f64>>();
        let shares = (1..400).map(|i| {
            let [a, b, c] = [1.0, f64::from(i).sin().abs(), f64::from(i).cos().abs()].map(|x| x / f64::from(i % 7 + 3));
            let sum = a + b + c;
            a / sum + b / sum + c / sum
        });
        for (numbers, is_rounding) in [
            (many([0.1 + 0.2, 0.3]), true),
            (many([0.1 + 0.7, 0.8]), true),
            (vec![0.1 + 0.2, 0.3], true),
            (many([-1e200 * (0.1 + 0.2), -1e200 * 0.3]), true),
            (many([1e-200 * (0.1 + 0.2), 1e-200 * 0.3]), true),
            (shares.collect(), true),
            (many([1e15 + 0.125, 1e15 + 0.25]), true),
            (many([1.7e9, 1.7e9 + 0.25]), false),
        ] {
            let by = Standardization::of_numbers(|| numbers.iter().copied(), &[1]).unwrap();
            assert_eq!(by.deviation[0] == 1.0, is_rounding, "{numbers:?}: {by:?}");
            let largest = numbers.iter().fold(0f64, |most, x| most.max((x - by.mean[0]).abs()));
            assert!(!is_rounding || largest <= 1e-12 * by.mean[0].abs(), "{by:?}");
        }
    }

    /// Sums of shares in f32, as of an array of float32; whole numbers are not rounded.
    #[test]
    fn numbers_of_f32_that_differ_by_rounding_are_only_centred() {
        let of = |numbers: &[f32]| {
            Standardization::of_numbers(|| numbers.iter().map(|&x| f64::from(x)), &[1]).unwrap().deviation[0]
        };
        let shares: Vec<f32> = (1..500)
            .map(|i| {
                let parts = [1.0, (i as f32).sin().abs(), (i as f32).cos().abs(), 0.3].map(|x| x / 7.0);
                let sum: f32 = parts.iter().sum();
                parts.iter().map(|x| x / sum).sum()
            })
            .collect();
        assert!(shares.iter().any(|x| *x != 1.0));
        assert_eq!(of(&shares), 1.0);
        assert_eq!(of(&[0.1 + 0.2, 0.3, 0.1 + 0.2, 0.3]), 1.0);
        assert_eq!(of(&[16777214.0, 16777216.0]), 1.0);
        assert_eq!(of(&[16777210.0, 16777216.0]), 3.0);
        assert_eq!(of(&[1000.0, 1000.25]), 0.125);
    }

    /// The mean of a million numbers of one size, summed one after another, is off by 1e-12.
    #[test]
    fn sums_are_accurate() {
        let numbers = || (0..1_000_000).map(|i| 1e6 + if i % 2 == 0 { 0.1 } else { -0.1 });
        let by = Standardization::of_numbers(numbers, &[1]).unwrap();
        assert!((by.mean[0] - 1e6).abs() < 2e-10 && (by.deviation[0] - 0.1).abs() < 1e-10, "{by:?}");
        let mut sum = crate::data::sums::Sum::default();
        [1.0, 1e100, 1.0, -1e100].iter().for_each(|x| sum.add(*x));
        assert_eq!(sum.total(), 2.0);
    }
}
