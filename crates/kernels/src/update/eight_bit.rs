//! Running averages in 8 bits: blocks of numbers, each a code times the largest magnitude of its block.
//!
//! Codes are equal steps of `linear * x + octave * log2(x)`: of one size near the largest number, as precise as those of
//! bitsandbytes (T. Dettmers et al., "8-bit optimizers via block-wise quantization", 2021), and a constant ratio apart
//! below, so that a number far below the largest one keeps its first digit. The codes of squares reach twice as far
//! down, since Adam divides the other average by their root, and only 0 is rounded to 0.
//!
//! A number between two codes takes either, each as often as the number is near to it. If it always took the nearest,
//! an average whose steps are below half of the distance of two codes would neither grow nor fade. The choice depends on
//! the element and the update alone. The choices of one element are those of the golden ratio rather than random: any
//! few updates in a row have about as many of each as they should.

use std::{array, sync::LazyLock};

use crate::{
    float::Real,
    simd::{Body, vectorized},
};

/// Number of elements that share their largest magnitude.
pub const BLOCK: usize = 256;

/// 2^23, from which on f32 has integers alone, the last bits of its pattern.
const INTEGERS: f32 = 8_388_608.0;

/// Codes of numbers, and the largest magnitude of each [`BLOCK`].
pub struct Blocks<'a> {
    /// Code of each number.
    pub codes: &'a mut [u8],
    /// Largest magnitude of each block.
    pub largest: &'a mut [f32],
    /// Numbers of the codes.
    pub map: &'static Map,
}

/// Numbers represented by the codes, in ascending order.
pub struct Map {
    numbers: [f32; 256],
    scale: Scale,
}

/// Codes as a function of numbers from 0 to 1.
#[derive(Clone, Copy)]
struct Scale {
    /// Code of 0. Codes of negative numbers are below it.
    zero: u8,
    /// Code of 1, counted from that of 0.
    top: f32,
    /// The smallest number with a code of its own, a power of two.
    least: f32,
    /// Codes of each octave, and those from 0 to 1 in addition.
    octave: f32,
    linear: f32,
    /// The least code of a number that is not 0: 1 where a 0 would be divided by.
    nonzero: f32,
}

/// The part of a code that is added before it is rounded down, from 0 to 1.
#[derive(Clone, Copy)]
pub struct Dither(u32);

impl Dither {
    /// Creates that of an average of the parameter in an update.
    pub fn new(update: u64, average: usize) -> Self {
        Dither((update as u32).wrapping_mul(0x9e37_79b9).wrapping_add((average as u32).wrapping_mul(0x5bd1_e995)))
    }

    /// Returns that of the elements from `start` on.
    fn from(self, start: usize) -> Self {
        Dither(self.0.wrapping_add((start as u32).wrapping_mul(0xc13f_a9a9)))
    }

    #[inline(always)]
    fn at(self, element: u32) -> f32 {
        (self.0.wrapping_add(element.wrapping_mul(0xc13f_a9a9)) >> 8) as i32 as f32 / 16_777_216.0
    }
}

/// Returns the map of numbers of both signs.
pub fn signed() -> &'static Map {
    static MAP: LazyLock<Map> = LazyLock::new(|| Map::new(127, 24, 3.0));
    &MAP
}

/// Returns the map of squares.
pub fn squares() -> &'static Map {
    static MAP: LazyLock<Map> = LazyLock::new(|| Map::new(0, 52, 3.5));
    &MAP
}

impl Map {
    fn new(zero: u8, octaves: i32, octave: f32) -> Map {
        let top = if zero == 0 { 255 } else { zero };
        let scale = Scale {
            zero,
            top: f32::from(top),
            least: 2f32.powi(-octaves),
            octave,
            linear: f32::from(top) - 1.0 - octaves as f32 * octave,
            nonzero: if zero == 0 { 1.0 } else { 0.0 },
        };
        let number = |code: u8| {
            let size = match code.abs_diff(zero).min(top) {
                0 => 0.0,
                steps if steps == top => 1.0,
                steps => scale.first_of(f32::from(steps)),
            };
            if code < zero { -size } else { size }
        };
        Map { numbers: array::from_fn(|code| number(code as u8)), scale }
    }

    /// Returns the code of 0.
    pub fn zero(&self) -> u8 {
        self.scale.zero
    }

