//! Methods of torch's tensors that there are none of here: a call does not compile, and the compiler names what takes its place.
//!
//! The bounds never hold; because of their lifetime, the compiler checks them where a method is called.

use std::ops::Index;

use crate::{DType, Tensor, error::Result};

/// Never holds.
#[diagnostic::on_unimplemented(
    message = "tensors have no device: precast computes on CPUs",
    label = "leave it out",
    note = "networks of burn and candle, which run on GPUs, take policies by the packages precast-burn and precast-candle"
)]
pub trait HasDevices {}

/// Never holds.
#[diagnostic::on_unimplemented(
    message = "a policy lowers networks, so that the reason is known",
    label = "lowers one tensor",
    note = "`Policy::named(\"o2\")?.apply(&mut net)?` lowers a network; `x.cast(DType::F16)` casts one tensor"
)]
pub trait LowersItself {}

/// Never holds.
#[diagnostic::on_unimplemented(
    message = "gradients are values, and are not kept in tensors",
    label = "returned by the backward pass",
    note = "`let grads = loss.backward()?;`, then `grads.get(&param)` or `grads.of(&tensor)`"
)]
pub trait KeepsGradient {}

/// Never holds.
#[diagnostic::on_unimplemented(
    message = "a tensor is not indexed by brackets: a part of it is a tensor of its own",
    label = "may be out of range",
    note = "`x.at(axis, i)?` is one slice, `x.slice(axis, from..to)?` several, `x.unbind(axis)?` all of them"
)]
pub trait IndexedByBrackets {}

impl Tensor {
    /// Does not compile: tensors have no device.
    pub fn cuda(&self) -> Tensor
    where
        for<'never> &'never Self: HasDevices,
    {
        self.clone()
    }

    /// Does not compile: [`cast`](Tensor::cast) to [`DType::F16`], or a policy.
    pub fn half(&self) -> Tensor
    where
        for<'never> &'never Self: LowersItself,
    {
        self.cast(DType::F16)
    }

    /// Does not compile: [`backward`](Tensor::backward) returns gradients.
    pub fn grad(&self) -> Option<Tensor>
    where
        for<'never> &'never Self: KeepsGradient,
    {
        None
    }

    /// Casts, as [`cast`](Tensor::cast).
    #[deprecated(note = "the name is `cast`")]
    pub fn to(&self, dtype: DType) -> Tensor {
        self.cast(dtype)
    }

    /// Reshapes, as [`reshape`](Tensor::reshape).
    ///
    /// # Errors
    /// As for [`reshape`](Tensor::reshape).
    #[deprecated(note = "the name is `reshape`, which copies only what cannot be viewed")]
    pub fn view<N: Copy + TryInto<isize>>(&self, shape: &[N]) -> Result<Tensor> {
        self.reshape(shape)
    }
}

/// Does not compile: [`at`](Tensor::at) and [`slice`](Tensor::slice) return parts.
impl Index<usize> for Tensor
where
    for<'never> &'never Tensor: IndexedByBrackets,
{
    type Output = Tensor;
    fn index(&self, _: usize) -> &Tensor {
        self
    }
}
