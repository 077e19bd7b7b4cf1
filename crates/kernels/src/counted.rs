//! Conversions between f32, f16 and bf16 in files, little-endian, with counts of the numbers affected by rounding.

use half::{bf16, f16};
use precast_base::DType;

use super::{
    cast::Convert,
    simd::{self, Body},
    threads,
};

/// Effects of rounding on a set of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rounded {
    /// Largest finite magnitude before rounding.
    pub largest: f32,
    /// Numbers that were infinite or NaN before rounding.
    pub not_finite: u64,
    /// Finite numbers that became infinite.
    pub to_infinity: u64,
    /// Nonzero numbers that became 0.
    pub to_zero: u64,
    /// Numbers that lost digits because they became subnormal.
    pub to_subnormal: u64,
    /// Largest relative error of the numbers that were finite and remained so.
    pub relative_error: f32,
}

impl Rounded {
    /// Combines both.
    pub fn and(self, other: Rounded) -> Rounded {
        Rounded {
            largest: self.largest.max(other.largest),
            not_finite: self.not_finite + other.not_finite,
            to_infinity: self.to_infinity + other.to_infinity,
            to_zero: self.to_zero + other.to_zero,
            to_subnormal: self.to_subnormal + other.to_subnormal,
            relative_error: self.relative_error.max(other.relative_error),
        }
    }
}

/// Number of elements converted at a time: all their forms fit into the first-level cache.
const BLOCK: usize = 1024;
/// Number of elements of a part, which one thread converts.
const PART: usize = 64 * BLOCK;
/// Number of partial counts. Fixed, so that nothing depends on the width of vectors.
const LANES: usize = 16;

/// Part of the work, and its result.
struct Part<'a> {
    from: &'a [u8],
    to: &'a mut [u8],
    rounded: Rounded,
}

/// Converts numbers from one castable dtype to another, or copies them if both are the same. The slices hold equally
/// many.
pub fn convert_counted(from: DType, to: DType, bytes: &[u8], out: &mut [u8]) -> Rounded {
    assert!(from.is_castable() && to.is_castable(), "{from} to {to}");
    assert_eq!(bytes.len() / from.bytes(), out.len() / to.bytes(), "slices of one length");
    let parts = bytes.chunks(PART * from.bytes()).zip(out.chunks_mut(PART * to.bytes()));
    let mut parts: Vec<Part<'_>> = parts.map(|(from, to)| Part { from, to, rounded: Rounded::default() }).collect();
    let work = bytes.len() / from.bytes() * threads::PASSED;
    threads::chunks(&mut parts, 1, work, |_, part| {
        let Part { from: bytes, to: out, rounded } = &mut part[0];
        let same = from == to;
        *rounded = match to {
            DType::F16 => part_to::<f16>(from, same, bytes, out),
            DType::Bf16 => part_to::<bf16>(from, same, bytes, out),
            _ => part_to::<f32>(from, same, bytes, out),
        };
    });
    parts.iter().fold(Rounded::default(), |all, part| all.and(part.rounded))
}

/// Number in the format of a file.
trait Stored: Convert<f32> + Copy + Default {
    /// Smallest number with full precision.
    const LEAST_NORMAL: f32;
    fn read(bytes: &[u8], to: &mut [Self]);
    fn write(from: &[Self], bytes: &mut [u8]);
}

macro_rules! stored {
    ($($t:ty, $bytes:literal: $least:expr;)*) => { $(
        impl Stored for $t {
            const LEAST_NORMAL: f32 = $least;
            fn read(bytes: &[u8], to: &mut [Self]) {
                let (numbers, _) = bytes.as_chunks::<$bytes>();
                to.iter_mut().zip(numbers).for_each(|(to, bytes)| *to = <$t>::from_le_bytes(*bytes));
            }
            fn write(from: &[Self], bytes: &mut [u8]) {
                let (numbers, _) = bytes.as_chunks_mut::<$bytes>();
                numbers.iter_mut().zip(from).for_each(|(bytes, from)| *bytes = from.to_le_bytes());
            }
        }
    )* };
}
stored! {
    f32, 4: f32::MIN_POSITIVE;
    // 2^-14.
    f16, 2: 1.0 / 16384.0;
    bf16, 2: f32::MIN_POSITIVE;
}

fn part_to<B: Stored>(from: DType, same: bool, bytes: &[u8], out: &mut [u8]) -> Rounded
where
    f32: Convert<B>,
{
    match from {
        DType::F16 => part::<f16, B>(same, bytes, out),
        DType::Bf16 => part::<bf16, B>(same, bytes, out),
        _ => part::<f32, B>(same, bytes, out),
    }
}