    /// Returns the code nearest to each number of the dynamic map of bitsandbytes, in which states were saved before:
    /// 0, then for each exponent e of 10 from -6 to 0 the midpoints of equal steps from a tenth of 10^e to 10^e, twice
    /// as many as of the exponent below, and 1. A square of 0 may have been anything up to half of the first number.
    pub fn of_dynamic(&self) -> [u8; 256] {
        let is_signed = self.scale.zero != 0;
        let mut all = vec![0.0, 1.0];
        for exponent in 0..7 {
            let steps = if is_signed { 1 << exponent } else { 2 << exponent };
            for step in 0..steps {
                let middle = 0.1 + 0.9 * (f64::from(step) + 0.5) / f64::from(steps);
                let number = (middle * 10f64.powi(exponent - 6)) as f32;
                all.push(number);
                if is_signed {
                    all.push(-number);
                }
            }
        }
        all.sort_by(f32::total_cmp);
        all[0] = if is_signed { all[0] } else { all[1] / 2.0 };
        array::from_fn(|old| self.scale.code(all[old], 1.0, 0.5))
    }

    /// Decodes codes to numbers.
    pub fn decode<R: Real>(&self, codes: &[u8], largest: &[f32], numbers: &mut [R]) {
        for ((codes, &largest), numbers) in codes.chunks(BLOCK).zip(largest).zip(numbers.chunks_mut(BLOCK)) {
            vectorized(|| {
                for (number, &code) in numbers.iter_mut().zip(codes) {
                    *number = R::of(f64::from(self.numbers[usize::from(code)] * largest));
                }
            });
        }
    }

    /// Encodes finite numbers, the first of which is element `start`, a multiple of [`BLOCK`].
    pub fn encode<R: Real>(&self, start: usize, numbers: &[R], codes: &mut [u8], largest: &mut [f32], dither: Dither) {
        let blocks = numbers.chunks(BLOCK).zip(largest).zip(codes.chunks_mut(BLOCK)).zip((start..).step_by(BLOCK));
        for (((numbers, largest), codes), start) in blocks {
            let most = vectorized(|| numbers.iter().fold(0.0, |most, &x| f32::max(most, f32_of(x).abs())));
            *largest = most;
            if most == 0.0 {
                codes.fill(self.scale.zero);
                continue;
            }
            vectorized(Encode { scale: self.scale, numbers, most, codes, dither: dither.from(start) });
        }
    }
}

impl Scale {
    /// Returns the code of a number from 0 to 1, counted from that of 0, with a fraction. The pattern of a float is a
    /// logarithm, linear within each octave. There are no lookups or branches, so that a loop over it is vectorized.
    #[inline(always)]
    fn fraction(&self, size: f32) -> f32 {
        let octaves = size.to_bits().wrapping_sub(self.least.to_bits()) as i32 as f32 / INTEGERS;
        let code = 1.0 + octaves * self.octave + size * self.linear;
        if size < self.least { size / self.least } else { code }
    }

    /// Returns the code of a number whose block has this largest magnitude.
    #[inline(always)]
    fn code(&self, x: f32, most: f32, dither: f32) -> u8 {
        let steps = (self.fraction(x.abs() / most) + dither).floor().min(self.top);
        let steps = if x == 0.0 { 0.0 } else { steps.max(self.nonzero) };
        let code = f32::from(self.zero) + if x < 0.0 { -steps } else { steps };
        // A conversion would not be vectorized.
        (code + INTEGERS).to_bits() as u8
    }

    /// Returns the first number of a code, by bisection of patterns.
    fn first_of(&self, code: f32) -> f32 {
        let (mut below, mut first) = (self.least.to_bits() - 1, 1f32.to_bits());
        while first - below > 1 {
            let middle = below + (first - below) / 2;
            *(if self.fraction(f32::from_bits(middle)) < code { &mut below } else { &mut first }) = middle;
        }
        f32::from_bits(first)
    }
}

/// Codes of one block, which is not all 0.
struct Encode<'a, R> {
    scale: Scale,
    numbers: &'a [R],
    most: f32,
    codes: &'a mut [u8],
    dither: Dither,
}

impl<R: Real> Body for Encode<'_, R> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        // Copied, because a store of a code might change data behind a reference.
        let Encode { scale, numbers, most, codes, dither } = self;
        for (i, (code, &x)) in (0u32..).zip(codes.iter_mut().zip(numbers)) {
            *code = scale.code(f32_of(x), most, dither.at(i));
        }
    }
}

