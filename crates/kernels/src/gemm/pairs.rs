//! Ways to multiply: in f32, and products of bf16 by the instruction that multiplies pairs of terms: twice as many in a
//! vector.
//!
//! The instruction adds the two products of a pair one after the other and rounds twice, like two multiply-adds of f32.
//! It differs only if a number or a sum is subnormal. So the sizes of all numbers are recorded during packing, and a
//! block whose numbers are [too small](are_exact) is multiplied in f32. No bit depends on the way.

use std::{marker::PhantomData, ops::Range};

use half::{bf16, f16};

use super::{
    micro_kernel::{Paired, Terms, Wide},
    pack::{Operand, Packer, pack_panels},
};
use crate::{
    amx,
    float::VectorFloat,
    limits, simd,
    simd::{Body, Kernel, Lanes, PairKernel, Pairs, Simd, SizeRange, Sizes, Width, vectorized},
};

/// Type whose products are computed with vectors.
pub trait Multiply: VectorFloat {
    /// `true` for the type that AMX multiplies.
    const HAS_TILES: bool;
    /// Runs a kernel by the fastest way; by tiles only if `amx`. Returns the kernel if the machine has no vectors of this
    /// width.
    fn run<K: WaysKernel<Self>>(width: Width, amx: bool, kernel: K) -> Result<K::Output, K>;
}

macro_rules! in_f32 {
    ($($t:ty),*) => { $(
        impl Multiply for $t {
            const HAS_TILES: bool = false;
            fn run<K: WaysKernel<Self>>(width: Width, _: bool, kernel: K) -> Result<K::Output, K> {
                simd::run_with(width, ByWay::new(kernel)).map_err(|by| by.kernel)
            }
        }
    )* };
}
in_f32!(f32, f16);

impl Multiply for bf16 {
    const HAS_TILES: bool = true;
    fn run<K: WaysKernel<Self>>(width: Width, amx: bool, kernel: K) -> Result<K::Output, K> {
        let mut kernel = ByWay::new(kernel);
        if amx {
            kernel = match amx::run(kernel) {
                Ok(output) => return Ok(output),
                Err(kernel) => kernel,
            };
        }
        if width == Width::Sixteen && limits::pairs_pay() {
            kernel = match simd::run_pairs(kernel) {
                Ok(output) => return Ok(output),
                Err(kernel) => kernel,
            };
        }
        simd::run_with(width, kernel).map_err(|by| by.kernel)
    }
}

/// A kernel written over the ways to multiply a type.
pub trait WaysKernel<T> {
    type Output;
    /// Runs the kernel. Must be `#[inline(always)]`, so that it is compiled for the instructions of `S` and `W`.
    fn run<S: Simd, W: Ways<S, T>>(self, simd: S, ways: W) -> Self::Output;
}

/// Adapter that runs such a kernel by one of the ways: as a [`Kernel`] in f32, as a [`PairKernel`] by pairs.
pub struct ByWay<T, K> {
    pub kernel: K,
    of: PhantomData<T>,
}

impl<T, K> ByWay<T, K> {
    pub fn new(kernel: K) -> Self {
        ByWay { kernel, of: PhantomData }
    }
}

impl<T: Lanes, K: WaysKernel<T>> Kernel for ByWay<T, K> {
    type Output = K::Output;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> K::Output {
        self.kernel.run(simd, Wide)
    }
}

impl<K: WaysKernel<bf16>> PairKernel for ByWay<bf16, K> {
    type Output = K::Output;
    #[inline(always)]
    fn run<S: Simd, P: Pairs<S>>(self, simd: S, pairs: P) -> K::Output {
        self.kernel.run(simd, Paired(pairs))
    }
}

/// Ways to multiply a type other than by widening it.
pub trait Ways<S: Simd, T>: Copy {
    type Terms: Terms<S>;
    type Wide: Terms<S>;
    /// Returns the contents of the lanes of packed panels.
    fn terms(self) -> Self::Terms;
    /// Returns the contents of those of numbers that are multiplied in f32, in the same order.
    fn wide(self) -> Self::Wide;
    /// Packs panels, and returns the size range of their numbers; `None`, without effect, if there is no other way.
    #[allow(clippy::too_many_arguments)]
    fn pack(
        self,
        simd: S,
        operand: impl Operand<T>,
        range: Range<usize>,
        terms: Range<usize>,
        width: usize,
        to: &mut [f32],
    ) -> Option<SizeRange>;
    /// Packs a left operand as [`pack`](Ways::pack) does, into panels of [`MR`](Terms::MR) rows.
    #[inline(always)]
    fn pack_left<O: Operand<T>>(
        self,
        simd: S,
        operand: O,
        rows: Range<usize>,
        terms: Range<usize>,
        to: &mut [f32],
    ) -> Option<SizeRange> {
        self.pack(simd, operand, rows, terms, S::MR, to)
    }
    /// Writes a vector of the lanes that begin at each of these numbers: the number, or the pair of it and the one at
    /// `distance`.
    ///
    /// # Safety
    /// `from` is valid for reads of a vector of numbers, also at `distance`, and `to` for writes of a vector.
    unsafe fn at_each(self, simd: S, from: *const T, distance: usize, to: *mut f32);
}

impl<S: Simd, T: Lanes> Ways<S, T> for Wide {
    type Terms = Wide;
    type Wide = Wide;

    #[inline(always)]
    fn terms(self) -> Wide {
        self
    }

    #[inline(always)]
    fn wide(self) -> Wide {
        self
    }

    #[inline(always)]
    fn pack(
        self,
        _: S,
        _: impl Operand<T>,
        _: Range<usize>,
        _: Range<usize>,
        _: usize,
        _: &mut [f32],
    ) -> Option<SizeRange> {
        None
    }

