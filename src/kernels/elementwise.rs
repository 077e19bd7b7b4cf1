//! Functions of one or two elements at a time.

use super::{
    buffers::take,
    simd::{self, Kernel, Lanes, Vector},
    threads,
};
use crate::dtype::{Float, Real};

/// What a backward pass reads of the forward pass. The rest need not be kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Nothing,
    Input,
    Output,
}

/// A differentiable function of one number.
pub(crate) trait Unary: Copy + Send + Sync + 'static {
    /// What [`slope`](Unary::slope) is given.
    const KEPT: Kept;
    /// f(x).
    fn value<R: Real>(self, x: R) -> R;
    /// f'(x), given x or f(x) as [`KEPT`](Unary::KEPT) says.
    fn slope<R: Real>(self, kept: R) -> R;
}

/// Elements that are widened, computed and rounded at a time, so that what lies between stays in the nearest cache.
pub(crate) const BLOCK: usize = 1024;

/// `out[i] = f(x[i])`, one rounding.
pub(crate) fn unary<T: Float, F: Unary>(f: F, x: &[T]) -> Vec<T> {
    in_blocks([x], |[x]| {
        for x in x {
            *x = f.value(*x);
        }
    })
}

/// `out[i] = grad[i] * f'(x[i])`, one rounding. `kept` is x or y as `F::KEPT` says.
pub(crate) fn unary_backward<T: Float, F: Unary>(f: F, kept: &[T], grad: &[T]) -> Vec<T> {
    if F::KEPT == Kept::Nothing {
        let slope = f.slope(T::Wide::of(0.0));
        return in_blocks([grad], |[grad]| {
            for grad in grad {
                *grad = *grad * slope;
            }
        });
    }
    in_blocks([grad, kept], |[grad, kept]| {
        for (grad, kept) in grad.iter_mut().zip(kept) {
            *grad = *grad * f.slope(*kept);
        }
    })
}

/// About how many multiplications an element takes the time of.
const WORK: usize = 8;

/// Calls `f` with blocks of widened slices of one length; what it leaves in the first of them is the result, rounded once.
/// `f` treats each place by itself: a block may be longer than what is left of the slices.
pub(crate) fn in_blocks<T: Float, const N: usize>(
    slices: [&[T]; N],
    f: impl Fn([&mut [T::Wide]; N]) + Copy + Sync,
) -> Vec<T> {
    let mut out = take(slices[0].len());
    assert!(slices.iter().all(|slice| slice.len() == out.len()), "slices of one length");
    let work = out.len() * WORK;
    threads::together(&mut out, &mut [] as &mut [&mut [T]], work, |range, out, _| {
        T::in_blocks(slices.map(|slice| &slice[range.start..][..out.len()]), out, f);
    });
    out
}

/// Elements that go from memory through registers to memory together.
const GROUP: usize = 64;

/// [`in_blocks`] with vectors where there are any.
pub(crate) fn in_groups<T: Lanes, const N: usize>(
    slices: [&[T]; N],
    out: &mut [T],
    f: impl Fn([&mut [f32]; N]) + Copy,
) {
    if let Err(groups) = simd::run(Groups { slices, out, f }) {
        by_copies(groups.slices, groups.out, groups.f);
    }
}

struct Groups<'a, T, F, const N: usize> {
    slices: [&'a [T]; N],
    out: &'a mut [T],
    f: F,
}

