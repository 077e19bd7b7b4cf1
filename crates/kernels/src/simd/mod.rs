//! Vector instructions: detection, and dispatch of kernels.
//!
//! A kernel that names its operations is written once over [`Simd`] and run by [`run`]. A plain loop is run by
//! [`vectorized`], which lets the compiler use the wider instructions. Both give the same bits as scalar code.

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod amx;
// Miri supports no assembly, which NEON's conversions use.
#[cfg(all(target_arch = "aarch64", target_endian = "little", target_feature = "neon", not(miri)))]
mod neon;
#[cfg(test)]
pub mod twin;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

pub use vector::{
    Body, Kernel, Lanes, PairKernel, Pairs, Part, Simd, SizeRange, Sizes, TileKernel, Tiles, Width, load_first,
    store_first,
};

/// Returns the number of f32 numbers in the vectors that kernels compute with: 16, 8, 4 or 1. The environment variable
/// `PRECAST_VECTORS` limits it. Results have the same bits on machines with the same number.
pub fn vector_lanes() -> usize {
    widest().lanes()
}

/// Returns the widest vectors of this machine that the environment variable `PRECAST_VECTORS` allows. It is read once.
pub fn widest() -> Width {
    static WIDTH: OnceLock<Width> = OnceLock::new();
    *WIDTH.get_or_init(|| {
        let allowed = match std::env::var("PRECAST_VECTORS").as_deref() {
            Ok("1") => Width::One,
            Ok("4") => Width::Four,
            Ok("8") => Width::Eight,
            _ => Width::Sixteen,
        };
        at_most(allowed)
    })
}

/// Widths available on machines of this kind, in order.
const WIDTHS: &[Width] = if cfg!(target_arch = "x86_64") {
    &[Width::Eight, Width::Sixteen]
} else if HAS_NEON {
    &[Width::Four]
} else {
    &[]
};

const HAS_NEON: bool = cfg!(all(target_arch = "aarch64", target_endian = "little", target_feature = "neon", not(miri)));

/// Returns the widest vectors of this machine that do not exceed `allowed`.
fn at_most(allowed: Width) -> Width {
    let allowed = allowed.min(of_machine());
    WIDTHS.iter().copied().rfind(|&width| width <= allowed).unwrap_or(Width::One)
}

fn of_machine() -> Width {
    #[cfg(target_arch = "x86_64")]
    return x86::of_machine();
    #[cfg(not(target_arch = "x86_64"))]
    if HAS_NEON { Width::Four } else { Width::One }
}

/// Runs a kernel with the [`widest`] vectors. Returns the kernel if there are none.
pub fn run<K: Kernel>(kernel: K) -> Result<K::Output, K> {
    run_with(widest(), kernel)
}

/// Runs a kernel as [`run`] does, with vectors no wider than the [`widest`].
pub fn run_with<K: Kernel>(width: Width, kernel: K) -> Result<K::Output, K> {
    match width {
        #[cfg(target_arch = "x86_64")]
        Width::Sixteen => Ok(x86::run_avx512(kernel)),
        #[cfg(target_arch = "x86_64")]
        Width::Eight => Ok(x86::run_avx2(kernel)),
        #[cfg(all(target_arch = "aarch64", target_endian = "little", target_feature = "neon", not(miri)))]
        Width::Four => Ok(neon::run(kernel)),
        _ => Err(kernel),
    }
}

/// Runs a kernel that multiplies pairs of bf16. Returns the kernel if the machine has no instruction for them, or if
/// `PRECAST_VECTORS` does not allow vectors that wide.
pub fn run_pairs<K: PairKernel>(kernel: K) -> Result<K::Output, K> {
    #[cfg(target_arch = "x86_64")]
    if widest() == Width::Sixteen && x86::has_pairs() {
        return Ok(x86::run_pairs(kernel));
    }
    Err(kernel)
}

/// Returns whether this processor multiplies tiles of bf16, and `PRECAST_VECTORS` allows vectors as wide as theirs. The
/// system is not asked for its permission.
pub fn tiles_exist() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    return widest() == Width::Sixteen && amx::exists();
    #[allow(unreachable_code)]
    false
}

