//! Scores of a network on examples.

use std::{fmt, ops::Range};

use precast_mpi::Ranks;
use serde::{Deserialize, Serialize};

use super::data::{Dataset, IGNORED, Standardization, Targets};
use crate::{
    Child, Tensor,
    cell::AsCell,
    error::{Error, Result},
    no_grad,
};

/// The quality of a network on examples, in the measure that fits their targets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    #[serde(flatten)]
    measure: Measure,
    #[serde(default, skip_serializing_if = "is_none")]
    not_finite: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Measure {
    Accuracy(#[serde(deserialize_with = "super::history::nan_for_null")] f64),
    MeanSquaredError(#[serde(deserialize_with = "super::history::nan_for_null")] f64),
}

// Names of the measures, in words.
pub(super) const ACCURACY: &str = "accuracy";
pub(super) const SQUARED_ERROR: &str = "mean squared error";

fn is_none(count: &usize) -> bool {
    *count == 0
}

impl From<Measure> for Score {
    fn from(measure: Measure) -> Self {
        Score { measure, not_finite: 0 }
    }
}

impl Score {
    /// Creates a score from an [`accuracy`], from 0 to 1.
    pub fn of_accuracy(share: f64) -> Self {
        Measure::Accuracy(share).into()
    }

    /// Creates a score from a [`mean_squared_error`].
    pub fn of_squared_error(error: f64) -> Self {
        Measure::MeanSquaredError(error).into()
    }

    /// Sets the number of answers that are not finite.
    pub(super) fn with_not_finite(self, not_finite: usize) -> Self {
        Score { not_finite, ..self }
    }

    /// Scores a network, called in its current mode with `batch` examples at a time.
    ///
    /// # Errors
    /// As [`accuracy`] and [`mean_squared_error`].
    pub fn of<C: ?Sized + AsCell>(net: &Child<C>, data: &Dataset, batch: usize) -> Result<Self> {
        Score::of_standardized(net, data, batch, None)
    }

    /// Scores a network trained with standardized targets, on targets that are not standardized.
    ///
    /// # Errors
    /// As [`Score::of`]; [`ErrorKind::Data`](crate::ErrorKind::Data) for a standardization of other targets.
    pub fn of_standardized<C: ?Sized + AsCell>(
        net: &Child<C>,
        data: &Dataset,
        batch: usize,
        targets: Option<&Standardization>,
    ) -> Result<Self> {
        match data.targets() {
            Targets::Classes { .. } => share_of_right(net, data, batch),
            _ => squared_error(net, data, batch, targets),
        }
    }

    /// Scores a network as [`of_standardized`](Score::of_standardized) does, with the batches divided among ranks. The score
    /// has the bits of one process.
    pub(super) fn over<C: ?Sized + AsCell>(
        ranks: &Ranks,
        net: &Child<C>,
        data: &Dataset,
        batch: usize,
        targets: Option<&Standardization>,
    ) -> Result<Self> {
        let start = |rank: usize| data.len().min(rank * data.len().div_ceil(batch.max(1)) / ranks.size() * batch);
        let examples = start(ranks.rank())..start(ranks.rank() + 1);
        if let Targets::Classes { .. } = data.targets() {
            let own = ranks.agree(Tally::of(net, data, batch, examples)).map_err(Error::ranks)?;
            let all = ranks.vote(&[own.right, own.counted, own.not_finite].map(|count| count as u64));
            let all = all.map_err(Error::ranks)?;
            let [right, counted, not_finite] = [0, 1, 2].map(|word| all.word(word).sum::<u64>() as usize);
            return Tally { right, counted, not_finite }.score();
        }
        let mut squares = Vec::new();
        let own = each_number(net, data, batch, examples, targets, |output, target| {
            squares.extend((output - target).powi(2).to_le_bytes());
            squares.push(u8::from(output.is_finite()));
        });
        ranks.agree(own).map_err(Error::ranks)?;
        let mut sum = Squares::default();
        for squares in ranks.gather(&squares).map_err(Error::ranks)? {
            for [square @ .., is_finite] in squares.as_chunks::<9>().0 {
                sum.add(f64::from_le_bytes(*square), *is_finite != 0);
            }
        }
        Ok(sum.score())
    }

    /// Returns the number of non-finite answers: for classes, those whose highest output is not finite; for numbers,
    /// each non-finite one. Such a class counts as wrong.
    pub fn not_finite(self) -> usize {
        self.not_finite
    }

    /// Returns the name of the measure, in words.
    pub fn name(self) -> &'static str {
        match self.measure {
            Measure::Accuracy(_) => ACCURACY,
            Measure::MeanSquaredError(_) => SQUARED_ERROR,
        }
    }

    /// Returns whether it is better than another of the same measure: a higher accuracy, a lower error. NaN is never
    /// better.
    pub fn is_better_than(self, other: Score) -> bool {
        match (self.measure, other.measure) {
            (Measure::Accuracy(this), Measure::Accuracy(other)) => this > other || (other.is_nan() && !this.is_nan()),
            (Measure::MeanSquaredError(this), Measure::MeanSquaredError(other)) => {
                this < other || (other.is_nan() && !this.is_nan())
            }
            _ => false,
        }
    }

    /// Returns the accuracy, if it is one.
    pub fn accuracy(self) -> Option<f64> {
        if let Measure::Accuracy(share) = self.measure { Some(share) } else { None }
    }

    /// Returns the mean squared error, if it is one.
    pub fn mean_squared_error(self) -> Option<f64> {
        if let Measure::MeanSquaredError(error) = self.measure { Some(error) } else { None }
    }
}

/// Formats an accuracy as `97.31 %` and an error as `1.234e-3`, followed by the number of non-finite answers, if any.
impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.measure {
            Measure::Accuracy(share) => write!(f, "{:.2} %", 100.0 * share)?,
            Measure::MeanSquaredError(error) => write!(f, "{error:.3e}")?,
        }
        match self.not_finite {
            0 => Ok(()),
            count => write!(f, ", {count} not finite"),
        }
    }
}

