//! Conversions between dtypes, each with one rounding to nearest even.

mod vectors;

use half::{bf16, f16};

use super::{
    memory::{self, Item, Pooled},
    threads,
};

/// Conversion of whole slices. `from` and `to` have the same length.
pub trait Convert<To>: Sized {
    /// Converts each element into a slice of the same length.
    fn convert(from: &[Self], to: &mut [To]);
}

/// Approximate cost of converting one element, in multiply-adds.
const WORK: usize = 4;

/// Returns a converted slice, using several threads if it is long.
pub fn converted<A: Convert<B> + Sync, B: Item>(from: &[A]) -> Pooled<B> {
    let mut to = memory::uninit_vec(from.len());
    threads::together(&mut to, &mut [] as &mut [&mut [B]], from.len() * WORK, |range, to, _| {
        A::convert(&from[range], to)
    });
    to
}

macro_rules! convert {
    ($($from:ty => $to:ty: $x:ident => $body:expr;)*) => { $(
        impl Convert<$to> for $from {
            fn convert(from: &[Self], to: &mut [$to]) {
                for (to, &$x) in to.iter_mut().zip(from) { *to = $body; }
            }
        }
    )* };
}

convert! {
    f64 => f64: x => x;
    f64 => f32: x => x as f32;
    f64 => f16: x => f16::from_f32(round_to_odd(x));
    f64 => bf16: x => bf16::from_f32(round_to_odd(x));
    f64 => i64: x => x as i64;
    f64 => bool: x => x != 0.0;
    f32 => f64: x => x as f64;
    f32 => f32: x => x;
    f32 => i64: x => x as i64;
    f32 => bool: x => x != 0.0;
    f16 => f64: x => x.to_f64();
    f16 => f16: x => x;
    f16 => bf16: x => bf16::from_f32(x.to_f32());
    f16 => i64: x => x.to_f32() as i64;
    f16 => bool: x => x.to_f32() != 0.0;
    bf16 => f64: x => x.to_f64();
    bf16 => bf16: x => x;
    bf16 => f16: x => f16::from_f32(x.to_f32());
    bf16 => i64: x => x.to_f32() as i64;
    bf16 => bool: x => x.to_f32() != 0.0;
    i64 => f64: x => x as f64;
    i64 => f32: x => x as f32;
    i64 => f16: x => f16::from_f32(round_to_odd(x as f64));
    i64 => bf16: x => bf16::from_f32(round_to_odd(x as f64));
    i64 => i64: x => x;
    i64 => bool: x => x != 0;
    bool => f64: x => if x { 1.0 } else { 0.0 };
    bool => f32: x => if x { 1.0 } else { 0.0 };
    bool => f16: x => if x { f16::ONE } else { f16::ZERO };
    bool => bf16: x => if x { bf16::ONE } else { bf16::ZERO };
    bool => i64: x => x as i64;
    bool => bool: x => x;
}

macro_rules! convert_half {
    ($($half:ty),*) => { $(
        impl Convert<$half> for f32 {
            fn convert(from: &[f32], to: &mut [$half]) { vectors::convert(from, to); }
        }
        impl Convert<f32> for $half {
            fn convert(from: &[$half], to: &mut [f32]) { vectors::convert(from, to); }
        }
    )* };
}
convert_half!(f16, bf16);

/// Rounds `x` towards zero to an f32, with its last bit set when `x` is strictly between two f32s.
///
/// A second rounding, to a format with at least two fewer bits, then gives the same result as one rounding of `x` (S.
/// Boldo, G. Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
/// `half`'s own `from_f64` rounds twice.
fn round_to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    if nearest as f64 == x || x.is_nan() {
        return nearest;
    }
    let towards_zero = if (nearest as f64).abs() > x.abs() { nearest.to_bits() - 1 } else { nearest.to_bits() };
    f32::from_bits(towards_zero | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one<A: Convert<B> + Copy, B: Default + Copy>(x: A) -> B {
        let mut to = [B::default()];
        A::convert(&[x], &mut to);
        to[0]
    }

    /// Returns the nearest 16-bit value by comparing exact distances to the two neighbors; ties go to the even pattern.
    fn nearest<T: Copy>(x: f64, bits: u16, value: impl Fn(u16) -> f64, wrap: impl Fn(u16) -> T) -> T {
        let candidates = [bits.saturating_sub(1), bits, bits + 1];
        let best = candidates
            .into_iter()
            .filter(|&b| value(b).is_finite())
            .min_by(|&a, &b| {
                let (da, db) = ((value(a) - x).abs(), (value(b) - x).abs());
                da.total_cmp(&db).then((a & 1).cmp(&(b & 1)))
            })
            .unwrap();
        wrap(best)
    }

    #[test]
    fn f64_to_16_bit_rounds_once_at_every_tie() {
        let nudge = [0.0, 1e-13, -1e-13];
        // Under Miri each one takes a millisecond.
        let step = if cfg!(miri) { 301 } else { 3 };
        for bits in (0..0x7bffu16).step_by(step) {
            let value = |b: u16| f16::from_bits(b).to_f64();
            let tie = (value(bits) + value(bits + 1)) / 2.0;
            for n in nudge {
                let x = tie * (1.0 + n);
                let want = nearest(x, bits, value, f16::from_bits);
                assert_eq!(one::<f64, f16>(x).to_bits(), want.to_bits(), "{x:e}");
            }
        }
        for bits in (0..0x7f7eu16).step_by(step) {
            let value = |b: u16| bf16::from_bits(b).to_f64();
            let tie = (value(bits) + value(bits + 1)) / 2.0;
            for n in nudge {
                let x = tie * (1.0 + n);
                let want = nearest(x, bits, value, bf16::from_bits);
                assert_eq!(one::<f64, bf16>(x).to_bits(), want.to_bits(), "{x:e}");
            }
        }
    }

    #[test]
    fn overflow_infinity_and_nan() {
        assert_eq!(one::<f64, f16>(65519.999), f16::MAX);
        assert_eq!(one::<f64, f16>(65520.0), f16::INFINITY);
        assert_eq!(one::<f64, bf16>(-1e300), bf16::NEG_INFINITY);
        assert!(one::<f64, f16>(f64::NAN).is_nan());
        assert!(one::<f32, bf16>(f32::NAN).is_nan());
        assert_eq!(one::<f64, bf16>(1.0 + 2f64.powi(-8) + 2f64.powi(-50)).to_bits(), 0x3f81);
    }
}
