//! Values that enter and leave modules.

use burn::{
    nn::{LstmState, RnnState, attention::MhaOutput},
    tensor::{Bool, FloatDType, Int, Tensor},
};

use crate::dtype::is_castable;

/// Input or output of a module, whose floating tensors can be cast: a tensor, a tuple, array, `Vec` or `Option` of such
/// values, or a struct of yours.
///
/// ```
/// use burn::tensor::{FloatDType, Int, Tensor};
/// use precast_burn::Castable;
///
/// struct Batch {
///     images: Tensor<4>,
///     labels: Tensor<1, Int>,
/// }
///
/// impl Castable for Batch {
///     fn cast_to(self, dtype: FloatDType) -> Self {
///         Batch { images: self.images.cast_to(dtype), labels: self.labels }
///     }
/// }
/// ```
pub trait Castable {
    /// Casts its tensors of f32, f16 and bf16. All others stay as they are: f64, integers, booleans.
    fn cast_to(self, dtype: FloatDType) -> Self;
}

impl<const D: usize> Castable for Tensor<D> {
    fn cast_to(self, dtype: FloatDType) -> Self {
        let from = self.dtype();
        if from == dtype.into() || !is_castable(from) { self } else { self.cast(dtype) }
    }
}

impl<const D: usize> Castable for Tensor<D, Int> {
    fn cast_to(self, _: FloatDType) -> Self {
        self
    }
}

impl<const D: usize> Castable for Tensor<D, Bool> {
    fn cast_to(self, _: FloatDType) -> Self {
        self
    }
}

impl<T: Castable> Castable for Option<T> {
    fn cast_to(self, dtype: FloatDType) -> Self {
        self.map(|value| value.cast_to(dtype))
    }
}

impl<T: Castable> Castable for Vec<T> {
    fn cast_to(self, dtype: FloatDType) -> Self {
        self.into_iter().map(|value| value.cast_to(dtype)).collect()
    }
}

impl<T: Castable, const N: usize> Castable for [T; N] {
    fn cast_to(self, dtype: FloatDType) -> Self {
        self.map(|value| value.cast_to(dtype))
    }
}

macro_rules! tuples {
    ($(($($name:ident)*))*) => {$(
        impl<$($name: Castable),*> Castable for ($($name,)*) {
            #[allow(non_snake_case, unused_variables, clippy::unused_unit)]
            fn cast_to(self, dtype: FloatDType) -> Self {
                let ($($name,)*) = self;
                ($($name.cast_to(dtype),)*)
            }
        }
    )*};
}

tuples! { () (A) (A B) (A B C) (A B C E) (A B C E F) (A B C E F G) }

impl<const D: usize> Castable for LstmState<D> {
    fn cast_to(self, dtype: FloatDType) -> Self {
        LstmState::new(self.cell.cast_to(dtype), self.hidden.cast_to(dtype))
    }
}

impl<const D: usize> Castable for RnnState<D> {
    fn cast_to(self, dtype: FloatDType) -> Self {
        RnnState::new(self.hidden.cast_to(dtype))
    }
}

impl Castable for MhaOutput {
    fn cast_to(self, dtype: FloatDType) -> Self {
        MhaOutput { weights: self.weights.cast_to(dtype), context: self.context.cast_to(dtype) }
    }
}

/// Computes an op in f32, whatever the precision of the code around it, and returns the result in the dtype of the
/// input. For ops that are not in a module of their own, such as a softmax or a loss:
///
/// ```
/// use burn::tensor::{Device, FloatDType, Tensor, activation::softmax};
/// use precast_burn::in_f32;
/// let low = Tensor::<2>::ones([2, 4], &Device::default()).cast(FloatDType::BF16);
/// let weights = in_f32(low.clone(), |x| softmax(x, 1));
/// assert_eq!(weights.dtype(), low.dtype());
/// ```
pub fn in_f32<const D: usize, const E: usize>(x: Tensor<D>, f: impl FnOnce(Tensor<D>) -> Tensor<E>) -> Tensor<E> {
    let from = x.dtype();
    let result = f(x.cast_to(FloatDType::F32));
    if is_castable(from) { result.cast_to(from.into()) } else { result }
}
