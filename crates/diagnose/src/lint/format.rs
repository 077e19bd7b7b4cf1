//! Limits of the 16-bit formats.

use precast::{DType, Tensor};

use crate::measure::largest;

/// Returns the smallest number of a low dtype above 0, which is subnormal. Half of it is a tie, which rounds to 0.
pub(super) fn smallest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-24),
        _ => 2f64.powi(-133),
    }
}

/// Returns the bound from which numbers become infinite: halfway to the number that would follow the largest.
pub(super) fn overflows_at(dtype: DType) -> f64 {
    let largest_power = largest(dtype) / (2.0 - dtype.epsilon());
    largest_power * (2.0 - dtype.epsilon() / 2.0)
}

/// Rounds numbers to a dtype, once.
pub(super) fn rounded(values: &[f64], dtype: DType) -> Vec<f64> {
    Tensor::from_f64(values, &[values.len()], dtype).map_or_else(|_| values.to_vec(), |x| x.to_f64())
}

/// Returns the largest finite magnitude.
pub(super) fn amax(values: &[f64]) -> f64 {
    values.iter().filter(|x| x.is_finite()).fold(0.0, |most, x| x.abs().max(most))
}

/// Formats a number with three digits.
pub(super) fn short(x: f64) -> String {
    match x.abs() {
        0.0 => "0".into(),
        1e-3..1e5 => {
            let digits = (2 - x.abs().log10().floor() as i32).max(0) as usize;
            format!("{x:.digits$}")
        }
        _ => format!("{x:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_rounding() {
        for dtype in [DType::F16, DType::Bf16] {
            let of = |x: f64| rounded(&[x], dtype)[0];
            assert_eq!(of(largest(dtype)), largest(dtype));
            assert_eq!(of(overflows_at(dtype)), f64::INFINITY);
            assert_eq!(of(overflows_at(dtype) * (1.0 - 1e-9)), largest(dtype));
            assert_eq!(of(smallest(dtype)), smallest(dtype));
            assert_eq!((of(smallest(dtype) / 2.0), of(smallest(dtype) * 0.51)), (0.0, smallest(dtype)));
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([65504.0, 1.5, 0.0, 3e-9, 1e6].map(short), ["65504", "1.50", "0", "3.00e-9", "1.00e6"]);
    }
}
