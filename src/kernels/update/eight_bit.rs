//! Running averages in 8 bits: blocks of numbers, each a code times the largest magnitude of its block.
//!
//! The codes represent the numbers of the dynamic map of bitsandbytes (T. Dettmers, "8-bit approximations for
//! parallelism in deep learning", 2015; T. Dettmers et al., "8-bit optimizers via block-wise quantization", 2021): the
//! exponents of 10 from -6 to 0, each with twice as many steps as the one below, and 0 and 1.

use std::sync::LazyLock;

use crate::kernels::{
    float::Real,
    simd::{Body, vectorized},
};

/// Number of elements that share their largest magnitude.
pub(crate) const BLOCK: usize = 256;

/// 2^23, from which on f32 has integers alone.
const INTEGERS: f32 = 8_388_608.0;

/// Codes of numbers, and the largest magnitude of each [`BLOCK`].
pub(crate) struct Blocks<'a> {
    pub codes: &'a mut [u8],
    pub largest: &'a mut [f32],
    pub map: &'static Map,
}

/// Numbers represented by the codes, in ascending order: 0, then for each exponent e of 10 from -6 to 0 the midpoints
/// of equal steps from a tenth of 10^e to 10^e, and 1. In a signed map, each except 0 and 1 occurs with both signs.
pub(crate) struct Map {
    numbers: [f32; 256],
    nearest: Nearest,
}

/// Parameters for finding the code of the nearest number.
#[derive(Clone, Copy)]
struct Nearest {
    /// Code of 0.
    zero: u8,
    decades: [Decade; 7],
    /// Threshold above which numbers are nearest to 1.
    nearest_to_1: f32,
}

/// The numbers of one exponent, `steps` in all.
#[derive(Clone, Copy)]
struct Decade {
    /// Threshold above which numbers are nearest to one of these or a larger one: the midpoint between the first of
    /// these and the number below.
    above: f32,
    steps: f32,
    /// 1 / (0.9 * 10^e), which makes the steps of one decade 1 long.
    unit: f32,
}

/// Returns the map of numbers of both signs.
pub(crate) fn signed() -> &'static Map {
    static MAP: LazyLock<Map> = LazyLock::new(|| Map::new(true));
    &MAP
}

/// Returns the map of nonnegative numbers. It has twice as many steps, one for each sign of the other map.
pub(crate) fn unsigned() -> &'static Map {
    static MAP: LazyLock<Map> = LazyLock::new(|| Map::new(false));
    &MAP
}

impl Map {
    fn new(signed: bool) -> Map {
        let mut all = vec![0.0, 1.0];
        for exponent in 0..7 {
            // Midpoints of equal steps from 0.1 to 1.
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
        let zero = numbers.iter().position(|&x| x == 0.0).expect("0 is among them");
        // The positive numbers follow 0, each decade after the one below, which has half as many.
        let middle_below = |code: usize| (numbers[code - 1] + numbers[code]) / 2.0;
        let decades = std::array::from_fn(|exponent| {
            let steps = if signed { 1 << exponent } else { 2 << exponent };
            let first = zero + 1 + steps - if signed { 1 } else { 2 };
            let unit = 1.0 / (0.9 * 10f64.powi(exponent as i32 - 6));
            Decade { above: middle_below(first), steps: steps as f32, unit: unit as f32 }
        });
        Map { numbers, nearest: Nearest { zero: zero as u8, decades, nearest_to_1: middle_below(255) } }
    }

    /// Returns the code of 0.
    pub fn zero(&self) -> u8 {
        self.nearest.zero
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

    /// Encodes finite numbers to the nearest codes.
    pub fn encode<R: Real>(&self, numbers: &[R], codes: &mut [u8], largest: &mut [f32]) {
        for ((numbers, largest), codes) in numbers.chunks(BLOCK).zip(largest).zip(codes.chunks_mut(BLOCK)) {
            let most = vectorized(|| numbers.iter().fold(0.0, |most, &x| f32::max(most, f32_of(x).abs())));
            *largest = most;
            if most == 0.0 {
                codes.fill(self.nearest.zero);
                continue;
            }
            vectorized(Encode { nearest: self.nearest, numbers, most, codes });
        }
    }
}

impl Nearest {
    /// Returns the code nearest to a number from -1 to 1. If two are equally near, up to a few units of rounding, it is
    /// either. There are no lookups or branches, so that a loop over it is vectorized.
    #[inline(always)]
    fn code(&self, x: f32) -> u8 {
        let size = x.abs();
        let (mut steps, mut unit) = (0.0, 0.0);
        for decade in &self.decades {
            let above = size > decade.above;
            steps = if above { decade.steps } else { steps };
            unit = if above { decade.unit } else { unit };
        }
        // Index of the step, and the count of numbers from 0 to the first.
        let step = ((size * unit - 1.0 / 9.0) * steps).floor().max(0.0).min(steps - 1.0);
        let first = steps - self.decades[0].steps + 1.0;
        let index = if steps == 0.0 { 0.0 } else { first + step };
        let zero = f32::from(self.zero);
        // A negative number absent from the map is nearest to 0.
        let code = if x < 0.0 { (zero - index).max(0.0) } else { zero + index }
            + if x > self.nearest_to_1 { 1.0 } else { 0.0 };
        // The last bits of a number from 2^23 on are an integer. A conversion would not be vectorized.
        (code + INTEGERS).to_bits() as u8
    }
}

/// Codes of one block, which is not all 0.
struct Encode<'a, R> {
    nearest: Nearest,
    numbers: &'a [R],
    most: f32,
    codes: &'a mut [u8],
}

impl<R: Real> Body for Encode<'_, R> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        // Copied, because a store of a code might change data behind a reference.
        let Encode { nearest, numbers, most, codes } = self;
        for (code, &x) in codes.iter_mut().zip(numbers) {
            *code = nearest.code(f32_of(x) / most);
        }
    }
}

