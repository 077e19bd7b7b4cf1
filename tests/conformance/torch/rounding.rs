//! Conversions between dtypes: torch's, ours, and one rounding computed on the bits.

use half::{bf16, f16};
use precast::{DType, Tensor, TensorElement};
use serde_json::Value;

use crate::common::golden::golden;
use crate::replay::{Verdict, entries, items, replay};

/// A binary floating-point format of IEEE 754's kind: sign, exponent, fraction.
#[derive(Clone, Copy)]
pub struct Format {
    /// Number of fraction bits.
    pub fraction: u32,
    /// Number of exponent bits.
    pub exponent: u32,
}

pub const F64: Format = Format { fraction: 52, exponent: 11 };
pub const F32: Format = Format { fraction: 23, exponent: 8 };
pub const F16: Format = Format { fraction: 10, exponent: 5 };
pub const BF16: Format = Format { fraction: 7, exponent: 8 };

impl Format {
    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    fn sign(self) -> u64 {
        1 << (self.fraction + self.exponent)
    }

    fn infinity(self) -> u64 {
        ((1 << self.exponent) - 1) << self.fraction
    }

    pub fn is_nan(self, bits: u64) -> bool {
        bits & (self.sign() - 1) > self.infinity()
    }

    /// Returns the pattern of the nearest number of another format, the even one at a tie. A NaN keeps its sign and the
    /// leading bits of its fraction, with the first one set, so it is quiet. A bf16 is the first half of an f32, and
    /// unchanged.
    ///
    /// Computed only on integers, so that it is independent of the code under test.
    pub fn round(self, bits: u64, to: Format) -> u64 {
        let magnitude = bits & (self.sign() - 1);
        let sign = if bits & self.sign() == 0 { 0 } else { to.sign() };
        if magnitude == self.infinity() {
            return sign | to.infinity();
        }
        if magnitude > self.infinity() {
            let fraction = magnitude & ((1 << self.fraction) - 1);
            let leading = match self.fraction >= to.fraction {
                true => fraction >> (self.fraction - to.fraction),
                false => fraction << (to.fraction - self.fraction),
            };
            let half_of_it = self.exponent == to.exponent && self.fraction < to.fraction;
            let quiet = if half_of_it { 0 } else { 1 << (to.fraction - 1) };
            return sign | to.infinity() | quiet | leading;
        }
        // The number is `significand * 2^scale`.
        let field = (magnitude >> self.fraction) as i32;
        let fraction = magnitude & ((1 << self.fraction) - 1);
        let significand = if field == 0 { fraction } else { fraction | 1 << self.fraction };
        let scale = field.max(1) - self.bias() - self.fraction as i32;
        if significand == 0 {
            return sign;
        }
        // Its neighbours in the other format are multiples of 2^unit.
        let exponent = (scale + significand.ilog2() as i32).max(1 - to.bias());
        let unit = exponent - to.fraction as i32;
        let dropped = unit - scale;
        let steps = match dropped {
            ..=0 => significand << -dropped,
            1..=63 => {
                let (floor, half) = (significand >> dropped, 1 << (dropped - 1));
                let rest = significand & ((1 << dropped) - 1);
                floor + u64::from(rest > half || rest == half && floor & 1 == 1)
            }
            _ => 0,
        };
        // The leading bit of a normal number counts one in the exponent's field, and so does a carry.
        let rounded = (((exponent + to.bias() - 1) as u64) << to.fraction) + steps;
        sign | rounded.min(to.infinity())
    }
}

/// Converts patterns with the library.
fn ours(bits: &[u64], from: DType, to: DType) -> Vec<u64> {
    fn tensor<T: TensorElement>(bits: &[u64], number: impl Fn(u64) -> T) -> Tensor {
        Tensor::from_vec(bits.iter().map(|&bits| number(bits)).collect(), &[bits.len()]).unwrap()
    }
    let x = match from {
        DType::F64 => tensor(bits, f64::from_bits),
        DType::F32 => tensor(bits, |bits| f32::from_bits(bits as u32)),
        DType::F16 => tensor(bits, |bits| f16::from_bits(bits as u16)),
        DType::Bf16 => tensor(bits, |bits| bf16::from_bits(bits as u16)),
        other => panic!("{other} has no bits to round"),
    };
    patterns(&x.cast(to))
}

