//! Storage formats of a parameter's values: each loads wide numbers and stores the updated ones.

use half::bf16;

use precast_lowbit::Stream;

use super::{stochastic, values::Bounded};
use crate::{
    float::{Float, Real},
    simd::{Body, vectorized},
    threads::Shared,
};

/// Counts of the effects of an update on the elements of a parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    /// Elements that an update would have made infinite or NaN. They keep their numbers.
    pub infinite: u64,
    /// Elements with a nonzero update, if counted.
    pub updates: u64,
    /// Those whose stored value did not change.
    pub lost: u64,
}

impl Count {
    /// Returns the sum of two counts.
    pub fn and(self, other: Count) -> Count {
        Count {
            infinite: self.infinite + other.infinite,
            updates: self.updates + other.updates,
            lost: self.lost + other.lost,
        }
    }
}

/// Values of a parameter.
pub trait Storage<R>: Sync {
    /// Returns the number of values.
    fn len(&self) -> usize;

    /// Returns the smallest magnitude of a number that may become infinite when stored.
    fn beyond(&self) -> R;

    /// Returns whether [`load`](Storage::load) needs no space, because the wide numbers are in memory.
    fn is_wide(&self) -> bool {
        false
    }

    /// Returns the wide numbers to be updated: in memory, or written to the beginning of `space`.
    ///
    /// # Safety
    /// These elements are not accessed elsewhere while the slice lives.
    unsafe fn load<'s>(&'s self, start: usize, len: usize, space: &'s mut [R]) -> &'s mut [R];

    /// Stores numbers that were loaded and updated. Counts lost updates if requested.
    ///
    /// # Safety
    /// These elements are not accessed elsewhere meanwhile.
    unsafe fn store(&self, start: usize, wide: &[R], count: bool) -> Count;
}

/// Elements to be replaced. If the memory is shared, these are `old`, and new memory is written.
pub struct Place<'a, T> {
    old: Option<&'a [T]>,
    new: Shared<'a, T>,
    len: usize,
}

impl<'a, T: Copy> Place<'a, T> {
    /// Takes the elements `new`, or `old` with memory for as many.
    pub fn new(old: Option<&'a [T]>, new: &'a mut [T]) -> Self {
        assert!(old.is_none_or(|old| old.len() == new.len()), "slices of one length");
        Place { old, len: new.len(), new: Shared::new(new) }
    }

    /// # Safety
    /// These elements are not written elsewhere while the slice lives.
    #[inline(always)]
    unsafe fn before(&self, start: usize, len: usize) -> &[T] {
        match self.old {
            Some(old) => &old[start..][..len],
            // SAFETY: guaranteed by the caller.
            None => unsafe { self.new.part(start, len) },
        }
    }

    /// # Safety
    /// These elements are not accessed elsewhere while the slice lives.
    #[inline(always)]
    unsafe fn after(&self, start: usize, len: usize) -> &'a mut [T] {
        // SAFETY: guaranteed by the caller.
        unsafe { self.new.part(start, len) }
    }

    /// Returns the elements, copied to the new memory if there is any.
    ///
    /// # Safety
    /// These elements are not accessed elsewhere while the slice lives.
    unsafe fn in_place(&self, start: usize, len: usize) -> &'a mut [T] {
        // SAFETY: guaranteed by the caller.
        let part = unsafe { self.after(start, len) };
        if let Some(old) = self.old {
            part.copy_from_slice(&old[start..][..len]);
        }
        part
    }
}

/// Values in the dtype of the arithmetic.
pub struct Wide<'a, R>(pub Place<'a, R>);

impl<R: Real + Bounded> Storage<R> for Wide<'_, R> {
    fn beyond(&self) -> R {
        R::BEYOND
    }

    fn len(&self) -> usize {
        self.0.len
    }

    fn is_wide(&self) -> bool {
        true
    }

    unsafe fn load<'s>(&'s self, start: usize, len: usize, _space: &'s mut [R]) -> &'s mut [R] {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.in_place(start, len) }
    }

    unsafe fn store(&self, _start: usize, _wide: &[R], _count: bool) -> Count {
        Count::default()
    }
}

