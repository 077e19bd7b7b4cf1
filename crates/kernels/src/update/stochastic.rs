//! Stochastic rounding to bf16.

use half::bf16;
use precast_lowbit::Stream;

use crate::{elementwise::BLOCK, simd::vectorized};

/// Draws per block: each gives four 16-bit numbers.
const CALLS: usize = BLOCK / 4;

/// Rounds up to [`BLOCK`] numbers to one of the two nearest, each with a probability given by its proximity. The
/// first is number `start` of the parameter, a multiple of [`BLOCK`]. 16 random bits are added to the lower half of
/// an f32, whose upper half is the result.
pub fn round(stream: Stream, start: usize, wide: &[f32], low: &mut [bf16]) {
    debug_assert!(start.is_multiple_of(BLOCK) && wide.len() == low.len() && wide.len() <= BLOCK);
    let mut bits = [0; BLOCK];
    let first = (start / 4) as u32;
    vectorized(|| {
        let (a, rest) = bits.split_at_mut(CALLS);
        let (b, rest) = rest.split_at_mut(CALLS);
        let (c, d) = rest.split_at_mut(CALLS);
        for (i, (((a, b), c), d)) in a.iter_mut().zip(b).zip(c).zip(d).enumerate() {
            let [x, y] = stream.draw(first.wrapping_add(i as u32));
            (*a, *b, *c, *d) = (x & 0xffff, x >> 16, y & 0xffff, y >> 16);
        }
    });
    vectorized(|| {
        for ((low, x), bits) in low.iter_mut().zip(wide).zip(&bits) {
            let of = x.to_bits();
            // Infinity is preserved: its lower half is 0. A NaN must not carry over into a number.
            let rounded = if x.is_nan() { of | 0x0040_0000 } else { of.wrapping_add(*bits) };
            *low = bf16::from_bits((rounded >> 16) as u16);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_goes_up_as_often_as_it_is_near() {
        let (below, above) = (bf16::from_f32(1.0), bf16::from_f32(1.0078125));
        let steps = if cfg!(miri) { 5 } else { 100 };
        for part in [0.0, 0.125, 0.5, 0.9] {
            let x = [1.0 + 0.0078125 * part; BLOCK];
            let mut up = 0;
            for step in 0..steps {
                let mut low = [bf16::ZERO; BLOCK];
                round(Stream::new(7, "w", step), 0, &x, &mut low);
                assert!(low.iter().all(|&y| y == below || y == above));
                up += low.iter().filter(|&&y| y == above).count();
            }
            // Five standard deviations.
            let n = steps as f32 * BLOCK as f32;
            let far = 5.0 * (n * part * (1.0 - part)).sqrt();
            assert!((up as f32 - n * part).abs() <= far, "{part}: {up} of {n}");
        }
    }

    #[test]
    fn what_is_no_number_in_between_stays() {
        let x = [
            f32::INFINITY,
            f32::NEG_INFINITY,
            0.0,
            -0.0,
            1.5,
            -3.0,
            f32::from_bits(0x7fff_ffff),
            f32::from_bits(0xff80_0001),
        ];
        for step in 0..50 {
            let mut low = [bf16::ZERO; 8];
            round(Stream::new(1, "w", step), 0, &x, &mut low);
            for (x, y) in x.iter().zip(low) {
                assert!(y.to_f32().to_bits() == x.to_bits() || (x.is_nan() && y.is_nan()), "{x}: {y}");
            }
        }
    }

    #[test]
    fn the_bits_of_an_element_depend_on_key_step_and_place() {
        let x = [1.003; BLOCK];
        let rounded = |seed, name, step, start, len| {
            let mut low = vec![bf16::ZERO; len];
            round(Stream::new(seed, name, step), start, &x[..len], &mut low);
            low
        };
        let first = rounded(1, "w", 1, 0, BLOCK);
        assert_eq!(rounded(1, "w", 1, 0, 300), first[..300]);
        let others = [(2, "w", 1, 0), (1 << 32, "w", 1, 0), (1, "v", 1, 0), (1, "w", 2, 0), (1, "w", 1, BLOCK)];
        for (seed, name, step, start) in others {
            assert_ne!(rounded(seed, name, step, start, BLOCK), first);
        }
    }
}
