//! A model of a dynamic scale, in plain arithmetic.

use precast::{
    LossScale,
    policy::{DynamicScale, Forgive},
};

/// A dynamic scale and the counters of its state.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub numbers: DynamicScale,
    pub scale: f32,
    pub counter: u32,
    pub spared: u32,
    pub skipped: u32,
}

impl Model {
    pub fn new(numbers: DynamicScale) -> Model {
        Model { scale: numbers.init, numbers, counter: 0, spared: 0, skipped: 0 }
    }

    /// Counts a step with finite or non-finite gradients.
    pub fn adjust(&mut self, finite: bool) {
        let Model { numbers: n, scale, counter, spared, skipped } = self;
        if !finite {
            (*counter, *spared, *skipped) = (0, *spared + 1, *skipped + 1);
            // `spared` counts up to the step that shrinks, and stays there until it is forgiven.
            if *spared >= n.hysteresis {
                *scale = ((f64::from(*scale) * n.backoff) as f32).max(n.min);
                *spared = if n.forgive == Forgive::Shrink { 0 } else { n.hysteresis - 1 };
            }
            return;
        }
        (*counter, *skipped) = (*counter + 1, 0);
        let due = *counter == n.interval;
        if due {
            let grown = (f64::from(*scale) * n.growth) as f32;
            (*counter, *scale) = (0, if grown <= n.max { grown } else { *scale });
        }
        if due || n.forgive != Forgive::Growth {
            *spared = 0;
        }
    }

    /// Returns whether a scale is in the same state.
    pub fn is(&self, scale: &LossScale) -> bool {
        let state = scale.state();
        (self.scale, self.counter, self.spared, self.skipped)
            == (state.scale, state.counter, state.spared, state.skipped)
    }
}

/// Returns whether our rule accepts these numbers.
pub fn is_sound(n: &DynamicScale) -> bool {
    let normal = |x: f32| x.is_normal() && x > 0.0;
    normal(n.min)
        && normal(n.max)
        && (n.min..=n.max).contains(&n.init)
        && n.growth.is_finite()
        && n.growth >= 1.0
        && n.backoff > 0.0
        && n.backoff <= 1.0
        && n.interval >= 1
        && n.hysteresis >= 1
}
