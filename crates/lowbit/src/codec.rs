//! Conversions between f32 and codes, without branches and tables, so that the compiler vectorizes their loops.
//!
//! The loops are inlined into their callers: code that is compiled for wider vectors gets loops of that width.

use precast_base::{Error, Result};

use crate::format::{Float, Format};

/// The code of a number that is rounded to more than the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Overflow {
    /// The largest number, also for infinity: `saturate=1` of ONNX; the recipes of torchao and Transformer Engine.
    #[default]
    Saturate,
    /// Infinity, or NaN in a format that has only that: `saturate=0` of ONNX, the casts of ml_dtypes. The largest number in a
    /// format that has neither.
    NonFinite,
}

/// Bits of the f32 infinity.
const INFINITY: u32 = 0x7f80_0000;

/// Bits of a random number that decide the rounding of an integer.
const INTEGER_BITS: u32 = 14;

impl Format {
    /// Returns the code of each number, rounded to nearest even.
    ///
    /// The code of NaN is that of NaN, and 0 in a format without one; that of -0 has the sign, except for integers.
    ///
    /// `e8m0` rounds as ml_dtypes does: to the nearest power of two, up at half of the way, and always up from 2^-127 to
    /// 2^-126. Zero, negative numbers, and numbers above the range are NaN, for either `overflow`.
    ///
    /// ```
    /// use precast_lowbit::{Format, Overflow};
    ///
    /// assert_eq!(Format::E4M3.encode(&[1.0, -448.0, 1e9], Overflow::Saturate), [0x38, 0xfe, 0x7e]);
    /// assert_eq!(Format::E5M2.encode(&[1e9], Overflow::NonFinite), [0x7c]); // infinity
    /// ```
    pub fn encode(self, x: &[f32], overflow: Overflow) -> Vec<u8> {
        let mut codes = vec![0; x.len()];
        self.encode_all(x, overflow, &mut codes);
        codes
    }

    /// As [`encode`](Format::encode), into a slice of the same length.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](precast_base::ErrorKind::Shape) when the lengths differ.
    #[inline(always)]
    pub fn encode_into(self, x: &[f32], overflow: Overflow, codes: &mut [u8]) -> Result<()> {
        same_length(x.len(), codes.len())?;
        self.encode_all(x, overflow, codes);
        Ok(())
    }

    /// Writes the code of each number, rounded to one of its two neighbours, with a probability given by its proximity.
    ///
    /// Bits of a random number are added to the part below the last bit of the code: the first 18 to 20 of each element of
    /// `random` for floating-point formats, 14 for integers. Numbers above the range saturate. `e8m0` rounds as
    /// [`encode`](Format::encode) does.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](precast_base::ErrorKind::Shape) when the lengths differ.
    ///
    /// ```
    /// use precast_lowbit::{Format, Stream};
    ///
    /// let mut random = [0; 100];
    /// Stream::new(7, "fc.weight", 1).fill(0, &mut random);
    /// let mut codes = [0; 100];
    /// Format::E2M1.encode_stochastic(&[2.25; 100], &random, &mut codes)?;
    /// let up = codes.iter().filter(|&&code| Format::E2M1.decode(&[code]) == [3.0]).count();
    /// assert!((10..40).contains(&up)); // the others are 2
    /// # Ok::<(), precast_base::Error>(())
    /// ```
    #[inline(always)]
    pub fn encode_stochastic(self, x: &[f32], random: &[u32], codes: &mut [u8]) -> Result<()> {
        same_length(x.len(), codes.len())?;
        same_length(x.len(), random.len())?;
        match self {
            Format::E4M3 => each_random(x, random, codes, |x, bits| float_stochastic(fields(Format::E4M3), x, bits)),
            Format::E5M2 => each_random(x, random, codes, |x, bits| float_stochastic(fields(Format::E5M2), x, bits)),
            Format::E3M2 => each_random(x, random, codes, |x, bits| float_stochastic(fields(Format::E3M2), x, bits)),
            Format::E2M3 => each_random(x, random, codes, |x, bits| float_stochastic(fields(Format::E2M3), x, bits)),
            Format::E2M1 => each_random(x, random, codes, |x, bits| float_stochastic(fields(Format::E2M1), x, bits)),
            Format::E8M0 => each(x, codes, power_of_two),
            Format::Int8 => each_random(x, random, codes, integer_stochastic::<8>),
            Format::Int4 => each_random(x, random, codes, integer_stochastic::<4>),
        }
        Ok(())
    }

