//! Reductions of a slice to one number, running sums and products, and their gradients.

use super::{
    slices::AlongAxis,
    sum::{sum, sum_of},
};
use crate::kernels::{elementwise::Saved, float::Real, simd::vectorized};

fn mean<R: Real>(x: &[R]) -> R {
    sum(x) / R::of(x.len() as f64)
}

/// The largest (or smallest) element, NaN if there is one. The gradient is shared equally among those that are equal.
#[derive(Clone, Copy)]
pub(crate) struct Extreme {
    pub largest: bool,
}

impl Extreme {
    fn of<R: Real>(self, x: &[R]) -> R {
        let better = |a: R, b: R| if self.largest { a > b } else { a < b };
        x.iter().copied().reduce(|m, x| if better(x, m) || x.is_nan() { x } else { m }).unwrap_or(R::nan())
    }
}

/// Shares `dy` equally among the chosen elements.
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

/// The product.
#[derive(Clone, Copy)]
pub(crate) struct Product;

impl AlongAxis for Product {
    const SAVED: Saved = Saved::Input;
    const REDUCES: bool = true;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        y[0] = x.iter().fold(R::one(), |p, &x| p * x);
    }
    /// The product of all other elements, by running products from both ends. `y / x` would fail at zeros.
    fn backward<R: Real>(self, x: &[R], dy: &[R], dx: &mut [R]) {
        let mut before = dy[0];
        for (dx, &x) in dx.iter_mut().zip(x) {
            *dx = before;
            before = before * x;
        }
        let mut after = R::one();
        for (dx, &x) in dx.iter_mut().zip(x).rev() {
            *dx = *dx * after;
            after = after * x;
        }
    }
}

/// The sum of squared deviations from the mean, divided by `n - correction`, in two passes.
#[derive(Clone, Copy)]
pub(crate) struct Variance {
    pub correction: usize,
}

impl Variance {
    fn freedom<R: Real>(self, n: usize) -> R {
        R::of(n.saturating_sub(self.correction) as f64)
    }
}

impl AlongAxis for Variance {
    const SAVED: Saved = Saved::Input;
    const REDUCES: bool = true;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        let m = mean(x);
        y[0] = vectorized(|| sum_of([x], |[x]| (x - m) * (x - m))) / self.freedom(x.len());
    }
    fn backward<R: Real>(self, x: &[R], dy: &[R], dx: &mut [R]) {
        let m = mean(x);
        let scale = R::of(2.0) * dy[0] / self.freedom(x.len());
        for (dx, &x) in dx.iter_mut().zip(x) {
            *dx = scale * (x - m);
        }
    }
}

/// The square root of the variance. Where the variance is 0, the gradient is 0 and not infinite: a feature that is constant
/// over a batch should not spoil a step.
#[derive(Clone, Copy)]
pub(crate) struct Deviation(pub Variance);

impl AlongAxis for Deviation {
    const SAVED: Saved = Saved::Input;
    const REDUCES: bool = true;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        self.0.value(x, y);
        y[0] = y[0].sqrt();
    }
    fn backward<R: Real>(self, x: &[R], dy: &[R], dx: &mut [R]) {
        let mut y = [R::zero()];
        self.value(x, &mut y);
        if y[0] == R::zero() {
            dx.fill(R::zero());
        } else {
            self.0.backward(x, &[dy[0] / (R::of(2.0) * y[0])], dx);
        }
    }
}

/// `(sum |x|^p)^(1/p)`; the largest |x| when p is infinite. Where the norm is 0, the gradient is 0.
#[derive(Clone, Copy)]
pub(crate) struct PNorm {
    pub p: f64,
}

impl PNorm {
    fn of<R: Real>(self, x: &[R]) -> R {
        let largest = Extreme { largest: true }.of(&x.iter().map(|x| x.abs()).collect::<Vec<R>>());
        let sum_of = |f: &dyn Fn(R) -> R| sum(&x.iter().map(|&x| f(x)).collect::<Vec<R>>());
        if x.is_empty() {
            R::zero()
        } else if self.p.is_infinite() || largest == R::zero() || !largest.is_finite() {
            largest
        } else if self.p == 1.0 {
            sum_of(&|x| x.abs())
        } else if self.p == 2.0 {
            sum_of(&|x| x * x).sqrt()
        } else {
            // Relative to the largest, so that no power overflows.
            let p = R::of(self.p);
            largest * sum_of(&|x| (x.abs() / largest).powf(p)).powf(p.recip())
        }
    }
}

impl AlongAxis for PNorm {
    const SAVED: Saved = Saved::Input;
    const REDUCES: bool = true;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        y[0] = self.of(x);
    }
    fn backward<R: Real>(self, x: &[R], dy: &[R], dx: &mut [R]) {
        let y = self.of(x);
        let sign = |x: R| if x == R::zero() { x } else { x.signum() };
        if y == R::zero() {
            dx.fill(R::zero());
        } else if self.p.is_infinite() {
            share(x, |x| x.abs() == y || (x.is_nan() && y.is_nan()), |x| dy[0] * sign(x), dx);
        } else {
            let power = R::of(self.p - 1.0);
            for (dx, &x) in dx.iter_mut().zip(x) {
                let ratio = (x.abs() / y).powf(power);
                // 0 to a negative power is infinite; the subgradient taken there is 0.
                *dx = if x == R::zero() { x } else { dy[0] * sign(x) * ratio };
            }
        }
    }
}

/// The sums of the first 1, 2, ... elements.
#[derive(Clone, Copy)]
pub(crate) struct RunningSum;

impl AlongAxis for RunningSum {
    const SAVED: Saved = Saved::Nothing;
    const REDUCES: bool = false;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        let mut sum = R::zero();
        for (y, &x) in y.iter_mut().zip(x) {
            sum += x;
            *y = sum;
        }
    }
    fn backward<R: Real>(self, _saved: &[R], dy: &[R], dx: &mut [R]) {
        let mut sum = R::zero();
        for (dx, &dy) in dx.iter_mut().zip(dy).rev() {
            sum += dy;
            *dx = sum;
        }
    }
}

/// The products of the first 1, 2, ... elements.
#[derive(Clone, Copy)]
pub(crate) struct RunningProduct;

impl AlongAxis for RunningProduct {
    const SAVED: Saved = Saved::Input;
    const REDUCES: bool = false;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        let mut product = R::one();
        for (y, &x) in y.iter_mut().zip(x) {
            product = product * x;
            *y = product;
        }
    }
    /// The product of the elements before one, times the sum over the outputs from it on of their gradient times the product
    /// of the elements between. Dividing the outputs by the element would fail at zeros.
    fn backward<R: Real>(self, x: &[R], dy: &[R], dx: &mut [R]) {
        let mut after = R::zero();
        for i in (0..x.len()).rev() {
            after = dy[i] + x.get(i + 1).map_or(R::zero(), |&x| x * after);
            dx[i] = after;
        }
        let mut before = R::one();
        for (dx, &x) in dx.iter_mut().zip(x) {
            *dx = *dx * before;
            before = before * x;
        }
    }
}
