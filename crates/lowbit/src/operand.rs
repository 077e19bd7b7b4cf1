//! Operands of products, and matrices quantized as one.

use std::{borrow::Cow, fmt};

use precast_base::{Error, Result};

use crate::{
    codec::Overflow,
    delayed::check_scale,
    format::Format,
    hadamard,
    matrix::{Matrix, magnitude},
    quantized::{Quantized, Scales},
    scale::{Factors, Granularity, Rule, ScaleRule, Stored},
    stream::Stream,
};

/// The rounding of codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// To nearest even.
    #[default]
    Nearest,
    /// To one of the two neighbours, with a probability given by the proximity.
    Stochastic,
}

impl Rounding {
    /// Both.
    pub const ALL: [Rounding; 2] = [Rounding::Nearest, Rounding::Stochastic];

    /// Returns the name in policies: `nearest`.
    pub const fn name(self) -> &'static str {
        match self {
            Rounding::Nearest => "nearest",
            Rounding::Stochastic => "stochastic",
        }
    }
}

/// The quantization of one operand of a product.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Operand {
    /// Format of the codes.
    pub format: Format,
    /// Numbers that share a scale.
    pub granularity: Granularity,
    /// Scale of such a group.
    pub scale: ScaleRule,
    /// Rounding of the codes. Default: nearest.
    pub rounding: Rounding,
    /// Transform each 16 numbers of a row, as NVFP4 does. Default: false.
    pub hadamard: bool,
}

impl fmt::Display for Operand {
    /// Formats it in a few words: `e4m3 by blocks of 1 x 32, e8m0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operand { format, granularity, scale, rounding, hadamard } = self;
        write!(f, "{format} by {granularity}, {scale}")?;
        f.write_str(if *rounding == Rounding::Stochastic { ", stochastic" } else { "" })?;
        f.write_str(if *hadamard { ", transformed" } else { "" })
    }
}

impl Operand {
    /// Creates an operand that is rounded to nearest and not transformed.
    pub const fn new(format: Format, granularity: Granularity, scale: ScaleRule) -> Self {
        Operand { format, granularity, scale, rounding: Rounding::Nearest, hadamard: false }
    }

    /// Returns the operand with this rounding.
    #[must_use]
    pub const fn rounded(self, rounding: Rounding) -> Self {
        Operand { rounding, ..self }
    }

    /// Returns the operand with the Hadamard transform.
    #[must_use]
    pub const fn transformed(self) -> Self {
        Operand { hadamard: true, ..self }
    }

    /// Quantizes a matrix. The codes of numbers above the range are saturated. `random` is used by stochastic rounding alone.
    ///
    /// # Errors
    /// - [`ErrorKind::Value`](precast_base::ErrorKind::Value) when a number is not finite, or the scale is
    ///   [delayed](ScaleRule::Delayed): [`quantize_by`](Operand::quantize_by) takes that one.
    /// - [`ErrorKind::Shape`](precast_base::ErrorKind::Shape) when blocks do not divide the matrix.
    /// - [`ErrorKind::Unsupported`](precast_base::ErrorKind::Unsupported) for elements of `e8m0`, and for NVFP4 scales of
    ///   another format than `e2m1`.
    ///
    /// ```
    /// use precast_lowbit::{Format, Granularity, Matrix, MxMode, Operand, ScaleRule, Stream};
    ///
    /// let x: Vec<f32> = (0..64).map(|i| i as f32).collect();
    /// let blocks = Granularity::Block { rows: 1, columns: 32 };
    /// let operand = Operand::new(Format::E4M3, blocks, ScaleRule::Mx(MxMode::Floor));
    /// let quantized = operand.quantize(Matrix::new(&x, 1, 64)?, Stream::new(0, "x", 0))?;
    /// // The scale of the second block is 2^(5 - 8). 63 * 2^3 is above the range: it saturates to 448.
    /// assert_eq!(quantized.codes()[63], 0x7e);
    /// assert_eq!(quantized.decode()[63], 56.0);
    /// # Ok::<(), precast_base::Error>(())
    /// ```
    pub fn quantize(&self, x: Matrix<'_>, random: Stream) -> Result<Quantized> {
        let (numbers, amax) = self.numbers(&x)?;
        let rule = match self.scale {
            ScaleRule::F32 { power_of_two, eps } => Rule::F32 { power_of_two, eps },
            ScaleRule::Mx(mode) => Rule::Mx(mode),
            ScaleRule::Nvfp4(_) if self.format != Format::E2M1 => {
                return Err(Error::unsupported(format!("scales of NVFP4 are for e2m1, not for {}", self.format)));
            }
            ScaleRule::Nvfp4(order) => Rule::nvfp4(order, amax),
            ScaleRule::Delayed(_) => {
                return Err(Error::value("delayed scaling quantizes by the scale of its history, and none is given"));
            }
        };
        self.groups(&x, &numbers, rule, random)
    }

