//! How the values of a parameter are stored: each kind loads wide numbers and stores what became of them.

use half::bf16;

use super::{
    range::{Range, any_beyond, any_not_finite, keep_finite},
    stochastic::Stream,
};
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

    /// Whether [`whole`](Storage::whole) needs no space, because the wide numbers are in memory.
    fn is_wide(&self) -> bool {
        false
    }

    /// All wide numbers, to be looked at: in memory, or written to `space`.
    ///
    /// # Safety
    /// No one else uses the elements while the slice lives.
    unsafe fn whole<'s>(&'s self, space: &'s mut [R]) -> &'s [R] {
        // SAFETY: the caller's promise.
        unsafe { self.load(0, self.len(), space) }
    }

    /// The wide numbers to be updated: in memory, or written to the beginning of `space`.
    ///
    /// # Safety
    /// No one else uses these elements while the slice lives.
    unsafe fn load<'s>(&'s self, start: usize, len: usize, space: &'s mut [R]) -> &'s mut [R];

    /// Stores what was loaded and updated. An element of a 16-bit value that was finite, and would not stay so, keeps its
    /// old number; `wide` then has that, too. Counts lost updates if asked.
    ///
    /// # Safety
    /// No one else uses these elements meanwhile.
    unsafe fn store(&self, start: usize, wide: &mut [R], count: bool) -> Count;
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

impl<R: Real> Storage<R> for Wide<'_, R> {
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

    unsafe fn store(&self, _start: usize, _wide: &mut [R], _count: bool) -> Count {
        Count::default()
    }
}

/// 16-bit values, each the nearest to the f32 number behind it, its master.
pub(crate) struct WithMaster<'a, T> {
    /// It is written and not read.
    pub value: Place<'a, T>,
    pub master: Place<'a, f32>,
}

impl<T: Range> Storage<f32> for WithMaster<'_, T> {
    fn len(&self) -> usize {
        self.value.len.min(self.master.len)
    }

    fn is_wide(&self) -> bool {
        true
    }

    unsafe fn whole<'s>(&'s self, _space: &'s mut [f32]) -> &'s [f32] {
        // SAFETY: the caller's promise.
        unsafe { self.master.before(0, self.len()) }
    }

    /// A copy, so that the old masters are there until new ones are stored.
    unsafe fn load<'s>(&'s self, start: usize, len: usize, space: &'s mut [f32]) -> &'s mut [f32] {
        let space = &mut space[..len];
        // SAFETY: the caller's promise.
        space.copy_from_slice(unsafe { self.master.before(start, len) });
        space
    }

    unsafe fn store(&self, start: usize, wide: &mut [f32], _count: bool) -> Count {
        // SAFETY: the caller's promise.
        let before = unsafe { self.master.before(start, wide.len()) };
        let infinite = keep_finite::<T>(wide, |i| before[i]);
        // SAFETY: the caller's promise.
        let (value, master) = unsafe { (self.value.after(start, wide.len()), self.master.after(start, wide.len())) };
        T::narrow_into(wide, value);
        master.copy_from_slice(wide);
        Count { infinite, ..Count::default() }
    }
}

/// 16-bit values alone: an update is rounded to the nearest.
pub(crate) struct Rounded<'a, T>(pub Place<'a, T>);

impl<T: Range> Storage<f32> for Rounded<'_, T> {
    fn len(&self) -> usize {
        self.0.len
    }

    unsafe fn load<'s>(&'s self, start: usize, len: usize, space: &'s mut [f32]) -> &'s mut [f32] {
        let space = &mut space[..len];
        // SAFETY: the caller's promise.
        T::widen_into(unsafe { self.0.before(start, len) }, space);
        space
    }

    unsafe fn store(&self, start: usize, wide: &mut [f32], count: bool) -> Count {
        let len = wide.len();
        // The old numbers are gone when new ones are stored, so all that reads them comes first.
        // SAFETY: the caller's promise.
        let before = unsafe { self.0.before(start, len) };
        let infinite = keep_finite::<T>(wide, |i| before[i].widen());
        let wide = &*wide;
        let counted = match count {
            true => vectorized(CountLost {
                wide,
                before: |i: usize| before[i].widen(),
                after: |i: usize| T::narrow(wide[i]).widen(),
            }),
            false => Count::default(),
        };
        // SAFETY: the caller's promise.
        T::narrow_into(wide, unsafe { self.0.after(start, len) });
        Count { infinite, ..counted }
    }
}

/// bf16 values alone: an update is rounded up or down at random.
pub(crate) struct Stochastic<'a> {
    pub value: Place<'a, bf16>,
    pub stream: Stream,
}

impl Storage<f32> for Stochastic<'_> {
    fn len(&self) -> usize {
        self.value.len
    }

    unsafe fn load<'s>(&'s self, start: usize, len: usize, space: &'s mut [f32]) -> &'s mut [f32] {
        let space = &mut space[..len];
        // SAFETY: the caller's promise.
        bf16::widen_into(unsafe { self.value.before(start, len) }, space);
        space
    }

    unsafe fn store(&self, start: usize, wide: &mut [f32], count: bool) -> Count {
        const SOME: usize = crate::kernels::elementwise::BLOCK;
        let mut all = Count::default();
        for (i, wide) in wide.chunks_mut(SOME).enumerate() {
            let (start, mut low) = (start + i * SOME, [bf16::ZERO; SOME]);
            let low = &mut low[..wide.len()];
            self.stream.round(start, wide, low);
            // SAFETY: the caller's promise.
            let before = unsafe { self.value.before(start, wide.len()) };
            // The bits say whether a number is rounded up to infinity.
            if any_not_finite(low) {
                for ((x, low), before) in wide.iter_mut().zip(&mut *low).zip(before) {
                    if !low.is_finite() && before.is_finite() {
                        (*x, *low) = (before.widen(), *before);
                        all.infinite += 1;
                    }
                }
            }
            if count {
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

    unsafe fn store(&self, start: usize, wide: &mut [f32], count: bool) -> Count {
        let len = wide.len();
        let (mut counted, mut kept) = (Count::default(), Vec::new());
        if any_beyond::<bf16>(wide) {
            // SAFETY: the caller's promise.
            let (value, rest) = unsafe { (self.value.before(start, len), self.compensation.before(start, len)) };
            for (i, x) in wide.iter_mut().enumerate() {
                if !bf16::narrow(*x).is_finite() && value[i].is_finite() {
                    *x = value[i].widen() + rest[i].widen();
                    kept.push((i, value[i], rest[i]));
                }
            }
        }
        let wide = &*wide;
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
            for ((x, v), c) in wide.iter().zip(value.iter_mut()).zip(rest.iter_mut()) {
                [*v, *c] = in_two(*x);
            }
        });
        // The sum of two could be cut elsewhere.
        for &(i, v, c) in &kept {
            (value[i], rest[i]) = (v, c);
        }
        Count { infinite: kept.len() as u64, ..counted }
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
        let [value, rest] = in_two(f32::NAN);
        assert!(value.is_nan() && rest == bf16::ZERO);
    }
}