fn part<A: Stored, B: Stored>(same: bool, bytes: &[u8], out: &mut [u8]) -> Rounded
where
    f32: Convert<B>,
{
    if same {
        // A conversion would make a signaling NaN quiet.
        out.copy_from_slice(bytes);
    }
    let (mut from, mut to) = ([A::default(); BLOCK], [B::default(); BLOCK]);
    let (mut wide, mut back) = ([0f32; BLOCK], [0f32; BLOCK]);
    let mut rounded = Rounded::default();
    for (bytes, out) in bytes.chunks(BLOCK * size_of::<A>()).zip(out.chunks_mut(BLOCK * size_of::<B>())) {
        // Zeros after a short block affect no count.
        let len = bytes.len() / size_of::<A>();
        from[len..].fill(A::default());
        A::read(bytes, &mut from);
        A::convert(&from, &mut wide);
        <f32 as Convert<B>>::convert(&wide, &mut to);
        B::convert(&to, &mut back);
        if !same {
            B::write(&to[..len], out);
        }
        rounded = rounded.and(simd::vectorized(Count { wide: &wide, back: &back, least_normal: B::LEAST_NORMAL }));
    }
    rounded
}

/// Comparison of numbers with their rounded values.
struct Count<'a> {
    wide: &'a [f32; BLOCK],
    back: &'a [f32; BLOCK],
    least_normal: f32,
}

impl Body for Count<'_> {
    type Output = Rounded;

    #[inline(always)]
    fn run(self) -> Rounded {
        let (mut largest, mut error) = ([0f32; LANES], [0f32; LANES]);
        let [mut not_finite, mut infinite, mut zero, mut subnormal] = [[0u32; LANES]; 4];
        for (wide, back) in self.wide.as_chunks::<LANES>().0.iter().zip(self.back.as_chunks::<LANES>().0) {
            for lane in 0..LANES {
                // With NaN every comparison is false.
                let (x, y) = (wide[lane].abs(), back[lane].abs());
                let finite = x < f32::INFINITY;
                largest[lane] = if (x > largest[lane]) & finite { x } else { largest[lane] };
                not_finite[lane] += u32::from(!finite);
                infinite[lane] += u32::from(finite & (y == f32::INFINITY));
                zero[lane] += u32::from((x > 0.0) & (y == 0.0));
                subnormal[lane] += u32::from((y > 0.0) & (y < self.least_normal) & (x != y));
                let relative = (y - x).abs() / x;
                let counts = (relative > error[lane]) & (relative < f32::INFINITY);
                error[lane] = if counts { relative } else { error[lane] };
            }
        }
        let most = |lanes: [f32; LANES]| lanes.into_iter().fold(0.0, f32::max);
        let sum = |lanes: [u32; LANES]| lanes.into_iter().map(u64::from).sum();
        Rounded {
            largest: most(largest),
            not_finite: sum(not_finite),
            to_infinity: sum(infinite),
            to_zero: sum(zero),
            to_subnormal: sum(subnormal),
            relative_error: most(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(numbers: &[f32]) -> Vec<u8> {
        numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "so many numbers take Miri minutes")]
    fn each_loss_is_counted_by_its_definition() {
        // 65520 is the tie to infinity; 2^-24 is the smallest f16, and half of it is a tie to 0.
        let least = 2f32.powi(-24);
        let lost = [65519.0, -65520.0, 1e9, f32::INFINITY, f32::NAN, 0.0, -0.0, least, least / 2.0, 1.6 * least, 1.0];
        // After more than one part, so that several threads count.
        let mut numbers = vec![0.5; PART + 5];
        numbers.extend(lost);
        let mut out = vec![0; 2 * numbers.len()];
        let met = convert_counted(DType::F32, DType::F16, &bytes(&numbers), &mut out);
        assert_eq!((met.largest, met.not_finite), (1e9, 2));
        assert_eq!((met.to_infinity, met.to_zero, met.to_subnormal), (2, 1, 1));
        assert_eq!(met.relative_error, 1.0, "what became 0 lost all of itself");
        let expected: Vec<u8> = numbers.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect();
        assert_eq!(out, expected);
        let third = convert_counted(DType::F32, DType::Bf16, &bytes(&[1.0, 1.0 + 2f32.powi(-9)]), &mut [0; 4]);
        let exact = 2f32.powi(-9) / (1.0 + 2f32.powi(-9));
        assert!((third.relative_error - exact).abs() < 1e-9 && third.to_subnormal == 0, "{third:?}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "so many numbers take Miri minutes")]
    fn widening_loses_nothing_and_a_copy_keeps_every_bit() {
        let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        // The patterns of the largest exponent, of either sign, are infinite or NaN.
        for (from, largest, not_finite, widened) in [
            (
                DType::F16,
                65504.0,
                2 << 10,
                (0..=u16::MAX).map(|bits| f16::from_bits(bits).to_f32()).collect::<Vec<_>>(),
            ),
            (
                DType::Bf16,
                bf16::MAX.to_f32(),
                2 << 7,
                (0..=u16::MAX).map(|bits| bf16::from_bits(bits).to_f32()).collect(),
            ),
        ] {
            let mut same = vec![0; all.len()];
            convert_counted(from, from, &all, &mut same);
            assert_eq!(same, all);
            let mut wide = vec![0; 2 * all.len()];
            let met = convert_counted(from, DType::F32, &all, &mut wide);
            assert_eq!(met, Rounded { largest, not_finite, ..Rounded::default() });
            for (met, want) in wide.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).zip(widened) {
                assert!(met == want || (met.is_nan() && want.is_nan()), "{met} {want}");
            }
        }
        assert_eq!(convert_counted(DType::F32, DType::F16, &[], &mut []), Rounded::default());
    }
}
