//! Scales: a number for each group, by its largest magnitude.

use std::fmt;

use precast_base::{Error, Result};

use crate::{codec::Overflow, delayed::DelayedRule, format::Format};

/// The numbers of a matrix that share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// All.
    Tensor,
    /// A row.
    Rows,
    /// A block: some rows and columns of the matrix, which has a multiple of both.
    Block {
        /// Rows of a block.
        rows: usize,
        /// Columns of a block.
        columns: usize,
    },
}

impl fmt::Display for Granularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Granularity::Tensor => f.write_str("tensor"),
            Granularity::Rows => f.write_str("rows"),
            Granularity::Block { rows, columns } => write!(f, "blocks of {rows} x {columns}"),
        }
    }
}

impl fmt::Display for ScaleRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ScaleRule::F32 { power_of_two: false, .. } => "f32",
            ScaleRule::F32 { power_of_two: true, .. } => "powers of two",
            ScaleRule::Mx(_) => "e8m0",
            ScaleRule::Nvfp4(_) => "e4m3",
            ScaleRule::Delayed(_) => "delayed",
        })
    }
}

impl Granularity {
    /// Checks that groups divide a matrix of rows and columns.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](precast_base::ErrorKind::Shape) when they do not.
    pub fn check(self, shape: [usize; 2]) -> Result<()> {
        self.groups(shape).map(drop)
    }

    /// Returns the number of groups over the rows and over the columns of a matrix.
    pub(crate) fn groups(self, [rows, columns]: [usize; 2]) -> Result<[usize; 2]> {
        match self {
            Granularity::Tensor => Ok([1, 1]),
            Granularity::Rows => Ok([rows, 1]),
            Granularity::Block { rows: height, columns: width } => {
                match rows.checked_rem(height) == Some(0) && columns.checked_rem(width) == Some(0) {
                    true => Ok([rows / height, columns / width]),
                    false => Err(Error::shape(format!(
                        "blocks of {height} x {width} do not divide a matrix of shape [{rows}, {columns}]"
                    ))),
                }
            }
        }
    }
}

/// The rule by which the scale of a group follows from its largest magnitude, amax.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ScaleRule {
    /// An f32: [`amax_to_scale`] for floating-point formats. For integers, numbers are multiplied by
    /// 1 / max(amax / largest, eps) and codes by amax / largest, as torchao does.
    F32 {
        /// Round the scale down to a power of two.
        power_of_two: bool,
        /// Least amax.
        eps: f64,
    },
    /// A power of two, stored as `e8m0`: MX.
    Mx(MxMode),
    /// An `e4m3` for each block, times an f32 of the tensor: NVFP4.
    Nvfp4(Nvfp4),
    /// An f32 from the amax of earlier steps, [`Delayed`](crate::Delayed).
    Delayed(DelayedRule),
}

/// The power of two of an MX block; emax is the exponent of the largest number of the format, and 2^-127 the scale of a
/// block of zeros. The modes are those of torchao.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MxMode {
    /// floor(log2(amax)) - emax: the OCP specification. The largest numbers of a block may saturate.
    Floor,
    /// ceil(log2(amax / largest)): NVIDIA's products, and the training of torchao. Nothing saturates.
    RCeil,
    /// ceil(log2(amax)) - emax.
    Ceil,
    /// As [`Floor`](MxMode::Floor), of amax rounded to the mantissa of the format, half a unit up.
    Even,
}

/// The order of operations of NVFP4, on which single codes depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nvfp4 {
    /// Transformer Engine's: the tensor is scaled by 2688 / amax, so that its largest block scale is 448.
    TransformerEngine,
    /// torchao's: as above, in other steps. A block scale is at least 2^-6, so blocks far below the largest lose digits.
    Torchao,
    /// torchao's without a scale of the tensor.
    OneLevel,
}

/// Returns the factor by which numbers are multiplied before they are rounded to a floating-point format: the f32 next to
/// largest / max(amax, eps), the largest f32 where that overflows, 1 where amax and eps are 0.
///
/// `eps` is 1e-12 in torchao and 0 in Transformer Engine. With `power_of_two` the factor is rounded down to one.
///
/// # Errors
/// [`ErrorKind::Value`](precast_base::ErrorKind::Value) when amax is infinite, NaN or negative.
///
/// ```
/// use precast_lowbit::{Format, amax_to_scale};
///
/// assert_eq!(amax_to_scale(Format::E4M3, 3.0, false, 1e-12)?, 448.0 / 3.0);
/// assert_eq!(amax_to_scale(Format::E4M3, 3.0, true, 1e-12)?, 128.0);
/// # Ok::<(), precast_base::Error>(())
/// ```
pub fn amax_to_scale(format: Format, amax: f32, power_of_two: bool, eps: f64) -> Result<f32> {
    if !amax.is_finite() || amax.is_sign_negative() {
        return Err(Error::value(format!("a largest magnitude is finite and not negative, got {amax}")));
    }
    Ok(scale(format, amax, power_of_two, eps))
}

