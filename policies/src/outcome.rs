//! The outcome of a training step in a library with tensors of its own.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    logging::event,
    printable::{number, printable},
    scale::ScaleMachine,
};

/// After this many consecutive skipped steps, at a scale that cannot fall, training has stalled.
#[doc(hidden)]
pub const PATIENCE: u32 = 20;

/// The outcome of a training step: the caller updates the parameters, or must leave them as they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[must_use = "a step may have been skipped"]
#[non_exhaustive]
pub enum Outcome {
    /// Loss and gradients are finite: the parameters are updated.
    Stepped,
    /// Nothing is updated, because the loss or a gradient is not finite.
    Skipped {
        /// The cause.
        cause: Cause,
    },
    /// As [`Skipped`](Outcome::Skipped), for the 20th consecutive time or more, with a scale that cannot fall any
    /// further: training will not recover by itself.
    Stalled {
        /// The cause.
        cause: Cause,
        /// Consecutive skipped steps.
        skipped: u32,
    },
}

/// The cause of a skipped step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Cause {
    /// The loss was not finite before it was scaled. The scale is not the cause and stays the same.
    Loss,
    /// The loss was finite, but a gradient was not, at this scale.
    Overflow {
        /// The loss scale of the step.
        scale: f32,
        /// Path of the first parameter with a non-finite gradient.
        first: String,
    },
}

impl Outcome {
    /// Returns whether the parameters are updated.
    pub fn is_step(&self) -> bool {
        matches!(self, Outcome::Stepped)
    }

    /// Returns the cause; `None` for a step that was taken.
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Outcome::Stepped => None,
            Outcome::Skipped { cause } | Outcome::Stalled { cause, .. } => Some(cause),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Stepped => f.write_str("the parameters were updated"),
            Outcome::Skipped { cause } => write!(f, "skipped: {cause}"),
            Outcome::Stalled { cause, skipped } => write!(f, "stalled after {skipped} skipped steps: {cause}"),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Loss => f.write_str("the loss itself was not finite"),
            Cause::Overflow { scale, first } => {
                let (scale, first) = (number(*scale), printable(first));
                write!(f, "a gradient was not finite at loss scale {scale}, first seen in `{first}`")
            }
        }
    }
}

impl ScaleMachine {
    /// Judges a step and [sets](ScaleMachine::adjust) the scale of the next one. `finite_loss` is whether the loss was
    /// finite before it was scaled; `first_non_finite` is the path of the first parameter whose gradient is not finite.
    ///
    /// A non-finite gradient of a finite loss skips the step and shrinks a dynamic scale. A non-finite loss skips the
    /// step and leaves the scale as it is: a smaller scale would not help.
    ///
    /// ```
    /// use precast_policy::scale::{Cause, Outcome, ScaleMachine};
    /// let mut scale = ScaleMachine::dynamic();
    /// let outcome = scale.judge(true, Some("layers.0.weight".into()));
    /// assert_eq!(
    ///     outcome.to_string(),
    ///     "skipped: a gradient was not finite at loss scale 65536, first seen in `layers.0.weight`"
    /// );
    /// assert_eq!(scale.value(), 32768.0);
    /// assert_eq!(scale.judge(false, None), Outcome::Skipped { cause: Cause::Loss });
    /// assert_eq!(scale.value(), 32768.0);
    /// assert!(scale.judge(true, None).is_step());
    /// ```
    pub fn judge(&mut self, finite_loss: bool, first_non_finite: Option<String>) -> Outcome {
        let cause = match first_non_finite {
            None if finite_loss => {
                self.adjust(true);
                return Outcome::Stepped;
            }
            Some(first) if finite_loss => Cause::Overflow { scale: self.value(), first },
            _ => Cause::Loss,
        };
        let helps = matches!(cause, Cause::Overflow { .. });
        let skipped = self.state().skipped.saturating_add(1);
        let stalled = skipped >= PATIENCE && !(helps && self.can_shrink());
        if helps {
            self.adjust(false);
        } else {
            self.skip();
        }
        if stalled {
            event!(ERROR, %cause, skipped, "training has stalled");
            return Outcome::Stalled { cause, skipped };
        }
        event!(WARN, %cause, skipped, "step skipped");
        Outcome::Skipped { cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{DynamicScale, LossScaleSpec};

    /// Closed form: from 8 down to 1 are three halvings; the scale cannot fall afterwards, and the 20th skip stalls.
    #[test]
    fn a_scale_that_cannot_fall_stalls_at_the_twentieth_skip() {
        let spec = LossScaleSpec::Dynamic(DynamicScale::default().init(8.0));
        let mut scale = ScaleMachine::new(spec).unwrap();
        for skip in 1..=25 {
            let outcome = scale.judge(true, Some("w".into()));
            assert_eq!(matches!(outcome, Outcome::Stalled { .. }), skip >= 20, "{skip}: {outcome}");
            assert_eq!(
                outcome.cause(),
                Some(&Cause::Overflow { scale: (16.0 / 2f32.powi(skip)).max(1.0), first: "w".into() })
            );
        }
        assert_eq!(scale.judge(true, None), Outcome::Stepped);
        assert_eq!(scale.state().skipped, 0);
    }

    #[test]
    fn a_loss_that_is_not_finite_leaves_the_scale() {
        let mut scale = ScaleMachine::dynamic();
        for first in [None, Some("w".to_string())] {
            assert_eq!(scale.judge(false, first), Outcome::Skipped { cause: Cause::Loss });
            assert_eq!(scale.value(), 65536.0);
        }
        assert_eq!(scale.state().skipped, 2);
    }
}
