//! AVX2 (with FMA and F16C) and AVX-512 vectors.
//!
//! bf16 is rounded by integer arithmetic: AVX512-BF16's own conversion flushes subnormals to zero.

use std::{arch::x86_64::*, sync::OnceLock};

use half::{bf16, f16};

use super::vector::{Body, Kernel, PairKernel, Pairs, Part, Simd, SizeRange, Sizes, Width};
use crate::arrays::array_of;

/// Returns the widest vectors whose instructions this machine supports completely.
pub(super) fn of_machine() -> Width {
    static WIDTH: OnceLock<Width> = OnceLock::new();
    *WIDTH.get_or_init(|| {
        let avx2 =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        match (avx2, avx512) {
            (true, true) => Width::Sixteen,
            (true, false) => Width::Eight,
            (false, _) => Width::One,
        }
    })
}

/// The [`Simd`] instructions of AVX2; see there for what a value proves.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

/// The [`Simd`] instructions of AVX-512.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

/// Defines the functions that run kernels and plain loops with one instruction set. This is the only place that creates
/// its proof.
macro_rules! entry {
    ($simd:ident, $width:ident, $run:ident, $vectorized:ident, $features:literal) => {
        pub(super) fn $run<K: Kernel>(kernel: K) -> K::Output {
            /// # Safety
            /// The machine has the features.
            #[target_feature(enable = $features)]
            fn go<K: Kernel>(kernel: K) -> K::Output {
                kernel.run($simd(()))
            }
            assert!(of_machine() >= Width::$width);
            // SAFETY: the machine has these instructions, as was just asserted.
            unsafe { go(kernel) }
        }

        pub(super) fn $vectorized<B: Body>(body: B) -> B::Output {
            /// # Safety
            /// The machine has the features.
            #[target_feature(enable = $features)]
            fn go<B: Body>(body: B) -> B::Output {
                body.run()
            }
            assert!(of_machine() >= Width::$width);
            // SAFETY: the machine has these instructions, as was just asserted.
            unsafe { go(body) }
        }
    };
}
entry!(Avx2, Eight, run_avx2, vectorized_avx2, "avx2,fma,f16c");
entry!(Avx512, Sixteen, run_avx512, vectorized_avx512, "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl");

/// The instruction of AVX512-BF16. See [`Pairs`] for what a value proves.
#[derive(Clone, Copy)]
pub(super) struct Bf16(());

/// Returns whether this machine multiplies pairs of bf16, and has all other instructions of the widest vectors.
pub(super) fn has_pairs() -> bool {
    of_machine() == Width::Sixteen && is_x86_feature_detected!("avx512bf16")
}

/// Returns the proofs of the widest vectors and of pairs.
///
/// # Safety
/// The machine has the features.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub(super) fn proofs() -> (Avx512, Bf16) {
    (Avx512(()), Bf16(()))
}

pub(super) fn run_pairs<K: PairKernel>(kernel: K) -> K::Output {
    /// # Safety
    /// The machine has the features.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    fn go<K: PairKernel>(kernel: K) -> K::Output {
        let (simd, pairs) = proofs();
        kernel.run(simd, pairs)
    }
    assert!(has_pairs());
    // SAFETY: the machine has these instructions, as was just asserted.
    unsafe { go(kernel) }
}

impl Pairs<Avx512> for Bf16 {
    #[inline(always)]
    fn mul_add_pairs(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: `self` proves that the machine has the instructions; both types are 512 bits.
        unsafe {
            let (a, b) = (std::mem::transmute::<__m512, __m512bh>(a), std::mem::transmute::<__m512, __m512bh>(b));
            _mm512_dpbf16_ps(c, a, b)
        }
    }

