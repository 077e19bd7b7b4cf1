//! Functions of the numbers at one index, applied at every index of one or more slices.
//!
//! A [`Pointwise`] function is compiled for blocks of f32 and f64. Through [`Function`], these two serve tensors of all
//! dtypes: 16-bit numbers are widened block by block on the way in, and rounded once on the way out.

use half::{bf16, f16};

use crate::{
    arrays::array_of,
    float::{Float, Real},
    memory::{Pooled, uninit_vec},
    simd,
    simd::{Body, Kernel, Lanes, Simd},
    threads,
};

/// A function of the numbers that several slices have at one index.
pub trait Pointwise: Copy + Send + Sync + 'static {
    /// Number of arguments, at most [`MOST_INPUTS`].
    const INPUTS: usize;
    /// `true` when 16-bit numbers go from memory through registers to memory, rather than through blocks in the nearest
    /// cache. Such a function is compiled for each format, which pays for cheap functions (an addition) and for the
    /// most frequent ones.
    const DIRECT: bool = false;
    /// Returns its value; `x` has [`INPUTS`](Pointwise::INPUTS) numbers.
    fn at<R: Real>(self, x: &[R]) -> R;
}

/// Maximum number of slices that a [`Pointwise`] function takes.
pub(super) const MOST_INPUTS: usize = 3;

/// A [`Pointwise`] function as a value: one piece of code for all callers. Slices have one length.
pub trait Function: Send + Sync {
    /// Fills `y`.
    fn f32(&self, x: &[&[f32]], y: &mut [f32]);
    /// Fills `y`.
    fn f64(&self, x: &[&[f64]], y: &mut [f64]);
    /// Fills `y` with rounded results, or returns `false` if the function is not [`DIRECT`](Pointwise::DIRECT) or there
    /// are not vectors.
    fn f16(&self, x: &[&[f16]], y: &mut [f16]) -> bool;
    /// Fills `y` as [`f16`](Function::f16) does.
    fn bf16(&self, x: &[&[bf16]], y: &mut [bf16]) -> bool;
}

impl<P: Pointwise> Function for P {
    fn f32(&self, x: &[&[f32]], y: &mut [f32]) {
        simd::vectorized(Loop { f: *self, x, y });
    }
    fn f64(&self, x: &[&[f64]], y: &mut [f64]) {
        Loop { f: *self, x, y }.run();
    }
    fn f16(&self, x: &[&[f16]], y: &mut [f16]) -> bool {
        P::DIRECT && simd::run(Groups { f: *self, x, y }).is_ok()
    }
    fn bf16(&self, x: &[&[bf16]], y: &mut [bf16]) -> bool {
        P::DIRECT && simd::run(Groups { f: *self, x, y }).is_ok()
    }
}

/// Dtype whose slices a [`Function`] can fill.
pub trait MapSlices: Float {
    /// Fills `y` with `f` of slices of its length, each element rounded once.
    fn map_slices(f: &dyn Function, x: &[&[Self]], y: &mut [Self]);
}

impl MapSlices for f64 {
    fn map_slices(f: &dyn Function, x: &[&[f64]], y: &mut [f64]) {
        f.f64(x, y);
    }
}

impl MapSlices for f32 {
    fn map_slices(f: &dyn Function, x: &[&[f32]], y: &mut [f32]) {
        f.f32(x, y);
    }
}

impl MapSlices for f16 {
    fn map_slices(f: &dyn Function, x: &[&[f16]], y: &mut [f16]) {
        if !f.f16(x, y) {
            by_blocks(f, x, y);
        }
    }
}

impl MapSlices for bf16 {
    fn map_slices(f: &dyn Function, x: &[&[bf16]], y: &mut [bf16]) {
        if !f.bf16(x, y) {
            by_blocks(f, x, y);
        }
    }
}

struct Loop<'a, P, R> {
    f: P,
    x: &'a [&'a [R]],
    y: &'a mut [R],
}

