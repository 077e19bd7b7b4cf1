//! Running sums and products, and their gradients. Running results are kept in f64: in f32 the sum of a million equal
//! terms would be off by one percent.

use std::cell::RefCell;

use super::slices::AlongAxis;
use crate::{elementwise::Saved, float::Real};

/// The product.
#[derive(Clone, Copy)]
pub struct Product;

impl AlongAxis for Product {
    const SAVED: Saved = Saved::Input;
    const REDUCES: bool = true;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        y[0] = R::of(x.iter().fold(1.0, |product, x| product * x.as_f64()));
    }
    /// Computes the product of all other elements, by running products from both ends. `y / x` would fail at zeros.
    fn backward<R: Real>(self, x: &[R], dy: &[R], dx: &mut [R]) {
        with_f64(x.len(), |before| {
            let mut product = dy[0].as_f64();
            for (before, x) in before.iter_mut().zip(x) {
                *before = product;
                product *= x.as_f64();
            }
            let mut after = 1.0;
            for ((dx, x), before) in dx.iter_mut().zip(x).zip(before).rev() {
                *dx = R::of(*before * after);
                after *= x.as_f64();
            }
        });
    }
}

/// Sums of the first 1, 2, ... elements.
#[derive(Clone, Copy)]
pub struct RunningSum;

impl AlongAxis for RunningSum {
    const SAVED: Saved = Saved::Nothing;
    const REDUCES: bool = false;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        let mut sum = 0.0;
        for (y, x) in y.iter_mut().zip(x) {
            sum += x.as_f64();
            *y = R::of(sum);
        }
    }
    fn backward<R: Real>(self, _saved: &[R], dy: &[R], dx: &mut [R]) {
        let mut sum = 0.0;
        for (dx, dy) in dx.iter_mut().zip(dy).rev() {
            sum += dy.as_f64();
            *dx = R::of(sum);
        }
    }
}

/// Products of the first 1, 2, ... elements.
#[derive(Clone, Copy)]
pub struct RunningProduct;

impl AlongAxis for RunningProduct {
    const SAVED: Saved = Saved::Input;
    const REDUCES: bool = false;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        let mut product = 1.0;
        for (y, x) in y.iter_mut().zip(x) {
            product *= x.as_f64();
            *y = R::of(product);
        }
    }
    /// Computes the product of the elements before one, times the sum over the outputs from it on of their gradient
    /// times the product of the elements between. Dividing the outputs by the element would fail at zeros.
    fn backward<R: Real>(self, x: &[R], dy: &[R], dx: &mut [R]) {
        with_f64(x.len(), |after| {
            let mut sum = 0.0;
            for (i, after) in after.iter_mut().enumerate().rev() {
                sum = dy[i].as_f64() + x.get(i + 1).map_or(0.0, |x| x.as_f64() * sum);
                *after = sum;
            }
            let mut before = 1.0;
            for ((dx, x), after) in dx.iter_mut().zip(x).zip(after) {
                *dx = R::of(*after * before);
                before *= x.as_f64();
            }
        });
    }
}

/// Length of a slice up to which no memory of the thread is needed.
const FEW: usize = 8;

/// Length above which memory is freed after use.
const KEPT: usize = 1 << 16;

/// Calls `f` with `len` arbitrary numbers of this thread.
fn with_f64<O>(len: usize, f: impl FnOnce(&mut [f64]) -> O) -> O {
    if len <= FEW {
        return f(&mut [0.0; FEW][..len]);
    }
    thread_local! { static SPACE: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) }; }
    let mut space = SPACE.take();
    if space.len() < len {
        space.resize(len, 0.0);
    }
    let result = f(&mut space[..len]);
    if space.len() <= KEPT {
        SPACE.set(space);
    }
    result
}
