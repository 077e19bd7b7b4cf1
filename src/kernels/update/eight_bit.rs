//! Running averages in 8 bits: blocks of numbers, each a code times the largest size of its block.
//!
//! The codes stand for the numbers of the dynamic map of bitsandbytes (T. Dettmers, "8-bit approximations for parallelism in
//! deep learning", 2015; T. Dettmers et al., "8-bit optimizers via block-wise quantization", 2021): the exponents of 10 from
//! -6 to 0, each with twice as many steps as the one below, and 0 and 1.

use std::sync::LazyLock;

use crate::kernels::{float::Real, simd::vectorized};

/// Numbers that share their largest size.
pub(crate) const BLOCK: usize = 256;

/// Codes of numbers, and the largest size of each [`BLOCK`].
pub(crate) struct Blocks<'a> {
    pub codes: &'a mut [u8],
    pub largest: &'a mut [f32],
    pub map: &'static Map,
}

/// The numbers for which codes stand, from the lowest to the highest.
pub(crate) struct Map {
    numbers: [f32; 256],
    /// The middles between neighbours; number i is nearest above middle i - 1 and up to middle i.
    middles: [f32; 255],
    zero: u8,
    /// For each [`bucket`] of positive and of negative numbers, the code of its lowest number. There is at most one middle in a
    /// bucket, so that of any other is the same or the next.
    lowest: [[u8; BUCKETS]; 2],
}

/// Numbers from 0 to 1 by exponent and the first seven bits behind it; all below 2^-24 are in the first.
const BUCKETS: usize = (24 << 7) + 1;

/// The upper half of the f32 2^-24.
const FIRST: u32 = (127 - 24) << 7;

#[inline(always)]
fn bucket(size: f32) -> usize {
    ((size.to_bits() >> 16).saturating_sub(FIRST) as usize).min(BUCKETS - 1)
}

/// The map of numbers of both signs.
pub(crate) fn signed() -> &'static Map {
    static MAP: LazyLock<Map> = LazyLock::new(|| Map::new(true));
    &MAP
}

/// The map of numbers that are not negative: with a step for each sign of the other, it has twice as many steps.
pub(crate) fn unsigned() -> &'static Map {
    static MAP: LazyLock<Map> = LazyLock::new(|| Map::new(false));
    &MAP
}

impl Map {
    fn new(signed: bool) -> Map {
        let mut all = vec![0.0, 1.0];
        for exponent in 0..7 {
            // The middles of equal steps from 0.1 to 1.
            let steps = if signed { 1 << exponent } else { 2 << exponent };
            for step in 0..steps {
                let middle = 0.1 + 0.9 * (f64::from(step) + 0.5) / f64::from(steps);
                let number = (middle * 10f64.powi(exponent - 6)) as f32;
                all.push(number);
                if signed {
                    all.push(-number);
                }
            }
        }
        all.sort_by(f32::total_cmp);
        let numbers: [f32; 256] = all.try_into().expect("254 steps, 0 and 1");
        let middles = std::array::from_fn(|i| (numbers[i] + numbers[i + 1]) / 2.0);
        let zero = numbers.iter().position(|&x| x == 0.0).expect("0 is among them") as u8;
        let lowest = [false, true].map(|negative| {
            std::array::from_fn(|bucket| {
                let upper = (bucket as u32 + FIRST) << 16;
                let x = match (bucket, negative) {
                    (0, _) => 0.0,
                    (_, false) => f32::from_bits(upper),
                    (_, true) => -f32::from_bits(upper | 0xffff),
                };
                middles.partition_point(|middle: &f32| *middle < x) as u8
            })
        });
        Map { numbers, middles, zero, lowest }
    }

    /// The code of 0.
    pub fn zero(&self) -> u8 {
        self.zero
    }

    /// The numbers of codes.
    pub fn decode<R: Real>(&self, codes: &[u8], largest: &[f32], numbers: &mut [R]) {
        for ((codes, &largest), numbers) in codes.chunks(BLOCK).zip(largest).zip(numbers.chunks_mut(BLOCK)) {
            vectorized(|| {
                for (number, &code) in numbers.iter_mut().zip(codes) {
                    *number = R::of(f64::from(self.numbers[usize::from(code)] * largest));
                }
            });
        }
    }

