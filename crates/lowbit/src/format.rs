//! The formats: names, limits, and the fields of their codes.

use std::{fmt, str::FromStr};

use precast_base::{Error, Result, names::by_name};

/// A format of 4 to 8 bits. A code is in the low bits of a byte.
///
/// | format | fields (sign, exponent, mantissa) | bias | largest | smallest | codes of infinity and NaN |
/// | --- | --- | --- | --- | --- | --- |
/// | `e4m3` | 1, 4, 3 | 7 | 448 | 2^-9 | NaN 0x7f, 0xff |
/// | `e5m2` | 1, 5, 2 | 15 | 57344 | 2^-16 | infinity 0x7c, 0xfc; NaN the three above each |
/// | `e3m2` | 1, 3, 2 | 3 | 28 | 2^-4 | none |
/// | `e2m3` | 1, 2, 3 | 1 | 7.5 | 2^-3 | none |
/// | `e2m1` | 1, 2, 1 | 1 | 6 | 2^-1 | none |
/// | `e8m0` | 0, 8, 0 | 127 | 2^127 | 2^-127 | NaN 0xff |
/// | `int8` | two's complement | | 127 | 1 | none |
/// | `int4` | two's complement | | 7 | 1 | none |
///
/// Sources: OCP 8-bit floating point 1.0 (`e4m3` is its E4M3, called `float8_e4m3fn` elsewhere) and OCP Microscaling
/// formats 1.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// FP8 with four bits of exponent: `float8_e4m3fn`.
    E4M3,
    /// FP8 with five bits of exponent: `float8_e5m2`.
    E5M2,
    /// FP6 with three bits of exponent.
    E3M2,
    /// FP6 with two bits of exponent.
    E2M3,
    /// FP4.
    E2M1,
    /// A power of two without sign and zero: the scales of MX.
    E8M0,
    /// Integers of -128 to 127.
    Int8,
    /// Integers of -8 to 7.
    Int4,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 8] = [
        Format::E4M3,
        Format::E5M2,
        Format::E3M2,
        Format::E2M3,
        Format::E2M1,
        Format::E8M0,
        Format::Int8,
        Format::Int4,
    ];

    /// The formats of numbers: all but the scales of MX.
    pub const NUMBERS: [Format; 7] =
        [Format::E4M3, Format::E5M2, Format::E3M2, Format::E2M3, Format::E2M1, Format::Int8, Format::Int4];

    /// Returns whether its codes have an exponent: all but `int8` and `int4`.
    pub fn is_floating(self) -> bool {
        self.float().is_some()
    }

    /// Returns the name in policies: `e4m3`.
    pub const fn name(self) -> &'static str {
        match self {
            Format::E4M3 => "e4m3",
            Format::E5M2 => "e5m2",
            Format::E3M2 => "e3m2",
            Format::E2M3 => "e2m3",
            Format::E2M1 => "e2m1",
            Format::E8M0 => "e8m0",
            Format::Int8 => "int8",
            Format::Int4 => "int4",
        }
    }

    /// Returns the number of bits of a code.
    pub const fn bits(self) -> u32 {
        match self {
            Format::E4M3 | Format::E5M2 | Format::E8M0 | Format::Int8 => 8,
            Format::E3M2 | Format::E2M3 => 6,
            Format::E2M1 | Format::Int4 => 4,
        }
    }

    /// Returns the largest finite number.
    pub const fn largest(self) -> f32 {
        match self {
            Format::E4M3 => 448.0,
            Format::E5M2 => 57344.0,
            Format::E3M2 => 28.0,
            Format::E2M3 => 7.5,
            Format::E2M1 => 6.0,
            Format::E8M0 => f32::from_bits(0x7f00_0000),
            Format::Int8 => 127.0,
            Format::Int4 => 7.0,
        }
    }

    /// Returns the fields of a floating-point format with a sign; `None` for the other three.
    #[inline(always)]
    pub(crate) const fn float(self) -> Option<Float> {
        const fn float(sign: u32, mantissa: u32, bias: u32, largest: u32) -> Float {
            Float { sign, mantissa, bias, largest, over: largest, nan: None }
        }
        match self {
            Format::E4M3 => Some(Float { over: 0x7f, nan: Some(0x7f), ..float(7, 3, 7, 0x7e) }),
            Format::E5M2 => Some(Float { over: 0x7c, nan: Some(0x7f), ..float(7, 2, 15, 0x7b) }),
            Format::E3M2 => Some(float(5, 2, 3, 0x1f)),
            Format::E2M3 => Some(float(5, 3, 1, 0x1f)),
            Format::E2M1 => Some(float(3, 1, 1, 0x7)),
            Format::E8M0 | Format::Int8 | Format::Int4 => None,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = Error;

    /// Reads the name.
    fn from_str(text: &str) -> Result<Self> {
        by_name(text, Format::ALL, Format::name, "unknown format").map_err(Error::value)
    }
}

/// The fields of the codes of a floating-point format with a sign. Codes without sign are in the order of their numbers.
#[derive(Clone, Copy)]
pub(crate) struct Float {
    /// Place of the sign bit.
    pub sign: u32,
    /// Bits of the mantissa.
    pub mantissa: u32,
    pub bias: u32,
    /// Code of the largest finite number.
    pub largest: u32,
    /// Code of a number that is rounded to more than the largest: infinity, NaN, or the largest in a format without both.
    pub over: u32,
    /// Code of NaN.
    pub nan: Option<u32>,
}

impl Float {
    /// Returns the bits of the f32 whose code, read as that of a finite number, is this one; for codes of normal numbers.
    #[inline(always)]
    pub const fn bits(self, code: u32) -> u32 {
        (code << (23 - self.mantissa)) + ((127 - self.bias) << 23)
    }

    /// Returns the bits of the smallest normal number.
    #[inline(always)]
    pub const fn smallest_normal(self) -> u32 {
        (128 - self.bias) << 23
    }
}