    #[inline(always)]
    unsafe fn join<const N: usize>(self, first: [*const bf16; N], second: [*const bf16; N]) -> __m512 {
        // Half 2i is number i of the second row, half 2i + 1 that of the first.
        const ALTERNATING: [u16; 32] = {
            let mut halves = [0; 32];
            let mut i = 0;
            while i < 16 {
                (halves[2 * i], halves[2 * i + 1]) = (i as u16, 32 + i as u16);
                i += 1;
            }
            halves
        };
        // SAFETY: `self` proves that the machine has the instructions; the caller guarantees the pointers, and the
        // table is as long as a vector.
        unsafe {
            let first = _mm512_castsi256_si512(sixteen_halves(first));
            let second = _mm512_castsi256_si512(sixteen_halves(second));
            let alternating = _mm512_loadu_si512(ALTERNATING.as_ptr().cast());
            _mm512_castsi512_ps(_mm512_permutex2var_epi16(second, alternating, first))
        }
    }

    #[inline(always)]
    unsafe fn load_pairs(self, from: *const bf16, count: usize) -> __m512 {
        // SAFETY: `self` proves that the machine has the instructions; the caller guarantees the pointer. In memory the
        // first of two is the lower.
        unsafe {
            let row = match count {
                32 => _mm512_loadu_si512(from.cast()),
                _ => _mm512_maskz_loadu_epi16((1 << count) - 1, from.cast()),
            };
            _mm512_castsi512_ps(_mm512_rol_epi32::<16>(row))
        }
    }

    #[inline(always)]
    fn note(self, pairs: __m512, sizes: &mut Sizes<Avx512>) {
        // SAFETY: `self` proves that the machine has the instructions.
        unsafe {
            let size = _mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi16(0x7fff));
            let (least, most) = (_mm512_castps_si512(sizes.least_less_one), _mm512_castps_si512(sizes.most));
            let less_one = _mm512_sub_epi16(size, _mm512_set1_epi16(1));
            sizes.least_less_one = _mm512_castsi512_ps(_mm512_min_epu16(least, less_one));
            sizes.most = _mm512_castsi512_ps(_mm512_max_epu16(most, size));
        }
    }

    #[inline(always)]
    fn noted(self, sizes: &Sizes<Avx512>) -> SizeRange {
        let halves = |v: __m512| {
            // SAFETY: both types are 64 bytes.
            unsafe { std::mem::transmute::<__m512, [u16; 32]>(v) }
        };
        let least = halves(sizes.least_less_one).into_iter().fold(u16::MAX, u16::min);
        let most = halves(sizes.most).into_iter().fold(0, u16::max);
        SizeRange { least: u32::from(least) + 1, most: most.into() }
    }

    #[inline(always)]
    fn apart<K: Part<Avx512>>(self, simd: Avx512, part: K) -> K::Output {
        /// # Safety
        /// The machine has the features.
        #[inline(never)]
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
        fn go<K: Part<Avx512>>(simd: Avx512, part: K) -> K::Output {
            part.run(simd)
        }
        // SAFETY: `self` proves that the machine has the instructions.
        unsafe { go(simd, part) }
    }
}

/// Loads sixteen bf16 in `N` pieces: 1, 2 or 4.
///
/// # Safety
/// The machine has AVX2. All addresses are valid for reads of `16 / N` elements.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn sixteen_halves<const N: usize>(from: [*const bf16; N]) -> __m256i {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match N {
            1 => _mm256_loadu_si256(from[0].cast()),
            2 => _mm256_loadu2_m128i(from[1].cast(), from[0].cast()),
            _ => {
                let [a, b, c, d]: [__m128i; 4] = array_of(|i| _mm_loadl_epi64(from[i].cast()));
                _mm256_set_m128i(_mm_unpacklo_epi64(c, d), _mm_unpacklo_epi64(a, b))
            }
        }
    }
}