/// 16-bit values, each rounded to nearest from its f32 master.
pub struct WithMaster<'a, T> {
    /// Written and not read.
    pub value: Place<'a, T>,
    /// f32 masters.
    pub master: Place<'a, f32>,
}

impl<T: Bounded<Wide = f32>> Storage<f32> for WithMaster<'_, T> {
    fn beyond(&self) -> f32 {
        T::BEYOND
    }

    fn len(&self) -> usize {
        self.value.len.min(self.master.len)
    }

    fn is_wide(&self) -> bool {
        true
    }

    unsafe fn load<'s>(&'s self, start: usize, len: usize, _space: &'s mut [f32]) -> &'s mut [f32] {
        // SAFETY: guaranteed by the caller.
        unsafe { self.master.in_place(start, len) }
    }

    unsafe fn store(&self, start: usize, wide: &[f32], _count: bool) -> Count {
        // SAFETY: guaranteed by the caller.
        T::narrow_into(wide, unsafe { self.value.after(start, wide.len()) });
        Count::default()
    }
}

/// 16-bit values alone: an update is rounded to nearest.
pub struct Rounded<'a, T>(pub Place<'a, T>);

impl<T: Bounded<Wide = f32>> Storage<f32> for Rounded<'_, T> {
    fn beyond(&self) -> f32 {
        T::BEYOND
    }

    fn len(&self) -> usize {
        self.0.len
    }

    unsafe fn load<'s>(&'s self, start: usize, len: usize, space: &'s mut [f32]) -> &'s mut [f32] {
        let space = &mut space[..len];
        // SAFETY: guaranteed by the caller.
        T::widen_into(unsafe { self.0.before(start, len) }, space);
        space
    }

    unsafe fn store(&self, start: usize, wide: &[f32], count: bool) -> Count {
        let len = wide.len();
        // The old numbers are overwritten by storing, so updates are counted first.
        let counted = if count {
            // SAFETY: guaranteed by the caller.
            let before = unsafe { self.0.before(start, len) };
            vectorized(CountLost {
                wide,
                before: |i: usize| before[i].widen(),
                after: |i: usize| T::narrow(wide[i]).widen(),
            })
        } else {
            Count::default()
        };
        // SAFETY: guaranteed by the caller.
        T::narrow_into(wide, unsafe { self.0.after(start, len) });
        counted
    }
}

/// bf16 values alone: an update is rounded up or down at random.
pub struct Stochastic<'a> {
    /// Values.
    pub value: Place<'a, bf16>,
    /// Random bits.
    pub stream: Stream,
}

impl Storage<f32> for Stochastic<'_> {
    /// Numbers above the largest one may be rounded up.
    fn beyond(&self) -> f32 {
        bf16::MAX.to_f32().next_up()
    }

    fn len(&self) -> usize {
        self.value.len
    }

    unsafe fn load<'s>(&'s self, start: usize, len: usize, space: &'s mut [f32]) -> &'s mut [f32] {
        let space = &mut space[..len];
        // SAFETY: guaranteed by the caller.
        bf16::widen_into(unsafe { self.value.before(start, len) }, space);
        space
    }

    unsafe fn store(&self, start: usize, wide: &[f32], count: bool) -> Count {
        const SOME: usize = crate::elementwise::BLOCK;
        let mut all = Count::default();
        for (i, wide) in wide.chunks(SOME).enumerate() {
            let (start, mut low) = (start + i * SOME, [bf16::ZERO; SOME]);
            let low = &mut low[..wide.len()];
            stochastic::round(self.stream, start, wide, low);
            if count {
                // SAFETY: guaranteed by the caller.
                let before = unsafe { self.value.before(start, wide.len()) };
                let some = vectorized(CountLost {
                    wide,
                    before: |i: usize| before[i].widen(),
                    after: |i: usize| low[i].widen(),
                });
                all = all.and(some);
            }
            // SAFETY: guaranteed by the caller.
            unsafe { self.value.after(start, wide.len()) }.copy_from_slice(low);
        }
        all
    }
}