    /// Returns the number of each code, exact in f32 (and, without `e8m0`, in bf16). Bits above the code are ignored.
    ///
    /// ```
    /// use precast_lowbit::Format;
    ///
    /// assert_eq!(Format::E2M1.decode(&[0x1, 0x7, 0xf]), [0.5, 6.0, -6.0]);
    /// assert!(Format::E4M3.decode(&[0x7f])[0].is_nan());
    /// ```
    pub fn decode(self, codes: &[u8]) -> Vec<f32> {
        let mut x = vec![0.0; codes.len()];
        self.decode_all(codes, &mut x);
        x
    }

    /// As [`decode`](Format::decode), into a slice of the same length.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](precast_base::ErrorKind::Shape) when the lengths differ.
    #[inline(always)]
    pub fn decode_into(self, codes: &[u8], x: &mut [f32]) -> Result<()> {
        same_length(codes.len(), x.len())?;
        self.decode_all(codes, x);
        Ok(())
    }

    /// Writes each number as that of its code, as [`encode`](Format::encode) and [`decode`](Format::decode) do, one above the
    /// range as the largest: the number, which `widen` makes of an element, is multiplied by `up` before and by `down`
    /// afterwards, and rounded to bf16, of which the bits are written.
    ///
    /// ```
    /// use precast_lowbit::Format;
    /// let mut bits = [0; 2];
    /// Format::E4M3.round_into(&[1.06, -1000.0], |x| x, [1.0, 1.0], &mut bits)?;
    /// assert_eq!(bits.map(|bits| f32::from_bits(u32::from(bits) << 16)), [1.0, -448.0]);
    /// # Ok::<(), precast_base::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](precast_base::ErrorKind::Shape) when the lengths differ.
    #[inline(always)]
    pub fn round_into<X: Copy>(self, x: &[X], widen: impl Fn(X) -> f32, by: [f32; 2], bits: &mut [u16]) -> Result<()> {
        same_length(x.len(), bits.len())?;
        match self {
            Format::E4M3 => each_rounded(x, widen, by, bits, |x| float_rounded(fields(Format::E4M3), x)),
            Format::E5M2 => each_rounded(x, widen, by, bits, |x| float_rounded(fields(Format::E5M2), x)),
            Format::E3M2 => each_rounded(x, widen, by, bits, |x| float_rounded(fields(Format::E3M2), x)),
            Format::E2M3 => each_rounded(x, widen, by, bits, |x| float_rounded(fields(Format::E2M3), x)),
            Format::E2M1 => each_rounded(x, widen, by, bits, |x| float_rounded(fields(Format::E2M1), x)),
            Format::E8M0 => each_rounded(x, widen, by, bits, |x| self.decode(&[power_of_two(x)])[0]),
            Format::Int8 => each_rounded(x, widen, by, bits, integer_rounded::<8>),
            Format::Int4 => each_rounded(x, widen, by, bits, integer_rounded::<4>),
        }
        Ok(())
    }

    #[inline(always)]
    fn encode_all(self, x: &[f32], overflow: Overflow, codes: &mut [u8]) {
        match self {
            Format::E4M3 => each_float(fields(Format::E4M3), x, overflow, codes),
            Format::E5M2 => each_float(fields(Format::E5M2), x, overflow, codes),
            Format::E3M2 => each_float(fields(Format::E3M2), x, overflow, codes),
            Format::E2M3 => each_float(fields(Format::E2M3), x, overflow, codes),
            Format::E2M1 => each_float(fields(Format::E2M1), x, overflow, codes),
            Format::E8M0 => each(x, codes, power_of_two),
            Format::Int8 => each(x, codes, integer::<8>),
            Format::Int4 => each(x, codes, integer::<4>),
        }
    }

