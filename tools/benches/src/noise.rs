//! The same numbers as tensors of every crate.

use candle_core::Device;
use half::{bf16, f16};
use precast::{DType, Tensor};

/// Tolerances relative to the largest number: some roundings of each.
pub const DTYPES: [(DType, f32); 3] = [(DType::F32, 1e-4), (DType::F16, 5e-3), (DType::Bf16, 3e-2)];

/// Returns numbers that differ between any two rows of a matrix.
pub fn numbers(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 % 10_007) as f32 - 5003.0) / 3000.0).collect()
}

pub fn f16s(len: usize) -> Vec<f16> {
    numbers(len).into_iter().map(f16::from_f32).collect()
}

pub fn bf16s(len: usize) -> Vec<bf16> {
    numbers(len).into_iter().map(bf16::from_f32).collect()
}

pub fn ours(shape: &[usize], dtype: DType) -> Tensor {
    Tensor::from_vec(numbers(shape.iter().product()), shape).expect("as many as the shape has").cast(dtype)
}

pub fn read_ours(x: Tensor) -> Vec<f32> {
    x.to_f64().into_iter().map(|x| x as f32).collect()
}

pub fn candle_dtype(dtype: DType) -> candle_core::DType {
    match dtype {
        DType::F16 => candle_core::DType::F16,
        DType::Bf16 => candle_core::DType::BF16,
        _ => candle_core::DType::F32,
    }
}

pub fn candle(shape: &[usize], dtype: DType) -> candle_core::Tensor {
    candle_core::Tensor::from_vec(numbers(shape.iter().product()), shape, &Device::Cpu)
        .and_then(|x| x.to_dtype(candle_dtype(dtype)))
        .expect("as many as the shape has")
}

pub fn read_candle(x: candle_core::Tensor) -> candle_core::Result<Vec<f32>> {
    x.to_dtype(candle_core::DType::F32)?.flatten_all()?.to_vec1()
}