/// [`amax_to_scale`] of a finite amax.
fn scale(format: Format, amax: f32, power_of_two: bool, eps: f64) -> f32 {
    let amax = f64::from(amax).max(eps);
    let scale = if amax == 0.0 { 1.0 } else { (f64::from(format.largest()) / amax) as f32 };
    let scale = scale.min(f32::MAX);
    if power_of_two { f32::from_bits(scale.to_bits() & 0xff80_0000) } else { scale }
}

/// The factors of one group.
pub(crate) struct Factors {
    /// Multiplied with numbers before they are rounded.
    pub encode: f32,
    /// Multiplied with the numbers of codes.
    pub decode: Stored,
}

/// A stored scale: an f32, or a code of `e8m0` or `e4m3`.
pub(crate) enum Stored {
    F32(f32),
    Code(u8),
}

/// A rule with the facts about the whole tensor that it needs.
#[derive(Clone, Copy)]
pub(crate) enum Rule {
    F32 {
        power_of_two: bool,
        eps: f64,
    },
    Mx(MxMode),
    /// The two factors of the tensor.
    Nvfp4 {
        order: Nvfp4,
        encode: f32,
        decode: f32,
    },
    /// The scale itself.
    Given(f32),
}

impl Rule {
    /// Creates the rule of NVFP4 for a tensor, by its amax.
    pub fn nvfp4(order: Nvfp4, amax: f32) -> Rule {
        let most = Format::E4M3.largest() * Format::E2M1.largest();
        let (encode, decode) = match order {
            Nvfp4::OneLevel => (1.0, 1.0),
            _ if amax == 0.0 => (1.0, 1.0),
            Nvfp4::Torchao => (1.0 / (amax / most), amax / most),
            Nvfp4::TransformerEngine => {
                let encode = (most / amax).min(f32::MAX);
                (encode, 1.0 / encode)
            }
        };
        Rule::Nvfp4 { order, encode, decode }
    }

    /// Returns the factors of a group, by its amax, which is finite.
    pub fn factors(self, format: Format, amax: f32) -> Factors {
        match self {
            Rule::F32 { power_of_two: false, eps } if format.float().is_none() && f64::from(amax).max(eps) > 0.0 => {
                let decode = amax / format.largest();
                Factors { encode: (1.0 / f64::from(decode).max(eps)) as f32, decode: Stored::F32(decode) }
            }
            Rule::F32 { power_of_two, eps } => given(scale(format, amax, power_of_two, eps)),
            Rule::Given(scale) => given(scale),
            Rule::Mx(mode) => {
                let exponent = mx_exponent(mode, format, amax);
                Factors { encode: power(-exponent), decode: Stored::Code((exponent + 127) as u8) }
            }
            Rule::Nvfp4 { order, encode, decode } => nvfp4(order, encode, decode, amax),
        }
    }
}

fn given(encode: f32) -> Factors {
    Factors { encode, decode: Stored::F32(1.0 / encode) }
}

/// Returns 2^exponent, for -127 to 127.
fn power(exponent: i32) -> f32 {
    // 2^-127 is subnormal.
    if exponent == -127 { f32::from_bits(1 << 22) } else { f32::from_bits(((exponent + 127) as u32) << 23) }
}

/// Returns floor(log2(x)) for a positive f32, which is a normal f64.
fn floor_log2(x: f32) -> i32 {
    (f64::from(x).to_bits() >> 52) as i32 - 1023
}

fn ceil_log2(x: f32) -> i32 {
    let is_power = f64::from(x).to_bits() << 12 == 0;
    floor_log2(x) + i32::from(!is_power)
}

fn mx_exponent(mode: MxMode, format: Format, amax: f32) -> i32 {
    let emax = floor_log2(format.largest());
    let ratio = amax / format.largest();
    let exponent = match mode {
        _ if amax == 0.0 => -127,
        MxMode::Floor => floor_log2(amax) - emax,
        MxMode::Ceil => ceil_log2(amax) - emax,
        MxMode::RCeil if ratio == 0.0 => -127,
        MxMode::RCeil => ceil_log2(ratio),
        MxMode::Even => {
            // Half of the last bit of the mantissa; the carry from the largest f32 is the exponent 128.
            let mantissa = format.float().map_or(format.bits() - 2, |float| float.mantissa);
            let rounded = amax.to_bits() + (1 << (22 - mantissa));
            (rounded >> 23) as i32 - 127 - emax
        }
    };
    exponent.clamp(-127, 127)
}

/// Returns the factors of a block in NVFP4, by those of the tensor. The order of the operations in f32 is part of the recipe.
fn nvfp4(order: Nvfp4, encode: f32, decode: f32, amax: f32) -> Factors {
    let block = match order {
        Nvfp4::TransformerEngine => amax * (encode * (1.0 / 6.0)),
        Nvfp4::Torchao | Nvfp4::OneLevel => (amax / 6.0 / decode).max(0.015625),
    };
    let code = Format::E4M3.encode(&[block], Overflow::Saturate)[0];
    let block = Format::E4M3.decode(&[code])[0];
    let encode = match order {
        Nvfp4::TransformerEngine => 1.0 / (block * decode),
        Nvfp4::Torchao | Nvfp4::OneLevel => encode / block,
    };
    Factors { encode: encode.min(f32::MAX), decode: Stored::Code(code) }
}
