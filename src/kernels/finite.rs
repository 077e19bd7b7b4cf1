//! Whether numbers are finite, in one pass with what is done to them anyway.

use super::{buffers::take, elementwise::BLOCK, simd::vectorized};
use crate::dtype::Float;

/// Whether all elements are finite.
pub(crate) fn all_finite<T: Float>(x: &[T]) -> bool {
    let mut wide = [T::Wide::default(); BLOCK];
    x.chunks(BLOCK).all(|x| {
        let wide = &mut wide[..x.len()];
        T::widen_into(x, wide);
        finite(wide)
    })
}

/// Each element times `factor`, rounded once, and whether all of them are finite.
pub(crate) fn scaled<T: Float>(x: &[T], factor: T::Wide) -> (Vec<T>, bool) {
    let mut out = take(x.len());
    let mut wide = [T::Wide::default(); BLOCK];
    let mut all = true;
    for (x, out) in x.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
        let wide = &mut wide[..x.len()];
        T::widen_into(x, wide);
        vectorized(|| wide.iter_mut().for_each(|x| *x = *x * factor));
        T::narrow_into(wide, out);
        if all {
            T::widen_into(out, wide);
            all = finite(wide);
        }
    }
    (out, all)
}

/// Without an early end, which would keep it from being done side by side.
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
            assert_eq!(scaled(&x, 2.0), (vec![f16::from_f32(2.0); len], true));
            for at in [0, len / 2, len.saturating_sub(1)].into_iter().filter(|&at| at < len) {
                for bad in [f16::NAN, f16::INFINITY, f16::NEG_INFINITY] {
                    let mut x = x.clone();
                    x[at] = bad;
                    assert!(!all_finite(&x) && !scaled(&x, 0.5).1, "{bad} at {at} of {len}");
                }
                let mut x = x.clone();
                x[at] = f16::MAX;
                assert!(all_finite(&x) && !scaled(&x, 2.0).1, "what overflows by the factor counts");
            }
        }
    }
}
