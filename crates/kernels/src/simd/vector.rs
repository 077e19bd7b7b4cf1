//! Vectors of f32: their instructions as a trait, the formats they are loaded from, and the kernels written over them.

use half::{bf16, f16};

/// Number of f32 in one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Width {
    /// One: no vectors.
    One,
    /// NEON.
    Four,
    /// AVX2.
    Eight,
    /// AVX-512.
    Sixteen,
}

impl Width {
    /// Returns the number of lanes.
    pub fn lanes(self) -> usize {
        match self {
            Width::One => 1,
            Width::Four => 4,
            Width::Eight => 8,
            Width::Sixteen => 16,
        }
    }
}

/// A vector instruction set.
///
/// A value of such a type proves that this machine has the instructions: only [`run_with`](super::run_with) creates
/// one, after checking. So arithmetic is safe, and only memory access remains unsafe.
///
/// # Safety of loads and stores
///
/// Pointers are valid for [`LANES`](Simd::LANES) elements. They need no alignment, except that `stream_*` needs that of
/// the vector.
pub trait Simd: Copy {
    /// Vector of f32.
    type F32s: Copy;
    /// Number of lanes of a vector.
    const LANES: usize;
    /// Number of vector registers.
    const REGISTERS: usize;
    /// Number of rows of the tile of sums that the micro-kernel of a matrix product keeps in registers.
    const MR: usize;
    /// Number of columns of that tile.
    const NR: usize = 2 * Self::LANES;

    /// Returns a vector with one number in all lanes.
    fn splat(self, x: f32) -> Self::F32s;
    /// Computes `a + b`.
    fn add(self, a: Self::F32s, b: Self::F32s) -> Self::F32s;
    /// Computes `a * b + c`, rounded once.
    fn mul_add(self, a: Self::F32s, b: Self::F32s, c: Self::F32s) -> Self::F32s;
    /// Sums the lanes: the upper half is added to the lower until one is left.
    fn sum(self, v: Self::F32s) -> f32;

    /// # Safety
    /// `from` is valid for reads of `LANES` elements.
    unsafe fn load_f32(self, from: *const f32) -> Self::F32s;
    /// # Safety
    /// `from` is valid for reads of `LANES` elements.
    unsafe fn load_f16(self, from: *const f16) -> Self::F32s;
    /// # Safety
    /// `from` is valid for reads of `LANES` elements.
    unsafe fn load_bf16(self, from: *const bf16) -> Self::F32s;

    /// # Safety
    /// `to` is valid for writes of `LANES` elements.
    unsafe fn store_f32(self, v: Self::F32s, to: *mut f32);
    /// Stores a vector, rounded to nearest even.
    ///
    /// # Safety
    /// `to` is valid for writes of `LANES` elements.
    unsafe fn store_f16(self, v: Self::F32s, to: *mut f16);
    /// Stores a vector, rounded to nearest even.
    ///
    /// # Safety
    /// `to` is valid for writes of `LANES` elements.
    unsafe fn store_bf16(self, v: Self::F32s, to: *mut bf16);

    /// Stores past the caches, to be followed by [`store_fence`](super::store_fence).
    ///
    /// # Safety
    /// `to` is valid for writes of `LANES` elements and aligned to all of them.
    unsafe fn stream_f32(self, v: Self::F32s, to: *mut f32);
    /// Stores as [`stream_f32`](Simd::stream_f32) does, rounded to nearest even.
    ///
    /// # Safety
    /// As for `stream_f32`.
    unsafe fn stream_f16(self, v: Self::F32s, to: *mut f16);
    /// Stores as [`stream_f16`](Simd::stream_f16) does.
    ///
    /// # Safety
    /// As for `stream_f32`.
    unsafe fn stream_bf16(self, v: Self::F32s, to: *mut bf16);

    /// Transposes 8 x 8 numbers whose rows are `row` apart to rows that are `to_row` apart.
    ///
    /// # Safety
    /// Eight rows of eight numbers are valid for reads at `from`, and for writes at `to`.
    unsafe fn transpose(self, from: *const f32, row: usize, to: *mut f32, to_row: usize);
    /// Stores eight vectors transposed: row i receives lane i of each. The rows are `to_row` apart, and only the first
    /// `count` are required.
    ///
    /// # Safety
    /// `to` is valid for writes of eight numbers in each of `LANES` rows, or of eight rows if `count` is at most eight.
    unsafe fn store_transposed(self, vectors: [Self::F32s; 8], to: *mut f32, to_row: usize, count: usize);

    /// Runs a part of a kernel in one copy for all callers.
    fn apart<P: Part<Self>>(self, part: P) -> P::Output;
}

