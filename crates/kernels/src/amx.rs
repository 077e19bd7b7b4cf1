//! Permission to multiply bf16 by AMX, which changes bits.

use std::sync::atomic::{AtomicU8, Ordering};

use super::simd::{self, TileKernel};

const UNASKED: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

static ALLOWED: AtomicU8 = AtomicU8::new(UNASKED);

/// Allows or forbids products of bf16 by AMX, and returns whether they are used from now on: only on x86-64 processors
/// that have it, under Linux, without `PRECAST_VECTORS` below 16. Call it before the first step, since a step computes
/// what follows in the new way.
///
/// AMX multiplies bf16 several times as fast as f32, but adds the products in another order. Results then differ in their
/// last bits from those of other machines. They still have the same bits with the same seed on machines with AMX, whatever
/// the number of threads, and no number is flushed to 0. Products, convolutions and their gradients in bf16 are affected;
/// f16 and f32 are not.
///
/// Default: forbidden, unless the environment variable `PRECAST_AMX` is 1. If it is 0, AMX is forbidden in any case.
///
/// ```
/// # use precast_kernels::amx as precast;
/// if precast::allow_amx(true) {
///     println!("products of bf16 by AMX");
/// }
/// # precast::allow_amx(false);
/// ```
pub fn allow_amx(allow: bool) -> bool {
    let allowed = allow && set().is_none_or(|set| set != "0") && simd::has_tiles();
    ALLOWED.store(if allowed { YES } else { NO }, Ordering::Relaxed);
    allowed
}

/// Returns the environment variable.
fn set() -> Option<String> {
    std::env::var("PRECAST_AMX").ok()
}

/// Returns whether products of bf16 are computed by AMX: it is [allowed](allow_amx), and the processor has it.
pub fn uses_amx() -> bool {
    #[cfg(test)]
    if twin::IN_USE.get() {
        return true;
    }
    match ALLOWED.load(Ordering::Relaxed) {
        UNASKED => {
            let allowed = set().is_some_and(|set| set == "1") && simd::has_tiles();
            // The program may have decided in the meantime.
            let asked = if allowed { YES } else { NO };
            match ALLOWED.compare_exchange(UNASKED, asked, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => allowed,
                Err(decided) => decided == YES,
            }
        }
        allowed => allowed == YES,
    }
}

/// Runs a kernel by tiles. Returns the kernel if there are none.
pub fn run<K: TileKernel>(kernel: K) -> Result<K::Output, K> {
    #[cfg(test)]
    if twin::IN_USE.get() {
        return simd::run(simd::twin::WithTiles(kernel)).map_err(|twin| twin.0);
    }
    simd::run_tiles(kernel)
}

#[cfg(test)]
pub(crate) mod twin {
    use std::cell::Cell;

    thread_local! { pub static IN_USE: Cell<bool> = const { Cell::new(false) } }

    /// Runs code on this thread alone, with the twin of the tiles.
    pub fn with(run: impl FnOnce()) {
        IN_USE.set(true);
        crate::threads::alone(run);
        IN_USE.set(false);
    }
}