impl<P: Pointwise, R: Real> Body for Loop<'_, P, R> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Loop { f, x, y } = self;
        let n = y.len();
        // Cut to one length, so that the loop has no bounds checks.
        let mut cut: [&[R]; MOST_INPUTS] = [&[]; MOST_INPUTS];
        for k in 0..MOST_INPUTS {
            cut[k] = &x[k.min(P::INPUTS - 1)][..n];
        }
        for i in 0..n {
            let numbers = [cut[0][i], cut[1][i], cut[2][i]];
            y[i] = f.at(&numbers[..P::INPUTS]);
        }
    }
}

/// Number of elements that [`Groups`] takes through registers together.
const GROUP: usize = 64;

/// A function of 16-bit slices, group by group in registers.
struct Groups<'a, P, T> {
    f: P,
    x: &'a [&'a [T]],
    y: &'a mut [T],
}

impl<P: Pointwise, T: Lanes> Kernel for Groups<'_, P, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Groups { f, x, y } = self;
        let len = y.len();
        let (mut rest, mut rest_y) = ([[T::default(); GROUP]; MOST_INPUTS], [T::default(); GROUP]);
        for start in (0..len).step_by(GROUP) {
            let some = GROUP.min(len - start);
            let mut wide = [[0f32; GROUP]; MOST_INPUTS];
            for k in 0..P::INPUTS {
                let mut from = x[k][start..].as_ptr();
                if some < GROUP {
                    rest[k][..some].copy_from_slice(&x[k][start..]);
                    from = rest[k].as_ptr();
                }
                for i in (0..GROUP).step_by(S::LANES) {
                    // SAFETY: `from` is valid for a whole group, in the slice or in `rest`, and `wide` has room for
                    // one.
                    unsafe { simd.store_f32(T::load(simd, from.add(i)), wide[k].as_mut_ptr().add(i)) };
                }
            }
            let mut out = [0f32; GROUP];
            Loop { f, x: &array_of::<_, MOST_INPUTS>(|k| &wide[k][..]), y: &mut out }.run();
            let to = if some < GROUP { rest_y.as_mut_ptr() } else { y[start..].as_mut_ptr() };
            for i in (0..GROUP).step_by(S::LANES) {
                // SAFETY: `out` is a whole group, and `to` has room for one, in the slice or in `rest_y`.
                unsafe { T::store(simd, simd.load_f32(out.as_ptr().add(i)), to.add(i)) };
            }
            if some < GROUP {
                y[start..].copy_from_slice(&rest_y[..some]);
            }
        }
    }
}

/// Number of elements that are widened, computed and rounded at a time, so that the widened copies stay in the nearest
/// cache.
pub const BLOCK: usize = 1024;

/// Fills `y` with the function of 16-bit slices, block by block.
fn by_blocks<T: Float<Wide = f32>>(f: &dyn Function, x: &[&[T]], y: &mut [T]) {
    let size = BLOCK.min(y.len());
    let mut spaces = Pooled::uninit(size * (x.len() + 1));
    let (wide, spaces) = spaces.split_at_mut(size);
    for start in (0..y.len()).step_by(BLOCK) {
        let n = BLOCK.min(y.len() - start);
        let mut parts: [&[f32]; MOST_INPUTS] = [&[]; MOST_INPUTS];
        for ((part, x), space) in parts.iter_mut().zip(x).zip(spaces.chunks_exact_mut(size)) {
            *part = T::widened(&x[start..][..n], space);
        }
        f.f32(&parts[..x.len()], &mut wide[..n]);
        T::narrow_into(&wide[..n], &mut y[start..][..n]);
    }
}

/// Approximate cost of one element, in multiply-adds.
const WORK: usize = 8;