impl<T: Lanes, F: Fn([&mut [f32]; N]) + Copy, const N: usize> Kernel for Groups<'_, T, F, N> {
    type Output = ();

    // SAFETY: reads and writes whole groups, inside the slices or in copies of a group's size.
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Groups { slices, out, f } = self;
        let len = out.len();
        let (mut rest, mut rest_out) = ([[T::default(); GROUP]; N], [T::default(); GROUP]);
        for start in (0..len).step_by(GROUP) {
            let some = GROUP.min(len - start);
            let mut wide = [[0f32; GROUP]; N];
            for n in 0..N {
                let mut from = slices[n][start..].as_ptr();
                if some < GROUP {
                    rest[n][..some].copy_from_slice(&slices[n][start..]);
                    from = rest[n].as_ptr();
                }
                for i in (0..GROUP).step_by(V::LANES) {
                    // SAFETY: `from` has a whole group, and so has `wide`.
                    unsafe { V::store_f32(T::load(from.add(i)), wide[n].as_mut_ptr().add(i)) };
                }
            }
            f(wide.each_mut().map(|wide| &mut wide[..]));
            let to = if some < GROUP { rest_out.as_mut_ptr() } else { out[start..].as_mut_ptr() };
            for i in (0..GROUP).step_by(V::LANES) {
                // SAFETY: as above.
                unsafe { T::store(V::load_f32(wide[0].as_ptr().add(i)), to.add(i)) };
            }
            if some < GROUP {
                out[start..].copy_from_slice(&rest_out[..some]);
            }
        }
    }
}

/// The twin of [`in_groups`], and [`in_blocks`] of f64: blocks are copied widened.
pub(crate) fn by_copies<T: Float, const N: usize>(
    slices: [&[T]; N],
    out: &mut [T],
    f: impl Fn([&mut [T::Wide]; N]) + Copy,
) {
    let mut wide = [[T::Wide::default(); BLOCK]; N];
    for start in (0..out.len()).step_by(BLOCK) {
        let block = BLOCK.min(out.len() - start);
        let mut parts = wide.each_mut().map(|wide| &mut wide[..block]);
        for (part, slice) in parts.iter_mut().zip(slices) {
            T::widen_into(&slice[start..start + block], part);
        }
        f(parts);
        T::narrow_into(&wide[0][..block], &mut out[start..start + block]);
    }
}

/// A differentiable function of two numbers.
pub(crate) trait Binary: Copy + Send + Sync + 'static {
    /// Whether the slopes are constants, so that nothing need be kept.
    const CONSTANT_SLOPES: bool = false;
    /// f(a, b).
    fn value<R: Real>(self, a: R, b: R) -> R;
    /// The two partial derivatives.
    fn slopes<R: Real>(self, a: R, b: R) -> (R, R);
    /// f of two integers, exact but for wrapping; `None` where integers have no such function.
    fn integer(self, _a: i64, _b: i64) -> Option<i64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::kernels::math;

    /// Every width that the machine has against the twin, bit for bit.
    fn check<T: Lanes>(x: &[T]) {
        let reversed: Vec<T> = x.iter().rev().copied().collect();
        let f = |[a, b]: [&mut [f32]; 2]| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a = if *a <= 0.0 { math::exp(*b) - *a } else { *a * *b });
        };
        let slices = [x, &reversed];
        let mut want = vec![T::default(); x.len()];
        by_copies(slices, &mut want, f);
        for width in simd::widths() {
            let mut out = vec![T::default(); x.len()];
            assert!(simd::run_with(width, Groups { slices, out: &mut out, f }).is_ok());
            for (i, (got, want)) in out.iter().zip(&want).enumerate() {
                // Which of two NaN a product is, the compiler may choose.
                let same =
                    got.widen().to_bits() == want.widen().to_bits() || got.widen().is_nan() && want.widen().is_nan();
                assert!(same, "element {i} of {}, {width:?}: {got:?}, {want:?}", x.len());
            }
        }
    }

    #[test]
    fn groups_are_as_blocks_at_every_length() {
        for len in (0..200).chain([1023, 1024, 1025, 5000]) {
            let x: Vec<f32> = (0..len).map(|i| (i as f32 - 90.5) * 0.037).collect();
            check(&x);
            check(&x.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>());
            check(&x.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn groups_are_as_blocks_for_every_16_bit_number() {
        check(&(0..=u16::MAX).map(f16::from_bits).collect::<Vec<_>>());
        check(&(0..=u16::MAX).map(bf16::from_bits).collect::<Vec<_>>());
    }
}
