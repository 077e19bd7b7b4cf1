//! The record of a training run.

use std::{collections::HashMap, fmt};

use precast::{
    observe::Origin,
    scale::{Cause, Outcome},
};
use precast_base::path::named;
use serde::{Deserialize, Deserializer, Serialize};

use super::Score;

/// Record of a training run, step by step and epoch by epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct History {
    /// Every step, in order.
    pub steps: Vec<Step>,
    /// Every completed epoch, in order.
    pub epochs: Vec<Epoch>,
    /// Every cell that stalled the run and was raised to f32, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub raised: Vec<Raised>,
    /// Rules that ended during the run, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<Ended>,
    /// Score of the best weights on the test examples, if others chose these weights, once the run has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<Tested>,
    /// Name of the measure of its scores, if it is known before the first of them.
    #[serde(skip)]
    pub measure: Option<&'static str>,
    /// `true` if the scores are those of validation examples, which are not the test examples.
    #[serde(skip)]
    pub validated: bool,
    /// Size in bytes of the activations kept by the tape of the first step for the backward pass.
    pub tape_bytes: usize,
    /// Size in bytes of the trained parameters, including their masters.
    pub param_bytes: usize,
    /// Number of casts that changed a dtype in the first step, in the forward and backward pass.
    pub casts: usize,
}

/// One training step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Step {
    /// Index of the epoch, from 0.
    pub epoch: usize,
    /// Loss before scaling; NaN where no target of the batch counts. JSON has no non-finite numbers; they are written
    /// as null.
    #[serde(deserialize_with = "nan_for_null")]
    pub loss: f64,
    /// Weight of its loss in the mean of an epoch: the sum of the weights of the targets that count, so the number of these
    /// for most losses. 1 in records of earlier versions.
    #[serde(default = "one")]
    pub weight: f64,
    /// Loss scale applied.
    pub scale: f32,
    /// Outcome of the step: whether the parameters were updated.
    pub outcome: Outcome,
    /// Wall-clock time of forward pass, backward pass and update.
    pub seconds: f64,
    /// First result that was not finite in a step that was taken, because an op such as `tanh` made a finite number of
    /// it; that of a skipped step is in its cause. See [`fault`](Step::fault).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swallowed: Option<Box<Origin>>,
}

/// One pass over the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Epoch {
    /// Index of the epoch, from 0.
    pub epoch: usize,
    /// Mean loss of the targets of the steps taken, whatever the size of the batches; NaN if there was none.
    #[serde(deserialize_with = "nan_for_null")]
    pub loss: f64,
    /// Score after the epoch, on the examples for testing or, in a run that has them, for validation.
    #[serde(flatten)]
    pub score: Score,
    /// Number of skipped steps.
    pub skipped: usize,
    /// Wall-clock time of its steps, excluding the test.
    pub seconds: f64,
    /// Learning rate of the last update before its end; `None` in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
}

/// The score of a run on its test examples, at its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tested {
    /// Number of steps before.
    pub step: usize,
    /// Index of the epoch whose weights were tested, from 0: the best one on the validation examples.
    pub epoch: usize,
    /// The score.
    #[serde(flatten)]
    pub score: Score,
}

impl Tested {
    /// Creates the score of the weights of an epoch, after all steps of a run.
    pub fn new(step: usize, epoch: usize, score: Score) -> Self {
        Tested { step, epoch, score }
    }
}

/// A cell that stalled a run and was raised to f32, so that the run continued.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Raised {
    /// Number of steps before.
    pub step: usize,
    /// First result of the last step that was not finite. Its cell was raised.
    pub origin: Origin,
}

/// Rules of a policy that ended during a run, after the same step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ended {
    /// Number of steps before.
    pub step: usize,
    /// The rules, in words: `path ** (run: float32)`.
    pub rules: Vec<String>,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.rules.len() == 1 { "rule" } else { "rules" };
        write!(f, "the {noun} for the {} ended after step {}", self.rules.join(", the "), self.step)
    }
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Raised { step, origin } = self;
        write!(f, "{} was raised to float32 after step {step}, which stalled: {origin}", named(&origin.edge.cell))
    }
}

/// Deserializes null, the JSON form of a non-finite number, as NaN.
pub(super) fn nan_for_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Option::<f64>::deserialize(deserializer).map(|number| number.unwrap_or(f64::NAN))
}

fn one() -> f64 {
    1.0
}

impl Step {
    /// Adds the first result that was not finite.
    pub(super) fn with_origin(self, origin: Option<Origin>) -> Self {
        let Some(origin) = origin else { return self };
        if self.is_skipped() {
            return Step { outcome: self.outcome.map(|cause| cause.began_with(Some(origin))), ..self };
        }
        tracing::warn!(target: "precast", fault = %origin, "step taken with a number that was not finite");
        Step { swallowed: Some(Box::new(origin)), ..self }
    }