macro_rules! simd {
    (
        $simd:ty, $features:literal, $v:ty, $lanes:literal, $registers:literal, $rows:literal,
        arithmetic: $(fn $name:ident($($arg:ident: $t:ty),*) -> $r:ty { $body:expr })*
        memory: $(fn $mem:ident($($mem_arg:ident: $mem_t:ty),*) $(-> $mem_r:ty)? { $mem_body:expr })*
    ) => {
        impl Simd for $simd {
            type F32s = $v;
            const LANES: usize = $lanes;
            const REGISTERS: usize = $registers;
            const MR: usize = $rows;
            #[inline(always)]
            fn apart<P: Part<Self>>(self, part: P) -> P::Output {
                /// # Safety
                /// The machine has the features.
                #[inline(never)]
                #[target_feature(enable = $features)]
                fn go<P: Part<$simd>>(simd: $simd, part: P) -> P::Output {
                    part.run(simd)
                }
                // SAFETY: `self` proves that the machine has the instructions.
                unsafe { go(self, part) }
            }
            $(
                #[inline(always)]
                fn $name(self, $($arg: $t),*) -> $r {
                    // SAFETY: `self` proves that the machine has the instructions.
                    unsafe { $body }
                }
            )*
            $(
                #[inline(always)]
                unsafe fn $mem(self, $($mem_arg: $mem_t),*) $(-> $mem_r)? {
                    // SAFETY: `self` proves that the machine has the instructions; the caller guarantees the pointers.
                    unsafe { $mem_body }
                }
            )*
        }
    };
}

// Twelve sums, two columns and a factor fill the sixteen registers.
simd! { Avx2, "avx2,fma,f16c", __m256, 8, 16, 6,
    arithmetic:
    fn splat(x: f32) -> __m256 { _mm256_set1_ps(x) }
    fn add(a: __m256, b: __m256) -> __m256 { _mm256_add_ps(a, b) }
    fn mul_add(a: __m256, b: __m256, c: __m256) -> __m256 { _mm256_fmadd_ps(a, b, c) }
    fn sum(v: __m256) -> f32 { sum_of_eight(v) }
    memory:
    fn load_f32(from: *const f32) -> __m256 { _mm256_loadu_ps(from) }
    fn load_f16(from: *const f16) -> __m256 { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    fn load_bf16(from: *const bf16) -> __m256 {
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()))))
    }
    fn store_f32(v: __m256, to: *mut f32) { _mm256_storeu_ps(to, v) }
    fn store_f16(v: __m256, to: *mut f16) { _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<0>(v)) }
    fn store_bf16(v: __m256, to: *mut bf16) { _mm_storeu_si128(to.cast(), bf16_of_eight(v)) }
    fn stream_f32(v: __m256, to: *mut f32) { _mm256_stream_ps(to, v) }
    fn stream_f16(v: __m256, to: *mut f16) { _mm_stream_si128(to.cast(), _mm256_cvtps_ph::<0>(v)) }
    fn stream_bf16(v: __m256, to: *mut bf16) { _mm_stream_si128(to.cast(), bf16_of_eight(v)) }
    fn transpose(from: *const f32, row: usize, to: *mut f32, to_row: usize) { transpose(from, row, to, to_row) }
    fn store_transposed(vectors: [__m256; 8], to: *mut f32, to_row: usize, _count: usize) {
        store_transposed_eight(vectors, to, to_row)
    }
}

