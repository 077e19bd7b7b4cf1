//! Modules with one input and one output.

use burn::{
    nn::{
        BatchNorm, Dropout, Embedding, GroupNorm, InstanceNorm, LayerNorm, Linear, RmsNorm,
        conv::{Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d},
    },
    tensor::{Int, Tensor},
};

/// A module that is called with one input. burn has no such trait; with it, a call of `Amp<Linear>` reads as a call of
/// `Linear`. It is implemented for burn's linear layer, convolutions, norms, embedding and dropout. All others, such as an
/// attention with several inputs, are called by [`Amp::with`](crate::Amp::with).
#[diagnostic::on_unimplemented(
    note = "`Amp` calls any module by a closure: `self.attention.with(input, |attention, input| attention.forward(input))`",
    note = "or implement `precast_burn::Forward` for a module of your own"
)]
pub trait Forward<I> {
    /// The output.
    type Output;

    /// Calls the module.
    fn forward(&self, input: I) -> Self::Output;
}

macro_rules! of_any_rank {
    ($($module:ty),* $(,)?) => {$(
        impl<const D: usize> Forward<Tensor<D>> for $module {
            type Output = Tensor<D>;

            fn forward(&self, input: Tensor<D>) -> Tensor<D> {
                self.forward(input)
            }
        }
    )*};
}

of_any_rank!(BatchNorm, Dropout, GroupNorm, InstanceNorm, LayerNorm, Linear, RmsNorm);

macro_rules! of_one_rank {
    ($($module:ty: $rank:literal),* $(,)?) => {$(
        impl Forward<Tensor<$rank>> for $module {
            type Output = Tensor<$rank>;

            fn forward(&self, input: Tensor<$rank>) -> Tensor<$rank> {
                self.forward(input)
            }
        }
    )*};
}

of_one_rank!(
    Conv1d: 3, Conv2d: 4, Conv3d: 5, ConvTranspose1d: 3, ConvTranspose2d: 4, ConvTranspose3d: 5,
);

impl Forward<Tensor<2, Int>> for Embedding {
    type Output = Tensor<3>;

    fn forward(&self, input: Tensor<2, Int>) -> Tensor<3> {
        self.forward(input)
    }
}