/// Returns the function of slices of one length, each element rounded once.
pub fn map<T: MapSlices>(f: &dyn Function, x: &[&[T]]) -> Pooled<T> {
    let mut y = uninit_vec(x[0].len());
    assert!(x.iter().all(|x| x.len() == y.len()), "slices of one length");
    let work = y.len() * WORK;
    threads::together(&mut y, &mut [] as &mut [&mut [T]], work, |range, y, _| {
        let mut parts: [&[T]; MOST_INPUTS] = [&[]; MOST_INPUTS];
        for (part, x) in parts.iter_mut().zip(x) {
            *part = &x[range.clone()];
        }
        T::map_slices(f, &parts[..x.len()], y);
    });
    y
}

/// Replaces each element of `y` by the function, rounded once, of it and of the elements of `x` at its place; it is the
/// second argument if `is_second`, else the first.
pub fn map_into<T: MapSlices>(f: &dyn Function, y: &mut [T], x: &[T], is_second: bool) {
    assert_eq!(x.len(), y.len(), "slices of one length");
    let work = y.len() * WORK;
    threads::together(y, &mut [] as &mut [&mut [T]], work, |range, y, _| {
        let mut space = Pooled::uninit(BLOCK.min(y.len()));
        for (x, y) in x[range].chunks(BLOCK).zip(y.chunks_mut(BLOCK)) {
            let own = &mut space[..y.len()];
            own.copy_from_slice(y);
            T::map_slices(f, &if is_second { [x, own] } else { [own, x] }, y);
        }
    });
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{elementwise::math, float::VectorFloat};

    /// A function with a branch and a polynomial.
    #[derive(Clone, Copy)]
    pub(in crate::elementwise) struct Mixed;

    impl Pointwise for Mixed {
        const INPUTS: usize = 2;
        const DIRECT: bool = true;
        #[inline(always)]
        fn at<R: Real>(self, x: &[R]) -> R {
            if x[0] <= R::zero() { math::exp(x[1]) - x[0] } else { x[0] * x[1] }
        }
    }

    /// Checks blocks, and groups of every width of this machine, against each number separately, bit for bit.
    fn check<T: MapSlices + VectorFloat>(x: &[T]) {
        let reversed: Vec<T> = x.iter().rev().copied().collect();
        let slices = [x, &reversed[..]];
        let want: Vec<T> = x.iter().zip(&reversed).map(|(a, b)| T::narrow(Mixed.at(&[a.widen(), b.widen()]))).collect();
        let same = |got: &[T], how: &str| {
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                // If both factors are NaN, the compiler may choose which one the product is.
                let same =
                    got.widen().to_bits() == want.widen().to_bits() || got.widen().is_nan() && want.widen().is_nan();
                assert!(same, "element {i} of {}, {how}: {got:?}, {want:?}", x.len());
            }
        };
        let mut out = vec![T::default(); x.len()];
        by_blocks(&Mixed, &slices, &mut out);
        same(&out, "blocks");
        same(&map(&Mixed, &slices), "map");
        for is_second in [false, true] {
            let (mut own, other) = (slices[usize::from(is_second)].to_vec(), slices[usize::from(!is_second)]);
            map_into(&Mixed, &mut own, other, is_second);
            same(&own, "in place");
        }
        for width in simd::widths() {
            let mut out = vec![T::default(); x.len()];
            assert!(simd::run_with(width, Groups { f: Mixed, x: &slices, y: &mut out }).is_ok());
            same(&out, &format!("{width:?}"));
        }
    }

    #[test]
    fn groups_and_blocks_are_as_numbers_at_every_length() {
        let step = if cfg!(miri) { 39 } else { 1 };
        for len in (0..200).step_by(step).chain([1023, 1024, 1025, 5000]) {
            let x: Vec<f32> = (0..len).map(|i| (i as f32 - 90.5) * 0.037).collect();
            check(&x);
            check(&x.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>());
            check(&x.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn groups_and_blocks_are_as_numbers_for_every_16_bit_number() {
        let all = || (0..=u16::MAX).step_by(if cfg!(miri) { 301 } else { 1 });
        check(&all().map(f16::from_bits).collect::<Vec<_>>());
        check(&all().map(bf16::from_bits).collect::<Vec<_>>());
    }
}