/// The instruction that multiplies pairs of bf16.
///
/// The upper half of a lane holds the first term's number, the lower half the second's. As with [`Simd`], a value
/// proves that the machine has the instructions.
pub trait Pairs<S: Simd>: Copy {
    /// Computes, in each lane, `c` plus the product of the first numbers, and then plus that of the second; both are
    /// rounded. Subnormals are flushed to 0, before and after.
    fn mul_add_pairs(self, a: S::F32s, b: S::F32s, c: S::F32s) -> S::F32s;
    /// Joins the numbers of two rows to pairs. Each row is in `N` pieces: 1, 2 or 4.
    ///
    /// # Safety
    /// All addresses are valid for reads of `LANES / N` elements.
    unsafe fn join<const N: usize>(self, first: [*const bf16; N], second: [*const bf16; N]) -> S::F32s;
    /// Loads the pairs of the first `count` numbers of one row; 0 after them.
    ///
    /// # Safety
    /// `count` is at most `2 * LANES`, and `from` is valid for reads of `count` elements.
    unsafe fn load_pairs(self, from: *const bf16, count: usize) -> S::F32s;
    /// Records the sizes of some pairs.
    fn note(self, pairs: S::F32s, sizes: &mut Sizes<S>);
    /// Returns the recorded sizes.
    fn noted(self, sizes: &Sizes<S>) -> SizeRange;
    /// Runs a part as [`Simd::apart`] does, with the instruction for pairs.
    fn apart<K: Part<S>>(self, simd: S, part: K) -> K::Output;
}

/// The instructions that multiply tiles of bf16: AMX.
///
/// As with [`Simd`], a value proves that the machine has the instructions.
pub trait Tiles<S: Simd>: Copy {
    /// Computes the sums of a tile of at most 32 rows and `S::NR` columns over `steps` steps of 32 terms: `a` has for each
    /// step and row 16 pairs, `b` for each step and pair `S::NR` columns. The rows of `to` are 32 sums long.
    ///
    /// A step sums the products of the first numbers of its pairs in order, and apart from them those of the second
    /// numbers, each from 0 and fused. The two sums are added, and the result to the sum of the steps before. Subnormals
    /// are flushed to 0, before and after.
    ///
    /// # Safety
    /// `a` is valid for reads of 32 rows of 16 pairs for each step, `b` of 16 times `S::NR` pairs, and `to` for writes of
    /// 32 rows.
    unsafe fn multiply(self, steps: usize, size: (usize, usize), a: *const f32, b: *const f32, to: *mut [f32; 32]);
}

/// Smallest and largest magnitude of bf16 numbers, for each half of a lane. The smallest is stored minus one, so that 0
/// wraps to the largest value and is ignored.
#[derive(Clone, Copy)]
pub struct Sizes<S: Simd> {
    /// Bits of the smallest magnitude, minus one.
    pub least_less_one: S::F32s,
    /// Bits of the largest magnitude.
    pub most: S::F32s,
}

impl<S: Simd> Sizes<S> {
    /// Returns the sizes of no numbers.
    pub fn none(simd: S) -> Self {
        Sizes { least_less_one: simd.splat(f32::from_bits(u32::MAX)), most: simd.splat(0.0) }
    }
}

/// Size range of bf16 numbers, as their bits. The smallest excludes 0; if there is none, it is above all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeRange {
    /// Smallest magnitude.
    pub least: u32,
    /// Largest magnitude.
    pub most: u32,
}

/// Storage format that vectors of f32 are loaded from and stored to.
pub trait Lanes: Copy + Default {
    /// Loads one number exactly: the scalar twin of [`load`](Lanes::load).
    fn load_one(self) -> f32;
    /// Stores one number, rounded to nearest even: the scalar twin of [`store`](Lanes::store).
    fn store_one(x: f32) -> Self;

    /// # Safety
    /// `from` is valid for reads of `S::LANES` elements.
    unsafe fn load<S: Simd>(simd: S, from: *const Self) -> S::F32s;
    /// # Safety
    /// `to` is valid for writes of `S::LANES` elements.
    unsafe fn store<S: Simd>(simd: S, v: S::F32s, to: *mut Self);
    /// Stores as [`Simd::stream_f32`] does.
    ///
    /// # Safety
    /// `to` is valid for writes of `S::LANES` elements and aligned to all of them.
    unsafe fn stream<S: Simd>(simd: S, v: S::F32s, to: *mut Self);
}