simd! { Avx512, "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl", __m512, 16, 32, 8,
    arithmetic:
    fn splat(x: f32) -> __m512 { _mm512_set1_ps(x) }
    fn add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
    fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
    fn sum(v: __m512) -> f32 {
        sum_of_eight(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)))
    }
    memory:
    fn load_f32(from: *const f32) -> __m512 { _mm512_loadu_ps(from) }
    fn load_f16(from: *const f16) -> __m512 { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    fn load_bf16(from: *const bf16) -> __m512 {
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()))))
    }
    fn store_f32(v: __m512, to: *mut f32) { _mm512_storeu_ps(to, v) }
    fn store_f16(v: __m512, to: *mut f16) { _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<_MM_FROUND_NO_EXC>(v)) }
    fn store_bf16(v: __m512, to: *mut bf16) { _mm256_storeu_si256(to.cast(), bf16_of_sixteen(v)) }
    fn stream_f32(v: __m512, to: *mut f32) { _mm512_stream_ps(to, v) }
    fn stream_f16(v: __m512, to: *mut f16) { _mm256_stream_si256(to.cast(), _mm512_cvtps_ph::<_MM_FROUND_NO_EXC>(v)) }
    fn stream_bf16(v: __m512, to: *mut bf16) { _mm256_stream_si256(to.cast(), bf16_of_sixteen(v)) }
    fn transpose(from: *const f32, row: usize, to: *mut f32, to_row: usize) { transpose(from, row, to, to_row) }
    fn store_transposed(vectors: [__m512; 8], to: *mut f32, to_row: usize, count: usize) {
        store_transposed_sixteen(vectors, to, to_row, count)
    }
}

/// Rounds to the upper half of an f32, which is bf16, by adding half a unit in its last place. A tie goes to even, and
/// a NaN becomes quiet.
///
/// # Safety
/// The machine has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
fn bf16_of_eight(v: __m256) -> __m128i {
    let bits = _mm256_castps_si256(v);
    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    let rounded = _mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7fff));
    let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x40_0000));
    let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
    let upper = _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, nan));
    _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256::<1>(upper))
}

/// Rounds as [`bf16_of_eight`] does.
///
/// # Safety
/// The machine has AVX-512 F and BW.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn bf16_of_sixteen(v: __m512) -> __m256i {
    // The odd ones of 32 halves.
    const UPPER: [u16; 32] = {
        let mut halves = [0; 32];
        let mut i = 0;
        while i < 16 {
            halves[i] = 2 * i as u16 + 1;
            i += 1;
        }
        halves
    };
    let bits = _mm512_castps_si512(v);
    let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    let rounded = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
    // If v is one of the two kinds of NaN, the instruction uses v made quiet (2) instead of the sum.
    let kept = _mm512_fixupimm_ps::<0>(_mm512_castsi512_ps(rounded), v, _mm512_set1_epi32(0x22));
    // SAFETY: the table is as long as a vector.
    let upper = unsafe { _mm512_loadu_si512(UPPER.as_ptr().cast()) };
    _mm512_castsi512_si256(_mm512_permutexvar_epi16(upper, _mm512_castps_si512(kept)))
}

/// Implements [`Simd::sum`].
///
/// # Safety
/// The machine has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
fn sum_of_eight(v: __m256) -> f32 {
    let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

/// Implements [`Simd::transpose`].
///
/// # Safety
/// The machine has AVX2. Eight rows of eight numbers are valid for reads at `from`, and for writes at `to`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn transpose(from: *const f32, row: usize, to: *mut f32, to_row: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { store_transposed_eight(array_of(|i| _mm256_loadu_ps(from.add(i * row))), to, to_row) };
}

/// Implements [`Simd::store_transposed`].
///
/// # Safety
/// The machine has AVX2. Eight rows of eight numbers are valid for writes at `to`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_transposed_eight(rows: [__m256; 8], to: *mut f32, to_row: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        // Pairs of rows interleaved by one, then by two, then halves exchanged.
        let by_one: [__m256; 8] = array_of(|i| {
            let (a, b) = (rows[i / 2 * 2], rows[i / 2 * 2 + 1]);
            if i % 2 == 0 { _mm256_unpacklo_ps(a, b) } else { _mm256_unpackhi_ps(a, b) }
        });
        let by_two: [__m256; 8] = array_of(|i| {
            let (a, b) = (by_one[i / 4 * 4 + i % 4 / 2], by_one[i / 4 * 4 + 2 + i % 4 / 2]);
            if i % 2 == 0 { _mm256_shuffle_ps::<0x44>(a, b) } else { _mm256_shuffle_ps::<0xee>(a, b) }
        });
        for i in 0..4 {
            let (a, b) = (by_two[i], by_two[i + 4]);
            _mm256_storeu_ps(to.add(i * to_row), _mm256_permute2f128_ps::<0x20>(a, b));
        }
        for i in 0..4 {
            let (a, b) = (by_two[i], by_two[i + 4]);
            _mm256_storeu_ps(to.add((i + 4) * to_row), _mm256_permute2f128_ps::<0x31>(a, b));
        }
    }
}

