//! Checks of gradients before an update: finiteness and magnitude; and the factors of unscaling and clipping.

use super::function::BLOCK;
use crate::{
    float::{Float, Real},
    simd::vectorized,
    threads,
};

/// Number of partial sums of [`sum_of_squares`]. Fixed, so that no sum depends on the width of vectors.
const SUMS: usize = 16;

/// Returns whether all elements are finite.
pub fn all_finite<T: Float>(x: &[T]) -> bool {
    let mut wide = [T::Wide::default(); BLOCK];
    x.chunks(BLOCK).all(|x| finite(T::widened(x, &mut wide)))
}

/// Computes the sum of the squares, in f64.
pub fn sum_of_squares<T: Float>(x: &[T]) -> f64 {
    let mut wide = [T::Wide::default(); BLOCK];
    let mut sums = [0.0; SUMS];
    for x in x.chunks(BLOCK) {
        let x = T::widened(x, &mut wide);
        vectorized(|| {
            let (whole, rest) = x.as_chunks::<SUMS>();
            for x in whole.iter().map(<[_; SUMS]>::as_slice).chain([rest]) {
                for (sum, x) in sums.iter_mut().zip(x) {
                    let x = x.as_f64();
                    *sum += x * x;
                }
            }
        });
    }
    sums.iter().sum()
}

/// Multiplies each element by `first` and then by `second`, rounding each product.
pub fn multiply<T: Float>(x: &mut [T], first: f32, second: f64) {
    let (first, second) = (T::Wide::of(first.into()), T::Wide::of(second));
    let work = x.len() * threads::PASSED;
    threads::chunks(x, threads::PART, work, |_, x| {
        vectorized(|| x.iter_mut().for_each(|x| *x = T::narrow(T::narrow(x.widen() * first).widen() * second)));
    });
}

/// Limits each element to `-max ..= max`; NaN stays NaN.
pub fn limit<T: Float>(x: &mut [T], max: f64) {
    let max = T::narrow(T::Wide::of(max)).widen();
    vectorized(|| {
        for x in x {
            let wide = x.widen();
            // Both comparisons are false for NaN.
            if wide > max {
                *x = T::narrow(max);
            } else if wide < -max {
                *x = T::narrow(-max);
            }
        }
    });
}

/// Returns whether all are finite, without an early return, so that the loop is vectorized.
pub fn finite<R: Float<Wide = R> + num_traits::Float>(x: &[R]) -> bool {
    vectorized(|| x.iter().fold(true, |all, x| all & x.is_finite()))
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use half::f16;

    use super::*;

    #[test]
    fn one_element_that_is_not_finite_is_found_wherever_it_stands() {
        for len in [0, 1, 15, 1024, 1025, 3000] {
            let x = vec![f16::ONE; len];
            assert!(all_finite(&x));
            for at in [0, len / 2, len.saturating_sub(1)].into_iter().filter(|&at| at < len) {
                for bad in [f16::NAN, f16::INFINITY, f16::NEG_INFINITY] {
                    let mut x = x.clone();
                    x[at] = bad;
                    assert!(!all_finite(&x), "{bad} at {at} of {len}");
                }
            }
        }
    }

    #[test]
    fn squares_are_summed_in_parts() {
        let long = if cfg!(miri) { 20_000 } else { 300_000 };
        let x: Vec<f16> = (0..long + 1).map(|i| f16::from_f32((i % 7) as f32)).collect();
        let squares = |which: usize, part: Range<usize>| [sum_of_squares(&x[part])][which];
        // Integers: every order of the sum is exact.
        let exact: usize = (0..long + 1).map(|i| (i % 7) * (i % 7)).sum();
        assert_eq!(threads::by_parts(&[x.len()], 0.0, squares).iter().map(|(_, sum)| sum).sum::<f64>(), exact as f64);
    }

    #[test]
    fn both_products_are_rounded_and_limits_keep_nan() {
        let mut x = [0.1f32, -3.0, 1e-45];
        multiply(&mut x, 1.0 / 65536.0, 0.3);
        assert_eq!(x, [0.1 / 65536.0 * 0.3, -3.0 / 65536.0 * 0.3, 0.0]);
        let mut x = [f16::from_f32(3.0), f16::NEG_INFINITY, f16::NAN, f16::from_f32(-0.5)];
        limit(&mut x, 1.5);
        assert_eq!((x[0].to_f32(), x[1].to_f32(), x[2].is_nan(), x[3].to_f32()), (1.5, -1.5, true, -0.5));
    }
}
