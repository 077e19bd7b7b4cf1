//! The state of a learning rate that falls when the score no longer improves.

use crate::train::{Checkpoint, Schedule, Score};

/// State of [`Schedule::Plateau`], as of `torch.optim.lr_scheduler.ReduceLROnPlateau`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Plateau {
    /// Best score so far; a lower number is better.
    best: Option<f64>,
    /// Epochs since the best score or the last fall.
    waited: usize,
    /// Number of falls.
    falls: u64,
}

// Names of the counters in a checkpoint.
const BEST: &str = "best score of the plateau";
const WAITED: &str = "epochs of the plateau";
const FALLS: &str = "falls of the plateau";

impl Plateau {
    /// Notes the score of an epoch.
    pub fn note(&mut self, schedule: Schedule, score: Score) {
        let Schedule::Plateau { patience, .. } = schedule else { return };
        let met = score.accuracy().map(|share| -share).or(score.mean_squared_error()).unwrap_or(f64::NAN);
        if self.best.is_none_or(|best| met < best) && !met.is_nan() {
            (self.best, self.waited) = (Some(met), 0);
            return;
        }
        self.waited += 1;
        if self.waited > patience {
            (self.falls, self.waited) = (self.falls + 1, 0);
        }
    }

    /// Returns the factor of the learning rate.
    pub fn factor(self, schedule: Schedule) -> f64 {
        match schedule {
            Schedule::Plateau { factor, least, .. } => factor.powf(self.falls as f64).max(least),
            _ => 1.0,
        }
    }

    pub fn counted(self, schedule: Schedule, checkpoint: Checkpoint) -> Checkpoint {
        if !matches!(schedule, Schedule::Plateau { .. }) {
            return checkpoint;
        }
        let checkpoint = checkpoint.counting(WAITED, self.waited as u64).counting(FALLS, self.falls);
        match self.best {
            Some(best) => checkpoint.counting(BEST, best.to_bits()),
            None => checkpoint,
        }
    }

    pub fn of(checkpoint: &Checkpoint) -> Self {
        let count = |name| checkpoint.count(name).unwrap_or(0);
        let waited = usize::try_from(count(WAITED)).unwrap_or(usize::MAX);
        Plateau { best: checkpoint.count(BEST).map(f64::from_bits), waited, falls: count(FALLS) }
    }
}
