//! Conversions between f32 and the codes of `precast-lowbit`, with the widest vectors of the machine. The loops are those of
//! that package, and so are the bits.

use half::{bf16, slice::HalfFloatSliceExt};
use precast_base::Result;
pub use precast_lowbit::{Delayed, DelayedRule, Matrix, Operand, Overflow, ScaleRule, Stream, amax_to_scale};
use precast_lowbit::{Format, Granularity, Rounding, magnitude};

use crate::{
    elementwise::{BLOCK, peak::Magnitude},
    float::Float,
    memory::{Pooled, uninit_vec},
    simd::vectorized,
    threads,
};

/// Runs loops over codes of a format in vectors: one copy for each format, small enough to be compiled for each width.
macro_rules! each_format {
    ($format:expr, $of:ident => $body:expr) => {
        each_format!($format, $of => $body; E4M3, E5M2, E3M2, E2M3, E2M1, E8M0, Int8, Int4)
    };
    ($format:expr, $of:ident => $body:expr; $($name:ident),*) => {
        match $format {
            $(Format::$name => {
                const FORMAT: Format = Format::$name;
                vectorized(|| {
                    let $of = FORMAT;
                    $body
                })
            })*
            other => {
                let $of = other;
                $body
            }
        }
    };
}

/// Writes the code of each number, as [`Format::encode_into`] does.
///
/// # Errors
/// As there.
pub fn encode(format: Format, x: &[f32], overflow: Overflow, codes: &mut [u8]) -> Result<()> {
    each_format!(format, of => of.encode_into(x, overflow, codes))
}

/// Writes the code of each number, as [`Format::encode_stochastic`] does. The first is number `first` of the tensor of the
/// random bits.
///
/// # Errors
/// As there.
pub fn encode_stochastic(format: Format, x: &[f32], random: (Stream, usize), codes: &mut [u8]) -> Result<()> {
    let (stream, mut first) = random;
    let mut bits = [0; BLOCK];
    // The lengths are compared by the last call, which has what is left of both.
    let (mut x, mut codes) = (x, codes);
    while x.len().min(codes.len()) > BLOCK {
        let (of_x, of_codes);
        (of_x, x) = x.split_at(BLOCK);
        (of_codes, codes) = codes.split_at_mut(BLOCK);
        vectorized(|| stream.fill(first, &mut bits));
        each_format!(format, of => of.encode_stochastic(of_x, &bits, of_codes))?;
        first += BLOCK;
    }
    let bits = &mut bits[..x.len().min(BLOCK)];
    vectorized(|| stream.fill(first, bits));
    each_format!(format, of => of.encode_stochastic(x, bits, codes))
}

/// Writes the number of each code, as [`Format::decode_into`] does.
///
/// # Errors
/// As there.
pub fn decode(format: Format, codes: &[u8], x: &mut [f32]) -> Result<()> {
    each_format!(format, of => of.decode_into(codes, x))
}

/// Writes each number as that of its code, as [`Format::round_into`] does.
fn round_into<T: Float<Wide = f32>>(format: Format, x: &[T], by: [f32; 2], to: &mut [bf16]) -> Result<()> {
    let bits = to.reinterpret_cast_mut();
    if T::WIDENS_IN_LOOPS {
        return each_format!(format, of => of.round_into(x, T::widen, by, bits));
    }
    let mut space = uninit_vec(x.len());
    let wide = T::widened(x, &mut space);
    each_format!(format, of => of.round_into(wide, |x| x, by, bits))
}

/// An operand of a product: numbers, row by row, and the scale of each row, or one for all.
#[derive(Debug)]
pub struct Factors {
    /// The numbers, which are those of codes, with the scales of blocks.
    pub numbers: Pooled<bf16>,
    /// The scales.
    pub scales: Vec<f32>,
}

