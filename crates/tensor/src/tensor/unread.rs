//! Results that no kernel has computed yet. An op that reads one may compute it within its own pass over memory; for all
//! others it is computed on first read.
//!
//! No result is left unread while somebody listens, so observers receive every op as it runs alone. A recorder notes ops
//! without their numbers, and is none of these.

use std::sync::Arc;

use half::{bf16, f16};
use precast_kernels::{elementwise::Masked, float::Float, reduce::channels::Channels};

use super::{Array, Coded, Stored, Tensor, context, elements, tape::Place};
use crate::DType;

/// A result that is still to be computed.
#[derive(Clone)]
pub(crate) enum Unread {
    Norm(UnreadNorm),
    Masked(UnreadMask),
    Coded(Coded),
}

/// Channels normalized by known statistics, and rounded to a dtype; plus a tensor of that dtype, if any.
#[derive(Clone)]
pub(crate) struct UnreadNorm {
    x: Tensor,
    channels: Arc<Channels>,
    dtype: DType,
    plus: Option<Tensor>,
}

/// The gradient of a ReLU's input: that of its result, or 0 where the result is 0.
#[derive(Clone)]
pub(crate) struct UnreadMask {
    pub grad: Tensor,
    /// The result.
    pub kept: Tensor,
}

impl UnreadNorm {
    /// Creates the result, in a dtype as wide as that of `least` or wider, of normalizing its numbers.
    pub fn new(least: &Tensor, dtype: DType, channels: Channels) -> Self {
        UnreadNorm { x: least.detach(), channels: Arc::new(channels), dtype, plus: None }
    }

    /// Computes the result, followed by ReLU if asked for.
    pub fn compute(&self, relu: bool) -> Array {
        match self.x.dtype() {
            DType::F16 => self.compute_from::<f16>(relu),
            DType::Bf16 => self.compute_from::<bf16>(relu),
            _ => self.compute_from::<f32>(relu),
        }
    }

    fn compute_from<X: Stored + Float<Wide = f32>>(&self, relu: bool) -> Array {
        match self.dtype {
            DType::F16 => self.compute_in::<X, f16>(relu),
            DType::Bf16 => self.compute_in::<X, bf16>(relu),
            _ => self.compute_in::<X, f32>(relu),
        }
    }

    fn compute_in<X: Stored + Float<Wide = f32>, T: Stored + Float<Wide = f32>>(&self, relu: bool) -> Array {
        let plus = self.plus.as_ref().map(elements::<T>);
        let y = self.channels.of::<X, T>(&elements(&self.x), plus.as_deref(), relu);
        Array::from_vec(y, self.x.shape()).expect("one element for each")
    }
}

impl Unread {
    pub fn dtype(&self) -> DType {
        match self {
            Unread::Norm(norm) => norm.dtype,
            Unread::Masked(mask) => mask.grad.dtype(),
            Unread::Coded(coded) => coded.dtype,
        }
    }

    pub fn shape(&self) -> &[usize] {
        match self {
            Unread::Norm(norm) => norm.x.shape(),
            Unread::Masked(mask) => mask.grad.shape(),
            Unread::Coded(coded) => &coded.shape,
        }
    }

    /// Computes the result.
    pub fn compute(self) -> Array {
        match self {
            Unread::Norm(norm) => norm.compute(false),
            Unread::Masked(mask) => mask.compute(),
            Unread::Coded(coded) => coded.compute(),
        }
    }

    /// Returns the result rounded to 16 bits, if it was rounded to none before.
    pub fn narrowed(self, dtype: DType) -> Option<Unread> {
        match self {
            Unread::Norm(norm) if norm.dtype == DType::F32 && norm.plus.is_none() && dtype.is_low() => {
                Some(Unread::Norm(UnreadNorm { dtype, ..norm }))
            }
            _ => None,
        }
    }
}

