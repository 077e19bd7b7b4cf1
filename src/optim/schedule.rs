//! Learning-rate schedules.

use std::f64::consts::PI;

use crate::options::options;

/// Learning-rate schedule.
#[options]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Schedule {
    /// Constant learning rate.
    #[default]
    Constant,
    /// Decay from the full rate to nearly 0 along half a cosine wave, by the factor `(1 + cos(pi * step / steps)) / 2`.
    /// (Loshchilov and Hutter 2017, "SGDR", equation 5, without restarts.)
    Cosine,
    /// Multiplication by a factor after every given number of steps, as by `torch.optim.lr_scheduler.StepLR`.
    Step {
        /// Number of steps between two multiplications.
        #[option(at_least = 1)]
        every: usize,
        /// The factor.
        #[option(finite)]
        factor: f64,
    },
    /// Rise from 1/25 of the full rate to all of it in the first three tenths of the run, then decay to 1/250000 of it,
    /// each along half a cosine wave. (Smith and Topin 2018, "Super-convergence", in the form and with the defaults of
    /// `torch.optim.lr_scheduler.OneCycleLR`; the full rate is its `max_lr`.)
    #[option(name = "one-cycle")]
    OneCycle,
    /// Decay with the inverse square root of the steps, by the factor `sqrt(timescale / (timescale + step))`; after a
    /// warm-up of as many steps, the rate is `sqrt(timescale / n)` of the full one in step n of the run. (Vaswani et al.
    /// 2017, "Attention is all you need", 5.3, in the form of `get_inverse_sqrt_schedule` of transformers.)
    #[option(name = "inverse-sqrt")]
    InverseSqrt {
        /// Number of steps in which the factor falls to `1 / sqrt(2)`.
        #[option(default = None, shown = "the steps of the warm-up, or 10000 without one", at_least = 1)]
        timescale: Option<usize>,
    },
    /// Decay along half a cosine wave, as by [`Cosine`](Schedule::Cosine), again and again from the full rate.
    /// (Loshchilov and Hutter 2017, "SGDR", as `torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`.)
    Restarts {
        /// Number of steps of the first wave.
        #[option(at_least = 1)]
        every: usize,
        /// Length of each wave relative to the one before.
        #[option(default = 1, at_least = 1)]
        growth: usize,
    },
    /// Multiplication by a factor each time that the score of the test examples has not improved for more epochs than the
    /// patience. (As `torch.optim.lr_scheduler.ReduceLROnPlateau` with a threshold of 0.)
    Plateau {
        /// Number of epochs without a better score before the rate falls.
        #[option(default = 3)]
        patience: usize,
        /// The factor.
        #[option(default = 0.1, above = 0, below = 1)]
        factor: f64,
        /// Least factor of the full rate.
        #[option(default = 0.0, at_least = 0, at_most = 1)]
        least: f64,
    },
}

/// Interpolates between two numbers along half a cosine wave.
fn half_wave(from: f64, to: f64, part: f64) -> f64 {
    to + (from - to) / 2.0 * (1.0 + (PI * part).cos())
}

impl Schedule {
    /// Returns the factor of the learning rate at a step, counted from 0, of `steps`.
    pub fn factor(self, step: usize, steps: usize) -> f64 {
        let (at, all) = (step as f64, steps.max(1) as f64);
        match self {
            // A plateau follows the score, not the step.
            Schedule::Constant | Schedule::Plateau { .. } => 1.0,
            Schedule::Cosine => half_wave(1.0, 0.0, (at / all).min(1.0)),
            Schedule::Step { every, factor } => factor.powf((step / every.max(1)) as f64),
            Schedule::InverseSqrt { timescale } => {
                let timescale = timescale.unwrap_or(10_000).max(1) as f64;
                (timescale / (timescale + at)).sqrt()
            }
            Schedule::Restarts { every, growth } => {
                let (mut at, mut every) = (step, every.max(1));
                match growth {
                    0 | 1 => at %= every,
                    _ => {
                        while at >= every {
                            (at, every) = (at - every, every.saturating_mul(growth));
                        }
                    }
                }
                half_wave(1.0, 0.0, at as f64 / every as f64)
            }
            Schedule::OneCycle => {
                const START: f64 = 1.0 / 25.0;
                let top = 0.3 * all - 1.0;
                match at <= top {
                    true => half_wave(START, 1.0, at / top),
                    false => half_wave(1.0, START / 1e4, ((at - top) / (all - 1.0 - top)).min(1.0)),
                }
            }
        }
    }

