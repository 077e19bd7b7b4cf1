//! How the values of a parameter are stored: each kind loads wide numbers and stores what became of them.

use half::bf16;

use super::{stochastic::Stream, values::Bounded};
use crate::kernels::{
    float::{Float, Real},
    simd::{Body, vectorized},
    threads::Shared,
};

/// What became of the elements of a parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Count {
    /// Elements that an update would have made infinite or NaN. They keep the numbers that they had.
    pub infinite: u64,
    /// Elements with an update other than 0, where that is counted.
    pub updates: u64,
    /// Those of them of which the stored value did not change.
    pub lost: u64,
}

impl Count {
    pub fn and(self, other: Count) -> Count {
        Count {
            infinite: self.infinite + other.infinite,
            updates: self.updates + other.updates,
            lost: self.lost + other.lost,
        }
    }
}

/// The values of a parameter.
pub(crate) trait Storage<R>: Sync {
    /// How many there are.
    fn len(&self) -> usize;

    /// The least size of a number that may become infinite when it is stored.
    fn beyond(&self) -> R;

    /// Whether [`load`](Storage::load) needs no space, because the wide numbers are in memory.
    fn is_wide(&self) -> bool {
        false
    }

    /// The wide numbers to be updated: in memory, or written to the beginning of `space`.
    ///
    /// # Safety
    /// No one else uses these elements while the slice lives.
    unsafe fn load<'s>(&'s self, start: usize, len: usize, space: &'s mut [R]) -> &'s mut [R];

    /// Stores what was loaded and updated. Counts lost updates if asked.
    ///
    /// # Safety
    /// No one else uses these elements meanwhile.
    unsafe fn store(&self, start: usize, wide: &[R], count: bool) -> Count;
}

/// Elements to be replaced. Where somebody else holds the memory, these are `old`, and new memory is written.
pub(crate) struct Place<'a, T> {
    old: Option<&'a [T]>,
    new: Shared<'a, T>,
    len: usize,
}

impl<'a, T: Copy> Place<'a, T> {
    pub fn new(old: Option<&'a [T]>, new: &'a mut [T]) -> Self {
        assert!(old.is_none_or(|old| old.len() == new.len()), "slices of one length");
        Place { old, len: new.len(), new: Shared::new(new) }
    }

    /// # Safety
    /// No one else writes these elements while the slice lives.
    #[inline(always)]
    unsafe fn before(&self, start: usize, len: usize) -> &[T] {
        match self.old {
            Some(old) => &old[start..][..len],
            // SAFETY: the caller's promise.
            None => unsafe { self.new.part(start, len) },
        }
    }

    /// # Safety
    /// No one else uses these elements while the slice lives.
    #[inline(always)]
    unsafe fn after(&self, start: usize, len: usize) -> &'a mut [T] {
        // SAFETY: the caller's promise.
        unsafe { self.new.part(start, len) }
    }

    /// The elements, copied to the new memory where there is any.
    ///
    /// # Safety
    /// No one else uses these elements while the slice lives.
    unsafe fn in_place(&self, start: usize, len: usize) -> &'a mut [T] {
        // SAFETY: the caller's promise.
        let part = unsafe { self.after(start, len) };
        if let Some(old) = self.old {
            part.copy_from_slice(&old[start..][..len]);
        }
        part
    }
}

/// Values in the dtype of the arithmetic.
pub(crate) struct Wide<'a, R>(pub Place<'a, R>);

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
        // SAFETY: the caller's promise.
        unsafe { self.0.in_place(start, len) }
    }

    unsafe fn store(&self, _start: usize, _wide: &[R], _count: bool) -> Count {
        Count::default()
    }
}

/// 16-bit values, each the nearest to the f32 number behind it, its master.
pub(crate) struct WithMaster<'a, T> {
    /// It is written and not read.
    pub value: Place<'a, T>,
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
        // SAFETY: the caller's promise.
        unsafe { self.master.in_place(start, len) }
    }

    unsafe fn store(&self, start: usize, wide: &[f32], _count: bool) -> Count {
        // SAFETY: the caller's promise.
        T::narrow_into(wide, unsafe { self.value.after(start, wide.len()) });
        Count::default()
    }
}

/// 16-bit values alone: an update is rounded to the nearest.
pub(crate) struct Rounded<'a, T>(pub Place<'a, T>);

