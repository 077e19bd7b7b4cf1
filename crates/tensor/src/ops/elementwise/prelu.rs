//! Rectifier with a learned slope.

use precast_kernels::{elementwise::Binary, float::Real};

use crate::{
    Op, Tensor,
    error::{Error, Result},
    ops::{
        Reduction, call,
        elementwise::{pairwise::pairwise_as, unary::part},
    },
};

#[derive(Clone, Copy)]
struct Prelu;

impl Binary for Prelu {
    const FLAT: bool = true;
    #[inline(always)]
    fn value<R: Real>(self, x: R, w: R) -> R {
        if x <= R::zero() { part(w, x) } else { x }
    }
    #[inline(always)]
    fn slopes<R: Real>(self, x: R, w: R) -> (R, R) {
        if x <= R::zero() { (w, x) } else { (R::one(), R::zero()) }
    }
}

impl Tensor {
    /// Returns `x` where it is positive, `weight * x` elsewhere. `weight` is `[1]`, or has one element per channel
    /// (axis 1).
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the weight has another shape,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the dtypes differ and no policy casts them.
    pub fn prelu(&self, weight: &Tensor) -> Result<Tensor> {
        let (shape, channels) = (self.shape(), self.shape().get(1).copied().unwrap_or(1));
        if weight.shape() != [1] && weight.shape() != [channels] {
            let message = format!("a weight of shape {:?} for {shape:?}; allowed: [1] or [{channels}]", weight.shape());
            return Err(Error::shape(message).in_op(Op::Prelu.name()));
        }
        // Along axis 1, not the last.
        let mut seen = vec![1; self.rank().saturating_sub(1)];
        if let Some(first) = seen.first_mut() {
            *first = weight.len();
        }
        pairwise_as(call!(Op::Prelu, &[self, weight]), &seen, Prelu, Reduction::None)
    }
}
