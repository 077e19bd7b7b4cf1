//! Cross entropy of softmax(logits), sample by sample, without forming the probabilities.

use super::{
    softmax::LogSumExp,
    sum::{replace, sum},
};
use crate::{elementwise::math, float::Real};

/// Targets of all samples: one class each, or a probability for each class.
pub struct Targets<R> {
    /// Classes or probabilities.
    pub wanted: Wanted<R>,
    /// Factor of each class.
    pub weight: Vec<R>,
    /// Fraction of each target that is spread evenly over all classes.
    pub smoothing: R,
}

/// Classes or probabilities of the samples.
pub enum Wanted<R> {
    /// Class of each sample; `None` for an ignored sample.
    Classes(Vec<Option<usize>>),
    /// A probability for each class, sample by sample.
    Probabilities(Vec<R>),
}

/// Computes `x - largest`, with 0 for equal infinite logits.
#[inline(always)]
fn below<R: Real>(x: R, largest: R) -> R {
    if x == largest { R::zero() } else { x - largest }
}

impl<R: Real> Targets<R> {
    /// Returns the divisor that turns the sum of losses into a mean.
    pub fn mean_divisor(&self, samples: usize) -> R {
        match &self.wanted {
            Wanted::Classes(classes) => {
                sum(&classes.iter().flatten().map(|&class| self.weight[class]).collect::<Vec<R>>())
            }
            Wanted::Probabilities(_) => R::of(samples as f64),
        }
    }

    /// Fills `t` with the targets of a sample after smoothing and weighting, and returns their sum. An ignored sample
    /// has no targets.
    fn fill(&self, sample: usize, t: &mut [R]) -> R {
        let classes = t.len();
        match &self.wanted {
            Wanted::Classes(wanted) => {
                t.fill(R::zero());
                let Some(class) = wanted[sample] else { return R::zero() };
                t[class] = R::one();
            }
            Wanted::Probabilities(wanted) => t.copy_from_slice(&wanted[sample * classes..(sample + 1) * classes]),
        }
        let even = self.smoothing / R::of(classes as f64);
        for (t, &weight) in t.iter_mut().zip(&self.weight) {
            *t = (*t * (R::one() - self.smoothing) + even) * weight;
        }
        sum(t)
    }

    /// Returns the class of a sample and its weight, if the target is that class alone.
    fn only(&self, sample: usize) -> Option<(usize, R)> {
        match &self.wanted {
            Wanted::Classes(wanted) if self.smoothing == R::zero() => {
                wanted[sample].map(|class| (class, self.weight[class]))
            }
            _ => None,
        }
    }

    /// Computes the loss of a sample with logits `x`. `space` has as many elements.
    pub fn loss(&self, sample: usize, x: &[R], space: &mut [R]) -> R {
        if let Some((class, weight)) = self.only(sample) {
            let (largest, rest) = R::vectorized(LogSumExp(x));
            return if weight == R::zero() { weight } else { weight * (rest - below(x[class], largest)) };
        }
        self.fill(sample, space);
        let (largest, rest) = R::vectorized(LogSumExp(x));
        for (t, &x) in space.iter_mut().zip(x) {
            // A class with target 0 costs nothing, even if its logit is minus infinity.
            *t = if *t == R::zero() { *t } else { *t * (rest - below(x, largest)) };
        }
        sum(space)
    }

    /// Fills `dx` with the gradient of the logits of a sample whose loss has the gradient `g`.
    pub fn backward(&self, sample: usize, x: &[R], g: R, dx: &mut [R]) {
        if let Wanted::Classes(wanted) = &self.wanted
            && wanted[sample].is_none()
        {
            return dx.fill(R::zero());
        }
        let total = match self.only(sample) {
            Some((class, weight)) => {
                dx.fill(R::zero());
                dx[class] = weight;
                weight
            }
            None => self.fill(sample, dx),
        };
        let (largest, rest) = R::vectorized(LogSumExp(x));
        R::vectorized(|| {
            replace(dx, [x], |dx, [x]| g * (total * math::exp(below(x, largest) - rest) - dx));
        });
    }

    /// Fills `dt` with the gradient of the target probabilities of such a sample.
    pub fn backward_targets(&self, x: &[R], g: R, dt: &mut [R]) {
        let (largest, rest) = R::vectorized(LogSumExp(x));
        R::vectorized(|| {
            let of_class = |x, weight| g * weight * (R::one() - self.smoothing) * (rest - below(x, largest));
            replace(dt, [x, &self.weight], |_, [x, weight]| of_class(x, weight));
        });
    }
}