/// Implements [`Simd::store_transposed`].
///
/// # Safety
/// The machine has AVX-512 F. Sixteen rows of eight numbers, or eight if `count` is no more, are valid for writes at
/// `to`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store_transposed_sixteen(vectors: [__m512; 8], to: *mut f32, to_row: usize, count: usize) {
    // As for eight lanes: quarter q of `by_two[i]` belongs to row 4 * q + i, and has the first four vectors, or with i
    // + 4 the others.
    let by_one: [__m512; 8] = array_of(|i| {
        let (a, b) = (vectors[i / 2 * 2], vectors[i / 2 * 2 + 1]);
        if i % 2 == 0 { _mm512_unpacklo_ps(a, b) } else { _mm512_unpackhi_ps(a, b) }
    });
    let by_two: [__m512; 8] = array_of(|i| {
        let (a, b) = (by_one[i / 4 * 4 + i % 4 / 2], by_one[i / 4 * 4 + 2 + i % 4 / 2]);
        if i % 2 == 0 { _mm512_shuffle_ps::<0x44>(a, b) } else { _mm512_shuffle_ps::<0xee>(a, b) }
    });
    let store_two = |a: __m512, b: __m512, quarters: __m512i, row: usize| {
        let both = _mm512_permutex2var_pd(_mm512_castps_pd(a), quarters, _mm512_castps_pd(b));
        // SAFETY: guaranteed by the caller.
        unsafe {
            _mm256_storeu_pd(to.add(row * to_row).cast(), _mm512_castpd512_pd256(both));
            _mm256_storeu_pd(to.add((row + 4) * to_row).cast(), _mm512_extractf64x4_pd::<1>(both));
        }
    };
    let lower = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    for i in 0..4 {
        store_two(by_two[i], by_two[i + 4], lower, i);
    }
    if count > 8 {
        let upper = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
        for i in 0..4 {
            store_two(by_two[i], by_two[i + 4], upper, 8 + i);
        }
    }
}

/// Asks CPUID.
pub(super) fn ask(leaf: u32, index: u32) -> CpuidResult {
    // SAFETY: every x86-64 machine has CPUID. (Newer compilers know.)
    #[allow(unused_unsafe)]
    unsafe {
        __cpuid_count(leaf, index)
    }
}

/// Returns the bytes of the last-level cache, if reported by CPUID.
pub(super) fn last_level_cache() -> Option<usize> {
    // Miri has no CPUID. There, the standard library detects no vector instructions.
    if cfg!(miri) {
        return None;
    }
    static BYTES: OnceLock<Option<usize>> = OnceLock::new();
    *BYTES.get_or_init(|| {
        // Intel describes its caches in leaf 4, AMD in the same form in leaf 0x8000001d.
        let known = |leaf: u32| ask(leaf & 0x8000_0000, 0).eax >= leaf && ask(leaf, 0).eax & 0x1f != 0;
        let leaf = [4, 0x8000_001d].into_iter().find(|&leaf| known(leaf))?;
        let size = |index| {
            let info = ask(leaf, index);
            let field = |at: u32, bits: u32| (info.ebx >> at & ((1 << bits) - 1)) as usize + 1;
            (info.eax & 0x1f != 0).then(|| field(22, 10) * field(12, 10) * field(0, 12) * (info.ecx as usize + 1))
        };
        (0..8).map_while(size).max()
    })
}
