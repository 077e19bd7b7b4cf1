//! How the learning rate changes during a run.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

/// How the learning rate changes from step to step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Schedule {
    /// It does not change.
    #[default]
    Constant,
    /// It falls from its full value to nearly 0 along half a cosine wave: `(1 + cos(pi * step / steps)) / 2` of it.
    /// (Loshchilov and Hutter 2017, "SGDR", equation 5, without restarts.)
    Cosine,
}

impl Schedule {
    /// What the learning rate is multiplied by at a step, counted from 0, of so many.
    pub fn factor(self, step: usize, steps: usize) -> f64 {
        match self {
            Schedule::Constant => 1.0,
            Schedule::Cosine => 0.5 * (1.0 + (PI * step as f64 / steps.max(1) as f64).cos()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cosine_falls_from_one_through_a_half() {
        let factors: Vec<f64> = (0..=4).map(|step| Schedule::Cosine.factor(step, 4)).collect();
        let eighth = 0.5 * 0.5f64.sqrt();
        for (met, expected) in factors.iter().zip([1.0, 0.5 + eighth, 0.5, 0.5 - eighth, 0.0]) {
            assert!((met - expected).abs() < 1e-15, "{factors:?}");
        }
        assert_eq!((Schedule::Constant.factor(3, 4), Schedule::Cosine.factor(0, 0)), (1.0, 1.0));
    }
}
