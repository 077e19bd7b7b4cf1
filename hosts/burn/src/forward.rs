//! Modules with one input and one output.

use burn::{
    nn::{
        BatchNorm, Dropout, Embedding, GroupNorm, InstanceNorm, LayerNorm, Linear, RmsNorm,
        conv::{Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d},
    },
    tensor::{
        DType, FloatDType, Int, Tensor,
        module::{batch_norm, batch_norm_train, embedding, linear},
    },
};

use crate::{castable::in_f32, dtype::is_low};

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

of_any_rank!(Dropout, GroupNorm, InstanceNorm, LayerNorm, RmsNorm);

/// In f16, products with vectors, such as the gradient of a layer with one output, are computed in f32: kernels of `gemm` sum
/// those in f16.
impl<const D: usize> Forward<Tensor<D>> for Linear {
    type Output = Tensor<D>;

    fn forward(&self, input: Tensor<D>) -> Tensor<D> {
        let weight = self.weight.val();
        let [inputs, outputs] = weight.dims();
        let rows = input.shape().num_elements() / inputs.max(1);
        if input.dtype() != DType::F16 || ![rows, inputs, outputs].contains(&1) {
            return self.forward(input);
        }
        let bias = self.bias.as_ref().map(|bias| bias.val().cast(FloatDType::F32));
        in_f32(input, |x| linear(x, weight.cast(FloatDType::F32), bias))
    }
}

/// In 16 bits the running states stay f32, where [`BatchNorm::forward`] would add two dtypes: in bf16 an update by a tenth of
/// a small difference would be lost. In evaluation it computes in f32 and rounds once.
impl<const D: usize> Forward<Tensor<D>> for BatchNorm {
    type Output = Tensor<D>;

    fn forward(&self, input: Tensor<D>) -> Tensor<D> {
        let dtype = input.dtype();
        if !is_low(dtype) {
            return self.forward(input);
        }
        let device = input.device();
        if !(device.is_autodiff() && self.training.is_enabled()) {
            // Nothing keeps these numbers for a backward pass, so that they may be wide.
            return in_f32(input, |x| {
                let [gamma, beta] = [&self.gamma, &self.beta].map(|weight| weight.val().cast(FloatDType::F32));
                let [mean, variance] =
                    [&self.running_mean, &self.running_var].map(|state| state.value().to_device(&device));
                batch_norm(x, gamma, beta, mean, variance, self.epsilon)
            });
        }
        let result = batch_norm_train(input, self.gamma.val(), self.beta.val(), self.epsilon);
        for (state, new) in [(&self.running_mean, result.mean), (&self.running_var, result.variance)] {
            let (kept, new) = (state.value_sync().to_device(&device), new.detach().cast(FloatDType::F32));
            let moved = kept.mul_scalar(1.0 - self.momentum).add(new.mul_scalar(self.momentum));
            state.update(moved.detach());
        }
        result.output
    }
}

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

/// The gradients of a row are added in f32: in bf16 a sum of ones ends at 256.
impl Forward<Tensor<2, Int>> for Embedding {
    type Output = Tensor<3>;

    fn forward(&self, input: Tensor<2, Int>) -> Tensor<3> {
        in_f32(self.weight.val(), |weight| embedding(weight, input))
    }
}