/// Quantizes an operand of a product, as [`Operand::quantize`] does, or [`Operand::quantize_by`] a scale that is given: a
/// matrix of rows and columns, or its transpose. All numbers are finite.
///
/// # Errors
/// As there.
pub fn factors<T: Float<Wide = f32>>(
    operand: &Operand,
    x: &[T],
    [rows, columns]: [usize; 2],
    is_transposed: bool,
    scale: Option<f32>,
    random: Stream,
) -> Result<Factors> {
    let is_random = operand.rounding == Rounding::Stochastic;
    let by_groups =
        scale.is_some() || operand.granularity != Granularity::Tensor && operand.group_factors(1.0).is_some();
    if !by_groups || operand.hadamard || is_transposed && is_random {
        let wide = T::widen_slice(x);
        let matrix = Matrix::new(&wide, rows, columns)?;
        let (wide, scales) = operand.quantize(if is_transposed { matrix.t() } else { matrix }, random)?.factors();
        let mut numbers = uninit_vec(wide.len());
        bf16::narrow_into(&wide, &mut numbers);
        return Ok(Factors { numbers, scales });
    }
    if is_transposed {
        return factors(operand, &transposed(x, columns), [columns, rows], false, scale, random);
    }
    let [height, width] = match operand.granularity {
        Granularity::Tensor | Granularity::Rows => [1, columns.max(1)],
        Granularity::Block { rows, columns } => [rows, columns],
    };
    operand.granularity.check([rows, columns])?;
    let (is_outer, across) = (width == columns, columns / width);
    let mut numbers: Pooled<bf16> = uninit_vec(x.len());
    let mut scales = vec![1.0; rows];
    // Rows of whole blocks that fit into the first cache.
    let lines = (BAND / (height * columns).max(1)).max(1) * height;
    let parts = numbers.chunks_mut((lines * columns).max(1)).zip(scales.chunks_mut(lines));
    let mut bands: Vec<_> = parts.map(|(numbers, scales)| (numbers, scales, Ok(()))).collect();
    threads::chunks(&mut bands, 1, x.len() * threads::PASSED, |i, bands| {
        let (numbers, scales, result) = &mut bands[0];
        let first = i * lines * columns;
        let x = &x[first..first + numbers.len()];
        if let Some(scale) = scale.filter(|_| is_outer && !is_random) {
            scales.fill(1.0 / scale);
            *result = round_into(operand.format, x, [scale, 1.0], numbers);
            return;
        }
        let mut space = uninit_vec(x.len());
        let wide = T::widened(x, &mut space);
        // The largest magnitude of each group of each row, and its factors.
        let mut largest = vec![0.0; scales.len() * across];
        vectorized(|| largest.iter_mut().zip(wide.chunks_exact(width)).for_each(|(amax, x)| *amax = magnitude(x)));
        let (mut up, mut down) = (vec![0.0; largest.len()], vec![0.0; largest.len()]);
        for block in 0..scales.len() / height {
            for group in 0..across {
                let rows = block * height..(block + 1) * height;
                let (encode, decode) = match scale {
                    Some(scale) => (scale, 1.0 / scale),
                    None => {
                        let amax = rows.clone().map(|row| largest[row * across + group]).fold(0.0, f32::max);
                        operand.group_factors(amax).unwrap_or((1.0, 1.0))
                    }
                };
                for row in rows {
                    (up[row * across + group], down[row * across + group]) = (encode, decode);
                }
            }
        }
        if is_outer {
            scales.copy_from_slice(&down);
            down.fill(1.0);
        }
        *result = match is_random {
            true => random_into(operand.format, wide, width, [&up, &down], (random, first), numbers),
            false => {
                let groups = wide.chunks_exact(width).zip(numbers.chunks_exact_mut(width));
                let mut groups = groups.zip(up.iter().zip(&down));
                groups.try_for_each(|((x, to), (&up, &down))| round_into(operand.format, x, [up, down], to))
            }
        };
    });
    bands.into_iter().try_for_each(|(.., result)| result)?;
    if operand.granularity == Granularity::Tensor || !is_outer {
        scales.truncate(1);
    }
    if scales.is_empty() {
        scales.push(1.0);
    }
    Ok(Factors { numbers, scales })
}

/// Writes each number as that of its code, which is rounded at random, with the factors of its group.
fn random_into(
    format: Format,
    x: &[f32],
    width: usize,
    [up, down]: [&[f32]; 2],
    random: (Stream, usize),
    to: &mut [bf16],
) -> Result<()> {
    let (mut wide, mut codes) = (x.to_vec(), vec![0; x.len()]);
    multiply(&mut wide, width, up);
    encode_stochastic(format, &wide, random, &mut codes)?;
    decode(format, &codes, &mut wide)?;
    multiply(&mut wide, width, down);
    bf16::narrow_into(&wide, to);
    Ok(())
}

/// Numbers of a band of rows.
const BAND: usize = 1 << 12;

/// Multiplies numbers by a factor; those other than 0 stay at least as large as the smallest one of a format.
fn multiply_above(x: &mut [f32], by: f32, least: f32) {
    vectorized(|| {
        for x in x {
            let y = *x * by;
            *x = if y.abs() < least && *x != 0.0 { least.copysign(*x) } else { y };
        }
    });
}

