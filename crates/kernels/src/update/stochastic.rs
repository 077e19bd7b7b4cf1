//! Random bits for stochastic rounding: a function of a key and a counter, so that no bit depends on the order of work.

use half::bf16;

use crate::{elementwise::BLOCK, simd::vectorized};

/// Random bits for one update of one parameter.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    key: [u32; 2],
    step: u32,
}

/// Calls of [`threefry`] per block: each gives four 16-bit numbers.
const CALLS: usize = BLOCK / 4;

impl Stream {
    /// Creates the stream of a seed, the name of the parameter, and the number of the update.
    pub fn new(seed: u64, name: &str, step: u64) -> Self {
        // FNV-1a. Update 2^32 has the bits of the first.
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let key = seed ^ name.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
        Stream { key: [key as u32, (key >> 32) as u32], step: step as u32 }
    }

    /// Rounds up to [`BLOCK`] numbers to one of the two nearest, each with a probability given by its proximity. The
    /// first is number `start` of the parameter, a multiple of [`BLOCK`]. 16 random bits are added to the lower half of
    /// an f32, whose upper half is the result.
    pub fn round(self, start: usize, wide: &[f32], low: &mut [bf16]) {
        debug_assert!(start.is_multiple_of(BLOCK) && wide.len() == low.len() && wide.len() <= BLOCK);
        let mut bits = [0; BLOCK];
        let first = (start / 4) as u32;
        vectorized(|| {
            let (a, rest) = bits.split_at_mut(CALLS);
            let (b, rest) = rest.split_at_mut(CALLS);
            let (c, d) = rest.split_at_mut(CALLS);
            for (i, (((a, b), c), d)) in a.iter_mut().zip(b).zip(c).zip(d).enumerate() {
                let [x, y] = threefry(self.key, [first.wrapping_add(i as u32), self.step]);
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
}

/// Computes Threefry-2x32 with 20 rounds (J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as
/// 1, 2, 3", 2011).
#[inline(always)]
fn threefry(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let keys = [key[0], key[1], 0x1bd1_1bda ^ key[0] ^ key[1]];
    let [mut x, mut y] = [counter[0].wrapping_add(keys[0]), counter[1].wrapping_add(keys[1])];
    for group in 0..5 {
        for by in ROTATIONS[group % 2] {
            x = x.wrapping_add(y);
            y = y.rotate_left(by) ^ x;
        }
        x = x.wrapping_add(keys[(group + 1) % 3]);
        y = y.wrapping_add(keys[(group + 2) % 3]).wrapping_add(group as u32 + 1);
    }
    [x, y]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks known answers of Random123, the authors' library (`kat_vectors`, threefry 2x32 20).
    #[test]
    fn threefry_gives_the_known_answers() {
        assert_eq!(threefry([0; 2], [0; 2]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(threefry([u32::MAX; 2], [u32::MAX; 2]), [0x1cb9_96fc, 0xbb00_2be7]);
        assert_eq!(threefry([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]), [0xc492_3a9c, 0x483d_f7a0]);
    }

    #[test]
    fn a_number_goes_up_as_often_as_it_is_near() {
        let (below, above) = (bf16::from_f32(1.0), bf16::from_f32(1.0078125));
        let steps = if cfg!(miri) { 5 } else { 100 };
        for part in [0.0, 0.125, 0.5, 0.9] {
            let x = [1.0 + 0.0078125 * part; BLOCK];
            let mut up = 0;
            for step in 0..steps {
                let mut low = [bf16::ZERO; BLOCK];
                Stream::new(7, "w", step).round(0, &x, &mut low);
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
            Stream::new(1, "w", step).round(0, &x, &mut low);
            for (x, y) in x.iter().zip(low) {
                assert!(y.to_f32().to_bits() == x.to_bits() || (x.is_nan() && y.is_nan()), "{x}: {y}");
            }
        }
    }

    #[test]
    fn the_bits_of_an_element_depend_on_key_step_and_place() {
        let x = [1.003; BLOCK];
        let round = |seed, name, step, start, len| {
            let mut low = vec![bf16::ZERO; len];
            Stream::new(seed, name, step).round(start, &x[..len], &mut low);
            low
        };
        let first = round(1, "w", 1, 0, BLOCK);
        assert_eq!(round(1, "w", 1, 0, 300), first[..300]);
        let others = [(2, "w", 1, 0), (1 << 32, "w", 1, 0), (1, "v", 1, 0), (1, "w", 2, 0), (1, "w", 1, BLOCK)];
        for (seed, name, step, start) in others {
            assert_ne!(round(seed, name, step, start, BLOCK), first);
        }
    }
}