    #[inline(always)]
    pub(crate) fn decode_all(self, codes: &[u8], x: &mut [f32]) {
        match self {
            Format::E4M3 => each(codes, x, |code| float_of(fields(Format::E4M3), code)),
            Format::E5M2 => each(codes, x, |code| float_of(fields(Format::E5M2), code)),
            Format::E3M2 => each(codes, x, |code| float_of(fields(Format::E3M2), code)),
            Format::E2M3 => each(codes, x, |code| float_of(fields(Format::E2M3), code)),
            Format::E2M1 => each(codes, x, |code| float_of(fields(Format::E2M1), code)),
            Format::E8M0 => each(codes, x, |code| match code {
                0xff => f32::NAN,
                // 2^-127 is subnormal.
                0 => f32::from_bits(1 << 22),
                code => f32::from_bits(u32::from(code) << 23),
            }),
            Format::Int8 => each(codes, x, |code| f32::from(code as i8)),
            Format::Int4 => each(codes, x, |code| f32::from((code << 4) as i8 >> 4)),
        }
    }
}

fn same_length(from: usize, to: usize) -> Result<()> {
    match from == to {
        true => Ok(()),
        false => Err(Error::shape(format!("expected a slice of {from} elements, got {to}"))),
    }
}

/// Returns the fields of a format that has them, as a constant, so that each loop is compiled for one format.
#[inline(always)]
const fn fields(format: Format) -> Float {
    match format.float() {
        Some(float) => float,
        None => unreachable!(),
    }
}

#[inline(always)]
fn each<A: Copy, B>(from: &[A], to: &mut [B], convert: impl Fn(A) -> B) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to = convert(from);
    }
}

#[inline(always)]
fn each_rounded<X: Copy>(
    x: &[X],
    widen: impl Fn(X) -> f32,
    [up, down]: [f32; 2],
    bits: &mut [u16],
    round: impl Fn(f32) -> f32,
) {
    each(x, bits, |x| bf16_bits(round(widen(x) * up) * down));
}

/// Returns the bits of the nearest bf16, ties to even.
#[inline(always)]
fn bf16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16;
    // A NaN stays one.
    if x.is_nan() { (bits >> 16) as u16 | 1 << 6 } else { rounded }
}

#[inline(always)]
fn each_random(x: &[f32], random: &[u32], codes: &mut [u8], convert: impl Fn(f32, u32) -> u8) {
    for ((code, &x), &bits) in codes.iter_mut().zip(x).zip(random) {
        *code = convert(x, bits);
    }
}

#[inline(always)]
fn each_float(float: Float, x: &[f32], overflow: Overflow, codes: &mut [u8]) {
    match overflow {
        Overflow::Saturate => each(x, codes, |x| float_nearest(float, float.bits(float.largest), x)),
        Overflow::NonFinite => each(x, codes, |x| float_nearest(float, float.bits(float.over), x)),
    }
}

/// Returns the code of a number; one above the limit, given as bits, has the code of the limit.
///
/// The magnitude is added to a power of two whose last bit is the last bit of the format at this exponent. So the
/// addition rounds to nearest even, and its lower bits are the mantissa, with the hidden bit above it for a normal number.
#[inline(always)]
fn float_nearest(float: Float, limit: u32, x: f32) -> u8 {
    let magnitude = x.to_bits() & !(1 << 31);
    let clamped = magnitude.min(limit);
    let power = exponent(float, clamped);
    let aligned = power + ((23 - float.mantissa) << 23);
    let units = (f32::from_bits(clamped) + f32::from_bits(aligned)).to_bits() - aligned;
    finish(float, x, magnitude, power, units)
}

/// Returns the number of the code of [`float_nearest`]: without the bits of the power of two, the sum is the rounded magnitude.
#[inline(always)]
fn float_rounded(float: Float, x: f32) -> f32 {
    let magnitude = x.to_bits() & !(1 << 31);
    let clamped = magnitude.min(float.bits(float.largest));
    let aligned = f32::from_bits(exponent(float, clamped) + ((23 - float.mantissa) << 23));
    let rounded = ((f32::from_bits(clamped) + aligned) - aligned).to_bits() | x.to_bits() & 1 << 31;
    let nan = if float.nan.is_some() { INFINITY | 1 << 22 | x.to_bits() & 1 << 31 } else { 0 };
    f32::from_bits(if magnitude > INFINITY { nan } else { rounded })
}

