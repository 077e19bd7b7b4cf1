//! The state of a learning rate that falls when the score no longer improves.

use precast::{Checkpoint, optim::Schedule};

use crate::training::Score;

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
        let met = score.badness();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The falls that the algorithm of `ReduceLROnPlateau(patience=1, threshold=0)` gives for these losses.
    #[test]
    fn the_rate_falls_after_more_bad_epochs_than_the_patience() {
        let schedule = Schedule::Plateau { patience: 1, factor: 0.1, least: 0.005 };
        let mut plateau = Plateau::default();
        let losses = [1.0, 0.9, 0.95, 0.93, 0.91, 0.92, 0.8, f64::NAN, 0.8, 0.7];
        let falls = losses.map(|loss| {
            plateau.note(schedule, Score::of_squared_error(loss));
            plateau.falls
        });
        assert_eq!(falls, [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]);
        assert_eq!(plateau.factor(schedule), 0.005);
        assert_eq!(plateau.factor(Schedule::Constant), 1.0);
        // More accurate is better.
        let mut plateau = Plateau::default();
        for share in [0.1, 0.2, 0.3, 0.25, 0.2] {
            plateau.note(schedule, Score::of_accuracy(share));
        }
        assert_eq!((plateau.falls, plateau.factor(schedule)), (1, 0.1));
    }
}