    /// Returns the [`factor`](Schedule::factor) with a linear warm-up, which [`OneCycle`](Schedule::OneCycle) has
    /// already: at step i of the first `warm_up` steps the factor is `(i + 1) / warm_up`, and the schedule covers the
    /// remaining steps. (Goyal et al. 2017, "Accurate, large minibatch SGD", 2.2.)
    ///
    /// ```
    /// use precast::optim::Schedule;
    /// let factors: Vec<f64> = (0..6).map(|step| Schedule::Cosine.factor_after(2, step, 6)).collect();
    /// assert_eq!(factors[..3], [0.5, 1.0, 1.0]);
    /// assert!(factors[3] < 1.0 && factors[5] > 0.0);
    /// ```
    pub fn factor_after(self, warm_up: usize, step: usize, steps: usize) -> f64 {
        let timed = match self {
            Schedule::InverseSqrt { timescale: None } if warm_up > 0 => {
                Schedule::InverseSqrt { timescale: Some(warm_up) }
            }
            other => other,
        };
        match step < warm_up {
            true => (step + 1) as f64 / warm_up as f64,
            false => timed.factor(step - warm_up, steps.saturating_sub(warm_up)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(met: &[f64], expected: &[f64]) {
        assert_eq!(met.len(), expected.len());
        assert!(met.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-15), "{met:?} {expected:?}");
    }

    #[test]
    fn the_cosine_falls_from_one_through_a_half() {
        let factors: Vec<f64> = (0..=4).map(|step| Schedule::Cosine.factor(step, 4)).collect();
        let eighth = 0.5 * 0.5f64.sqrt();
        near(&factors, &[1.0, 0.5 + eighth, 0.5, 0.5 - eighth, 0.0]);
        assert_eq!((Schedule::Constant.factor(3, 4), Schedule::Cosine.factor(0, 0)), (1.0, 1.0));
    }

    #[test]
    fn steps_are_powers() {
        let schedule = Schedule::Step { every: 2, factor: 0.1 };
        near(&[0, 1, 2, 3, 4].map(|step| schedule.factor(step, 5)), &[1.0, 1.0, 0.1, 0.1, 0.01]);
        assert_eq!(Schedule::Step { every: 0, factor: 0.5 }.factor(2, 5), 0.25);
    }

    /// By the phases that OneCycleLR documents: of 10 steps the full rate is that of step 2, the last is step 9.
    #[test]
    fn one_cycle_rises_and_falls() {
        let factors: Vec<f64> = (0..10).map(|step| Schedule::OneCycle.factor(step, 10)).collect();
        near(&[factors[0], factors[1], factors[2], factors[9]], &[0.04, 0.52, 1.0, 0.04 / 1e4]);
        let fall = |part: f64| 4e-6 + (1.0 - 4e-6) * 0.5 * (1.0 + (PI * part).cos());
        near(&factors[3..], &[1, 2, 3, 4, 5, 6, 7].map(|i| fall(f64::from(i) / 7.0)));
        for steps in 0..5 {
            assert!((0..=steps).all(|step| Schedule::OneCycle.factor(step, steps).is_finite()), "{steps}");
        }
    }

    /// `sqrt(w / n)` in step n, counted from 1 after the warm-up: the two parts of the paper's formula meet.
    #[test]
    fn an_inverse_square_root_follows_its_warm_up() {
        let schedule = Schedule::InverseSqrt { timescale: None };
        let factors: Vec<f64> = [0, 3, 4, 5, 12, 16].map(|step| schedule.factor_after(4, step, 5)).into();
        near(&factors, &[0.25, 1.0, 1.0, 0.8f64.sqrt(), (1.0f64 / 3.0).sqrt(), 0.5]);
        let timed = Schedule::InverseSqrt { timescale: Some(100) };
        near(&[timed.factor_after(4, 304, 5), schedule.factor(30_000, 5)], &[0.5, 0.5]);
    }

    /// The table of `CosineAnnealingWarmRestarts(T_0=4, T_mult=2)`: waves of 4, 8 and 16 steps.
    #[test]
    fn waves_begin_again() {
        let schedule = Schedule::Restarts { every: 4, growth: 2 };
        let wave = |of: f64| (1.0 + (PI * of).cos()) / 2.0;
        near(
            &[0, 1, 3, 4, 5, 11, 12, 20, 28].map(|step| schedule.factor(step, 5)),
            &[1.0, wave(0.25), wave(0.75), 1.0, wave(0.125), wave(0.875), 1.0, 0.5, 1.0],
        );
        let same = Schedule::Restarts { every: 3, growth: 1 };
        assert!((0..20).all(|step| same.factor(step, 5) == same.factor(step % 3, 5)));
        assert_eq!(Schedule::Restarts { every: usize::MAX, growth: usize::MAX }.factor(0, 1), 1.0);
    }

    #[test]
    fn a_warm_up_comes_before_any_schedule() {
        let constant: Vec<f64> = (0..5).map(|step| Schedule::Constant.factor_after(4, step, 5)).collect();
        near(&constant, &[0.25, 0.5, 0.75, 1.0, 1.0]);
        for step in 0..6 {
            assert_eq!(Schedule::Cosine.factor_after(3, 3 + step, 9), Schedule::Cosine.factor(step, 6));
            assert_eq!(Schedule::Cosine.factor_after(0, step, 6), Schedule::Cosine.factor(step, 6));
        }
    }

    #[test]
    fn the_names_in_files_are_stable() {
        let all = [
            (Schedule::Constant, "\"constant\""),
            (Schedule::Cosine, "\"cosine\""),
            (Schedule::Step { every: 5, factor: 0.5 }, "{\"step\":{\"every\":5,\"factor\":0.5}}"),
            (Schedule::OneCycle, "\"one-cycle\""),
            (Schedule::InverseSqrt { timescale: Some(4) }, "{\"inverse-sqrt\":{\"timescale\":4}}"),
            (Schedule::Restarts { every: 5, growth: 2 }, "{\"restarts\":{\"every\":5,\"growth\":2}}"),
            (
                Schedule::Plateau { patience: 2, factor: 0.5, least: 0.01 },
                "{\"plateau\":{\"patience\":2,\"factor\":0.5,\"least\":0.01}}",
            ),
        ];
        for (schedule, text) in all {
            assert_eq!(serde_json::to_string(&schedule).unwrap(), text);
            assert_eq!(serde_json::from_str::<Schedule>(text).unwrap(), schedule);
        }
    }
}