fn f32_of<R: Real>(x: R) -> f32 {
    x.to_f32().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A map, its octaves, and the codes of each.
    type Row = (fn() -> &'static Map, f64, f64);

    const MAPS: [Row; 2] = [(signed, 24.0, 3.0), (squares, 52.0, 3.5)];

    #[test]
    fn numbers_are_a_ratio_apart_far_below_1_and_equally_far_near_1() {
        for (map, octaves, octave) in MAPS {
            let positive = &map().numbers[map().zero().into()..][..=map().scale.top as usize];
            assert!(map().numbers.is_sorted());
            assert_eq!((positive[0], positive[positive.len() - 1]), (0.0, 1.0));
            // A whole number of octaves in seven or fourteen codes.
            for (i, octave) in (0..6).map(|i| (i, 2.0 * octave)) {
                let number = f64::from(positive[1 + i * octave as usize]);
                assert!((number / 4f64.powi(i as i32) / 2f64.powf(-octaves) - 1.0).abs() < 1e-2, "{i} {number}");
            }
            // The derivative of `linear * x + octave * (2 * x)` in the octave below 1.
            let linear = positive.len() as f64 - 2.0 - octaves * octave;
            let distance = f64::from(positive[positive.len() - 1] - positive[positive.len() - 2]);
            assert!((distance * (linear + 2.0 * octave) - 1.0).abs() < 1e-4, "{distance}");
        }
        let both = &signed().numbers;
        assert!((0..127).all(|code| both[code] == -both[254 - code]));
    }

    #[test]
    fn what_was_decoded_keeps_its_code() {
        for (map, ..) in MAPS {
            for largest in [1.0, 3e-20, 0.7e30] {
                // Code 255 of a signed map is a second one of 1.
                for (code, &number) in map().numbers.iter().enumerate().take(255) {
                    for dither in [1e-4, 0.5, 0.9999] {
                        assert_eq!(usize::from(map().scale.code(number * largest, largest, dither)), code);
                    }
                }
            }
        }
    }

    #[test]
    fn the_mean_of_a_few_updates_is_the_number() {
        for (map, octaves, _) in MAPS {
            for i in 0..if cfg!(miri) { 3 } else { 300 } {
                let x = 0.99 * 2f32.powf(-(octaves as f32) * i as f32 / 300.0);
                let (mut sum, mut codes, mut largest) = (0.0, [0; 9], [0.0]);
                for update in 0..200 {
                    let numbers = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, x, 0.0];
                    map().encode(512, &numbers, &mut codes, &mut largest, Dither::new(update, 1));
                    let mut back = [0f64; 9];
                    map().decode(&codes, &largest, &mut back);
                    assert_eq!((back[0], back[8]), (1.0, 0.0));
                    sum += back[7] / 200.0;
                }
                // Codes are at most 2^(1/3) apart: 3 of 200 choices, and the bend of the scale at a power of two between them.
                let error = (sum / f64::from(x) - 1.0).abs();
                assert!(error < 0.045, "{x}: {error}");
            }
        }
    }

    #[test]
    fn a_square_is_not_rounded_to_0_and_vectors_have_the_bits_of_one_number() {
        let numbers: Vec<f32> = (0..BLOCK + 9).map(|i| 1e6 * 0.7f32.powi(i as i32)).collect();
        let (mut codes, mut largest) = (vec![0; numbers.len()], [0.0; 2]);
        for (map, ..) in MAPS {
            let dither = Dither::new(7, 0);
            map().encode(BLOCK, &numbers, &mut codes, &mut largest, dither);
            assert_eq!(largest, [numbers[0], numbers[BLOCK]]);
            for (i, (&x, &code)) in numbers.iter().zip(&codes).enumerate() {
                let most = largest[i / BLOCK];
                let dither = dither.from((1 + i / BLOCK) * BLOCK).at((i % BLOCK) as u32);
                assert_eq!(code, map().scale.code(x, most, dither));
                assert!(map().zero() != 0 || x == 0.0 || code > 0);
            }
        }
        signed().encode(0, &[0f32; 7], &mut codes[..7], &mut largest[..1], Dither::new(1, 0));
        assert_eq!((codes[6], largest[0]), (signed().zero(), 0.0));
    }

    #[test]
    fn codes_of_the_dynamic_map_are_translated_to_near_ones() {
        // Ends of `bitsandbytes.functional.create_dynamic_map(signed)`, computed by hand: the largest are midpoints of
        // 64 or 128 steps from 0.1 to 1; the smallest are those of one or two steps from 0.1 to 1, times 10^-6.
        let ends = [
            (signed(), vec![(0, -1.0 + 0.9 / 128.0), (126, -0.55e-6), (127, 0.0), (128, 0.55e-6), (255, 1.0)]),
            (squares(), vec![(0, 0.1625e-6), (1, 0.325e-6), (2, 0.775e-6), (254, 1.0 - 0.9 / 256.0), (255, 1.0)]),
        ];
        for (map, numbers) in ends {
            for (old, number) in numbers {
                let new = f64::from(map.numbers[usize::from(map.of_dynamic()[old])]);
                assert!((new - number).abs() <= 0.15 * number.abs(), "{old}: {new}, not {number}");
            }
        }
    }
}
