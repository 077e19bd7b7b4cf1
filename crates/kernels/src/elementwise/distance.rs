//! Distances of computed numbers from exact ones, summed in f64 in one pass over both. Where the exact number is not
//! finite, nothing can be near it, so such pairs do not count.

use super::function::BLOCK;
use crate::{
    float::{Float, Real},
    simd::vectorized,
};

/// Number of partial sums. Fixed, so that no sum depends on the width of vectors.
const SUMS: usize = 16;

/// Returns the sums of the squares of `scale * found - exact` and of `exact`.
pub fn distance<A: Float, B: Float>(found: &[A], exact: &[B], scale: f64) -> [f64; 2] {
    /// Adds the squares of as many numbers as there are sums, or fewer.
    #[inline(always)]
    fn add<A: Real, B: Real>([apart, whole]: &mut [[f64; SUMS]; 2], found: &[A], exact: &[B], scale: f64) {
        for (((apart, whole), found), exact) in apart.iter_mut().zip(whole).zip(found).zip(exact) {
            let (difference, exact) = counted(scale * found.as_f64(), exact.as_f64());
            *apart += difference * difference;
            *whole += exact * exact;
        }
    }
    let mut sums = [[0.0; SUMS]; 2];
    in_blocks(found, exact, |_, found, exact| {
        vectorized(|| {
            let ((found, found_rest), (exact, exact_rest)) = (found.as_chunks::<SUMS>(), exact.as_chunks::<SUMS>());
            // In a variable of the loop, they stay in registers.
            let mut now = sums;
            found.iter().zip(exact).for_each(|(found, exact)| add(&mut now, found, exact, scale));
            add(&mut now, found_rest, exact_rest, scale);
            sums = now;
        });
    });
    sums.map(|sums| sums.iter().sum())
}

/// Returns the sum of `weight * (found - exact)`.
pub fn projection<A: Float, B: Float>(found: &[A], exact: &[B], weight: &[B]) -> f64 {
    /// Adds the products of as many numbers as there are sums, or fewer.
    #[inline(always)]
    fn add<A: Real, B: Real>(sums: &mut [f64; SUMS], found: &[A], exact: &[B], weight: &[B]) {
        for (((sum, found), exact), weight) in sums.iter_mut().zip(found).zip(exact).zip(weight) {
            *sum += weight.as_f64() * counted(found.as_f64(), exact.as_f64()).0;
        }
    }
    let mut sums = [0.0; SUMS];
    let mut wide = [B::Wide::default(); BLOCK];
    in_blocks(found, exact, |at, found, exact| {
        let weight = B::widened(&weight[at..at + exact.len()], &mut wide);
        vectorized(|| {
            let (found, found_rest) = found.as_chunks::<SUMS>();
            let (exact, exact_rest) = exact.as_chunks::<SUMS>();
            let (weight, weight_rest) = weight.as_chunks::<SUMS>();
            let (whole, mut now) = (found.iter().zip(exact).zip(weight), sums);
            whole.for_each(|((found, exact), weight)| add(&mut now, found, exact, weight));
            add(&mut now, found_rest, exact_rest, weight_rest);
            sums = now;
        });
    });
    sums.iter().sum()
}

/// Returns the difference of two numbers, and the exact one; 0 if that is not finite.
#[inline(always)]
fn counted(found: f64, exact: f64) -> (f64, f64) {
    if exact.is_finite() { (found - exact, exact) } else { (0.0, 0.0) }
}

/// Calls `f` with the start of each block, and that block of both, widened.
fn in_blocks<A: Float, B: Float>(found: &[A], exact: &[B], mut f: impl FnMut(usize, &[A::Wide], &[B::Wide])) {
    let (mut a, mut b) = ([A::Wide::default(); BLOCK], [B::Wide::default(); BLOCK]);
    for (block, (found, exact)) in found.chunks(BLOCK).zip(exact.chunks(BLOCK)).enumerate() {
        f(block * BLOCK, A::widened(found, &mut a), B::widened(exact, &mut b));
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn sums_are_exact_for_integers_of_any_length_and_type() {
        for len in [0, 1, 15, 16, 17, BLOCK - 1, BLOCK, 3 * BLOCK + 5] {
            let exact: Vec<f32> = (0..len).map(|i| (i % 7) as f32).collect();
            let found: Vec<f32> = (0..len).map(|i| (i % 5) as f32).collect();
            let weight: Vec<f32> = (0..len).map(|i| (i % 3) as f32 - 1.0).collect();
            let sum = |f: &dyn Fn(f64, f64, f64) -> f64| -> f64 {
                let of = |i: usize| f(f64::from(found[i]), f64::from(exact[i]), f64::from(weight[i]));
                (0..len).map(of).sum()
            };
            let wanted = [sum(&|found, exact, _| (2.0 * found - exact).powi(2)), sum(&|_, exact, _| exact.powi(2))];
            let along = sum(&|found, exact, weight| weight * (found - exact));
            let half: Vec<f16> = found.iter().map(|x| f16::from_f32(*x)).collect();
            let brain: Vec<bf16> = found.iter().map(|x| bf16::from_f32(*x)).collect();
            assert_eq!(distance(&half, &exact, 2.0), wanted);
            assert_eq!(distance(&brain, &exact, 2.0), wanted);
            assert_eq!(distance(&found, &exact, 2.0), wanted);
            assert_eq!(projection(&half, &exact, &weight), along);
            assert_eq!(projection(&found, &exact, &weight), along);
        }
    }

    #[test]
    fn an_infinite_number_counts_unless_the_exact_one_is_infinite() {
        let exact = [1.0f32, f32::NEG_INFINITY, f32::NAN, 2.0];
        assert_eq!(distance(&[1.0f32, 7.0, 7.0, 4.0], &exact, 1.0), [4.0, 5.0]);
        assert_eq!(projection(&[1.0f32, 7.0, 7.0, 4.0], &exact, &[1.0; 4]), 2.0);
        assert_eq!(distance(&[1.0f32, 7.0, 7.0, f32::INFINITY], &exact, 1.0), [f64::INFINITY, 5.0]);
        assert!(distance(&[f32::NAN, 7.0, 7.0, 4.0], &exact, 1.0)[0].is_nan());
    }
}
