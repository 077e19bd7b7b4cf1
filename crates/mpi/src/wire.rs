//! The form of numbers on their way between ranks.

use std::{fmt, str::FromStr};

use crate::error::{Error, ErrorKind};

/// The dtype in which numbers travel. Sums are computed in f32, whatever it is. Default: `float32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Wire {
    /// Numbers and sums in f32, 4 bytes each. The bits of a sum do not depend on the number of ranks.
    #[default]
    Float32,
    /// Numbers in bf16 to the rank that adds, rounded once to nearest even, and sums in f32 back. The sum of each node that
    /// a rank computes is rounded, so the bits depend on the number of ranks; the error does not grow with it.
    BFloat16,
    /// Numbers in bf16 to the rank that adds, and sums rounded to bf16 back.
    BFloat16Both,
}

impl Wire {
    /// All wires.
    pub const ALL: &'static [Wire] = &[Wire::Float32, Wire::BFloat16, Wire::BFloat16Both];

    /// Returns the name in files.
    pub fn name(self) -> &'static str {
        match self {
            Wire::Float32 => "float32",
            Wire::BFloat16 => "bfloat16",
            Wire::BFloat16Both => "bfloat16-both",
        }
    }

    /// Returns the format of the numbers to be added.
    pub(crate) fn there(self) -> Format {
        match self {
            Wire::Float32 => Format::Float32,
            Wire::BFloat16 | Wire::BFloat16Both => Format::BFloat16,
        }
    }

    /// Returns the format of the sums.
    pub(crate) fn back(self) -> Format {
        match self {
            Wire::Float32 | Wire::BFloat16 => Format::Float32,
            Wire::BFloat16Both => Format::BFloat16,
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Wire {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        if let Some(wire) = Wire::ALL.iter().copied().find(|wire| wire.name() == name) {
            return Ok(wire);
        }
        let words = match name {
            "float16" | "f16" | "fp16" | "half" => format!(
                "the wire `{name}` is not offered: sums of scaled f16 gradients overflow; allowed: `float32`, `bfloat16`, \
                 `bfloat16-both`"
            ),
            _ => {
                let long = name.replace("bf16", "bfloat16").replace("f32", "float32").replace('_', "-");
                let near = Wire::ALL.iter().find(|wire| wire.name() == long);
                let near = near.map_or(String::new(), |wire| format!(" (did you mean `{wire}`?)"));
                format!("met the wire `{name}`{near}; allowed: `float32`, `bfloat16`, `bfloat16-both`")
            }
        };
        Err(Error::new(ErrorKind::Argument, words))
    }
}

/// Rounds a number to bf16, to nearest even. A NaN remains one, and a number beyond the range becomes infinite.
#[inline]
pub fn to_bf16(number: f32) -> u16 {
    let bits = number.to_bits();
    // The quiet bit, since the upper half of a NaN may have no bit of its payload.
    let nan = bits | 0x40_0000;
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    // Narrowed with its sign, in one instruction for many numbers: ten times as fast beyond the caches.
    let upper = if number.is_nan() { nan } else { rounded } as i32 >> 16;
    upper as i16 as u16
}

/// Widens a bf16, exactly.
#[inline]
pub fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// One format of numbers in bytes, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Float32,
    BFloat16,
}

impl Format {
    /// Returns the bytes of a number.
    pub fn width(self) -> usize {
        match self {
            Format::Float32 => 4,
            Format::BFloat16 => 2,
        }
    }

    /// Writes numbers.
    pub fn write(self, numbers: &[f32], bytes: &mut [u8]) {
        match self {
            Format::Float32 => {
                let places = bytes.as_chunks_mut::<4>().0;
                places.iter_mut().zip(numbers).for_each(|(place, number)| *place = number.to_le_bytes());
            }
            Format::BFloat16 => {
                let places = bytes.as_chunks_mut::<2>().0;
                places.iter_mut().zip(numbers).for_each(|(place, number)| *place = to_bf16(*number).to_le_bytes());
            }
        }
    }

    /// Reads numbers.
    pub fn read(self, bytes: &[u8], numbers: &mut [f32]) {
        self.each(bytes, numbers, |number, met| *number = met);
    }

    /// Adds numbers to others, on their right.
    pub fn add(self, bytes: &[u8], numbers: &mut [f32]) {
        self.each(bytes, numbers, |number, met| *number += met);
    }

    /// Writes the sums of numbers and those on their right.
    pub fn sum(self, left: &[u8], right: &[u8], numbers: &mut [f32]) {
        match self {
            Format::Float32 => {
                let terms = left.as_chunks::<4>().0.iter().zip(right.as_chunks::<4>().0);
                let sums = terms.map(|(left, right)| f32::from_le_bytes(*left) + f32::from_le_bytes(*right));
                numbers.iter_mut().zip(sums).for_each(|(number, sum)| *number = sum);
            }
            Format::BFloat16 => {
                let terms = left.as_chunks::<2>().0.iter().zip(right.as_chunks::<2>().0);
                let number = |bytes: &[u8; 2]| from_bf16(u16::from_le_bytes(*bytes));
                let sums = terms.map(|(left, right)| number(left) + number(right));
                numbers.iter_mut().zip(sums).for_each(|(number, sum)| *number = sum);
            }
        }
    }

    #[inline(always)]
    fn each(self, bytes: &[u8], numbers: &mut [f32], store: impl Fn(&mut f32, f32)) {
        match self {
            Format::Float32 => {
                let met = bytes.as_chunks::<4>().0.iter().map(|met| f32::from_le_bytes(*met));
                numbers.iter_mut().zip(met).for_each(|(number, met)| store(number, met));
            }
            Format::BFloat16 => {
                let met = bytes.as_chunks::<2>().0.iter().map(|met| from_bf16(u16::from_le_bytes(*met)));
                numbers.iter_mut().zip(met).for_each(|(number, met)| store(number, met));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_upper_half_rounds_to_nearest_even() {
        for upper in 0..=u16::MAX {
            let exact = from_bf16(upper);
            if exact.is_nan() {
                assert!(from_bf16(to_bf16(exact)).is_nan());
                continue;
            }
            assert_eq!(to_bf16(exact), upper);
            if exact.is_infinite() {
                continue;
            }
            // The neighbour away from 0, halfway, and the numbers around halfway.
            let at = |low: u32| f32::from_bits((u32::from(upper) << 16) + low);
            assert_eq!(to_bf16(at(0x7fff)), upper);
            assert_eq!(to_bf16(at(0x8001)), upper + 1);
            assert_eq!(to_bf16(at(0x8000)), upper + (upper & 1), "{upper:#x}");
        }
        // A NaN whose payload is in the lower half alone.
        assert!(from_bf16(to_bf16(f32::from_bits(0x7f80_0001))).is_nan());
        assert!(from_bf16(to_bf16(f32::from_bits(0xffff_ffff))).is_nan());
        assert_eq!(from_bf16(to_bf16(f32::MAX)), f32::INFINITY);
    }

    #[test]
    fn f16_is_refused_by_name() {
        let error = "float16".parse::<Wire>().unwrap_err();
        assert!(error.to_string().contains("the wire `float16` is not offered"), "{error}");
        assert!("int8".parse::<Wire>().unwrap_err().to_string().contains("met the wire `int8`; allowed: `float32`"));
        for &wire in Wire::ALL {
            assert_eq!(wire.name().parse(), Ok(wire));
        }
    }
}
