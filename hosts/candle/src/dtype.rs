//! Dtypes of candle and of the policies.

use candle_core::{DType, Tensor};
use precast_policy as policy;

/// Returns candle's name of a dtype.
pub(crate) fn to_candle(dtype: policy::DType) -> Option<DType> {
    Some(match dtype {
        policy::DType::F64 => DType::F64,
        policy::DType::F32 => DType::F32,
        policy::DType::F16 => DType::F16,
        policy::DType::Bf16 => DType::BF16,
        policy::DType::I64 => DType::I64,
        _ => return None,
    })
}

/// Returns the dtype of the policies; `None` for one that they do not have.
pub(crate) fn from_candle(dtype: DType) -> Option<policy::DType> {
    Some(match dtype {
        DType::F64 => policy::DType::F64,
        DType::F32 => policy::DType::F32,
        DType::F16 => policy::DType::F16,
        DType::BF16 => policy::DType::Bf16,
        DType::I64 => policy::DType::I64,
        _ => return None,
    })
}

/// Returns whether a policy may cast tensors of this dtype. Integers have no precision to choose, and an explicit f64 is
/// kept.
pub(crate) fn is_castable(dtype: DType) -> bool {
    from_candle(dtype).is_some_and(policy::DType::is_castable)
}

/// Casts a tensor, on the tape, if a policy may cast it.
pub(crate) fn cast(x: &Tensor, to: Option<DType>) -> candle_core::Result<Tensor> {
    match to {
        Some(dtype) if is_castable(x.dtype()) => x.to_dtype(dtype),
        _ => Ok(x.clone()),
    }
}