/// Returns the bit patterns of a floating-point tensor's elements.
pub fn patterns(x: &Tensor) -> Vec<u64> {
    fn read<T: TensorElement>(x: &Tensor, pattern: impl Fn(T) -> u64) -> Vec<u64> {
        x.to_vec::<T>().unwrap().into_iter().map(pattern).collect()
    }
    match x.dtype() {
        DType::F64 => read(x, f64::to_bits),
        DType::F32 => read(x, |x: f32| x.to_bits().into()),
        DType::F16 => read(x, |x: f16| x.to_bits().into()),
        DType::Bf16 => read(x, |x: bf16| x.to_bits().into()),
        other => panic!("{other} has no bits to compare"),
    }
}

pub fn format(dtype: DType) -> Format {
    match dtype {
        DType::F64 => F64,
        DType::F32 => F32,
        DType::F16 => F16,
        DType::Bf16 => BF16,
        other => panic!("{other} is not floating"),
    }
}

/// Columns of the file: the name of each, the column that was converted, and the source and target dtype.
const COLUMNS: [(&str, &str, DType, DType); 6] = [
    ("to_f16", "f32", DType::F32, DType::F16),
    ("f16_back", "to_f16", DType::F16, DType::F32),
    ("to_bf16", "f32", DType::F32, DType::Bf16),
    ("bf16_back", "to_bf16", DType::Bf16, DType::F32),
    ("f16_to_bf16", "to_f16", DType::F16, DType::Bf16),
    ("bf16_to_f16", "to_bf16", DType::Bf16, DType::F16),
];

fn numbers(column: &Value) -> Vec<u64> {
    column.as_array().expect("a column of patterns").iter().map(|v| v.as_u64().expect("a pattern")).collect()
}

const EIGHT_BIT: &str = "there is no 8-bit float";

/// Returns whether a column is 8-bit, for which there is nothing to compare with; there are two 16-bit formats here.
fn is_eight_bit(column: &str) -> bool {
    column.contains("f8_")
}

#[test]
fn every_recorded_pattern() {
    replay("torch", "rounding", golden("torch/rounding.json"), |golden, tally| {
        let columns = golden["columns"].as_object();
        for (name, column) in columns.into_iter().flatten() {
            if is_eight_bit(name) {
                tally.not_covered_values(name, numbers(column).len(), EIGHT_BIT);
                continue;
            }
            let Some((_, source, from, to)) = COLUMNS.into_iter().find(|c| c.0 == name) else {
                if name != "category" && name != "f32" {
                    tally.fail(name, "the column is not understood");
                }
                continue;
            };
            let theirs = numbers(column);
            let Some(before) = golden["columns"].get(source).map(numbers) else {
                tally.not_covered_values(name, theirs.len(), "what was converted is not recorded");
                continue;
            };
            assert_eq!(before.len(), theirs.len(), "{name} has as many patterns as {source}");
            for ((before, theirs), ours) in before.iter().zip(theirs).zip(ours(&before, from, to)) {
                let case = format!("{name} {before:#010x}");
                let wanted = format(from).round(*before, format(to));
                if ours != wanted {
                    tally.fail(case, format!("ours {ours:#x}, one rounding {wanted:#x}, torch's {theirs:#x}"));
                } else {
                    tally.count(case, Ok(Verdict::of(ours == theirs)));
                }
            }
        }
        for table in entries(&golden["decode_tables_f32_bits"]) {
            match is_eight_bit(table.0) {
                true => tally.not_covered_values(table.0, numbers(table.1).len(), EIGHT_BIT),
                false => tally.fail(table.0, "the table is not understood"),
            }
        }
        for probe in items(&golden["f64_conversion_probes"]) {
            let bits = probe["f64_bits"].as_u64().expect("a pattern");
            for to in DType::LOW {
                let theirs = probe[to.name()].as_u64().expect("a pattern");
                let (ours, once) = (ours(&[bits], DType::F64, to)[0], F64.round(bits, format(to)));
                let case = format!("f64_to_{} {bits:#018x}", to.name());
                match ours == once {
                    true => tally.count(case, Ok(Verdict::of(ours == theirs))),
                    false => tally.fail(case, format!("ours {ours:#x}, one rounding {once:#x}")),
                }
            }
        }
    });
}

