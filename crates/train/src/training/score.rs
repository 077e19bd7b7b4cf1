//! Scores of a network on examples.

use std::{fmt, ops::Range};

use precast::{
    Child, Tensor,
    cell::AsCell,
    error::{Error, Result},
    no_grad,
};
use precast_mpi::Ranks;
use serde::{Deserialize, Serialize};

use super::{
    Loss,
    measure::{Measure, class_logits},
};
use crate::data::{Dataset, Standardization, Targets};

/// The quality of a network on examples, in the measure of the [`Loss`]; [`Evaluation::score`](super::Evaluation::score)
/// computes it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    #[serde(flatten)]
    measure: Measure,
    #[serde(default, skip_serializing_if = "is_none")]
    not_finite: usize,
}

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

    /// Scores a network as [`Evaluation::of_loss`](super::Evaluation::of_loss) does, without the details.
    pub(super) fn of_loss<C: ?Sized + AsCell>(
        loss: &Loss,
        net: &Child<C>,
        data: &Dataset,
        batch: usize,
        targets: Option<&Standardization>,
    ) -> Result<Self> {
        if let Loss::CrossEntropy { .. } = loss {
            return Tally::of(loss, net, data, batch, 0..data.len())?.score();
        }
        let mut sum = Errors::default();
        each_number(net, data, batch, 0..data.len(), targets, |output, target, unit| {
            sum.add(loss.of_number(output, target, unit), output.is_finite());
        })?;
        Ok(sum.score(loss))
    }

    /// Scores a network as [`of_loss`](Score::of_loss) does, with the batches divided among ranks. The score has the bits of
    /// one process.
    pub(super) fn over<C: ?Sized + AsCell>(
        ranks: &Ranks,
        loss: &Loss,
        net: &Child<C>,
        data: &Dataset,
        batch: usize,
        targets: Option<&Standardization>,
    ) -> Result<Self> {
        let start = |rank: usize| data.len().min(rank * data.len().div_ceil(batch.max(1)) / ranks.size() * batch);
        let examples = start(ranks.rank())..start(ranks.rank() + 1);
        if let Loss::CrossEntropy { .. } = loss {
            let own = ranks.agree(Tally::of(loss, net, data, batch, examples)).map_err(Error::ranks)?;
            let all = ranks.vote(&[own.right, own.counted, own.not_finite].map(|count| count as u64));
            let all = all.map_err(Error::ranks)?;
            let [right, counted, not_finite] = [0, 1, 2].map(|word| all.word(word).sum::<u64>() as usize);
            return Tally { right, counted, not_finite }.score();
        }
        let mut errors = Vec::new();
        let own = each_number(net, data, batch, examples, targets, |output, target, unit| {
            errors.extend(loss.of_number(output, target, unit).to_le_bytes());
            errors.push(u8::from(output.is_finite()));
        });
        ranks.agree(own).map_err(Error::ranks)?;
        let mut sum = Errors::default();
        for errors in ranks.gather(&errors).map_err(Error::ranks)? {
            for [error @ .., is_finite] in errors.as_chunks::<9>().0 {
                sum.add(f64::from_le_bytes(*error), *is_finite != 0);
            }
        }
        Ok(sum.score(loss))
    }

    /// Returns the number of non-finite answers: for classes, those whose highest output is not finite; for numbers,
    /// each non-finite one. Such a class counts as wrong.
    pub fn not_finite(self) -> usize {
        self.not_finite
    }

    /// Returns the name of the measure, in words.
    pub fn name(self) -> &'static str {
        self.measure.name()
    }

    /// Returns the number of the measure: an accuracy from 0 to 1, or an error.
    pub fn number(self) -> f64 {
        self.measure.number()
    }

    /// Returns a number that is lower for a better score of the same measure.
    pub(super) fn badness(self) -> f64 {
        if let Measure::Accuracy(share) = self.measure { -share } else { self.number() }
    }

    /// Returns whether it is better than another of the same measure: a higher accuracy, a lower error. NaN is never
    /// better.
    pub fn is_better_than(self, other: Score) -> bool {
        let (this, that) = (self.badness(), other.badness());
        self.name() == other.name() && (this < that || (that.is_nan() && !this.is_nan()))
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
            measure => write!(f, "{:.3e}", measure.number())?,
        }
        match self.not_finite {
            0 => Ok(()),
            count => write!(f, ", {count} not finite"),
        }
    }
}

