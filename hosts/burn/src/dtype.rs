//! Dtypes of burn and of policies.

use burn::tensor::FloatDType;
use precast_policy::DType;

/// Returns burn's name of a dtype to which a policy may cast: f32, f16 or bf16. `None` for all others.
pub fn float_dtype(dtype: DType) -> Option<FloatDType> {
    match dtype {
        DType::F32 => Some(FloatDType::F32),
        DType::F16 => Some(FloatDType::F16),
        DType::Bf16 => Some(FloatDType::BF16),
        _ => None,
    }
}

/// Returns whether a policy may cast tensors of this dtype.
pub(crate) fn is_castable(dtype: burn::tensor::DType) -> bool {
    use burn::tensor::DType::{BF16, F16, F32};
    matches!(dtype, F32 | F16 | BF16)
}

/// Returns whether a dtype is f16 or bf16.
pub(crate) fn is_low(dtype: burn::tensor::DType) -> bool {
    use burn::tensor::DType::{BF16, F16};
    matches!(dtype, F16 | BF16)
}