macro_rules! lanes {
    ($($t:ty: $x:ident => $widened:expr, $narrow:path; $load:ident, $store:ident, $stream:ident;)*) => { $(
        impl Lanes for $t {
            #[inline(always)]
            fn load_one(self) -> f32 {
                let $x = self;
                $widened
            }
            #[inline(always)]
            fn store_one(x: f32) -> Self {
                $narrow(x)
            }
            #[inline(always)]
            unsafe fn load<S: Simd>(simd: S, from: *const $t) -> S::F32s {
                // SAFETY: guaranteed by the caller.
                unsafe { simd.$load(from) }
            }
            #[inline(always)]
            unsafe fn store<S: Simd>(simd: S, v: S::F32s, to: *mut $t) {
                // SAFETY: guaranteed by the caller.
                unsafe { simd.$store(v, to) }
            }
            #[inline(always)]
            unsafe fn stream<S: Simd>(simd: S, v: S::F32s, to: *mut $t) {
                // SAFETY: guaranteed by the caller.
                unsafe { simd.$stream(v, to) }
            }
        }
    )* };
}
lanes! {
    f32: x => x, std::convert::identity; load_f32, store_f32, stream_f32;
    f16: x => x.to_f32(), f16::from_f32; load_f16, store_f16, stream_f16;
    // `bf16::to_f32` makes a NaN quiet, which the upper half of an f32 does not need.
    bf16: x => f32::from_bits(u32::from(x.to_bits()) << 16), bf16::from_f32; load_bf16, store_bf16, stream_bf16;
}

/// A kernel written over vectors of any width.
pub trait Kernel {
    /// Result of the kernel.
    type Output;
    /// Runs the kernel. Must be `#[inline(always)]`, so that it is compiled for the instructions of `S`.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Part of a kernel that is compiled once for all kernels that contain it, rather than into each of them.
pub trait Part<S> {
    /// Result of the kernel.
    type Output;
    /// Runs the part. Must be `#[inline(always)]`, so that it is compiled for the instructions of `S`.
    fn run(self, simd: S) -> Self::Output;
}

/// A kernel written over pairs of bf16.
pub trait PairKernel {
    /// Result of the kernel.
    type Output;
    /// Runs the kernel. Must be `#[inline(always)]`, so that it is compiled for the instructions of `S` and `P`.
    fn run<S: Simd, P: Pairs<S>>(self, simd: S, pairs: P) -> Self::Output;
}

/// A kernel written over tiles of bf16.
#[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), allow(dead_code, reason = "AMX is used there alone"))]
pub trait TileKernel {
    /// Result of the kernel.
    type Output;
    /// Runs the kernel. Must be `#[inline(always)]`, so that it is compiled for the instructions of `S`, `P` and `X`.
    fn run<S: Simd, P: Pairs<S>, X: Tiles<S>>(self, simd: S, pairs: P, tiles: X) -> Self::Output;
}

/// Plain loops to be run by [`vectorized`](super::vectorized): a small closure, or a type whose `run` is
/// `#[inline(always)]`. The compiler keeps a large closure out of line, where it has no vector instructions.
pub trait Body {
    /// Result of the kernel.
    type Output;
    /// Runs the loops.
    fn run(self) -> Self::Output;
}

impl<R, F: FnOnce() -> R> Body for F {
    type Output = R;
    #[inline(always)]
    fn run(self) -> R {
        self()
    }
}

/// Loads the first `count` lanes from memory that holds no more; the others are 0.
///
/// # Safety
/// `count` is at most `S::LANES`, and `from` is valid for reads of `count` elements.
#[inline(always)]
pub unsafe fn load_first<S: Simd, T: Lanes>(simd: S, from: *const T, count: usize) -> S::F32s {
    // SAFETY: guaranteed by the caller; `all` has room for any vector.
    unsafe {
        if count == S::LANES {
            return T::load(simd, from);
        }
        let mut all = [T::default(); 16];
        copy_few(from, all.as_mut_ptr(), count);
        T::load(simd, all.as_ptr())
    }
}

/// Stores the first `count` lanes to memory that has room for no more.
///
/// # Safety
/// `count` is at most `S::LANES`, and `to` is valid for writes of `count` elements.
#[inline(always)]
pub unsafe fn store_first<S: Simd, T: Lanes>(simd: S, v: S::F32s, to: *mut T, count: usize) {
    // SAFETY: guaranteed by the caller; `all` has room for any vector.
    unsafe {
        if count == S::LANES {
            return T::store(simd, v, to);
        }
        let mut all = [T::default(); 16];
        T::store(simd, v, all.as_mut_ptr());
        copy_few(all.as_ptr(), to, count);
    }
}

/// Copies fewer than 16 elements by two possibly overlapping copies of one size, which is cheaper than a call of
/// `memcpy`.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `count` elements, and they do not overlap.
#[inline(always)]
unsafe fn copy_few<T>(from: *const T, to: *mut T, count: usize) {
    macro_rules! sizes {
        ($($size:literal)*) => { $(
            if count >= $size {
                // SAFETY: guaranteed by the caller; `count` is at least the size and less than twice that.
                unsafe {
                    std::ptr::copy_nonoverlapping(from, to, $size);
                    std::ptr::copy_nonoverlapping(from.add(count - $size), to.add(count - $size), $size);
                }
                return;
            }
        )* };
    }
    sizes! { 8 4 2 1 }
}