fn f32_of<R: Real>(x: R) -> f32 {
    x.to_f32().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_dynamic_map() {
        // Ends of `bitsandbytes.functional.create_dynamic_map(signed)`, computed by hand: the largest are midpoints of
        // 64 steps from 0.1 to 1; the smallest are the midpoint of one step from 0.1 to 1, times 10^-6.
        let (with, without) = (signed(), unsigned());
        let near = |x: f32, y: f64| assert!((f64::from(x) - y).abs() <= 1e-7 * y.abs(), "{x} {y}");
        near(with.numbers[255], 1.0);
        near(with.numbers[254], 1.0 - 0.9 / 128.0);
        near(with.numbers[0], -(1.0 - 0.9 / 128.0));
        assert_eq!((with.zero(), with.numbers[127]), (127, 0.0));
        near(with.numbers[128], 0.55e-6);
        near(with.numbers[126], -0.55e-6);
        near(without.numbers[254], 1.0 - 0.9 / 256.0);
        assert_eq!((without.zero(), without.numbers[0]), (0, 0.0));
        near(without.numbers[1], 0.325e-6);
        near(without.numbers[2], 0.775e-6);
        assert!([with, without].iter().all(|map| map.numbers.is_sorted()));
    }

    #[test]
    fn a_number_has_the_nearest_code() {
        for map in [signed(), unsigned()] {
            for (code, &number) in map.numbers.iter().enumerate() {
                assert_eq!(usize::from(map.nearest.code(number)), code);
            }
            for i in (-20000..=20000i16).step_by(if cfg!(miri) { 401 } else { 1 }) {
                let x = f32::from(i) / 20000.0;
                let x = if i % 2 == 0 { x } else { x * x * x * x };
                let distance = |number: f32| (number - x).abs();
                let least = map.numbers.iter().copied().map(distance).fold(f32::INFINITY, f32::min);
                // If two are equally near, to the rounding of the arithmetic, either is correct.
                let found = distance(map.numbers[usize::from(map.nearest.code(x))]);
                assert!(found <= least + 4.0 * f32::EPSILON * x.abs(), "{x}: {found} {least}");
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
            // The largest steps are 0.9 / 64 of the largest magnitude.
            let scale = if *x < 0.0 { 1e20 } else { 255e-20 };
            assert!((x - y).abs() <= scale * 0.9 / 128.0 * 1.01, "{x} {y}");
        }
        signed().encode(&[0f32; 7], &mut codes[..7], &mut largest[..1]);
        assert_eq!((codes[6], largest[0]), (signed().zero(), 0.0));
    }
}