/// Returns whether [there are tiles](tiles_exist) and the system permits their use.
pub fn has_tiles() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    return widest() == Width::Sixteen && amx::is_available();
    #[allow(unreachable_code)]
    false
}

/// Runs a kernel that multiplies tiles of bf16. Returns the kernel if the machine [has none](has_tiles).
pub fn run_tiles<K: TileKernel>(kernel: K) -> Result<K::Output, K> {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    if has_tiles() {
        return Ok(amx::run(kernel));
    }
    Err(kernel)
}

/// Runs plain loops compiled for the [`widest`] vectors. NEON is part of the target, so there is no choice.
#[inline(always)]
pub fn vectorized<B: Body>(body: B) -> B::Output {
    match widest() {
        #[cfg(target_arch = "x86_64")]
        Width::Sixteen => x86::vectorized_avx512(body),
        #[cfg(target_arch = "x86_64")]
        Width::Eight => x86::vectorized_avx2(body),
        _ => plain(body),
    }
}

/// Runs plain loops as [`vectorized`] does, compiled for vectors of at most eight f32.
#[inline(always)]
pub fn vectorized_by_eight<B: Body>(body: B) -> B::Output {
    match widest() {
        #[cfg(target_arch = "x86_64")]
        Width::Eight | Width::Sixteen => x86::vectorized_avx2(body),
        _ => plain(body),
    }
}

/// Runs out of line, so that all callers share one copy.
#[inline(never)]
fn plain<B: Body>(body: B) -> B::Output {
    body.run()
}

/// Iterates over the available vector widths.
#[cfg(test)]
pub fn widths() -> impl Iterator<Item = Width> {
    WIDTHS.iter().copied().filter(|&width| width <= widest())
}

/// Makes streaming stores visible before all later stores.
pub fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 machine has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence()
    };
}

/// Prefetches an address, which need not be valid, into the first-level cache.
#[inline(always)]
pub fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 machine has SSE, and a prefetch reads nothing.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast())
    };
    #[cfg(all(target_arch = "aarch64", target_endian = "little", target_feature = "neon", not(miri)))]
    neon::prefetch(at);
    let _ = at;
}

/// Prefetches an address, which need not be valid, into the second-level cache.
#[inline(always)]
pub fn prefetch_second<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as for `prefetch`.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(at.cast())
    };
    #[cfg(not(target_arch = "x86_64"))]
    prefetch(at);
}

/// Returns the bytes of the last-level cache; 32 MiB if unknown.
pub fn last_level_cache() -> usize {
    #[cfg(target_arch = "x86_64")]
    let size = x86::last_level_cache();
    #[cfg(not(target_arch = "x86_64"))]
    let size = None;
    size.unwrap_or(32 << 20)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Checks the variable: the library silently ignores other values, and so would the tests.
    #[test]
    fn the_environment_says_a_width_or_nothing() {
        let said = std::env::var("PRECAST_VECTORS").ok();
        let allowed = said.as_deref().is_none_or(|said| ["1", "4", "8", "16"].contains(&said));
        assert!(allowed, "PRECAST_VECTORS is {said:?}; allowed: 1, 4, 8 or 16");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri starts no process")]
    fn vectors_are_at_most_as_wide_as_the_environment_says() {
        // It is read once, so each result is that of another process, which runs only this test.
        const EXPECTED: &str = "PRECAST_TEST_WIDTH";
        if let Ok(expected) = std::env::var(EXPECTED) {
            return assert_eq!(format!("{:?}", widest()), expected);
        }
        let (_, module) = module_path!().split_once("::").unwrap();
        let this = format!("{module}::vectors_are_at_most_as_wide_as_the_environment_says");
        let (one, four, eight, any) = (Width::One, Width::Four, Width::Eight, Width::Sixteen);
        let said =
            [("1", one), ("4", four), ("8", eight), ("16", any), ("", any), ("2", any), ("wide", any), ("-", any)];
        for (said, allowed) in said {
            let mut test = Command::new(std::env::current_exe().unwrap());
            test.args(["--exact", &this]).env(EXPECTED, format!("{:?}", at_most(allowed)));
            match said {
                "-" => test.env_remove("PRECAST_VECTORS"),
                said => test.env("PRECAST_VECTORS", said),
            };
            let output = test.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "PRECAST_VECTORS={said}: {text}");
        }
    }
}
