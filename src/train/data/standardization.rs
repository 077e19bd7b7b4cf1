//! Standardization of inputs and targets to mean 0 and variance 1.

use serde::{Deserialize, Serialize};

use super::{Dataset, Targets};
use crate::error::{Error, Result};

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
/// use precast::data::{Dataset, Standardization};
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
    /// Divisor after that: the root mean square; 1 where all values are equal.
    pub deviation: Vec<f64>,
}

impl Standardization {
    /// Computes the standardization of a dataset's inputs.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](crate::ErrorKind::Data) when there are no examples, or inputs are indices.
    pub fn of(data: &Dataset) -> Result<Self> {
        if data.exact_inputs().is_none() {
            return Err(Error::data(INDICES));
        }
        Standardization::of_numbers(|| data.exact_inputs().into_iter().flatten(), data.shape())
    }

    /// Computes the standardization of a dataset's numeric targets.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](crate::ErrorKind::Data) when there are no examples, or the targets are not numbers.
    pub fn of_targets(data: &Dataset) -> Result<Self> {
        let Targets::Numbers { shape, .. } = data.targets() else { return Err(Error::data(NO_NUMBERS)) };
        Standardization::of_numbers(|| data.exact_targets().into_iter().flatten(), shape)
    }

    /// Reverts the standardization of numbers; `shape` is that of one example.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](crate::ErrorKind::Data) for another number of features.
    pub fn undo(&self, numbers: &mut [f64], shape: &[usize]) -> Result<()> {
        let features = self.features(shape)?;
        for (i, x) in numbers.iter_mut().enumerate() {
            let feature = features.at(i);
            *x = *x * self.deviation[feature] + self.mean[feature];
        }
        Ok(())
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
            ((x - self.mean[feature]) / self.deviation[feature]) as f32
        };
        Ok(numbers.enumerate().map(one).collect())
    }

    /// Computes the standardization of the numbers that each call of `numbers` yields.
    fn of_numbers<I: Iterator<Item = f64>>(numbers: impl Fn() -> I, shape: &[usize]) -> Result<Self> {
        let features = Features::of(shape);
        let count = (numbers().count() / features.count.max(1)) as f64;
        if count == 0.0 {
            return Err(Error::data("there are no examples to take the mean of"));
        }
        let each = || numbers().enumerate().map(|(i, x)| (features.at(i), x));
        let (mut mean, mut deviation) = (vec![0.0; features.count], vec![0.0; features.count]);
        each().for_each(|(feature, x)| mean[feature] += x / count);
        each().for_each(|(feature, x)| deviation[feature] += (x - mean[feature]).powi(2) / count);
        deviation.iter_mut().for_each(|x| *x = x.sqrt());
        // For a constant, the sums leave only rounding errors.
        let mut first = vec![None; features.count];
        let mut constant = vec![true; features.count];
        each().for_each(|(feature, x)| constant[feature] &= *first[feature].get_or_insert(x) == x);
        for feature in (0..features.count).filter(|&feature| constant[feature]) {
            (mean[feature], deviation[feature]) = (first[feature].unwrap_or_default(), 1.0);
        }
        Ok(Standardization { mean, deviation })
    }
}

const INDICES: &str = "inputs that are indices have no mean";
const NO_NUMBERS: &str = "targets that are classes have no mean; whole numbers are read as numbers with `as: numbers`";

/// Map from the elements of an input to features.
struct Features {
    count: usize,
    /// Number of contiguous elements of one feature.
    together: usize,
}

impl Features {
    fn of(shape: &[usize]) -> Self {
        match shape {
            [] => Features { count: 1, together: 1 },
            [count] | [_, count] => Features { count: *count, together: 1 },
            [count, inner @ ..] => Features { count: *count, together: inner.iter().product() },
        }
    }

    fn at(&self, element: usize) -> usize {
        element / self.together % self.count
    }
}

impl Dataset {
    /// Returns the examples with each input minus the mean of its feature, divided by its deviation.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](crate::ErrorKind::Data) when inputs are indices, have another number of features, or become
    /// non-finite.
    pub fn standardized(&self, by: &Standardization) -> Result<Dataset> {
        let numbers = self.exact_inputs().ok_or_else(|| Error::data(INDICES))?;
        self.with_inputs(by.standardized(numbers, self.shape())?)
    }

    /// Returns the examples with each numeric target minus the mean of its feature, divided by its deviation.
    ///
    /// # Errors
    /// As [`standardized`](Dataset::standardized), for targets.
    pub fn targets_standardized(&self, by: &Standardization) -> Result<Dataset> {
        let (Targets::Numbers { shape, .. }, Some(numbers)) = (self.targets(), self.exact_targets()) else {
            return Err(Error::data(NO_NUMBERS));
        };
        self.with_targets(Targets::Numbers { shape: shape.clone(), values: by.standardized(numbers, shape)? })
    }
}
