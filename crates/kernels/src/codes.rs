//! Conversions between f32 and the codes of `precast-lowbit`, with the widest vectors of the machine. The loops are those of
//! that package, and so are the bits.

use half::bf16;
use precast_base::Result;
use precast_lowbit::Format;
pub use precast_lowbit::{Delayed, Matrix, Operand, Overflow, ScaleRule, Stream};

use crate::{elementwise::BLOCK, float::Float, simd::vectorized};

/// Writes the code of each number, as [`Format::encode_into`] does.
///
/// # Errors
/// As there.
pub fn encode(format: Format, x: &[f32], overflow: Overflow, codes: &mut [u8]) -> Result<()> {
    vectorized(|| format.encode_into(x, overflow, codes))
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
        vectorized(|| {
            stream.fill(first, &mut bits);
            format.encode_stochastic(of_x, &bits, of_codes)
        })?;
        first += BLOCK;
    }
    vectorized(|| {
        let bits = &mut bits[..x.len().min(BLOCK)];
        stream.fill(first, bits);
        format.encode_stochastic(x, bits, codes)
    })
}

/// Writes the number of each code, as [`Format::decode_into`] does.
///
/// # Errors
/// As there.
pub fn decode(format: Format, codes: &[u8], x: &mut [f32]) -> Result<()> {
    vectorized(|| format.decode_into(codes, x))
}

/// An operand of a product: numbers, row by row, and the scale of each row, or one for all.
#[derive(Clone, Debug)]
pub struct Factors {
    /// The numbers, which are those of codes, with the scales of blocks.
    pub numbers: Vec<bf16>,
    /// The scales.
    pub scales: Vec<f32>,
}

/// Quantizes an operand of a product, as [`Operand::quantize`] does, or [`Operand::quantize_by`] a scale that is given.
///
/// # Errors
/// As there.
pub fn factors(operand: &Operand, x: Matrix<'_>, scale: Option<f32>, random: Stream) -> Result<Factors> {
    let (wide, scales) = vectorized(|| {
        let quantized = match scale {
            Some(scale) => operand.quantize_by(x, scale, random)?,
            None => operand.quantize(x, random)?,
        };
        Ok::<_, precast_base::Error>(quantized.factors())
    })?;
    let mut numbers = vec![bf16::ZERO; wide.len()];
    bf16::narrow_into(&wide, &mut numbers);
    Ok(Factors { numbers, scales })
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
