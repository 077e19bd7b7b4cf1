//! AMX: tiles of 16 rows of 64 bytes, and the instruction that multiplies two of bf16 and adds the result to one of f32.
//!
//! The instructions are written as assembly, since those of the compiler are not stable. Linux gives a process the memory
//! for the tiles of its threads on request.

use std::{arch::asm, sync::OnceLock};

use super::{
    vector::{TileKernel, Tiles},
    x86::{self, Avx512},
};

/// The instructions of AMX. See [`Tiles`] for what a value proves.
#[derive(Clone, Copy)]
pub(super) struct Amx(());

/// Returns whether this processor multiplies tiles of bf16.
pub(super) fn exists() -> bool {
    // Leaf 7: bit 22 of EDX for bf16, bit 24 for tiles.
    x86::has_pairs() && x86::ask(7, 0).edx >> 22 & 0b101 == 0b101
}

/// Returns whether it does, and the system lets this process do so.
pub(super) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| exists() && is_permitted())
}

/// Asks the system for the use of tiles.
fn is_permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: i64 = 0x1023;
    const TILE_DATA: i64 = 18;
    let failed: i64;
    // SAFETY: the call has no effect on memory; it overwrites these registers alone.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => failed,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    failed == 0
}

/// Sizes of the eight tiles, as the instruction reads them.
#[repr(C, align(64))]
struct Sizes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

static WHOLE: Sizes = Sizes {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// The tiles of this thread; they are released when this is dropped.
struct InUse;

impl Drop for InUse {
    fn drop(&mut self) {
        // SAFETY: only `run` makes one, which has asked whether there are tiles.
        unsafe { asm!("tilerelease", options(nomem, nostack)) };
    }
}

pub(super) fn run<K: TileKernel>(kernel: K) -> K::Output {
    /// # Safety
    /// The machine has the features and tiles.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    fn go<K: TileKernel>(kernel: K) -> K::Output {
        // SAFETY: `run` has asked whether there are tiles.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const WHOLE, options(readonly, nostack)) };
        let _in_use = InUse;
        let (simd, pairs) = x86::proofs();
        kernel.run(simd, pairs, Amx(()))
    }
    assert!(is_available());
    // SAFETY: the machine has these instructions, as was just asserted.
    unsafe { go(kernel) }
}

/// Multiplies the upper rows by the first columns, and by the `second` ones; the `lower` rows by the first, and by `both`.
/// The empty texts say which of these there are.
macro_rules! multiply {
    ($steps:ident, $a:ident, $b:ident, $to:ident: $(lower $lower:literal,)? $(second $second:literal,)? $(both $both:literal,)?) => {
        asm!(
            "tilezero tmm0",
            $( $lower, "tilezero tmm2", )?
            $( $second, "tilezero tmm1", )?
            $( $both, "tilezero tmm3", )?
            "2:",
            "tileloadd tmm4, [{a} + {a_row} * 1]",
            "tileloadd tmm6, [{b} + {b_row} * 1]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            $( $second, "tileloadd tmm7, [{b} + {b_row} * 1 + 64]", "tdpbf16ps tmm1, tmm4, tmm7", )?
            $( $lower, "tileloadd tmm5, [{a} + {a_row} * 1 + 1024]", "tdpbf16ps tmm2, tmm5, tmm6", )?
            $( $both, "tdpbf16ps tmm3, tmm5, tmm7", )?
            "add {a}, 2048",
            "add {b}, 2048",
            "dec {steps}",
            "jnz 2b",
            "tilestored [{to} + {b_row} * 1], tmm0",
            $( $second, "tilestored [{to} + {b_row} * 1 + 64], tmm1", )?
            $( $lower, "tilestored [{to} + {b_row} * 1 + 2048], tmm2", )?
            $( $both, "tilestored [{to} + {b_row} * 1 + 2112], tmm3", )?
            steps = inout(reg) $steps => _,
            a = inout(reg) $a => _,
            b = inout(reg) $b => _,
            to = in(reg) $to,
            a_row = in(reg) 64usize,
            b_row = in(reg) 128usize,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

impl Tiles<Avx512> for Amx {
    #[inline(always)]
    unsafe fn multiply(
        self,
        steps: usize,
        (rows, columns): (usize, usize),
        a: *const f32,
        b: *const f32,
        to: *mut [f32; 32],
    ) {
        if steps == 0 {
            // SAFETY: guaranteed by the caller.
            return unsafe { to.write_bytes(0, 32) };
        }
        // SAFETY: `self` proves that the machine has the instructions, and is made where the tiles are configured. The
        // caller guarantees the memory.
        unsafe {
            match (rows > 16, columns > 16) {
                (false, false) => multiply!(steps, a, b, to:),
                (false, true) => multiply!(steps, a, b, to: second "",),
                (true, false) => multiply!(steps, a, b, to: lower "",),
                (true, true) => multiply!(steps, a, b, to: lower "", second "", both "",),
            }
        }
    }
}
