//! The largest magnitude of some numbers, and the share of those near 0, from their bits.

use half::{bf16, f16, slice::HalfFloatSliceExt as _};

use crate::{float::Float, simd::vectorized};

/// Number of partial maxima. Fixed; a maximum does not depend on it.
const LANES: usize = 64;

/// Number of elements that are counted in 16 bits a lane.
const BLOCK: usize = LANES << 15;

/// Numbers that are 0, and those that have fewer digits because they are near it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Small {
    /// Numbers that are 0.
    pub zero: usize,
    /// Subnormal numbers.
    pub subnormal: usize,
}

/// A float whose magnitudes are ordered as the integers of their bits: those of infinity are above those of all finite
/// numbers, those of NaN above all.
pub trait Magnitude: Float {
    /// Returns the largest magnitude, 0 for no numbers: infinite if a number is, NaN if one is.
    fn peak(x: &[Self]) -> f64;

    /// Counts the numbers near 0.
    fn small(x: &[Self]) -> Small;
}

macro_rules! magnitude {
    ($($t:ty, $bits:ty, $normal:expr, $slice:ident, $bits_of:expr, $to_f32:expr;)*) => { $(
        impl Magnitude for $t {
            fn peak(x: &[Self]) -> f64 {
                let $slice = x;
                let (x, of) = $bits_of;
                let most = vectorized(|| {
                    let mut most = [0; LANES];
                    let (whole, rest) = x.as_chunks::<LANES>();
                    for x in whole {
                        for (most, x) in most.iter_mut().zip(x) {
                            *most = (*most).max(of(*x) & (<$bits>::MAX >> 1));
                        }
                    }
                    let rest = rest.iter().fold(0, |most: $bits, x| most.max(of(*x) & (<$bits>::MAX >> 1)));
                    most.iter().fold(rest, |most, x| most.max(*x))
                });
                $to_f32(most)
            }

            fn small(x: &[Self]) -> Small {
                let $slice = x;
                let (x, of) = $bits_of;
                // Counters as wide as the numbers, so that a vector has as many of them.
                x.chunks(BLOCK).fold(Small::default(), |all, x| {
                    let (zero, below) = vectorized(|| {
                        let [mut zero, mut below] = [[0; LANES]; 2];
                        let (whole, rest) = x.as_chunks::<LANES>();
                        for x in whole.iter().map(<[_; LANES]>::as_slice).chain([rest]) {
                            for ((zero, below), x) in zero.iter_mut().zip(&mut below).zip(x) {
                                let bits = of(*x) & (<$bits>::MAX >> 1);
                                *zero += <$bits>::from(bits == 0);
                                *below += <$bits>::from(bits < $normal);
                            }
                        }
                        let sum = |counts: [$bits; LANES]| counts.into_iter().map(|n| n as usize).sum::<usize>();
                        (sum(zero), sum(below))
                    });
                    Small { zero: all.zero + zero, subnormal: all.subnormal + below - zero }
                })
            }
        }
    )* };
}

magnitude! {
    f16, u16, f16::MIN_POSITIVE.to_bits(), x, (x.reinterpret_cast(), |x: u16| x), |bits| f16::from_bits(bits).to_f64();
    bf16, u16, bf16::MIN_POSITIVE.to_bits(), x, (x.reinterpret_cast(), |x: u16| x), |bits| bf16::from_bits(bits).to_f64();
    f32, u32, f32::MIN_POSITIVE.to_bits(), x, (x, f32::to_bits), |bits| f32::from_bits(bits).into();
    f64, u64, f64::MIN_POSITIVE.to_bits(), x, (x, f64::to_bits), f64::from_bits;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the definitions, number by number.
    fn check<T: Magnitude>(x: &[T], subnormal: impl Fn(f64) -> bool) {
        let wide = || x.iter().map(|x| crate::float::Real::as_f64(x.widen()).abs());
        let most = match wide().any(f64::is_nan) {
            true => f64::NAN,
            false => wide().fold(0.0, f64::max),
        };
        let peak = T::peak(x);
        assert!(peak == most || peak.is_nan() && most.is_nan(), "{peak} of {} numbers, not {most}", x.len());
        let zero = wide().filter(|x| *x == 0.0).count();
        assert_eq!(T::small(x), Small { zero, subnormal: wide().filter(|x| subnormal(*x)).count() });
    }

    #[test]
    fn peaks_and_small_numbers_are_those_of_the_definition() {
        let all = |step: usize| (0..=u16::MAX).step_by(step);
        for len in [0, 1, 63, 64, 65, 200, 65536] {
            // Bit patterns of finite numbers, subnormals, infinities and NaN in turn.
            for step in [1, 7, 4099] {
                let f16s: Vec<f16> = all(step).take(len).map(f16::from_bits).collect();
                let bf16s: Vec<bf16> = all(step).take(len).map(bf16::from_bits).collect();
                check(&f16s, |x| x > 0.0 && x < 2f64.powi(-14));
                check(&bf16s, |x| x > 0.0 && x < f64::from(f32::MIN_POSITIVE));
                let f32s: Vec<f32> =
                    all(step).take(len).map(|bits| f32::from_bits(u32::from(bits) << 16 | 1)).collect();
                check(&f32s, |x| x > 0.0 && x < f64::from(f32::MIN_POSITIVE));
            }
        }
        let tiny = f64::MIN_POSITIVE / 2.0;
        check(&[tiny, -3.0, 0.0, -0.0], |x| x == tiny);
        assert_eq!(f64::peak(&[1.0, -1e300]), 1e300);
    }

    #[test]
    fn one_number_is_found_at_every_place() {
        for len in [1, 64, 130] {
            for at in 0..len {
                for bad in [f16::NEG_INFINITY, f16::NAN, f16::from_f32(-3.0)] {
                    let mut x = vec![f16::ONE; len];
                    x[at] = bad;
                    let peak = f16::peak(&x);
                    assert!(
                        peak == bad.to_f64().abs() || peak.is_nan() && bad.is_nan(),
                        "{bad} at {at} of {len}: {peak}"
                    );
                }
            }
        }
    }
}