    #[inline(always)]
    unsafe fn at_each(self, simd: S, from: *const T, _: usize, to: *mut f32) {
        // SAFETY: guaranteed by the caller.
        unsafe { simd.store_f32(T::load(simd, from), to) };
    }
}

impl<S: Simd, P: Pairs<S>> Ways<S, bf16> for Paired<P> {
    type Terms = Self;
    type Wide = Wide;

    #[inline(always)]
    fn terms(self) -> Self {
        self
    }

    #[inline(always)]
    fn wide(self) -> Wide {
        Wide
    }

    #[inline(always)]
    fn pack(
        self,
        simd: S,
        operand: impl Operand<bf16>,
        range: Range<usize>,
        terms: Range<usize>,
        width: usize,
        to: &mut [f32],
    ) -> Option<SizeRange> {
        if let Some(sizes) = operand.sizes() {
            pack_panels(simd, self, PairPacker(self.0), operand, range, terms, width, to);
            return Some(sizes);
        }
        let packer = Noting { packer: PairPacker(self.0), sizes: Sizes::none(simd) };
        let packer = pack_panels(simd, self, packer, operand, range, terms, width, to);
        Some(self.0.noted(&packer.sizes))
    }

    #[inline(always)]
    unsafe fn at_each(self, simd: S, from: *const bf16, distance: usize, to: *mut f32) {
        // SAFETY: guaranteed by the caller.
        unsafe { simd.store_f32(self.0.join([from], [from.add(distance)]), to) };
    }
}

/// Packer of pairs.
pub(super) struct PairPacker<P>(pub P);

impl<S: Simd, P: Pairs<S>> Packer<S, bf16> for PairPacker<P> {
    const IN_LANE: usize = 2;

    #[inline(always)]
    unsafe fn vector<const N: usize>(&mut self, _: S, [first, second]: [[*const bf16; N]; 2]) -> S::F32s {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.join(first, second) }
    }

    #[inline(always)]
    unsafe fn of_row(&mut self, _: S, from: *const bf16, count: usize) -> S::F32s {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.load_pairs(from, count) }
    }
}

/// Packer of pairs that records the sizes of their numbers.
pub(super) struct Noting<S: Simd, P> {
    pub packer: PairPacker<P>,
    pub sizes: Sizes<S>,
}

impl<S: Simd, P: Pairs<S>> Packer<S, bf16> for Noting<S, P> {
    const IN_LANE: usize = 2;

    #[inline(always)]
    unsafe fn vector<const N: usize>(&mut self, simd: S, terms: [[*const bf16; N]; 2]) -> S::F32s {
        // SAFETY: guaranteed by the caller.
        let pairs = unsafe { self.packer.vector(simd, terms) };
        self.packer.0.note(pairs, &mut self.sizes);
        pairs
    }

    #[inline(always)]
    unsafe fn of_row(&mut self, simd: S, from: *const bf16, count: usize) -> S::F32s {
        // SAFETY: guaranteed by the caller.
        let pairs = unsafe { self.packer.of_row(simd, from, count) };
        self.packer.0.note(pairs, &mut self.sizes);
        pairs
    }
}

/// Returns the size range of all numbers.
pub fn sizes_of(x: &[bf16]) -> SizeRange {
    let (least_less_one, most) = vectorized(AllSizes(x));
    SizeRange { least: u32::from(least_less_one) + 1, most: most.into() }
}

struct AllSizes<'a>(&'a [bf16]);

impl Body for AllSizes<'_> {
    type Output = (u16, u16);
    #[inline(always)]
    fn run(self) -> (u16, u16) {
        self.0.iter().fold((u16::MAX, 0), |(least, most), x| {
            let size = x.to_bits() & 0x7fff;
            (least.min(size.wrapping_sub(1)), most.max(size))
        })
    }
}

/// Runs a kernel by tiles if `amx`, else [by pairs](run_pairs).
pub fn run_tiles_or_pairs<K: WaysKernel<bf16>>(amx: bool, kernel: K) -> K::Output {
    let by = ByWay::new(kernel);
    let done = if amx { amx::run(by) } else { Err(by) };
    done.unwrap_or_else(|by| run_pairs(by.kernel))
}

/// Runs a kernel by pairs. Without the instruction, tests run its twin.
pub fn run_pairs<K: WaysKernel<bf16>>(kernel: K) -> K::Output {
    let done = simd::run_pairs(ByWay::new(kernel));
    #[cfg(test)]
    let done = done.or_else(|kernel| simd::run(simd::twin::WithTwin(kernel)));
    done.unwrap_or_else(|_| unreachable!("callers have asked whether there is an instruction"))
}

/// Returns whether pairs of numbers of these sizes have the same sums as single terms.
///
/// A bf16 number has 8 bits, so one of exponent e is a multiple of 2^(e-7), and a product of two is a multiple of
/// 2^(e+f-14). If the products of the smallest numbers are multiples of 2^-126, the smallest normal f32, every sum is
/// one, and no sum is subnormal. Non-finite numbers are left to f32 as well.
pub fn are_exact(a: SizeRange, b: SizeRange) -> bool {
    let exponent = |size: u32| (size >> 7) as i32 - 127;
    are_normal(&a) && are_normal(&b) && exponent(a.least) + exponent(b.least) >= -126 + 14
}

/// Returns whether numbers of these sizes are normal or 0, as exact pairs require.
pub fn are_normal(sizes: &SizeRange) -> bool {
    const INFINITE: u32 = 0x7f80;
    const LEAST_NORMAL: u32 = 0x80;
    sizes.most < INFINITE && sizes.least >= LEAST_NORMAL
}