/// Computes the share of targets whose class has the highest output, from 0 to 1; [`IGNORED`] targets do not count. An
/// answer is wrong if the highest output is not finite; [`Score::of`] counts these. The outputs are those accepted by
/// [`fit`](super::fit). The network is called in its current mode.
///
/// # Errors
/// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the outputs are of another shape,
/// [`ErrorKind::Data`](crate::ErrorKind::Data) when there are no examples, or their targets are not classes or all
/// ignored, and the errors of the network.
pub fn accuracy<C: ?Sized + AsCell>(net: &Child<C>, data: &Dataset, batch: usize) -> Result<f64> {
    share_of_right(net, data, batch).map(|score| score.accuracy().unwrap_or(f64::NAN))
}

fn share_of_right<C: ?Sized + AsCell>(net: &Child<C>, data: &Dataset, batch: usize) -> Result<Score> {
    Tally::of(net, data, batch, 0..data.len())?.score()
}

/// Answers by how they were.
#[derive(Default)]
struct Tally {
    right: usize,
    counted: usize,
    not_finite: usize,
}

impl Tally {
    fn of<C: ?Sized + AsCell>(net: &Child<C>, data: &Dataset, batch: usize, examples: Range<usize>) -> Result<Self> {
        let mut all = Tally::default();
        each_answer(net, data, batch, examples, |answer, label| {
            all.right += usize::from(answer == Some(label));
            all.not_finite += usize::from(answer.is_none());
            all.counted += 1;
        })?;
        Ok(all)
    }

    fn score(self) -> Result<Score> {
        check_counted(self.counted)?;
        Ok(Score::of_accuracy(self.right as f64 / self.counted as f64).with_not_finite(self.not_finite))
    }
}

/// Refuses answers of which none counts.
pub(super) fn check_counted(counted: usize) -> Result<()> {
    match counted {
        0 => {
            let words = "the classes of all examples are ignored, so there is nothing to measure the accuracy on";
            Err(Error::data(words))
        }
        _ => Ok(()),
    }
}

/// Passes the answer for each target of some examples that is not ignored to a function, with the target. Without an
/// answer, the highest output is not finite.
pub(super) fn each_answer<C: ?Sized + AsCell>(
    net: &Child<C>,
    data: &Dataset,
    batch: usize,
    examples: Range<usize>,
    mut put: impl FnMut(Option<i64>, i64),
) -> Result<()> {
    if data.is_empty() {
        return Err(Error::data("there are no examples to measure the accuracy on"));
    }
    data.check_targets()?;
    if !matches!(data.targets(), Targets::Classes { .. }) {
        return Err(Error::data(
            "the accuracy is measured on examples with classes; these have numbers (see `mean_squared_error`)",
        ));
    }
    for batch in data.try_batches_of(examples, batch)? {
        let batch = batch?;
        let (outputs, y) = (no_grad(|| batch.call(net))?, batch.y);
        let logits = class_logits(&outputs, &y)?;
        if logits.shape()[1] == 0 {
            return Err(Error::shape(format!("the network returned {:?}, and so no classes", logits.shape())));
        }
        let answers = answers(&logits, 1)?;
        for (answer, label) in answers.into_iter().zip(y.to_vec::<i64>()?).filter(|(_, label)| *label != IGNORED) {
            put(answer, label);
        }
    }
    Ok(())
}

