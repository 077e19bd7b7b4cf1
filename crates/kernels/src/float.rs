//! Floating-point types, their slices, and the types in which kernels compute.

use half::{bf16, f16};
use precast_base::Element;

use super::{
    cast::{Convert, converted},
    memory::{Elements, Item, Pooled},
    simd::{self, Body, Lanes},
};

/// A floating-point element, and the type in which the kernels compute with it.
pub trait Float: Element + Item {
    /// Type of the arithmetic: f64 for f64, f32 for everything narrower.
    type Wide: Real;
    /// `true` if the compiler vectorizes loops over [`widen`](Float::widen).
    const WIDENS_IN_LOOPS: bool;
    /// Widens exactly.
    fn widen(self) -> Self::Wide;
    /// Rounds once, to nearest even. Overflows to infinity; NaN stays NaN.
    fn narrow(wide: Self::Wide) -> Self;
    /// [Widens](Float::widen) each element; free if nothing needs widening.
    fn widen_slice(x: &[Self]) -> Elements<'_, Self::Wide>;
    /// [Narrows](Float::narrow) each element; free if nothing needs rounding.
    fn narrow_vec(wide: Pooled<Self::Wide>) -> Pooled<Self>;
    /// [Widens](Float::widen) each element into a slice of the same length.
    fn widen_into(x: &[Self], wide: &mut [Self::Wide]);
    /// [Narrows](Float::narrow) each element into a slice of the same length.
    fn narrow_into(wide: &[Self::Wide], narrow: &mut [Self]);
    /// [Widens](Float::widen) each element: returns the slice itself if nothing needs widening, else writes to `space`,
    /// which has room for as many.
    fn widened<'a>(x: &'a [Self], space: &'a mut [Self::Wide]) -> &'a [Self::Wide];
    /// Returns the slice itself if nothing needs rounding.
    fn wide_mut(x: &mut [Self]) -> Option<&mut [Self::Wide]>;
    /// [Narrows](Float::narrow) each element, in the same way.
    fn narrowed<'a>(wide: &'a [Self::Wide], space: &'a mut [Self]) -> &'a [Self];
}

/// Type in which kernels compute: f32 or f64.
pub trait Real: num_traits::Float + Float<Wide = Self> + std::iter::Sum + std::ops::AddAssign {
    /// Runs plain loops over numbers of this type as [`vectorized`](simd::vectorized) does; f64, which is for checks, has
    /// no code of its own for the widest vectors.
    fn vectorized<B: Body>(body: B) -> B::Output;
    /// Returns the nearest value.
    fn of(value: f64) -> Self;
    /// Returns the same value in f64.
    fn as_f64(self) -> f64;
    /// Applies the function of this type.
    fn apply(self, f32: impl Fn(f32) -> f32, f64: impl Fn(f64) -> f64) -> Self;
    /// Computes `1 - erf(x)`, accurate for large x.
    fn erfc(self) -> Self;
    /// Rounds to the nearest integer, ties to even.
    fn round_even(self) -> Self;
}

/// A float that is computed in vectors of f32.
pub trait VectorFloat: Float<Wide = f32> + Lanes {}
impl<T: Float<Wide = f32> + Lanes> VectorFloat for T {}

macro_rules! wide_float {
    ($($t:ty),*) => { $(
        impl Float for $t {
            type Wide = $t;
            const WIDENS_IN_LOOPS: bool = true;
            #[inline(always)]
            fn widen(self) -> $t { self }
            #[inline(always)]
            fn narrow(wide: $t) -> Self { wide }
            fn widen_slice(x: &[Self]) -> Elements<'_, $t> { Elements::Borrowed(x) }
            fn narrow_vec(wide: Pooled<$t>) -> Pooled<Self> { wide }
            fn widen_into(x: &[Self], wide: &mut [$t]) { wide.copy_from_slice(x) }
            fn narrow_into(wide: &[$t], narrow: &mut [Self]) { narrow.copy_from_slice(wide) }
            fn widened<'a>(x: &'a [Self], _space: &'a mut [$t]) -> &'a [$t] { x }
            fn wide_mut(x: &mut [Self]) -> Option<&mut [$t]> { Some(x) }
            fn narrowed<'a>(wide: &'a [$t], _space: &'a mut [Self]) -> &'a [Self] { wide }
        }
    )* };
}
wide_float!(f64, f32);

macro_rules! low_float {
    ($($t:ty: $in_loops:literal),*) => { $(
        impl Float for $t {
            type Wide = f32;
            const WIDENS_IN_LOOPS: bool = $in_loops;
            #[inline(always)]
            fn widen(self) -> f32 { self.load_one() }
            #[inline(always)]
            fn narrow(wide: f32) -> Self { Self::store_one(wide) }
            fn widen_slice(x: &[Self]) -> Elements<'_, f32> {
                Elements::Pooled(converted(x))
            }
            fn narrow_vec(wide: Pooled<f32>) -> Pooled<Self> {
                converted(&wide)
            }
            fn widen_into(x: &[Self], wide: &mut [f32]) { Convert::convert(x, wide) }
            fn narrow_into(wide: &[f32], narrow: &mut [Self]) { Convert::convert(wide, narrow) }
            fn widened<'a>(x: &'a [Self], space: &'a mut [f32]) -> &'a [f32] {
                let space = &mut space[..x.len()];
                Convert::convert(x, space);
                space
            }
            fn wide_mut(_x: &mut [Self]) -> Option<&mut [f32]> { None }
            fn narrowed<'a>(wide: &'a [f32], space: &'a mut [Self]) -> &'a [Self] {
                let space = &mut space[..wide.len()];
                Convert::convert(wide, space);
                space
            }
        }
    )* };
}
low_float!(f16: false, bf16: true);

impl Real for f32 {
    #[inline(always)]
    fn vectorized<B: Body>(body: B) -> B::Output {
        simd::vectorized(body)
    }
    #[inline(always)]
    fn of(value: f64) -> Self {
        value as f32
    }
    #[inline(always)]
    fn as_f64(self) -> f64 {
        self.into()
    }
    #[inline(always)]
    fn apply(self, f32: impl Fn(f32) -> f32, _f64: impl Fn(f64) -> f64) -> Self {
        f32(self)
    }
    fn erfc(self) -> Self {
        libm::erfcf(self)
    }
    #[inline(always)]
    fn round_even(self) -> Self {
        self.round_ties_even()
    }
}

impl Real for f64 {
    #[inline(always)]
    fn vectorized<B: Body>(body: B) -> B::Output {
        simd::vectorized_by_eight(body)
    }
    #[inline(always)]
    fn of(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn as_f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn apply(self, _f32: impl Fn(f32) -> f32, f64: impl Fn(f64) -> f64) -> Self {
        f64(self)
    }
    fn erfc(self) -> Self {
        libm::erfc(self)
    }
    #[inline(always)]
    fn round_even(self) -> Self {
        self.round_ties_even()
    }
}
