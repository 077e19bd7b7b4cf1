//! Vector instructions: which the machine has, and how a kernel is run with them.
//!
//! A kernel that names its operations is written once over a [`Vector`] and run by [`run`]. A plain loop is run by
//! [`vectorized`], which lets the compiler use the wider instructions; both give the same bits as without them.

#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

use half::{bf16, f16};

/// f32 numbers that are computed with side by side.
///
/// # Safety
/// Every function needs the instructions that its vector stands for, as [`run`] ensures, and pointers that are valid for
/// [`LANES`](Vector::LANES) elements, with no alignment but for `stream_*`: that of the vector's stores.
pub(crate) trait Vector: Copy {
    /// How many numbers one vector holds.
    const LANES: usize;
    /// Rows and vectors of columns of the tile that a matrix product keeps in registers.
    const TILE: (usize, usize);
    // SAFETY: what each function of a vector needs stands above.
    unsafe fn splat(x: f32) -> Self;
    unsafe fn add(a: Self, b: Self) -> Self;
    /// `a * b + c`, rounded once.
    unsafe fn mul_add(a: Self, b: Self, c: Self) -> Self;
    /// The upper half of the lanes is added to the lower until one is left.
    // SAFETY: as above.
    unsafe fn sum(v: Self) -> f32;
    // SAFETY: as above; all formats to and from f32, each rounded once to nearest even.
    unsafe fn load_f32(from: *const f32) -> Self;
    unsafe fn load_f16(from: *const f16) -> Self;
    unsafe fn load_bf16(from: *const bf16) -> Self;
    // SAFETY: as above.
    unsafe fn store_f32(v: Self, to: *mut f32);
    unsafe fn store_f16(v: Self, to: *mut f16);
    unsafe fn store_bf16(v: Self, to: *mut bf16);
    /// Transposes 8 x 8 numbers whose rows are `row` apart to rows that are `to_row` apart.
    // SAFETY: as above, but for eight times eight elements.
    unsafe fn transpose(from: *const f32, row: usize, to: *mut f32, to_row: usize);
    // SAFETY: as above; past the caches, and to be followed by a store fence.
    unsafe fn stream_f32(v: Self, to: *mut f32);
    unsafe fn stream_f16(v: Self, to: *mut f16);
    unsafe fn stream_bf16(v: Self, to: *mut bf16);
}

/// A storage format that vectors read and write.
pub(crate) trait Lanes: crate::dtype::Float<Wide = f32> {
    // SAFETY: as for the functions of `Vector`, which these are.
    unsafe fn load<V: Vector>(from: *const Self) -> V;
    unsafe fn store<V: Vector>(v: V, to: *mut Self);
    unsafe fn stream<V: Vector>(v: V, to: *mut Self);
}

macro_rules! lanes {
    ($($t:ty: $load:ident, $store:ident, $stream:ident;)*) => { $(
        impl Lanes for $t {
            // SAFETY: the caller keeps the promises of `Vector`.
            #[inline(always)] unsafe fn load<V: Vector>(from: *const $t) -> V { unsafe { V::$load(from) } }
            #[inline(always)] unsafe fn store<V: Vector>(v: V, to: *mut $t) { unsafe { V::$store(v, to) } }
            #[inline(always)] unsafe fn stream<V: Vector>(v: V, to: *mut $t) { unsafe { V::$stream(v, to) } }
        }
    )* };
}
lanes! {
    f32: load_f32, store_f32, stream_f32;
    f16: load_f16, store_f16, stream_f16;
    bf16: load_bf16, store_bf16, stream_bf16;
}

/// A kernel written over vectors of any width.
pub(crate) trait Kernel {
    type Output;
    // SAFETY: called where the instructions of `V` are there; `#[inline(always)]`, so that it is compiled for them.
    unsafe fn run<V: Vector>(self) -> Self::Output;
}

/// How many f32 one vector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Width {
    One,
    Eight,
    Sixteen,
}

