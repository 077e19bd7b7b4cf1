//! The record of a training run.

use serde::{Deserialize, Deserializer, Serialize};

use super::Score;
use crate::{
    cell::NonFinite,
    scale::{Cause, Outcome},
};

/// What happened in a training run, step by step and epoch by epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct History {
    /// Every step, in order.
    pub steps: Vec<Step>,
    /// Every epoch that was finished, in order.
    pub epochs: Vec<Epoch>,
    /// Most bytes that the tape kept for the backward pass of a step: its activations.
    pub tape_bytes: usize,
    /// Bytes of the trained parameters, their masters included.
    pub param_bytes: usize,
    /// Casts that changed a dtype in the first step, in the forward and the backward pass.
    pub casts: usize,
}

/// One training step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its epoch, counted from 0.
    pub epoch: usize,
    /// The loss before scaling; NaN where no target of the batch counts. JSON has no number for one that is not finite, and says
    /// null.
    #[serde(deserialize_with = "nan_for_null")]
    pub loss: f64,
    /// The loss scale that it was multiplied by.
    pub scale: f32,
    /// Whether the parameters were updated.
    pub outcome: Outcome,
    /// Wall-clock time of forward pass, backward pass and update.
    pub seconds: f64,
    /// Of a skipped step, where the first number appeared that is not finite, if that was
    /// [asked for](super::FitOptions::find_non_finite).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub non_finite: Option<NonFinite>,
}

/// One pass over the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// Which, counted from 0.
    pub epoch: usize,
    /// Mean loss of the steps that were taken; NaN where none was.
    #[serde(deserialize_with = "nan_for_null")]
    pub loss: f64,
    /// How well the network did on the test examples after it.
    #[serde(flatten)]
    pub score: Score,
    /// Steps that changed nothing.
    pub skipped: usize,
    /// Wall-clock time of its steps; the test is not counted.
    pub seconds: f64,
}

/// Reads what JSON wrote for a number that is not finite.
pub(super) fn nan_for_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Option::<f64>::deserialize(deserializer).map(|number| number.unwrap_or(f64::NAN))
}

impl Step {
    /// Whether the step changed nothing.
    pub fn is_skipped(&self) -> bool {
        self.outcome != Outcome::Stepped
    }

    /// Whether there was a loss to be computed.
    fn was_run(&self) -> bool {
        self.outcome != Outcome::Skipped { cause: Cause::NoTarget }
    }
}

impl History {
    /// How many steps changed nothing.
    pub fn skipped(&self) -> usize {
        self.steps.iter().filter(|step| step.is_skipped()).count()
    }

    /// The step at which training stopped because it could not recover by itself.
    pub fn stalled(&self) -> Option<&Step> {
        self.steps.last().filter(|step| matches!(step.outcome, Outcome::Stalled { .. }))
    }

    /// How well the network did on the test examples after the last epoch.
    pub fn score(&self) -> Option<Score> {
        self.epochs.last().map(|epoch| epoch.score)
    }

    /// Accuracy on the test examples after the last epoch, where their targets are classes.
    pub fn accuracy(&self) -> Option<f64> {
        self.score().and_then(Score::accuracy)
    }

    /// Median time of a step in seconds. The first step, which warms up, counts like any other.
    pub fn median_seconds(&self) -> Option<f64> {
        median(self.steps.iter().filter(|step| step.was_run()).map(|step| step.seconds))
    }

    /// Time of a step relative to another run. For each epoch that both runs have, the median step time of this run is divided
    /// by that of the other; the result is the median of these ratios. When the runs take turns by epoch, a slow phase of the
    /// machine affects both and cancels out.
    pub fn relative_time(&self, other: &History) -> Option<f64> {
        let of_epoch = |history: &History, epoch: usize| {
            let of_epoch = history.steps.iter().filter(|step| step.epoch == epoch && step.was_run());
            median(of_epoch.map(|step| step.seconds))
        };
        let last = self.steps.last()?.epoch.min(other.steps.last()?.epoch);
        median((0..=last).filter_map(|epoch| Some(of_epoch(self, epoch)? / of_epoch(other, epoch)?)))
    }
}

/// The middle one, the upper of two.
fn median(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    let middle = numbers.len() / 2;
    (!numbers.is_empty()).then(|| *numbers.select_nth_unstable_by(middle, f64::total_cmp).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(epochs: &[&[f64]]) -> History {
        let step = |epoch, &seconds: &f64| Step {
            epoch,
            loss: 1.0,
            scale: 1.0,
            outcome: Outcome::Stepped,
            seconds,
            non_finite: None,
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