/// Multiplies each part of so many numbers by its factor.
fn multiply(x: &mut [f32], width: usize, by: &[f32]) {
    vectorized(|| {
        for (part, by) in x.chunks_exact_mut(width).zip(by) {
            part.iter_mut().for_each(|x| *x *= by);
        }
    });
}

/// Returns the transpose of a matrix with rows of this length.
pub fn transposed<T: Float>(x: &[T], columns: usize) -> Pooled<T> {
    /// Columns of a band, whose lines the cache keeps; a line of the result is written at once.
    const TILE: usize = 32;
    let rows = x.len().checked_div(columns).unwrap_or(0);
    let mut to = uninit_vec(x.len());
    threads::chunks(&mut to, (TILE * rows).max(1), x.len() * threads::PASSED, |i, to: &mut [T]| {
        let left = i * TILE;
        for top in (0..rows).step_by(TILE) {
            for (column, to) in to.chunks_exact_mut(rows).enumerate() {
                let last = rows.min(top + TILE);
                let from = x[top * columns..last * columns].chunks_exact(columns);
                for (to, from) in to[top..last].iter_mut().zip(from) {
                    *to = from[left + column];
                }
            }
        }
    });
    to
}

/// Multiplies sums `[m, n]` by the scale of each row and each column, or by one of all, adds a bias to each column, and rounds
/// once.
pub fn scaled<T: Float<Wide = f32>>(sums: &[f32], n: usize, scales: [&[f32]; 2], bias: Option<&[f32]>) -> Pooled<T> {
    let mut out = uninit_vec(sums.len());
    let [of_rows, of_columns] = scales;
    let band = (BAND / n.max(1)).max(1);
    threads::chunks(&mut out, (band * n).max(1), sums.len() * threads::PASSED, |i, out: &mut [T]| {
        let sums = &sums[i * band * n..][..out.len()];
        let of_rows = if of_rows.len() == 1 { of_rows } else { &of_rows[i * band..] };
        if let Some(out) = T::wide_mut(out) {
            return scale_rows(sums, n, [of_rows, of_columns], bias, out);
        }
        let mut wide = uninit_vec(out.len());
        scale_rows(sums, n, [of_rows, of_columns], bias, &mut wide);
        T::narrow_into(&wide, out);
    });
    out
}

fn scale_rows(sums: &[f32], n: usize, [of_rows, of_columns]: [&[f32]; 2], bias: Option<&[f32]>, to: &mut [f32]) {
    vectorized(|| {
        for (row, (to, sums)) in to.chunks_exact_mut(n).zip(sums.chunks_exact(n)).enumerate() {
            let of_row = if of_rows.len() == 1 { of_rows[0] } else { of_rows[row] };
            let each = to.iter_mut().zip(sums);
            match of_columns {
                &[one] => each.for_each(|(to, sum)| *to = *sum * of_row * one),
                scales => each.zip(scales).for_each(|((to, sum), scale)| *to = *sum * of_row * scale),
            }
            to.iter_mut().zip(bias.into_iter().flatten()).for_each(|(to, bias)| *to += bias);
        }
    });
}

/// Numbers in 8 bits: a code for each, and a scale for each row.
#[derive(Clone, Debug)]
pub struct Rows {
    format: Format,
    width: usize,
    codes: Vec<u8>,
    scales: Vec<f32>,
}

impl Rows {
    /// Rounds rows of this length to a format of 8 bits, by the largest magnitude of each; `None` where a number is not finite.
    /// Only 0 becomes 0, so that a ReLU passes the same gradients.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](precast_base::ErrorKind::Unsupported) for a format that has no zero.
    pub fn new<T: Float<Wide = f32> + Magnitude>(format: Format, x: &[T], width: usize) -> Result<Option<Self>> {
        if !T::peak(x).is_finite() {
            return Ok(None);
        }
        let operand = Operand::new(
            format,
            Granularity::Rows,
            ScaleRule::F32 { power_of_two: false, eps: f64::from(f32::MIN_POSITIVE) },
        );
        let (width, least) = (width.max(1), format.decode(&[1])[0]);
        let (mut codes, mut scales) = (vec![0; x.len()], vec![1.0; x.len().div_ceil(width)]);
        let lines = (BAND / width).max(1);
        let mut bands: Vec<_> =
            codes.chunks_mut(lines * width).zip(scales.chunks_mut(lines)).map(|b| (b, Ok(()))).collect();
        threads::chunks(&mut bands, 1, x.len() * threads::PASSED, |i, bands| {
            let ((codes, scales), result) = &mut bands[0];
            let mut wide = vec![0.0; codes.len()];
            T::widen_into(&x[i * lines * width..][..codes.len()], &mut wide);
            for (row, scale) in wide.chunks_mut(width).zip(scales.iter_mut()) {
                let (up, down) = operand.group_factors(f32::peak(row) as f32).unwrap_or((1.0, 1.0));
                multiply_above(row, up, least);
                *scale = down;
            }
            *result = encode(format, &wide, Overflow::Saturate, codes);
        });
        let mut results = bands.into_iter().map(|(_, result)| result);
        results.try_for_each(|result| result)?;
        Ok(Some(Rows { format, width, codes, scales }))
    }