    /// Quantizes a matrix as [`quantize`](Operand::quantize) does, by a scale that is given: numbers are multiplied by it, and
    /// those above the range are saturated.
    ///
    /// # Errors
    /// As there; [`ErrorKind::Value`](precast_base::ErrorKind::Value) also when the scale is not positive and finite.
    pub fn quantize_by(&self, x: Matrix<'_>, scale: f32, random: Stream) -> Result<Quantized> {
        check_scale(scale)?;
        let (numbers, _) = self.numbers(&x)?;
        self.groups(&x, &numbers, Rule::Given(scale), random)
    }

    /// Returns the factors of a group whose largest magnitude is this finite number: the one by which numbers are multiplied before
    /// they are rounded, and the one by which the numbers of codes are; `None` if they do not depend on the group alone.
    pub fn group_factors(&self, amax: f32) -> Option<(f32, f32)> {
        let rule = match self.scale {
            ScaleRule::F32 { power_of_two, eps } => Rule::F32 { power_of_two, eps },
            ScaleRule::Mx(mode) => Rule::Mx(mode),
            ScaleRule::Nvfp4(_) | ScaleRule::Delayed(_) => return None,
        };
        let Factors { encode, decode } = rule.factors(self.format, amax);
        let decode = match decode {
            Stored::F32(decode) => decode,
            Stored::Code(code) => Format::E8M0.decode(&[code])[0],
        };
        Some((encode, decode))
    }

    /// Returns the numbers row by row, transformed if this operand says so, and the largest magnitude of them.
    fn numbers<'a>(&self, x: &Matrix<'a>) -> Result<(Cow<'a, [f32]>, f32)> {
        if self.format == Format::E8M0 {
            return Err(Error::unsupported("e8m0 is a format of scales; it has no zero and no sign"));
        }
        let amax = x.amax()?;
        if !self.hadamard {
            return Ok((x.row_major(), amax));
        }
        if !x.columns().is_multiple_of(hadamard::WIDTH) {
            return Err(Error::shape(format!("rows of {} numbers have no blocks of {}", x.columns(), hadamard::WIDTH)));
        }
        let mut numbers = x.row_major().into_owned();
        hadamard::transform(&mut numbers);
        let amax = magnitude(&numbers);
        match amax.is_finite() {
            true => Ok((Cow::Owned(numbers), amax)),
            false => Err(Error::value("the Hadamard transform of these numbers is not finite")),
        }
    }

    /// Quantizes numbers, given row by row: the scale of each group, and the codes.
    fn groups(&self, x: &Matrix<'_>, numbers: &[f32], rule: Rule, random: Stream) -> Result<Quantized> {
        let shape = [x.rows(), x.columns()];
        let [down, across] = self.granularity.groups(shape)?;
        let [height, width] = [shape[0] / down.max(1), shape[1] / across.max(1)];
        let mut scales = Scales::empty(rule);
        let mut codes = vec![0; numbers.len()];
        let (mut scaled, mut bits) = (vec![0.0; shape[1]], vec![0; shape[1]]);
        for group in 0..down {
            let rows = group * height..(group + 1) * height;
            let encode: Vec<f32> = (0..across)
                .map(|column| {
                    let part = |row| &numbers[row * shape[1]..][column * width..(column + 1) * width];
                    let amax = rows.clone().map(|row| magnitude(part(row))).fold(0.0, f32::max);
                    let Factors { encode, decode } = rule.factors(self.format, amax);
                    scales.push(decode);
                    encode
                })
                .collect();
            for row in rows.filter(|_| width > 0) {
                let at = row * shape[1]..(row + 1) * shape[1];
                let parts = scaled.chunks_exact_mut(width).zip(numbers[at.clone()].chunks_exact(width));
                for ((scaled, part), &encode) in parts.zip(&encode) {
                    scaled.iter_mut().zip(part).for_each(|(scaled, x)| *scaled = x * encode);
                }
                match self.rounding {
                    Rounding::Nearest => self.format.encode_into(&scaled, Overflow::Saturate, &mut codes[at])?,
                    Rounding::Stochastic => {
                        x.random(row, random, &mut bits);
                        self.format.encode_stochastic(&scaled, &bits, &mut codes[at])?;
                    }
                }
            }
        }
        Ok(Quantized::new(self.format, shape, [height, width], codes, scales))
    }
}