    /// Returns whether the step changed nothing.
    pub fn is_skipped(&self) -> bool {
        self.outcome != Outcome::Stepped
    }

    /// Returns the first result of the step that was not finite and not harmless, whether the step was skipped or taken.
    /// `None` also where the run does not [watch](super::FitOptions::monitor) its steps.
    pub fn fault(&self) -> Option<&Origin> {
        self.outcome.cause().and_then(Cause::origin).or(self.swallowed.as_deref())
    }

    /// Returns whether there was a loss to compute.
    pub(super) fn was_run(&self) -> bool {
        self.outcome != Outcome::Skipped { cause: Cause::NoTarget }
    }
}

impl History {
    /// Returns the number of skipped steps.
    pub fn skipped(&self) -> usize {
        self.steps.iter().filter(|step| step.is_skipped()).count()
    }

    /// Returns the steps that were taken although a number was not finite, with their positions.
    pub fn swallowed(&self) -> impl Iterator<Item = (usize, &Origin)> {
        self.steps.iter().enumerate().filter_map(|(at, step)| Some((at, step.swallowed.as_deref()?)))
    }

    /// Returns the step at which training stalled.
    pub fn stalled(&self) -> Option<&Step> {
        self.steps.last().filter(|step| matches!(step.outcome, Outcome::Stalled { .. }))
    }

    /// Appends a step, after which the score of an earlier end is out of date.
    pub(super) fn push(&mut self, step: Step) {
        self.test = None;
        self.steps.push(step);
    }

    /// Returns the score after the last epoch.
    pub fn score(&self) -> Option<Score> {
        self.epochs.last().map(|epoch| epoch.score)
    }

    /// Returns the name of the measure of its scores, if it is known.
    pub fn measure(&self) -> Option<&'static str> {
        self.score().map(Score::name).or(self.measure)
    }

    /// Returns the accuracy after the last epoch, if their targets are classes.
    pub fn accuracy(&self) -> Option<f64> {
        self.score().and_then(Score::accuracy)
    }

    /// Returns the median time of a step in seconds. The first step, which warms up, counts like any other.
    pub fn median_seconds(&self) -> Option<f64> {
        median(self.steps.iter().filter(|step| step.was_run()).map(|step| step.seconds))
    }

    /// Returns the time of a step relative to another run. For each epoch that both runs have, the median step time of
    /// this run is divided by that of the other; the result is the median of these ratios. When the runs alternate by
    /// epoch, a slow phase of the machine affects both and cancels out.
    pub fn relative_time(&self, other: &History) -> Option<f64> {
        let others: HashMap<usize, f64> = other.seconds_by_epoch().collect();
        median(self.seconds_by_epoch().filter_map(|(epoch, seconds)| Some(seconds / others.get(&epoch)?)))
    }

    /// Returns the median step time of each epoch.
    fn seconds_by_epoch(&self) -> impl Iterator<Item = (usize, f64)> {
        self.steps.chunk_by(|a, b| a.epoch == b.epoch).filter_map(|steps| {
            let run = steps.iter().filter(|step| step.was_run());
            Some((steps[0].epoch, median(run.map(|step| step.seconds))?))
        })
    }
}

/// Returns the median, or the upper of the two middle values.
fn median(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    let middle = numbers.len() / 2;
    (!numbers.is_empty()).then(|| *numbers.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// Computes the mean loss of the targets of the steps taken; NaN if there was none.
pub(super) fn mean_of_taken(steps: &[Step]) -> f64 {
    let taken = || steps.iter().filter(|step| !step.is_skipped());
    taken().map(|step| step.weight * step.loss).sum::<f64>() / taken().map(|step| step.weight).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(epochs: &[&[f64]]) -> History {
        let step = |epoch, &seconds: &f64| Step {
            epoch,
            loss: 1.0,
            weight: 1.0,
            scale: 1.0,
            outcome: Outcome::Stepped,
            seconds,
            swallowed: None,
        };
        let steps = epochs.iter().enumerate().flat_map(|(epoch, all)| all.iter().map(move |s| step(epoch, s)));
        History { steps: steps.collect(), ..History::default() }
    }

    #[test]
    fn a_slow_phase_of_the_machine_does_not_change_the_relative_time() {
        // The machine is four times as slow from the middle of the second epoch on.
        let one = timed(&[&[1.0, 1.0, 1.0], &[1.0, 1.0, 4.0], &[4.0, 4.0, 4.0], &[4.0, 9.0, 4.0]]);
        let two = timed(&[&[2.0, 2.0, 2.0], &[8.0, 8.0, 8.0], &[8.0, 8.0, 8.0], &[8.0, 8.0, 8.0]]);
        assert_eq!(two.relative_time(&one), Some(2.0));
        assert_eq!(one.relative_time(&two), Some(0.5));
        assert_eq!(one.relative_time(&one), Some(1.0));
        assert_eq!(two.median_seconds(), Some(8.0));
        assert_eq!(one.relative_time(&History::default()), None);
    }
}