    /// Returns the numbers of the codes.
    pub fn numbers<T: Float<Wide = f32>>(&self) -> Pooled<T> {
        let mut x = uninit_vec(self.codes.len());
        let lines = (BAND / self.width).max(1);
        threads::chunks(&mut x, lines * self.width, self.codes.len() * threads::PASSED, |i, x: &mut [T]| {
            let mut wide = vec![0.0; x.len()];
            let codes = &self.codes[i * lines * self.width..][..x.len()];
            // A code of a format that has a zero is a number.
            let _ = decode(self.format, codes, &mut wide);
            for (row, &scale) in wide.chunks_mut(self.width).zip(&self.scales[i * lines..]) {
                multiply(row, row.len(), &[scale]);
            }
            T::narrow_into(&wide, x);
        });
        x
    }

    /// Returns the format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the bytes of codes and scales.
    pub fn bytes(&self) -> usize {
        self.codes.len() + size_of_val(&self.scales[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of every exponent, with infinities and NaN, in a length that no vector divides.
    fn numbers() -> Vec<f32> {
        (0..6007u32)
            .map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9)))
            .chain([f32::NAN, f32::INFINITY, -0.0])
            .collect()
    }

    #[test]
    fn vectors_have_the_codes_of_single_numbers() {
        let x = numbers();
        let stream = Stream::new(5, "w", 2);
        for format in Format::ALL {
            for overflow in [Overflow::Saturate, Overflow::NonFinite] {
                let mut codes = vec![0; x.len()];
                encode(format, &x, overflow, &mut codes).unwrap();
                let expected: Vec<u8> = x.iter().flat_map(|&x| format.encode(&[x], overflow)).collect();
                assert_eq!(codes, expected, "{format}");
                let mut decoded = vec![0.0; codes.len()];
                decode(format, &codes, &mut decoded).unwrap();
                let expected = codes.iter().flat_map(|&code| format.decode(&[code]));
                assert!(decoded.iter().zip(expected).all(|(x, y)| x.to_bits() == y.to_bits()), "{format}");
                if overflow == Overflow::Saturate {
                    let mut rounded = vec![bf16::ZERO; x.len()];
                    round_into(format, &x, [1.0, 0.75], &mut rounded).unwrap();
                    let expected = decoded.iter().map(|x| bf16::from_f32(x * 0.75));
                    assert!(rounded.iter().zip(expected).all(|(x, y)| x.to_bits() == y.to_bits()), "{format}");
                }
            }
            let (mut codes, mut bits) = (vec![0; x.len()], vec![0; x.len()]);
            encode_stochastic(format, &x, (stream, 70), &mut codes).unwrap();
            stream.fill(70, &mut bits);
            for ((x, bits), code) in x.iter().zip(bits).zip(codes) {
                let mut expected = [0];
                format.encode_stochastic(&[*x], &[bits], &mut expected).unwrap();
                assert_eq!([code], expected, "{format}: {x}");
            }
        }
    }

    #[test]
    fn lengths_that_differ_are_errors() {
        let stream = Stream::new(0, "w", 0);
        for (numbers, codes) in [(1, 2), (2, 1), (3 * BLOCK, BLOCK), (BLOCK, 3 * BLOCK), (0, 1)] {
            let (mut x, mut codes) = (vec![0.0; numbers], vec![0; codes]);
            assert!(encode(Format::E4M3, &x, Overflow::Saturate, &mut codes).is_err());
            assert!(encode_stochastic(Format::E4M3, &x, (stream, 0), &mut codes).is_err());
            assert!(decode(Format::E4M3, &codes, &mut x).is_err());
        }
    }
}