/// Returns the class with the highest output at each position, in row-major order; `None` if that output is not finite.
/// Outputs of minus infinity mark masked classes.
pub fn answers(outputs: &Tensor, axis: isize) -> Result<Vec<Option<i64>>> {
    let highest = outputs.max(&[axis], false)?.to_f64();
    let classes = outputs.argmax(axis, false)?.to_vec::<i64>()?;
    Ok(classes.into_iter().zip(highest).map(|(class, highest)| highest.is_finite().then_some(class)).collect())
}

/// Moves the class axis of a network's outputs to the second place, as [`Tensor::cross_entropy`] takes them.
///
/// Targets are `[n, ...]`. The outputs have one more axis for the classes: the last one, as from a final `Dense`, or
/// the second, as from a convolution. If both are possible, it is the last.
///
/// # Errors
/// [`ErrorKind::Shape`](crate::ErrorKind::Shape) for outputs of another shape.
pub(super) fn class_logits(outputs: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let (met, places) = (outputs.shape(), targets.shape());
    if met.len() == places.len() + 1 && met.len() > 1 {
        if met.len() > 2 && met[..places.len()] == *places {
            let last = places.len();
            let order: Vec<usize> = [0, last].into_iter().chain(1..last).collect();
            return outputs.permute(&order);
        }
        if met[0] == places[0] && met[2..] == places[1..] {
            return Ok(outputs.clone());
        }
    }
    Err(Error::shape(match places {
        [_] => format!("a classifier returns [n, classes]; this network returned {met:?} for {} examples", places[0]),
        _ => format!(
            "a network for classes of shape {places:?} returns one axis more, for the classes, last or second; \
                      this network returned {met:?}"
        ),
    }))
}

/// Computes the mean of the squares of `output - target` over all numbers of all examples, in f64. The network is
/// called in its current mode.
///
/// # Errors
/// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the outputs do not have the shape of the targets,
/// [`ErrorKind::Data`](crate::ErrorKind::Data) when there are no examples or their targets are not numbers, and the
/// errors of the network.
pub fn mean_squared_error<C: ?Sized + AsCell>(net: &Child<C>, data: &Dataset, batch: usize) -> Result<f64> {
    squared_error(net, data, batch, None).map(|score| score.mean_squared_error().unwrap_or(f64::NAN))
}

/// Computes the mean squared error of outputs after undoing the standardization of the targets.
fn squared_error<C: ?Sized + AsCell>(
    net: &Child<C>,
    data: &Dataset,
    batch: usize,
    targets: Option<&Standardization>,
) -> Result<Score> {
    let mut sum = Squares::default();
    each_number(net, data, batch, 0..data.len(), targets, |output, target| {
        sum.add((output - target).powi(2), output.is_finite());
    })?;
    Ok(sum.score())
}

/// One running sum of squares, so that the size of the batches does not matter.
#[derive(Default)]
struct Squares {
    sum: f64,
    count: usize,
    not_finite: usize,
}

impl Squares {
    fn add(&mut self, square: f64, is_finite: bool) {
        self.sum += square;
        self.not_finite += usize::from(!is_finite);
        self.count += 1;
    }

    fn score(self) -> Score {
        Score::of_squared_error(self.sum / self.count as f64).with_not_finite(self.not_finite)
    }
}

/// Passes each output for some examples to a function, with its target, both in the units of the targets.
pub(super) fn each_number<C: ?Sized + AsCell>(
    net: &Child<C>,
    data: &Dataset,
    batch: usize,
    examples: Range<usize>,
    targets: Option<&Standardization>,
    mut put: impl FnMut(f64, f64),
) -> Result<()> {
    if data.is_empty() {
        return Err(Error::data("there are no examples to measure the squared error on"));
    }
    data.check_targets()?;
    let Some(mut exact) = data.exact_targets(examples.start) else {
        return Err(Error::data(
            "the squared error is measured on examples with numbers; these have classes (see `accuracy`)",
        ));
    };
    for batch in data.try_batches_of(examples, batch)? {
        let batch = batch?;
        let (outputs, y) = (no_grad(|| batch.call(net))?, batch.y);
        if outputs.shape() != y.shape() {
            return Err(Error::shape(format!(
                "the network returned {:?} for targets of shape {:?}",
                outputs.shape(),
                y.shape()
            )));
        }
        let mut numbers = outputs.to_f64();
        if let Some(targets) = targets {
            targets.undo(&mut numbers, &outputs.shape()[1..])?;
        }
        numbers.into_iter().zip(exact.by_ref()).for_each(|(output, target)| put(output, target));
    }
    Ok(())
}
