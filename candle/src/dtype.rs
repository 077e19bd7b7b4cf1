//! Dtypes of candle and of the policies, and the check that a device computes in one.

use candle_core::{DType, Device, Tensor};
use precast_policy as policy;

use crate::{Error, Result};

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

/// Refuses a dtype in which the device does not compute: candle says so only in the first op that has no kernel.
pub(crate) fn check_device(dtype: DType, device: &Device) -> Result<()> {
    let product = || Tensor::ones((2, 2), DType::F32, device)?.to_dtype(dtype).and_then(|x| x.matmul(&x)?.exp());
    check_product(dtype, device, product().and_then(|y| y.to_dtype(DType::F32)?.flatten_all()?.to_vec1()))
}

/// Judges the product of two matrices of ones, after `exp`: each number is e^2, but for one rounding.
fn check_product(dtype: DType, device: &Device, product: candle_core::Result<Vec<f32>>) -> Result<()> {
    let why = match product {
        Ok(numbers) if numbers.iter().all(|x| (x / 2f32.exp() - 1.0).abs() < 0.01) => return Ok(()),
        Ok(numbers) => format!("e^2 is {numbers:?} in it"),
        Err(error) => error.to_string(),
    };
    let (name, place) = (dtype.as_str(), device.location());
    let words = format!("the plan has cells in {name}, in which the device {place:?} cannot compute: {why}");
    Err(Error::Policy(policy::Error::dtype(words)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_a_dtype_is_refused() {
        let judge = |product| check_product(DType::BF16, &Device::Cpu, product);
        let missing = judge(Err(candle_core::Error::UnsupportedDTypeForOp(DType::BF16, "matmul"))).unwrap_err();
        assert_eq!(missing.kind(), Some(policy::ErrorKind::DType));
        assert!(missing.to_string().contains("cells in bf16, in which the device Cpu cannot compute"), "{missing}");
        assert!(judge(Ok(vec![0.0; 4])).is_err(), "numbers that are wrong");
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            check_device(dtype, &Device::Cpu).unwrap();
        }
    }
}
