//! Stored gradients, widened and multiplied on reading.

use super::values::{Values, kept};
use crate::{
    arrays::array_of,
    float::{Float, Real},
    simd::Body,
};

/// A gradient that is widened when it is read.
pub trait Gradient<R: Real>: Sync {
    /// Returns the number of elements.
    fn len(&self) -> usize;
    /// Returns the wide elements from `start`, as many as `space` holds, not multiplied yet. They are written to
    /// `space`, unless they are wide in memory.
    fn read<'s>(&'s self, start: usize, space: &'s mut [R]) -> Multiplied<'s, R>;
    /// Returns all elements, wide and multiplied. They are written to `space`, unless they have that form in memory.
    fn products<'s>(&'s self, space: &'s mut [R]) -> &'s [R];
}

/// Elements of a format, and two factors for each; each product is rounded.
#[derive(Clone, Copy)]
pub struct Multiplied<'a, G: Float> {
    /// Elements.
    pub grad: &'a [G],
    /// Factors, applied one after the other.
    pub factors: [G::Wide; 2],
}

impl<G: Float> Gradient<G::Wide> for Multiplied<'_, G> {
    fn len(&self) -> usize {
        self.grad.len()
    }

    fn read<'s>(&'s self, start: usize, space: &'s mut [G::Wide]) -> Multiplied<'s, G::Wide> {
        Multiplied { grad: G::widened(&self.grad[start..][..space.len()], space), factors: self.factors }
    }

    fn products<'s>(&'s self, space: &'s mut [G::Wide]) -> &'s [G::Wide] {
        let [first, second] = self.factors;
        if [first, second] == [num_traits::One::one(); 2] {
            return G::widened(self.grad, space);
        }
        G::widen_into(self.grad, space);
        let products = &mut *space;
        G::Wide::vectorized(move || {
            for x in products {
                *x = *x * first * second;
            }
        });
        space
    }
}

/// Runs the loop of a formula. `f` takes the value of an element, its gradient and its running averages, and returns
/// the new value and averages. A value that would exceed the range of its format is unchanged; its averages are
/// updated. An element with an average that would not be finite is unchanged as a whole, and counted with these.
///
/// All numbers of an element are loaded before one is stored. In memory that is not aligned to a vector, a load that
/// follows a store to the same bytes waits for it; Adam took 1.6 times as long.
#[inline(always)]
pub fn each<R: Real, const N: usize>(
    value: &mut Values<'_, R>,
    grad: Multiplied<'_, R>,
    moments: [&mut [R]; N],
    f: impl Fn(R, R, [R; N]) -> (R, [R; N]),
) {
    value.count(0..value.len(), |value, beyond| R::vectorized(Each { value, beyond, grad, moments, f }));
}

struct Each<'a, R: Real, const N: usize, F> {
    value: &'a mut [R],
    beyond: R,
    grad: Multiplied<'a, R>,
    moments: [&'a mut [R]; N],
    f: F,
}

impl<R: Real, const N: usize, F: Fn(R, R, [R; N]) -> (R, [R; N])> Body for Each<'_, R, N, F> {
    type Output = u64;
    #[inline(always)]
    fn run(self) -> u64 {
        let Each { value, beyond, grad: Multiplied { grad, factors: [first, second] }, moments, f } = self;
        // Slices of one length, so that the loop has no bounds checks.
        let len = value.len();
        let grad = &grad[..len];
        let mut moments = moments.map(|moment| &mut moment[..len]);
        let mut infinite = 0;
        for i in 0..len {
            let before = array_of(|k| moments[k][i]);
            let (after, new) = f(value[i], grad[i] * first * second, before);
            // 0, or NaN if an average is not finite.
            let zero = new.iter().fold(R::zero(), |zero, &new| zero + new * R::zero());
            let (after, stays) = kept(value[i], if zero == R::zero() { after } else { zero }, beyond);
            value[i] = after;
            infinite += stays;
            for ((moment, new), before) in moments.iter_mut().zip(new).zip(before) {
                moment[i] = if zero == R::zero() { new } else { before };
            }
        }
        infinite.into()
    }
}
