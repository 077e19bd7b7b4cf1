//! Gradients as they lie in memory, read as they are meant.

use crate::kernels::{float::Float, simd::vectorized};

/// A gradient that is widened and multiplied when it is read.
pub(crate) trait Gradient<R>: Sync {
    /// How many elements it has.
    fn len(&self) -> usize;
    /// The elements from `start` on, as many as `space` holds. They are written there, unless they are in memory as they are
    /// meant.
    fn read<'s>(&'s self, start: usize, space: &'s mut [R]) -> &'s [R];
}

/// Elements of a format, and two numbers by which each is multiplied; each product is rounded.
pub(crate) struct Multiplied<'a, G: Float> {
    pub grad: &'a [G],
    pub factors: [G::Wide; 2],
}

impl<G: Float> Gradient<G::Wide> for Multiplied<'_, G> {
    fn len(&self) -> usize {
        self.grad.len()
    }

    fn read<'s>(&'s self, start: usize, space: &'s mut [G::Wide]) -> &'s [G::Wide] {
        let grad = &self.grad[start..][..space.len()];
        let one = num_traits::One::one();
        let factors: [G::Wide; 2] = self.factors;
        if factors == [one; 2] {
            return G::widened(grad, space);
        }
        G::widen_into(grad, space);
        let (products, [first, second]) = (&mut *space, factors);
        vectorized(move || {
            for x in products {
                *x = *x * first * second;
            }
        });
        space
    }
}
