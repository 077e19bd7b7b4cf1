//! Measures that all diagnoses share: errors, the limits of formats, and the bounds above which they are faults.

use half::{bf16, f16};

use precast::{DType, Tensor};

/// Relative error above which digits are lost: less than about four correct bits.
pub(crate) const LOST: f64 = 1.0 / 16.0;

/// Factor by which what loses digits enlarges the error of its inputs: two bits more than one rounding each may add.
pub(crate) const GROWTH: f64 = 4.0;

/// Factor by which a dynamic loss scale may fall below the one that fits a batch: gradients of later ones may be larger.
pub(crate) const ROOM_BELOW: f32 = 256.0;

/// Factor by which later batches may exceed the largest number of this one. The largest of n normal numbers is about
/// √(2 ln n), so that of 10⁴ batches exceeds that of one batch of 10³ numbers by √(ln 10⁷ / ln 10³) = 1.53.
pub(crate) const HEADROOM: f64 = 1.5;

/// Returns the largest finite number of a floating dtype; that of f32 for f64.
pub(crate) fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f16::MAX.to_f64(),
        DType::Bf16 => bf16::MAX.to_f64(),
        _ => f32::MAX.into(),
    }
}

/// Returns the elements of a tensor; a widening is read at its 16-bit source.
pub(crate) fn values(x: &Tensor) -> Vec<f64> {
    x.least().to_f64()
}

/// Returns the norm of numbers.
pub(crate) fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|x| x * x).sum::<f64>().sqrt()
}

/// Returns the norm of the difference of two tensors, divided by the norm of the second; 0 if they are equal.
pub(crate) fn relative(found: &[f64], exact: &[f64]) -> f64 {
    let error = norm(found.iter().zip(exact).map(|(x, exact)| x - exact));
    if error == 0.0 { 0.0 } else { error / norm(exact.iter().copied()) }
}
