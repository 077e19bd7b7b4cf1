//! Error of a number relative to the exact one, in units in the last place.
//!
//! In f32 the unit of a result is the spacing of numbers at the exact result, or at the magnitude of the terms it is
//! the sum of, whichever is larger: a sum that cancels is measured against its terms. In f16 and bf16 it is the spacing
//! of numbers of the dtype at the exact result, plus 16 such f32 units: a result computed in f32 and rounded once is
//! half a unit away. A gradient that depends on a number kept in 16 bits is measured against the magnitude of its terms
//! in the dtype itself.

use precast::DType;

/// Returns the number of significand bits, and the exponents of the smallest and the largest normal numbers.
fn format(dtype: DType) -> (i32, i32, i32) {
    match dtype {
        DType::F16 => (11, -14, 15),
        DType::Bf16 => (8, -126, 127),
        DType::F64 => (53, -1022, 1023),
        _ => (24, -126, 127),
    }
}

/// Returns the spacing of numbers of a dtype at x.
pub fn unit(dtype: DType, x: f64) -> f64 {
    let (bits, least, largest) = format(dtype);
    // The biased exponent: subnormal f64 numbers are far below every other format.
    let exponent = ((x.abs().to_bits() >> 52) as i32 - 1023).clamp(least, largest);
    f64::from(exponent - bits + 1).exp2()
}

/// Errors of the numbers of a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Largest error in units, of the finite numbers.
    pub units: f64,
    /// Number of elements that are NaN, infinite, or a zero of a sign, where the exact one is not.
    pub other_kind: usize,
    /// The worst number, and the exact one.
    pub worst: Option<(f64, f64)>,
}

impl Measured {
    /// Returns the worse of two.
    pub fn join(self, other: Measured) -> Measured {
        let worse = (other.other_kind > 0, other.units) > (self.other_kind > 0, self.units);
        let worst = if worse { other.worst } else { self.worst };
        Measured { units: self.units.max(other.units), other_kind: self.other_kind + other.other_kind, worst }
    }
}

/// Rules for measuring the numbers of a tensor.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub dtype: DType,
    /// `true` when zeros must have the sign of the exact ones.
    pub signs_of_zeros: bool,
    /// `true` when an intermediate result was rounded to the dtype.
    pub rounded_before: bool,
}

impl Scale {
    /// Returns the unit at an exact number that is a sum of terms of magnitude `size`.
    fn unit(self, exact: f64, size: f64) -> f64 {
        let size = size.max(exact.abs());
        match self.dtype {
            DType::F16 | DType::Bf16 if self.rounded_before => unit(self.dtype, size),
            DType::F16 | DType::Bf16 => unit(self.dtype, exact) + 16.0 * unit(DType::F32, size),
            _ => unit(DType::F32, size),
        }
    }
}

/// Compares numbers with exact ones; `sizes` are the magnitudes of the terms.
pub fn measure(scale: Scale, ours: &[f64], exact: &[f64], sizes: &[f64]) -> Measured {
    let Scale { dtype, signs_of_zeros, .. } = scale;
    let infinite = f64::from(format(dtype).2 + 1).exp2();
    let clipped = |x: f64| x.clamp(-infinite, infinite);
    let mut all = Measured::default();
    for ((&ours, &exact), &size) in ours.iter().zip(exact).zip(sizes) {
        let worst = Some((ours, exact));
        let other_kind = if exact.is_finite() {
            ours.is_nan()
                || (signs_of_zeros
                    && exact == 0.0
                    && ours == 0.0
                    && ours.is_sign_positive() != exact.is_sign_positive())
        } else {
            ours != exact && !(ours.is_nan() && exact.is_nan())
        };
        // If the terms overflow in f32, their sum may overflow on the way, whatever its value.
        let may_overflow = size.is_finite() && size > f64::from(f32::MAX) && exact.abs() < size;
        if other_kind && !may_overflow {
            all = all.join(Measured { units: 0.0, other_kind: 1, worst });
        } else if exact.is_finite() && !may_overflow {
            let size = if size.is_finite() { size } else { 0.0 };
            let unit = scale.unit(clipped(exact), size);
            let units = (clipped(ours) - clipped(exact)).abs() / unit;
            all = all.join(Measured { units, other_kind: 0, worst });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_the_distances_of_neighbours() {
        for (dtype, at_one) in [(DType::F32, -23), (DType::F16, -10), (DType::Bf16, -7)] {
            assert_eq!(unit(dtype, 1.0), f64::from(at_one).exp2());
            assert_eq!(unit(dtype, -1.99), f64::from(at_one).exp2());
            assert_eq!(unit(dtype, 4.0), f64::from(at_one + 2).exp2());
        }
        for (dtype, least) in [(DType::F32, -149), (DType::F16, -24), (DType::Bf16, -133)] {
            assert_eq!(unit(dtype, 0.0), f64::from(least).exp2());
            assert_eq!(unit(dtype, 1e-300), f64::from(least).exp2());
        }
    }

    #[test]
    fn errors_are_relative_to_the_terms() {
        let scale = |dtype, rounded_before| Scale { dtype, signs_of_zeros: true, rounded_before };
        let one = |dtype, ours, exact, size| measure(scale(dtype, false), &[ours], &[exact], &[size]);
        let half = one(DType::F16, 1.0, 1.0 + 2f64.powi(-11), 1.0).units;
        assert!((0.499..=0.5).contains(&half), "{half}");
        let kept = measure(scale(DType::Bf16, true), &[0.0], &[0.004], &[1.0]);
        assert!((0.5..0.6).contains(&kept.units), "{kept:?}");
        // Two terms of about a thousand cancel: an f32 error at a thousand is expected.
        assert_eq!(one(DType::F32, 1e-5 + 2f64.powi(-14), 1e-5, 1024.0).units, 0.5);
        assert_eq!(one(DType::F32, f64::NAN, 1.0, 1.0).other_kind, 1);
        assert_eq!(one(DType::F32, 1.0, f64::NAN, 1.0).other_kind, 1);
        assert_eq!(one(DType::F32, -0.0, 0.0, 0.0).other_kind, 1);
        assert!(one(DType::F16, f64::INFINITY, 65519.0, 65519.0).units > 0.52);
        assert!(one(DType::F16, 65504.0, 1e9, 1e5).units > 0.4);
        assert_eq!(one(DType::F16, 65504.0, f64::INFINITY, 1e9).other_kind, 1);
    }
}
