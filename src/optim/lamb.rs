//! LAMB.

use precast_kernels::{
    reduce::{Squares, sum_of},
    simd::vectorized,
    update::{MOMENTS, Multiplied, Values, squares_by_parts},
};

use super::{
    rule::{Kept, Number, Rule, Step, Whole},
    trained::{Trained, optimizer},
};
use crate::options::options;

/// LAMB: Adam with the update of a parameter scaled in proportion to the norm of the parameter. At update t:
///
/// ```text
/// m = m + (1 - beta1) * (grad - m)
/// v = beta2 * v + (1 - beta2) * grad * grad
/// r = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * p
/// p = p - lr * |p| / |r| * r                           |p| / |r| is 1 where either is 0
/// ```
///
/// Source: You et al. 2020, "Large batch optimization for deep learning", algorithm 2, with the identity as its
/// function phi. |x| is the Euclidean norm over all elements of the parameter.
#[derive(Clone, Debug)]
pub struct Lamb(Trained<LambOptions>);

/// Options of [`Lamb`].
#[options(setters_on(Lamb), written)]
#[derive(Clone, Debug, PartialEq)]
pub struct LambOptions {
    /// Decay rates of the two running averages.
    #[option(default = (0.9, 0.999), at_least = 0, below = 1)]
    pub betas: (f64, f64),
    /// Number that keeps the division bounded.
    #[option(default = 1e-6, at_least = 0)]
    pub eps: f64,
    /// Weight decay, a part of the update.
    #[option(default = 0.0, at_least = 0)]
    pub weight_decay: f64,
}

optimizer!(new Lamb, LambOptions);

pub(super) struct Known<R> {
    /// The learning rate times the ratio of the norms.
    rate: R,
    rest2: R,
    direction: Direction<R>,
}

/// Coefficients of the update direction, as a function of the averages and the weight.
#[derive(Clone, Copy)]
struct Direction<R> {
    step: R,
    root: R,
    eps: R,
    weight_decay: R,
}

impl<R: Number> Direction<R> {
    #[inline(always)]
    fn of(self, p: R, m: R, v: R) -> R {
        self.step * (m / (v.sqrt() / self.root + self.eps)) + self.weight_decay * p
    }
}

impl Rule for LambOptions {
    const NAME: &'static str = "lamb";
    const LOOKS: bool = true;
    type Known<R: Number> = Known<R>;

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn kept(&self, shape: &[usize]) -> Vec<Kept> {
        vec![Kept::new("mean", shape), Kept::new("square", shape)]
    }

    fn prepare<R: Number>(&self, step: &Step, whole: Whole<'_, R>) -> Known<R> {
        let Whole { value, grad, kept, .. } = whole;
        let correction = |beta: f64| 1.0 - beta.powf(step.count as f64);
        let [rest1, beta2, rest2] = [1.0 - self.betas.0, self.betas.1, 1.0 - self.betas.1].map(R::of);
        let direction = Direction {
            step: R::of(1.0 / correction(self.betas.0)),
            root: R::of(correction(self.betas.1).sqrt()),
            eps: R::of(self.eps),
            weight_decay: R::of(step.weight_decay),
        };
        let kept: [&mut [R]; 2] = kept.try_into().unwrap_or_else(|_| unreachable!("two averages are kept"));
        let squares = squares_by_parts(value.len(), kept, |range, [mean, square]| {
            let (value, grad) = (&value[range.clone()], &grad[range]);
            vectorized(|| {
                for ((&g, m), v) in grad.iter().zip(mean.iter_mut()).zip(square.iter_mut()) {
                    let new = beta2 * *v + rest2 * (g * g);
                    let finite = new.is_finite();
                    *m = if finite { *m + rest1 * (g - *m) } else { *m };
                    *v = if finite { new } else { *v };
                }
            });
            let each = |(&p, (&m, &v))| direction.of(p, m, v);
            let (mean, square) = (&*mean, &*square);
            let directions = vectorized(|| {
                sum_of([value, mean, square], |[p, m, v]| {
                    let r = direction.of(p, m, v);
                    r * r
                })
            });
            let all = || value.iter().zip(mean.iter().zip(square)).map(each).collect();
            [Squares::of(value), Squares::or(directions, value.len(), all)]
        });
        let [weight, moved] = squares.map(Squares::root);
        let trust = if weight > 0.0 && moved > 0.0 { weight / moved } else { 1.0 };
        Known { rate: R::of(step.lr * trust), rest2, direction }
    }

    fn apply<R: Number>(
        known: &Known<R>,
        _: usize,
        value: &mut Values<'_, R>,
        Multiplied { grad, factors: [first, second] }: Multiplied<'_, R>,
        moments: [&mut [R]; MOMENTS],
    ) {
        let Known { rate, rest2, direction } = *known;
        let [mean, square, _] = moments;
        value.replace(0..value.len(), [&*mean, &*square, grad], move |p, [m, v, g]| {
            let g = g * first * second;
            // An element whose average would not be finite is unchanged, and counted.
            if (rest2 * (g * g)).is_finite() { p - rate * direction.of(p, m, v) } else { R::nan() }
        });
    }
}
