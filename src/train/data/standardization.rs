//! Inputs with mean 0 and variance 1.

use serde::{Deserialize, Serialize};

use super::{Dataset, Inputs};
use crate::error::{Error, Result};

/// Mean and standard deviation of the inputs of a dataset, by which these and others are
/// [standardized](Dataset::standardized).
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
    /// What is subtracted.
    pub mean: Vec<f64>,
    /// What is divided by then: the square root of the mean square; 1 where all values are the same.
    pub deviation: Vec<f64>,
}

impl Standardization {
    /// That of the inputs of a dataset.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](crate::ErrorKind::Data) when there are no examples, or inputs are indices.
    pub fn of(data: &Dataset) -> Result<Self> {
        let features = Features::of(data.shape());
        let Inputs::Numbers(values) = data.inputs() else { return Err(Error::data(INDICES)) };
        if values.is_empty() {
            return Err(Error::data("there are no examples to take the mean of"));
        }
        let count = (values.len() / features.count) as f64;
        let each = || values.iter().enumerate().map(|(i, &x)| (features.at(i), f64::from(x)));
        let (mut mean, mut deviation) = (vec![0.0; features.count], vec![0.0; features.count]);
        each().for_each(|(feature, x)| mean[feature] += x / count);
        each().for_each(|(feature, x)| deviation[feature] += (x - mean[feature]).powi(2) / count);
        deviation.iter_mut().for_each(|x| *x = x.sqrt());
        // Of a constant, sums leave what rounding made of it.
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

/// Which feature an element of the inputs belongs to.
struct Features {
    count: usize,
    /// Elements of one feature that lie together.
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
    /// The same examples, each input minus the mean of its feature, divided by its deviation.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](crate::ErrorKind::Data) when inputs are indices, have another number of features, or become
    /// numbers that are not finite.
    pub fn standardized(&self, by: &Standardization) -> Result<Dataset> {
        let features = Features::of(self.shape());
        let Inputs::Numbers(values) = self.inputs() else { return Err(Error::data(INDICES)) };
        let met = (by.mean.len(), by.deviation.len());
        if met != (features.count, features.count) {
            let (shape, (means, deviations)) = (self.shape(), met);
            return Err(Error::data(format!(
                "{means} means and {deviations} deviations for inputs of shape {shape:?}, which have {} features",
                features.count
            )));
        }
        let standardized = |(i, &x): (usize, &f32)| {
            let feature = features.at(i);
            ((f64::from(x) - by.mean[feature]) / by.deviation[feature]) as f32
        };
        self.with_inputs(values.iter().enumerate().map(standardized).collect())
    }
}
