//! Conversion between f32 and the 16-bit formats, one vector at a time.

use crate::{
    simd,
    simd::{Kernel, Lanes, Simd},
};

/// Converts each element with one rounding.
pub(super) fn convert<A: Lanes, B: Lanes>(from: &[A], to: &mut [B]) {
    assert_eq!(from.len(), to.len());
    let bytes = size_of_val(from) + size_of_val(to);
    let streaming = bytes > simd::last_level_cache();
    if let Err(slices) = simd::run(Slices { from, to, streaming }) {
        one_by_one(slices.from, slices.to);
    }
}

/// Converts one element at a time: the scalar twin of [`Slices`].
fn one_by_one<A: Lanes, B: Lanes>(from: &[A], to: &mut [B]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = B::store_one(from.load_one());
    }
}

struct Slices<'a, A, B> {
    from: &'a [A],
    to: &'a mut [B],
    /// `true` for streaming stores: both slices together do not fit into the caches.
    streaming: bool,
}

impl<A: Lanes, B: Lanes> Kernel for Slices<'_, A, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (len, lanes) = (self.from.len(), S::LANES);
        assert_eq!(len, self.to.len(), "slices of one length");
        let (from, to) = (self.from.as_ptr(), self.to.as_mut_ptr());
        let mut at = 0;
        if self.streaming {
            at = to.align_offset(64).min(len);
            one_by_one(&self.from[..at], &mut self.to[..at]);
            while at + lanes <= len {
                // SAFETY: a vector at `at` is inside both slices, and that of `to` is aligned.
                unsafe { B::stream(simd, A::load(simd, from.add(at)), to.add(at)) };
                at += lanes;
            }
            simd::store_fence();
        }
        while at + 4 * lanes <= len {
            for i in 0..4 {
                // SAFETY: vector i of four from `at` on is inside both slices.
                unsafe { B::store(simd, A::load(simd, from.add(at + i * lanes)), to.add(at + i * lanes)) };
            }
            at += 4 * lanes;
        }
        while at + lanes <= len {
            // SAFETY: a vector at `at` is inside both slices.
            unsafe { B::store(simd, A::load(simd, from.add(at)), to.add(at)) };
            at += lanes;
        }
        one_by_one(&self.from[at..], &mut self.to[at..]);
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use rand::{RngCore, SeedableRng};

    use super::*;

    /// Checks every width of this machine against the twin, bit for bit.
    fn check<A: Lanes + std::fmt::Debug, B: Lanes + std::fmt::Debug>(from: &[A], bits: impl Fn(&B) -> u32) {
        let mut want = vec![B::default(); from.len()];
        one_by_one(from, &mut want);
        for (width, streaming) in simd::widths().flat_map(|width| [(width, false), (width, true)]) {
            let mut got = vec![B::default(); from.len()];
            assert!(simd::run_with(width, Slices { from, to: &mut got, streaming }).is_ok());
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                assert_eq!(bits(got), bits(want), "element {i} of {}: {:?}, {width:?}", from.len(), from[i]);
            }
        }
    }

    fn f16_bits(x: &f16) -> u32 {
        x.to_bits().into()
    }

    fn bf16_bits(x: &bf16) -> u32 {
        x.to_bits().into()
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no vectors to compare with the twin")]
    fn all_16_bit_patterns_widen_as_the_twin() {
        let f: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let b: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
        check(&f, |x: &f32| x.to_bits());
        check(&b, |x: &f32| x.to_bits());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no vectors to compare with the twin")]
    fn f32s_at_and_about_every_boundary_narrow_as_the_twin() {
        // All 16-bit values and all ties between neighbors, each with the adjacent f32s, and arbitrary patterns.
        let mut patterns: Vec<u32> = Vec::new();
        for bits in 0..=u16::MAX {
            let (f, b) = (f16::from_bits(bits).to_f32().to_bits(), u32::from(bits) << 16);
            for at in [f, f.wrapping_add(1 << 12), b, b | 0x8000] {
                patterns.extend([at.wrapping_sub(1), at, at.wrapping_add(1)]);
            }
        }
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        patterns.extend((0..200_000).map(|_| rng.next_u32()));
        let from: Vec<f32> = patterns.into_iter().map(f32::from_bits).collect();
        check(&from, f16_bits);
        check(&from, bf16_bits);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no vectors to compare with the twin")]
    fn every_length_and_offset_is_converted_whole() {
        let from: Vec<f32> = (0..200).map(|i| (i as f32 - 90.5) * 1.37).collect();
        let widened: Vec<f16> = from.iter().map(|&x| f16::from_f32(x)).collect();
        for start in 0..9 {
            for len in 0..=130 {
                check(&from[start..start + len], f16_bits);
                check(&from[start..start + len], bf16_bits);
                check(&widened[start..start + len], |x: &f32| x.to_bits());
            }
        }
    }

    /// Checks the twin itself against the definitions of the formats (`half`'s scalar conversions could change).
    #[test]
    fn the_twin_rounds_to_nearest_even_and_keeps_nan_quiet() {
        let narrow = |x: u32| {
            let (mut f, mut b) = ([f16::ZERO], [bf16::ZERO]);
            one_by_one(&[f32::from_bits(x)], &mut f);
            one_by_one(&[f32::from_bits(x)], &mut b);
            (f[0].to_bits(), b[0].to_bits())
        };
        assert_eq!(narrow(0x3f80_0000), (0x3c00, 0x3f80));
        assert_eq!(narrow(0x3f80_1000).0, 0x3c00, "a tie, down to even");
        assert_eq!(narrow(0x3f80_3000).0, 0x3c02, "a tie, up to even");
        assert_eq!(narrow(0x3f80_8000).1, 0x3f80, "a tie, down to even");
        assert_eq!(narrow(0x3f81_8000).1, 0x3f82, "a tie, up to even");
        assert_eq!(narrow(0x3380_0000).0, 1, "the least f16");
        assert_eq!(narrow(0x3300_0000).0, 0, "half of it, a tie");
        assert_eq!(narrow(0x3300_0001).0, 1, "just above");
        assert_eq!(narrow(0x477f_efff).0, 0x7bff, "just below the tie to infinity");
        assert_eq!(narrow(0x477f_f000).0, 0x7c00, "65520 overflows");
        assert_eq!(narrow(0x0001_0000).1, 1, "a subnormal bf16");
        assert_eq!(narrow(0x7f7f_ffff), (0x7c00, 0x7f80));
        assert_eq!(narrow(0x7f80_0001), (0x7e00, 0x7fc0), "a signalling NaN becomes quiet");
        assert_eq!(narrow(0xffc1_2000), (0xfe09, 0xffc1), "the upper bits of a NaN stay");
    }
}