    /// The nearest codes of finite numbers.
    pub fn encode<R: Real>(&self, numbers: &[R], codes: &mut [u8], largest: &mut [f32]) {
        let f32_of = |x: R| x.to_f32().unwrap_or_default();
        for ((numbers, largest), codes) in numbers.chunks(BLOCK).zip(largest).zip(codes.chunks_mut(BLOCK)) {
            let most = vectorized(|| numbers.iter().fold(0.0, |most, &x| f32::max(most, f32_of(x).abs())));
            *largest = most;
            if most == 0.0 {
                codes.fill(self.zero);
                continue;
            }
            vectorized(|| {
                for (code, &x) in codes.iter_mut().zip(numbers) {
                    *code = self.nearest(f32_of(x) / most);
                }
            });
        }
    }

    /// The code of the nearest number; of two equally near, the lower.
    #[inline(always)]
    fn nearest(&self, x: f32) -> u8 {
        let code = self.lowest[usize::from(x < 0.0)][bucket(x.abs())];
        code + u8::from(self.middles.get(usize::from(code)).is_some_and(|middle| x > *middle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_dynamic_map() {
        // Ends and beginnings of `bitsandbytes.functional.create_dynamic_map(signed)`, computed by hand: the middles of 64
        // steps from 0.1 to 1 are the largest, of one step from 0.1 to 1, times 10^-6, the smallest.
        let (with, without) = (signed(), unsigned());
        let near = |x: f32, y: f64| assert!((f64::from(x) - y).abs() <= 1e-7 * y.abs(), "{x} {y}");
        near(with.numbers[255], 1.0);
        near(with.numbers[254], 1.0 - 0.9 / 128.0);
        near(with.numbers[0], -(1.0 - 0.9 / 128.0));
        assert_eq!((with.zero, with.numbers[127]), (127, 0.0));
        near(with.numbers[128], 0.55e-6);
        near(with.numbers[126], -0.55e-6);
        near(without.numbers[254], 1.0 - 0.9 / 256.0);
        assert_eq!((without.zero, without.numbers[0]), (0, 0.0));
        near(without.numbers[1], 0.325e-6);
        near(without.numbers[2], 0.775e-6);
        assert!([with, without].iter().all(|map| map.numbers.is_sorted()));
    }

    #[test]
    fn a_number_has_the_nearest_code() {
        for map in [signed(), unsigned()] {
            for (code, &number) in map.numbers.iter().enumerate() {
                assert_eq!(usize::from(map.nearest(number)), code);
            }
            for i in -20000..=20000i16 {
                let x = f32::from(i) / 20000.0;
                let x = if i % 2 == 0 { x } else { x * x * x * x };
                let distance = |number: f32| (number - x).abs();
                let least = map.numbers.iter().copied().map(distance).fold(f32::INFINITY, f32::min);
                // Of two that are equally near, the middle may be rounded to either side.
                let found = distance(map.numbers[usize::from(map.nearest(x))]);
                assert!(found <= least + f32::EPSILON * x.abs(), "{x}: {found} {least}");
            }
        }
    }

    #[test]
    fn blocks_have_scales_of_their_own() {
        let numbers: Vec<f32> = (0..BLOCK + 9).map(|i| if i < BLOCK { 1e-20 * i as f32 } else { -1e20 }).collect();
        let (mut codes, mut largest) = (vec![0; numbers.len()], [0.0; 2]);
        signed().encode(&numbers, &mut codes, &mut largest);
        assert_eq!(largest, [255e-20, 1e20]);
        let mut back = vec![0f32; numbers.len()];
        signed().decode(&codes, &largest, &mut back);
        for (x, y) in numbers.iter().zip(&back) {
            // The largest steps are 0.9 / 64 of the largest size.
            let scale = if *x < 0.0 { 1e20 } else { 255e-20 };
            assert!((x - y).abs() <= scale * 0.9 / 128.0 * 1.01, "{x} {y}");
        }
        signed().encode(&[0f32; 7], &mut codes[..7], &mut largest[..1]);
        assert_eq!((codes[6], largest[0]), (signed().zero(), 0.0));
    }
}
