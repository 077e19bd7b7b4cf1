//! Reductions of a slice to one number, and their gradients.

use super::{
    slices::AlongAxis,
    squares::{in_range, moments},
    sum::sum_of,
};
use crate::{elementwise::Saved, float::Real};

/// The largest (or smallest) element, NaN if any is NaN. The gradient is split equally among ties.
#[derive(Clone, Copy)]
pub struct Extreme {
    /// `true` for the largest element.
    pub largest: bool,
}

impl Extreme {
    fn of<R: Real>(self, x: &[R]) -> R {
        let better = |a: R, b: R| if self.largest { a > b } else { a < b };
        x.iter().copied().reduce(|m, x| if better(x, m) || x.is_nan() { x } else { m }).unwrap_or(R::nan())
    }
}

/// Splits `dy` equally among the chosen elements.
fn share<R: Real>(x: &[R], chosen: impl Fn(R) -> bool, dy: impl Fn(R) -> R, dx: &mut [R]) {
    let count = R::of(x.iter().filter(|&&x| chosen(x)).count() as f64);
    for (dx, &x) in dx.iter_mut().zip(x) {
        *dx = if chosen(x) { dy(x) / count } else { R::zero() };
    }
}

impl AlongAxis for Extreme {
    const SAVED: Saved = Saved::Input;
    const REDUCES: bool = true;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        y[0] = self.of(x);
    }
    fn backward<R: Real>(self, x: &[R], dy: &[R], dx: &mut [R]) {
        let y = self.of(x);
        share(x, |x| x == y || (x.is_nan() && y.is_nan()), |_| dy[0], dx);
    }
}

/// Sum of squared deviations from the mean, divided by `n - correction`, in two passes.
#[derive(Clone, Copy)]
pub struct Variance {
    /// Number subtracted from the number of elements.
    pub correction: usize,
}

impl Variance {
    fn freedom<R: Real>(self, n: usize) -> R {
        R::of(n.saturating_sub(self.correction) as f64)
    }
}

fn squared_deviations<R: Real>(x: &[R]) -> R {
    R::vectorized(|| moments(x)).1
}

impl AlongAxis for Variance {
    const SAVED: Saved = Saved::Input;
    const REDUCES: bool = true;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        let (_, scale, squares) = in_range(x, squared_deviations);
        y[0] = squares / self.freedom(x.len()) * scale * scale;
    }
    fn backward<R: Real>(self, x: &[R], dy: &[R], dx: &mut [R]) {
        let (x, scale, _) = in_range(x, squared_deviations);
        let (m, _) = R::vectorized(|| moments(&x));
        let factor = R::of(2.0) * dy[0] / self.freedom(x.len()) * scale;
        for (dx, &x) in dx.iter_mut().zip(&*x) {
            *dx = factor * (x - m);
        }
    }
}

/// Square root of the variance. Where the variance is 0, the gradient is 0 rather than infinite: a feature that is
/// constant over a batch should not spoil a step.
#[derive(Clone, Copy)]
pub struct Deviation(pub Variance);

impl AlongAxis for Deviation {
    const SAVED: Saved = Saved::Input;
    const REDUCES: bool = true;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        let (_, scale, squares) = in_range(x, squared_deviations);
        y[0] = (squares / self.0.freedom(x.len())).sqrt() * scale;
    }
    /// Computes the gradient from the numbers in range: doubling the numbers doubles the deviation, so the slopes are
    /// the same.
    fn backward<R: Real>(self, x: &[R], dy: &[R], dx: &mut [R]) {
        let (x, _, squares) = in_range(x, squared_deviations);
        let freedom: R = self.0.freedom(x.len());
        let y = (squares / freedom).sqrt();
        if y == R::zero() {
            return dx.fill(R::zero());
        }
        let (m, _) = R::vectorized(|| moments(&x));
        let factor = R::of(2.0) * (dy[0] / (R::of(2.0) * y)) / freedom;
        for (dx, &x) in dx.iter_mut().zip(&*x) {
            *dx = factor * (x - m);
        }
    }
}

/// The p-norm `(sum |x|^p)^(1/p)`; the largest |x| for infinite p. Where the norm is 0, the gradient is 0.
#[derive(Clone, Copy)]
pub struct PNorm {
    /// Exponent.
    pub p: f64,
}

impl PNorm {
    /// Computes the number whose [root](PNorm::root) is the norm: the sum of squares for p = 2, else the norm itself.
    fn measure<R: Real>(self, x: &[R]) -> R {
        if self.p == 1.0 {
            return R::vectorized(|| sum_of([x], |[x]| x.abs()));
        }
        if self.p == 2.0 {
            return R::vectorized(|| sum_of([x], |[x]| x * x));
        }
        let better = |most: R, x: R| if x > most || x.is_nan() { x } else { most };
        let largest = x.iter().fold(R::zero(), |most, x| better(most, x.abs()));
        if self.p.is_infinite() || largest == R::zero() || !largest.is_finite() {
            return largest;
        }
        // Relative to the largest, so that no power overflows.
        let p = R::of(self.p);
        largest * sum_of([x], |[x]| (x.abs() / largest).powf(p)).powf(p.recip())
    }

    fn root<R: Real>(self, measure: R) -> R {
        if self.p == 2.0 { measure.sqrt() } else { measure }
    }
}

impl AlongAxis for PNorm {
    const SAVED: Saved = Saved::Input;
    const REDUCES: bool = true;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        let (_, scale, measure) = in_range(x, |x| self.measure(x));
        y[0] = self.root(measure) * scale;
    }
    /// Computes the gradient from the numbers in range, as for [`Deviation`].
    fn backward<R: Real>(self, x: &[R], dy: &[R], dx: &mut [R]) {
        let (x, _, measure) = in_range(x, |x| self.measure(x));
        let y = self.root(measure);
        let sign = |x: R| if x == R::zero() { x } else { x.signum() };
        if y == R::zero() {
            dx.fill(R::zero());
        } else if self.p.is_infinite() {
            share(&x, |x| x.abs() == y || (x.is_nan() && y.is_nan()), |x| dy[0] * sign(x), dx);
        } else {
            let power = R::of(self.p - 1.0);
            for (dx, &x) in dx.iter_mut().zip(&*x) {
                let ratio = (x.abs() / y).powf(power);
                // 0 to a negative power is infinite; the subgradient used there is 0.
                *dx = if x == R::zero() { x } else { dy[0] * sign(x) * ratio };
            }
        }
    }
}