/// The bits of every f32 NaN that differs in the part kept by a narrow format: torch gives 0xffff for all in bf16, and
/// 0x7fc0 if the tensor has no axes.
#[test]
fn a_nan_keeps_its_sign_and_its_leading_bits() {
    let fractions = (1..1 << 13).map(|leading: u32| leading << 10 | leading & 0x3ff).chain([1, 0x40_0000, 0x7f_ffff]);
    let all: Vec<u32> = fractions.flat_map(|f| [0x7f80_0000 | f, 0xff80_0000 | f]).collect();
    for (low, fraction, infinity, sign) in [(DType::Bf16, 7, 0x7f80, 0x8000), (DType::F16, 10, 0x7c00, 0x8000)] {
        let wanted = |bits: u32| {
            let kept = bits & 0x7f_ffff;
            u64::from(infinity | 1 << (fraction - 1) | kept >> (23 - fraction) | if bits >> 31 == 1 { sign } else { 0 })
        };
        let numbers: Vec<f32> = all.iter().map(|&bits| f32::from_bits(bits)).collect();
        let together = Tensor::from_vec(numbers.clone(), &[all.len()]).unwrap();
        // Whole vectors, their remainder, one by one, and read with strides.
        let strided = together.reshape(&[2, -1]).unwrap().t().unwrap().cast(low).t().unwrap().reshape(&[-1]).unwrap();
        let alone: Vec<u64> =
            numbers.iter().flat_map(|&x| patterns(&Tensor::from_vec(vec![x], &[]).unwrap().cast(low))).collect();
        for ours in [patterns(&together.cast(low)), patterns(&strided), alone] {
            for (&bits, ours) in all.iter().zip(ours) {
                assert_eq!(ours, wanted(bits), "{bits:#x} to {low}: {ours:#x}");
            }
        }
    }
}

#[test]
fn f64_is_rounded_once() {
    // Just above the middle of two neighbours, by less than f32 can represent: torch converts through f32, hits the
    // middle, and rounds to the even one below.
    for (to, fraction) in [(DType::F16, 10), (DType::Bf16, 7)] {
        let x = 1.0 + 2f64.powi(-fraction - 1) + 2f64.powi(-40);
        let above = Tensor::scalar(x, DType::F64).cast(to);
        assert_eq!(above.item().unwrap(), 1.0 + 2f64.powi(-fraction));
        let by_f32 = Tensor::scalar(x, DType::F64).cast(DType::F32).cast(to);
        assert_eq!(by_f32.item().unwrap(), 1.0, "the recorded behaviour is a cast to f32 and one more");
        for n in 0..3 * 4096u64 {
            // A step that reaches every tie of the first powers of two, and a little above.
            let x = f64::from_bits((1.0f64.to_bits() >> 40).wrapping_add(n) << 40 | (n % 3));
            assert_eq!(ours(&[x.to_bits()], DType::F64, to)[0], F64.round(x.to_bits(), format(to)), "{x:e} to {to}");
        }
    }
}

/// Widening is exact, and a widened number narrows to itself.
#[test]
fn every_16_bit_number_goes_there_and_back() {
    let all: Vec<u64> = (0..1 << 16).collect();
    for low in DType::LOW {
        for wide in [DType::F32, DType::F64] {
            let widened = ours(&all, low, wide);
            for (&bits, &wide_bits) in all.iter().zip(&widened) {
                let want = format(low).round(bits, format(wide));
                assert_eq!(wide_bits, want, "{bits:#x} of {low} to {wide}: {wide_bits:#x}, {want:#x}");
            }
            for (&bits, back) in all.iter().zip(ours(&widened, wide, low)) {
                // A signalling NaN is now quiet, since narrowing makes it so.
                let quiet = if format(low).is_nan(bits) { 1 << (format(low).fraction - 1) } else { 0 };
                assert_eq!(back, bits | quiet, "{bits:#x} of {low} to {wide} and back: {back:#x}");
            }
        }
    }
}

/// All 2^32 patterns of f32, to f16 and to bf16. `cargo xtask nightly patterns` runs it.
#[test]
#[ignore = "half a minute in a release build"]
fn every_f32_number_rounds_once() {
    use std::sync::atomic::{AtomicU64, Ordering};
    const CHUNK: u64 = 1 << 20;
    let chunks = (1u64 << 32) / CHUNK;
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(chunk) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&chunk| chunk < chunks) {
                    let all: Vec<f32> = (0..CHUNK).map(|i| f32::from_bits((chunk * CHUNK + i) as u32)).collect();
                    let x = Tensor::from_vec(all, &[CHUNK as usize]).unwrap();
                    for low in DType::LOW {
                        for (i, ours) in patterns(&x.cast(low)).into_iter().enumerate() {
                            let bits = chunk * CHUNK + i as u64;
                            let want = F32.round(bits, format(low));
                            assert_eq!(ours, want, "{bits:#x} to {low}: {ours:#x}, not {want:#x}");
                        }
                    }
                }
            });
        }
    });
}
