//! The check for numbers that are not finite, alone and in one pass with the unscaling of gradients.

use std::sync::atomic::{AtomicBool, Ordering};

use super::function::BLOCK;
use crate::kernels::{
    float::{Float, Real},
    simd::{Body, vectorized},
    threads::{self, Shared},
};

/// About how many multiply-adds one element of [`unscale_and_check`] costs, most of which is waiting for memory.
const WORK: usize = 8;

/// Elements of a slice that [`unscale_and_check`] gives to a thread together.
const PART: usize = 16 * BLOCK;

/// Whether all elements are finite.
pub(crate) fn all_finite<T: Float>(x: &[T]) -> bool {
    let mut wide = [T::Wide::default(); BLOCK];
    x.chunks(BLOCK).all(|x| finite(T::widened(x, &mut wide)))
}

/// Multiplies the elements of each slice by `factor`, in place. Returns for each slice whether all of its products are finite.
pub(crate) fn unscale_and_check<R: Real>(list: &mut [&mut [R]], factor: R) -> Vec<bool> {
    let all: Vec<AtomicBool> = list.iter().map(|_| AtomicBool::new(true)).collect();
    let parts = |x: &&mut [R]| x.len().div_ceil(PART);
    let starts: Vec<(usize, usize)> =
        list.iter().enumerate().flat_map(|(which, x)| (0..parts(x)).map(move |part| (which, part * PART))).collect();
    let slices: Vec<(usize, Shared<R>)> = list.iter_mut().map(|x| (x.len(), Shared::new(x))).collect();
    threads::split(starts.len(), 1, starts.len() * PART * WORK, |some| {
        for &(which, start) in &starts[some] {
            let (len, slice) = slices[which];
            // SAFETY: the parts of a slice do not overlap, and each goes to one thread.
            let x = unsafe { slice.part(start, PART.min(len - start)) };
            if !vectorized(UnscalePart { x, factor }) {
                all[which].store(false, Ordering::Relaxed);
            }
        }
    });
    all.into_iter().map(AtomicBool::into_inner).collect()
}

/// A part of a slice of [`unscale_and_check`].
struct UnscalePart<'a, R> {
    x: &'a mut [R],
    factor: R,
}

impl<R: Real> Body for UnscalePart<'_, R> {
    type Output = bool;
    #[inline(always)]
    fn run(self) -> bool {
        let mut all = true;
        for x in self.x {
            *x = *x * self.factor;
            all &= x.is_finite();
        }
        all
    }
}

/// Without an early return, so that the loop is vectorised.
fn finite<R: Float<Wide = R> + num_traits::Float>(x: &[R]) -> bool {
    vectorized(|| x.iter().fold(true, |all, x| all & x.is_finite()))
}

#[cfg(test)]
mod tests {
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
    fn slices_are_unscaled_and_each_is_checked() {
        for bad in [f32::NAN, f32::INFINITY, f32::MAX] {
            let lengths = [0, 1, 15, 1024, 300_000, 1025, 3000];
            let mut list: Vec<Vec<f32>> = lengths.iter().map(|&len| (0..len).map(|i| i as f32).collect()).collect();
            list[2][14] = bad;
            list[4][150_000] = bad;
            let want: Vec<Vec<f32>> = list.iter().map(|x| x.iter().map(|x| x * 2.0).collect()).collect();
            let mut slices: Vec<&mut [f32]> = list.iter_mut().map(Vec::as_mut_slice).collect();
            // A product that overflows counts.
            assert_eq!(unscale_and_check(&mut slices, 2.0), [true, true, false, true, false, true, true]);
            let bits = |list: &[Vec<f32>]| -> Vec<u32> { list.iter().flatten().map(|x| x.to_bits()).collect() };
            assert_eq!(bits(&list), bits(&want));
        }
    }
}