/// Returns the code of a number rounded by the first bits of `random`, as [`float_nearest`] with a power of two that is
/// large enough for no carry, and as many bits below the code as f32 has.
#[inline(always)]
fn float_stochastic(float: Float, x: f32, random: u32) -> u8 {
    let below = 21 - float.mantissa;
    let magnitude = x.to_bits() & !(1 << 31);
    let clamped = magnitude.min(float.bits(float.largest));
    let power = exponent(float, clamped);
    let aligned = power + (2 << 23);
    let units = (f32::from_bits(clamped) + f32::from_bits(aligned)).to_bits() - aligned;
    finish(float, x, magnitude, power, (units + (random >> (32 - below))) >> below)
}

/// Returns the power of two of a magnitude, as bits; of a subnormal one that of the smallest normal number.
#[inline(always)]
fn exponent(float: Float, magnitude: u32) -> u32 {
    magnitude.max(float.smallest_normal()) & INFINITY
}

/// Returns the code of a rounded number, whose last bits count as many units of the format.
#[inline(always)]
fn finish(float: Float, x: f32, magnitude: u32, power: u32, units: u32) -> u8 {
    let code = ((power - float.smallest_normal()) >> (23 - float.mantissa)) + units;
    let sign = (x.to_bits() >> 31) << float.sign;
    let nan = match float.nan {
        Some(nan) => nan | sign,
        None => 0,
    };
    (if magnitude > INFINITY { nan } else { code | sign }) as u8
}

/// Returns the number of a code. A subnormal one is built as a normal one, from which the hidden bit is subtracted.
#[inline(always)]
fn float_of(float: Float, code: u8) -> f32 {
    let code = u32::from(code);
    let magnitude = code & ((1 << float.sign) - 1);
    let is_subnormal = magnitude < 1 << float.mantissa;
    let hidden = if is_subnormal { float.smallest_normal() } else { 0 };
    let bits = float.bits(magnitude) + if is_subnormal { 1 << 23 } else { 0 };
    let finite = (f32::from_bits(bits) - f32::from_bits(hidden)).to_bits();
    let special = if magnitude == float.over && float.nan != Some(float.over) { INFINITY } else { INFINITY | 1 << 22 };
    let value = if magnitude > float.largest { special } else { finite };
    f32::from_bits(value | (code >> float.sign & 1) << 31)
}

/// Returns the code of the nearest power of two; that of NaN for a number without one.
#[inline(always)]
fn power_of_two(x: f32) -> u8 {
    /// 2^-127, which is subnormal.
    const SMALLEST: u32 = 1 << 22;
    /// 1.5 * 2^127; negative numbers have larger bits.
    const ABOVE: u32 = 0x7f40_0000;
    let bits = x.to_bits();
    let code = if bits <= SMALLEST { 0 } else { bits.wrapping_add(1 << 22) >> 23 };
    (if bits == 0 || bits >= ABOVE { 0xff } else { code }) as u8
}

/// Returns a number clamped to an integer format of so many bits; NaN is 0.
#[inline(always)]
fn clamped<const BITS: u32>(x: f32) -> f32 {
    let (least, most) = (-((1 << (BITS - 1)) as f32), ((1 << (BITS - 1)) - 1) as f32);
    // Comparisons in this order keep a NaN, which the last one replaces.
    let x = if x > most { most } else { x };
    let x = if x < least { least } else { x };
    if x.is_nan() { 0.0 } else { x }
}

/// Returns the code of the nearest integer, by the lower bits of a sum without fraction.
#[inline(always)]
fn integer<const BITS: u32>(x: f32) -> u8 {
    let units = (clamped::<BITS>(x) + (3 << 22) as f32).to_bits();
    units as u8 & (((1u32 << BITS) - 1) as u8)
}

/// Returns the number of the code of [`integer`].
#[inline(always)]
fn integer_rounded<const BITS: u32>(x: f32) -> f32 {
    const POWER: f32 = (3 << 22) as f32;
    (clamped::<BITS>(x) + POWER) - POWER
}

/// As [`integer`], with the first bits of `random` added to the fraction.
#[inline(always)]
fn integer_stochastic<const BITS: u32>(x: f32, random: u32) -> u8 {
    let units = (clamped::<BITS>(x) + (3 << (22 - INTEGER_BITS)) as f32).to_bits();
    let rounded = (units + (random >> (32 - INTEGER_BITS))) >> INTEGER_BITS;
    rounded as u8 & (((1u32 << BITS) - 1) as u8)
}
