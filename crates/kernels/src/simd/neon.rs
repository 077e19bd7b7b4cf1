//! NEON vectors, which are part of the aarch64 baseline.
//!
//! f16 is converted by two instructions of that baseline, in assembly: their intrinsics are newer than the minimum
//! supported Rust version. bf16 is rounded by integer arithmetic, as on x86-64.

use std::arch::{aarch64::*, asm};

use half::{bf16, f16};

use super::vector::{Kernel, Part, Simd};
use crate::arrays::array_of;

/// The [`Simd`] instructions of NEON; see there for what a value proves.
#[derive(Clone, Copy)]
pub(super) struct Neon(());

/// Runs a kernel. This is the only place that creates the proof: this module is compiled for targets that have NEON.
pub(super) fn run<K: Kernel>(kernel: K) -> K::Output {
    const { assert!(cfg!(target_feature = "neon")) };
    kernel.run(Neon(()))
}

/// Defines the functions of a vector's arithmetic and of its memory.
macro_rules! simd {
    (
        arithmetic: $(fn $name:ident($($arg:ident: $t:ty),*) -> $r:ty { $body:expr })*
        memory: $(fn $mem:ident($($mem_arg:ident: $mem_t:ty),*) $(-> $mem_r:ty)? { $mem_body:expr })*
    ) => {
        impl Simd for Neon {
            type F32s = float32x4_t;
            const LANES: usize = 4;
            const REGISTERS: usize = 32;
            // Sixteen sums, two columns and a row of factors.
            const MR: usize = 8;
            #[inline(never)]
            fn apart<P: Part<Self>>(self, part: P) -> P::Output {
                part.run(self)
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

// Streaming stores have no intrinsic. A plain store takes their place.
simd! {
    arithmetic:
    fn splat(x: f32) -> float32x4_t { vdupq_n_f32(x) }
    fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t { vaddq_f32(a, b) }
    fn mul_add(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t { vfmaq_f32(c, a, b) }
    fn sum(v: float32x4_t) -> f32 {
        vpadds_f32(vadd_f32(vget_low_f32(v), vget_high_f32(v)))
    }
    memory:
    fn load_f32(from: *const f32) -> float32x4_t { vld1q_f32(from) }
    fn load_f16(from: *const f16) -> float32x4_t { f32_of_f16(vld1_u16(from.cast())) }
    fn load_bf16(from: *const bf16) -> float32x4_t {
        vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from.cast())))
    }
    fn store_f32(v: float32x4_t, to: *mut f32) { vst1q_f32(to, v) }
    fn store_f16(v: float32x4_t, to: *mut f16) { vst1_u16(to.cast(), f16_of_f32(v)) }
    fn store_bf16(v: float32x4_t, to: *mut bf16) { vst1_u16(to.cast(), bf16_of_four(v)) }
    fn stream_f32(v: float32x4_t, to: *mut f32) { vst1q_f32(to, v) }
    fn stream_f16(v: float32x4_t, to: *mut f16) { vst1_u16(to.cast(), f16_of_f32(v)) }
    fn stream_bf16(v: float32x4_t, to: *mut bf16) { vst1_u16(to.cast(), bf16_of_four(v)) }
    fn transpose(from: *const f32, row: usize, to: *mut f32, to_row: usize) {
        for (i, j) in [(0, 0), (0, 4), (4, 0), (4, 4)] {
            let rows = array_of(|r| vld1q_f32(from.add((i + r) * row + j)));
            store_transposed_four(rows, to.add(j * to_row + i), to_row);
        }
    }
    fn store_transposed(vectors: [float32x4_t; 8], to: *mut f32, to_row: usize, _count: usize) {
        for (i, four) in vectors.as_chunks().0.iter().enumerate() {
            store_transposed_four(*four, to.add(4 * i), to_row);
        }
    }
}

/// Widens exactly; a NaN becomes quiet.
#[inline(always)]
fn f32_of_f16(narrow: uint16x4_t) -> float32x4_t {
    let wide;
    // SAFETY: every machine that this module is compiled for has the instruction, which reads and writes these
    // registers only.
    unsafe {
        asm!("fcvtl {wide:v}.4s, {narrow:v}.4h", wide = lateout(vreg) wide, narrow = in(vreg) narrow,
            options(pure, nomem, nostack, preserves_flags));
    }
    wide
}

/// Rounds to nearest even; a NaN becomes quiet.
#[inline(always)]
fn f16_of_f32(wide: float32x4_t) -> uint16x4_t {
    let narrow;
    // SAFETY: as in `f32_of_f16`.
    unsafe {
        asm!("fcvtn {narrow:v}.4h, {wide:v}.4s", narrow = lateout(vreg) narrow, wide = in(vreg) wide,
            options(pure, nomem, nostack, preserves_flags));
    }
    narrow
}

/// Rounds to the upper half of an f32, which is bf16, by adding half a unit in its last place. A tie goes to even, and
/// a NaN becomes quiet.
///
/// # Safety
/// The machine has NEON.
#[inline]
#[target_feature(enable = "neon")]
fn bf16_of_four(v: float32x4_t) -> uint16x4_t {
    let bits = vreinterpretq_u32_f32(v);
    let odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
    let rounded = vaddq_u32(vaddq_u32(bits, odd), vdupq_n_u32(0x7fff));
    let quiet = vorrq_u32(bits, vdupq_n_u32(0x40_0000));
    vshrn_n_u32::<16>(vbslq_u32(vceqq_f32(v, v), rounded, quiet))
}

/// Implements [`Simd::store_transposed`].
///
/// # Safety
/// The machine has NEON. Four rows of four numbers are valid for writes at `to`.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn store_transposed_four(rows: [float32x4_t; 4], to: *mut f32, to_row: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        // Pairs of numbers of two rows, then both pairs of four rows.
        let pairs = [
            vtrn1q_f32(rows[0], rows[1]),
            vtrn2q_f32(rows[0], rows[1]),
            vtrn1q_f32(rows[2], rows[3]),
            vtrn2q_f32(rows[2], rows[3]),
        ]
        .map(|v| vreinterpretq_f64_f32(v));
        for i in 0..2 {
            let (lower, upper) = (vtrn1q_f64(pairs[i], pairs[i + 2]), vtrn2q_f64(pairs[i], pairs[i + 2]));
            vst1q_f32(to.add(i * to_row), vreinterpretq_f32_f64(lower));
            vst1q_f32(to.add((i + 2) * to_row), vreinterpretq_f32_f64(upper));
        }
    }
}

/// Implements [`prefetch`](super::prefetch).
#[inline(always)]
pub(super) fn prefetch<T>(at: *const T) {
    // SAFETY: a prefetch reads nothing, and an invalid address is ignored.
    unsafe { asm!("prfm pldl1keep, [{at}]", at = in(reg) at, options(nomem, nostack, preserves_flags)) };
}