/// The widest vectors that this machine has and that the environment variable `PRECAST_VECTORS` allows; asked once.
pub(crate) fn widest() -> Width {
    static WIDTH: OnceLock<Width> = OnceLock::new();
    *WIDTH.get_or_init(|| {
        let allowed = match std::env::var("PRECAST_VECTORS").as_deref() {
            Ok("1") => Width::One,
            Ok("8") => Width::Eight,
            _ => Width::Sixteen,
        };
        allowed.min(of_machine())
    })
}

fn of_machine() -> Width {
    #[cfg(target_arch = "x86_64")]
    return x86::of_machine();
    #[cfg(not(target_arch = "x86_64"))]
    Width::One
}

/// Runs a kernel with the [`widest`] vectors; gives it back where there are none.
pub(crate) fn run<K: Kernel>(kernel: K) -> Result<K::Output, K> {
    run_with(widest(), kernel)
}

/// As [`run`], with vectors no wider than the [`widest`].
pub(crate) fn run_with<K: Kernel>(width: Width, kernel: K) -> Result<K::Output, K> {
    match width {
        #[cfg(target_arch = "x86_64")]
        Width::Sixteen => Ok(x86::with_avx512(kernel)),
        #[cfg(target_arch = "x86_64")]
        Width::Eight => Ok(x86::with_avx2(kernel)),
        _ => Err(kernel),
    }
}

/// Plain loops, to be run by [`vectorized`]: a small closure, or a type whose `run` is `#[inline(always)]`. The compiler
/// keeps a large closure out of line, and then it has no vectors.
pub(crate) trait Body {
    type Output;
    fn run(self) -> Self::Output;
}

impl<R, F: FnOnce() -> R> Body for F {
    type Output = R;
    #[inline(always)]
    fn run(self) -> R {
        self()
    }
}

/// Runs plain loops compiled for the [`widest`] vectors.
#[inline(always)]
pub(crate) fn vectorized<B: Body>(body: B) -> B::Output {
    match widest() {
        #[cfg(target_arch = "x86_64")]
        Width::Sixteen => x86::call_avx512(body),
        #[cfg(target_arch = "x86_64")]
        Width::Eight => x86::call_avx2(body),
        _ => plain(body),
    }
}

/// Not in line, so that there is one for all callers.
#[inline(never)]
fn plain<B: Body>(body: B) -> B::Output {
    body.run()
}

/// The widths of vectors that can be run.
#[cfg(test)]
pub(crate) fn widths() -> impl Iterator<Item = Width> {
    [Width::Eight, Width::Sixteen].into_iter().filter(|&width| width <= widest())
}

/// Orders the stores made past the caches before all later ones.
pub(crate) fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 machine has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence()
    };
}

/// Asks for what stands at an address, which need not be a valid one, to be brought into the nearest cache.
#[inline(always)]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 machine has SSE, and a hint reads nothing.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast())
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Bytes of the largest cache, 32 MiB where the machine does not tell.
pub(crate) fn last_level_cache() -> usize {
    #[cfg(target_arch = "x86_64")]
    let told = x86::last_level_cache();
    #[cfg(not(target_arch = "x86_64"))]
    let told = None;
    told.unwrap_or(32 << 20)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri starts no process")]
    fn vectors_are_at_most_as_wide_as_the_environment_says() {
        // It is asked once, so each answer is that of another process, which runs this test and no other.
        const EXPECTED: &str = "PRECAST_TEST_WIDTH";
        if let Ok(expected) = std::env::var(EXPECTED) {
            return assert_eq!(format!("{:?}", widest()), expected);
        }
        let (_, module) = module_path!().split_once("::").unwrap();
        let this = format!("{module}::vectors_are_at_most_as_wide_as_the_environment_says");
        let (one, eight, any) = (Width::One, Width::Eight, Width::Sixteen);
        for (said, allowed) in [("1", one), ("8", eight), ("16", any), ("", any), ("4", any), ("wide", any), ("-", any)]
        {
            let mut test = Command::new(std::env::current_exe().unwrap());
            test.args(["--exact", &this]).env(EXPECTED, format!("{:?}", allowed.min(of_machine())));
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