impl UnreadMask {
    fn compute(self) -> Array {
        self.grad.into_array().combined(self.kept.into_array(), &Masked)
    }
}

impl Tensor {
    /// Returns this norm, if it is still to be computed.
    pub(crate) fn unread_norm(&self) -> Option<UnreadNorm> {
        match self.0.data.unread()? {
            Unread::Norm(norm) => Some(norm),
            _ => None,
        }
    }

    /// Returns the sum of a norm that is still to be computed and of a tensor of the same dtype and shape; `None` if neither
    /// tensor is such a norm, or somebody listens.
    pub(crate) fn unread_sum(&self, other: &Tensor) -> Option<Unread> {
        if context::is_heard() || self.dtype() != other.dtype() || self.shape() != other.shape() {
            return None;
        }
        let sum = |a: &Tensor, b: &Tensor| {
            let norm = a.unread_norm().filter(|norm| norm.plus.is_none())?;
            // So that sums of sums do not become chains of what is to be computed.
            let _ = b.array();
            Some(Unread::Norm(UnreadNorm { plus: Some(b.detach()), ..norm }))
        };
        sum(self, other).or_else(|| sum(other, self))
    }

    /// Returns the gradient of a ReLU's input from that of its result, `kept`.
    pub(crate) fn masked(&self, kept: &Tensor) -> Tensor {
        // So that gradients of one ReLU after the other do not become chains of what is to be computed.
        if self.0.data.unread().is_some() {
            let _ = self.array();
        }
        let mask = UnreadMask { grad: self.detach(), kept: kept.detach() };
        if context::is_heard() {
            return Tensor::from_array(mask.compute());
        }
        Tensor::new(Unread::Masked(mask).into(), Place::None, None)
    }

    /// Returns this gradient before ReLU, and the result of ReLU, if it is still to be computed and has no other reader.
    pub(crate) fn unread_mask(&self) -> Option<UnreadMask> {
        match self.0.data.unread()? {
            Unread::Masked(mask) if Arc::strong_count(&self.0) == 1 => Some(mask),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::listener::{Observer, observed_by};

    struct Nobody;

    impl Observer for Nobody {}

    fn norm(x: &Tensor) -> Tensor {
        x.batch_norm_train(None, None, 1e-5).unwrap().0
    }

    #[test]
    fn casts_sums_and_relu_leave_a_norm_unread_and_other_ops_compute_it() {
        let x = Tensor::from_f64(&[-1.0, 2.0, 5.0, 0.5], &[2, 2], DType::F32).unwrap();
        let y = norm(&x);
        let low = y.cast(DType::F16);
        let sum = low.add(&x.cast(DType::F16)).unwrap();
        let _ = (y.relu().unwrap(), sum.relu().unwrap());
        assert!([&y, &low, &sum].iter().all(|x| x.0.data.get().is_none()));
        assert!(sum.add(&low).unwrap().unread_norm().is_some(), "the second term is the norm");
        assert!(sum.0.data.get().is_some(), "the first one is read");
        let _ = y.exp().unwrap();
        assert!(y.0.data.get().is_some() && y.unread_norm().is_none() && low.unread_norm().is_some());
        assert!(norm(&x.cast(DType::F64)).0.data.get().is_some(), "f64 is computed at once");
    }

    #[test]
    fn nothing_is_unread_while_somebody_listens() {
        let x = Tensor::from_f64(&[-1.0, 2.0, 5.0, 0.5], &[2, 2], DType::F32).unwrap();
        observed_by(std::rc::Rc::new(Nobody), || {
            assert!(norm(&x).0.data.get().is_some() && x.masked(&x).0.data.get().is_some());
        });
        let mask = x.masked(&x);
        assert!(mask.unread_mask().is_some());
        let other = mask.clone();
        assert!(mask.unread_mask().is_none(), "it has another reader");
        assert_eq!(other.to_f64(), [0.0, 2.0, 5.0, 0.5]);
    }
}
