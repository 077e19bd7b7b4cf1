//! The record of a training run.

use serde::Serialize;

use crate::scale::Outcome;

/// What happened in a training run, step by step and epoch by epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct History {
    /// Every step, in order.
    pub steps: Vec<Step>,
    /// Every epoch that was finished, in order.
    pub epochs: Vec<Epoch>,
    /// Most bytes that the tape kept for the backward pass of a step: its activations.
    pub tape_bytes: usize,
    /// Bytes of the trained parameters.
    pub param_bytes: usize,
    /// Casts that were really done in the first step, forward and backward.
    pub casts: usize,
}

/// One training step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Its epoch, counted from 0.
    pub epoch: usize,
    /// The loss before scaling.
    pub loss: f64,
    /// The loss scale that it was multiplied by.
    pub scale: f32,
    /// What became of it.
    pub outcome: Outcome,
    /// Wall-clock time of forward pass, backward pass and update.
    pub seconds: f64,
}

/// One pass over the data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Epoch {
    /// Which, counted from 0.
    pub epoch: usize,
    /// Mean loss of its steps.
    pub loss: f64,
    /// Share of the test examples that were classified rightly after it, from 0 to 1.
    pub accuracy: f64,
    /// Steps that changed nothing.
    pub skipped: usize,
    /// Wall-clock time of its steps; the test is not counted.
    pub seconds: f64,
}

impl Step {
    /// Whether the step changed nothing.
    pub fn is_skipped(&self) -> bool {
        self.outcome != Outcome::Stepped
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

    /// Accuracy on the test examples after the last epoch.
    pub fn accuracy(&self) -> Option<f64> {
        self.epochs.last().map(|epoch| epoch.accuracy)
    }

    /// Median time of a step in seconds. The first step, which warms up, counts like any other.
    pub fn median_seconds(&self) -> Option<f64> {
        let mut seconds: Vec<f64> = self.steps.iter().map(|step| step.seconds).collect();
        let middle = seconds.len() / 2;
        (!seconds.is_empty()).then(|| *seconds.select_nth_unstable_by(middle, f64::total_cmp).1)
    }
}