/// bf16 values, each with a bf16 compensation for the rounding error: Kahan's compensation.
///
/// The number is the sum of the two. It is updated in f32; the value is the result rounded to nearest, and the
/// compensation is the remainder rounded to nearest.
pub struct Kahan<'a> {
    /// Values.
    pub value: Place<'a, bf16>,
    /// Compensations.
    pub compensation: Place<'a, bf16>,
}

impl Storage<f32> for Kahan<'_> {
    /// Less than for a value alone, so that rounding up the compensation does not bring the sum of both there.
    fn beyond(&self) -> f32 {
        f32::from_bits(0x7f7f_7fc0)
    }

    fn len(&self) -> usize {
        self.value.len.min(self.compensation.len)
    }

    unsafe fn load<'s>(&'s self, start: usize, len: usize, space: &'s mut [f32]) -> &'s mut [f32] {
        let space = &mut space[..len];
        // SAFETY: guaranteed by the caller.
        let (value, rest) = unsafe { (self.value.before(start, len), self.compensation.before(start, len)) };
        vectorized(|| {
            for ((x, v), c) in space.iter_mut().zip(value).zip(rest) {
                *x = v.widen() + c.widen();
            }
        });
        space
    }

    unsafe fn store(&self, start: usize, wide: &[f32], count: bool) -> Count {
        let len = wide.len();
        let mut counted = Count::default();
        if count {
            // SAFETY: guaranteed by the caller.
            let (value, rest) = unsafe { (self.value.before(start, len), self.compensation.before(start, len)) };
            // A sum that does not change is lost, however it is split into two parts.
            counted = vectorized(CountLost {
                wide,
                before: |i: usize| value[i].widen() + rest[i].widen(),
                after: |i: usize| {
                    let [v, c] = in_two(wide[i]);
                    v.widen() + c.widen()
                },
            });
        }
        // SAFETY: guaranteed by the caller.
        let (value, rest) = unsafe { (self.value.after(start, len), self.compensation.after(start, len)) };
        vectorized(|| {
            for ((x, v), c) in wide.iter().zip(value).zip(rest) {
                [*v, *c] = in_two(*x);
            }
        });
        counted
    }
}

/// Returns the nearest bf16, and that nearest to the remainder, which is 0 for non-finite numbers.
#[inline(always)]
fn in_two(x: f32) -> [bf16; 2] {
    let value = bf16::narrow(x);
    let missing = x - value.widen();
    [value, if missing.is_finite() { bf16::narrow(missing) } else { bf16::ZERO }]
}

/// Comparison of the numbers before an update, after it, and after storing.
struct CountLost<'a, B, A> {
    wide: &'a [f32],
    before: B,
    after: A,
}

impl<B: Fn(usize) -> f32, A: Fn(usize) -> f32> Body for CountLost<'_, B, A> {
    type Output = Count;
    #[inline(always)]
    fn run(self) -> Count {
        let (mut updates, mut lost) = (0, 0);
        for (i, &wide) in self.wide.iter().enumerate() {
            let before = (self.before)(i);
            updates += u32::from(wide != before);
            lost += u32::from(wide != before && (self.after)(i) == before);
        }
        Count { infinite: 0, updates: updates.into(), lost: lost.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_sum_of_two() {
        for x in [0.0f32, 1.0, 1.0 + 1.0 / 256.0, -5.123_456, 1e-30, 65504.3, 3.3e38, f32::MIN_POSITIVE] {
            let [value, rest] = in_two(x);
            assert_eq!(value, bf16::from_f32(x));
            let error = (f64::from(x) - f64::from(value.to_f32()) - f64::from(rest.to_f32())).abs();
            assert!(error <= f64::from(x.abs()) * 2f64.powi(-17), "{x}: {error}");
        }
        assert_eq!(in_two(f32::INFINITY), [bf16::INFINITY, bf16::ZERO]);
        // The largest number that Kahan's pair may hold, and the first beyond: its compensation would be half a unit.
        let beyond = f32::from_bits(0x7f7f_7fc0);
        let sum = |x: f32| in_two(x).map(bf16::to_f32).iter().sum::<f32>();
        assert!(sum(beyond.next_down()) < bf16::BEYOND && sum(beyond) == bf16::BEYOND);
        let [value, rest] = in_two(f32::NAN);
        assert!(value.is_nan() && rest == bf16::ZERO);
    }
}