/// Computes the share of targets whose class has the highest output, from 0 to 1; [`IGNORED`](crate::data::IGNORED) targets do not count. An
/// answer is wrong if the highest output is not finite; a [`Score`] counts these. The outputs are those accepted by
/// [`fit`](super::fit). The network is called in its current mode.
///
/// # Errors
/// [`ErrorKind::Shape`](precast::ErrorKind::Shape) when the outputs are of another shape,
/// [`ErrorKind::Data`](precast::ErrorKind::Data) when there are no examples, or their targets are not classes or all
/// ignored, and the errors of the network.
pub fn accuracy<C: ?Sized + AsCell>(net: &Child<C>, data: &Dataset, batch: usize) -> Result<f64> {
    Score::of_loss(&Loss::cross_entropy(), net, data, batch, None).map(Score::number)
}

/// Answers by how they were.
#[derive(Default)]
struct Tally {
    right: usize,
    counted: usize,
    not_finite: usize,
}

impl Tally {
    fn of<C: ?Sized + AsCell>(
        loss: &Loss,
        net: &Child<C>,
        data: &Dataset,
        batch: usize,
        examples: Range<usize>,
    ) -> Result<Self> {
        let mut all = Tally::default();
        each_answer(loss, net, data, batch, examples, |answer, label| {
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

/// Passes the answer for each target of some examples that the loss counts to a function, with the target. Without an
/// answer, the highest output is not finite.
pub(super) fn each_answer<C: ?Sized + AsCell>(
    loss: &Loss,
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
        let counted = |(_, label): &(Option<i64>, i64)| loss.counts_class(*label);
        for (answer, label) in answers.into_iter().zip(y.to_vec::<i64>()?).filter(counted) {
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

/// Computes the mean of the squares of `output - target` over all numbers of all examples, in f64. The network is
/// called in its current mode.
///
/// # Errors
/// [`ErrorKind::Shape`](precast::ErrorKind::Shape) when the outputs do not have the shape of the targets,
/// [`ErrorKind::Data`](precast::ErrorKind::Data) when there are no examples or their targets are not numbers, and the
/// errors of the network.
pub fn mean_squared_error<C: ?Sized + AsCell>(net: &Child<C>, data: &Dataset, batch: usize) -> Result<f64> {
    Score::of_loss(&Loss::Mse {}, net, data, batch, None).map(Score::number)
}

/// One running sum of the errors of numbers, so that the size of the batches does not matter.
#[derive(Default)]
struct Errors {
    sum: f64,
    count: usize,
    not_finite: usize,
}

impl Errors {
    fn add(&mut self, error: f64, is_finite: bool) {
        self.sum += error;
        self.not_finite += usize::from(!is_finite);
        self.count += 1;
    }

    fn score(self, loss: &Loss) -> Score {
        Score::from(loss.scored_by(self.sum / self.count as f64)).with_not_finite(self.not_finite)
    }
}

/// Passes each output for some examples to a function, with its target, both in the units of the targets, and the number of
/// these that are 1 for the loss.
pub(super) fn each_number<C: ?Sized + AsCell>(
    net: &Child<C>,
    data: &Dataset,
    batch: usize,
    examples: Range<usize>,
    targets: Option<&Standardization>,
    mut put: impl FnMut(f64, f64, f64),
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
        let (mut numbers, shape) = (outputs.to_f64(), &outputs.shape()[1..]);
        if let Some(targets) = targets {
            targets.undo(&mut numbers, shape)?;
        }
        let unit = |i: usize| targets.map_or(1.0, |targets| targets.unit(i, shape));
        let numbers = numbers.into_iter().enumerate().zip(exact.by_ref());
        numbers.for_each(|((i, output), target)| put(output, target, unit(i)));
    }
    Ok(())
}