impl<T: Bounded<Wide = f32>> Storage<f32> for Rounded<'_, T> {
    fn beyond(&self) -> f32 {
        T::BEYOND
    }

    fn len(&self) -> usize {
        self.0.len
    }

    unsafe fn load<'s>(&'s self, start: usize, len: usize, space: &'s mut [f32]) -> &'s mut [f32] {
        let space = &mut space[..len];
        // SAFETY: the caller's promise.
        T::widen_into(unsafe { self.0.before(start, len) }, space);
        space
    }

    unsafe fn store(&self, start: usize, wide: &[f32], count: bool) -> Count {
        let len = wide.len();
        // The old numbers are gone when they are stored, so updates are counted first.
        let counted = if count {
            // SAFETY: the caller's promise.
            let before = unsafe { self.0.before(start, len) };
            vectorized(CountLost {
                wide,
                before: |i: usize| before[i].widen(),
                after: |i: usize| T::narrow(wide[i]).widen(),
            })
        } else {
            Count::default()
        };
        // SAFETY: the caller's promise.
        T::narrow_into(wide, unsafe { self.0.after(start, len) });
        counted
    }
}

/// bf16 values alone: an update is rounded up or down at random.
pub(crate) struct Stochastic<'a> {
    pub value: Place<'a, bf16>,
    pub stream: Stream,
}

impl Storage<f32> for Stochastic<'_> {
    /// What is above the largest number may be rounded up.
    fn beyond(&self) -> f32 {
        bf16::MAX.to_f32().next_up()
    }

    fn len(&self) -> usize {
        self.value.len
    }

    unsafe fn load<'s>(&'s self, start: usize, len: usize, space: &'s mut [f32]) -> &'s mut [f32] {
        let space = &mut space[..len];
        // SAFETY: the caller's promise.
        bf16::widen_into(unsafe { self.value.before(start, len) }, space);
        space
    }

    unsafe fn store(&self, start: usize, wide: &[f32], count: bool) -> Count {
        const SOME: usize = crate::kernels::elementwise::BLOCK;
        let mut all = Count::default();
        for (i, wide) in wide.chunks(SOME).enumerate() {
            let (start, mut low) = (start + i * SOME, [bf16::ZERO; SOME]);
            let low = &mut low[..wide.len()];
            self.stream.round(start, wide, low);
            if count {
                // SAFETY: the caller's promise.
                let before = unsafe { self.value.before(start, wide.len()) };
                let some = vectorized(CountLost {
                    wide,
                    before: |i: usize| before[i].widen(),
                    after: |i: usize| low[i].widen(),
                });
                all = all.and(some);
            }
            // SAFETY: the caller's promise.
            unsafe { self.value.after(start, wide.len()) }.copy_from_slice(low);
        }
        all
    }
}

/// bf16 values, each with a bf16 number that says what rounding left out: Kahan's compensation.
///
/// The number is the sum of the two. It is updated in f32; the value is the nearest to the result, and the compensation the
/// nearest to what is then missing.
pub(crate) struct Kahan<'a> {
    pub value: Place<'a, bf16>,
    pub compensation: Place<'a, bf16>,
}

impl Storage<f32> for Kahan<'_> {
    /// Less than for a value alone, so that a compensation that is rounded up does not take the sum of both there.
    fn beyond(&self) -> f32 {
        f32::from_bits(0x7f7f_7fc0)
    }

    fn len(&self) -> usize {
        self.value.len.min(self.compensation.len)
    }

    unsafe fn load<'s>(&'s self, start: usize, len: usize, space: &'s mut [f32]) -> &'s mut [f32] {
        let space = &mut space[..len];
        // SAFETY: the caller's promise.
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
            // SAFETY: the caller's promise.
            let (value, rest) = unsafe { (self.value.before(start, len), self.compensation.before(start, len)) };
            // A sum that stays is lost, in whichever way its two parts are cut.
            counted = vectorized(CountLost {
                wide,
                before: |i: usize| value[i].widen() + rest[i].widen(),
                after: |i: usize| {
                    let [v, c] = in_two(wide[i]);
                    v.widen() + c.widen()
                },
            });
        }
        // SAFETY: the caller's promise.
        let (value, rest) = unsafe { (self.value.after(start, len), self.compensation.after(start, len)) };
        vectorized(|| {
            for ((x, v), c) in wide.iter().zip(value).zip(rest) {
                [*v, *c] = in_two(*x);
            }
        });
        counted
    }
}

/// The nearest bf16, and the nearest to what is missing; nothing is missing of what is not finite.
#[inline(always)]
fn in_two(x: f32) -> [bf16; 2] {
    let value = bf16::narrow(x);
    let missing = x - value.widen();
    [value, if missing.is_finite() { bf16::narrow(missing) } else { bf16::ZERO }]
}

/// Compares the numbers before an update, after it, and after they were stored.
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
