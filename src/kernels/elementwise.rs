//! Functions of the numbers at one place, for every place of one or more slices.
//!
//! A [`Pointwise`] function is compiled for blocks of f32 and of f64, and behind [`Function`] these serve the tensors of all
//! dtypes: 16-bit numbers are widened block by block on the way in and rounded once on the way out.

use half::{bf16, f16};

use super::{
    broadcast::Broadcast,
    buffers::{lend, take},
    simd::{self, Body, Kernel, Lanes, Vector},
    threads,
};
use crate::dtype::{Float, Real};

/// A function of the numbers that several slices have at one place.
pub(crate) trait Pointwise: Copy + Send + Sync + 'static {
    /// How many numbers it takes, at most [`MOST_INPUTS`].
    const INPUTS: usize;
    /// Whether 16-bit numbers go from memory through registers to memory, and not through blocks in the nearest cache. Such
    /// a function is compiled for each format of its own: for light ones (an addition), and those of which networks are full.
    const DIRECT: bool = false;
    /// Its value; `x` has [`INPUTS`](Pointwise::INPUTS) numbers.
    fn at<R: Real>(self, x: &[R]) -> R;
}

/// Slices that a [`Pointwise`] function takes at most.
const MOST_INPUTS: usize = 3;

/// A [`Pointwise`] function as a value: one piece of code, whatever calls it.
pub(crate) trait Function: Send + Sync {
    /// Fills `y`; slices of one length.
    fn singles(&self, x: &[&[f32]], y: &mut [f32]);
    /// As [`singles`](Function::singles).
    fn doubles(&self, x: &[&[f64]], y: &mut [f64]);
    /// Fills `y` with rounded results, or returns false because the function would rather have blocks.
    fn halves(&self, x: &[&[f16]], y: &mut [f16]) -> bool;
    /// As [`halves`](Function::halves).
    fn brain_halves(&self, x: &[&[bf16]], y: &mut [bf16]) -> bool;
}

impl<P: Pointwise> Function for P {
    fn singles(&self, x: &[&[f32]], y: &mut [f32]) {
        simd::vectorized(Loop { f: *self, x, y });
    }
    fn doubles(&self, x: &[&[f64]], y: &mut [f64]) {
        Loop { f: *self, x, y }.run();
    }
    fn halves(&self, x: &[&[f16]], y: &mut [f16]) -> bool {
        P::DIRECT && simd::run(Groups { f: *self, x, y }).is_ok()
    }
    fn brain_halves(&self, x: &[&[bf16]], y: &mut [bf16]) -> bool {
        P::DIRECT && simd::run(Groups { f: *self, x, y }).is_ok()
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
        // Cut to one length, so that no index is checked in the loop.
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

/// Elements that go from memory through registers to memory together.
const GROUP: usize = 64;

struct Groups<'a, P, T> {
    f: P,
    x: &'a [&'a [T]],
    y: &'a mut [T],
}

impl<P: Pointwise, T: Lanes> Kernel for Groups<'_, P, T> {
    type Output = ();

    // SAFETY: reads and writes whole groups, inside the slices or in copies of a group's size.
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
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
                for i in (0..GROUP).step_by(V::LANES) {
                    // SAFETY: `from` has a whole group, and so has `wide`.
                    unsafe { V::store_f32(T::load(from.add(i)), wide[k].as_mut_ptr().add(i)) };
                }
            }
            let mut out = [0f32; GROUP];
            Loop { f, x: &wide.each_ref().map(|wide| &wide[..]), y: &mut out }.run();
            let to = if some < GROUP { rest_y.as_mut_ptr() } else { y[start..].as_mut_ptr() };
            for i in (0..GROUP).step_by(V::LANES) {
                // SAFETY: as above.
                unsafe { T::store(V::load_f32(out.as_ptr().add(i)), to.add(i)) };
            }
            if some < GROUP {
                y[start..].copy_from_slice(&rest_y[..some]);
            }
        }
    }
}

/// Elements that are widened, computed and rounded at a time, so that what lies between stays in the nearest cache.
pub(crate) const BLOCK: usize = 1024;

/// Fills `y` with the function of 16-bit slices, block by block.
pub(crate) fn by_blocks<T: Float>(f: &dyn Function, x: &[&[T]], y: &mut [T]) {
    let size = BLOCK.min(y.len());
    let mut spaces = lend(size * (x.len() + 1));
    let (wide, spaces) = spaces.split_at_mut(size);
    for start in (0..y.len()).step_by(BLOCK) {
        let n = BLOCK.min(y.len() - start);
        let mut parts: [&[T::Wide]; MOST_INPUTS] = [&[]; MOST_INPUTS];
        for ((part, x), space) in parts.iter_mut().zip(x).zip(spaces.chunks_exact_mut(size)) {
            *part = T::widened(&x[start..][..n], space);
        }
        T::Wide::map(f, &parts[..x.len()], &mut wide[..n]);
        T::narrow_into(&wide[..n], &mut y[start..][..n]);
    }
}

/// About how many multiplications an element takes the time of.
const WORK: usize = 8;

/// The function of slices of one length, one rounding.
pub(crate) fn map<T: Float>(f: &dyn Function, x: &[&[T]]) -> Vec<T> {
    let mut y = take(x[0].len());
    assert!(x.iter().all(|x| x.len() == y.len()), "slices of one length");
    let work = y.len() * WORK;
    threads::together(&mut y, &mut [] as &mut [&mut [T]], work, |range, y, _| {
        let mut parts: [&[T]; MOST_INPUTS] = [&[]; MOST_INPUTS];
        for (part, x) in parts.iter_mut().zip(x) {
            *part = &x[range.clone()];
        }
        T::map(f, &parts[..x.len()], y);
    });
    y
}

/// An input of [`map_stretched`].
#[derive(Clone, Copy)]
pub(crate) enum Input<'a, T: Float> {
    Stored(&'a [T]),
    Wide(&'a [T::Wide]),
}

impl<T: Float> Input<'_, T> {
    /// Fills `to` with the elements from `start` on, or with the one there.
    fn read(self, start: usize, step: usize, to: &mut [T::Wide]) {
        match (self, step) {
            (Input::Stored(x), 0) => to.fill(x[start].widen()),
            (Input::Wide(x), 0) => to.fill(x[start]),
            (Input::Stored(x), _) => T::widen_into(&x[start..][..to.len()], to),
            (Input::Wide(x), _) => to.copy_from_slice(&x[start..][..to.len()]),
        }
    }
}

/// The function of slices that are stretched to one shape. `each` is given the results, not yet rounded, block by block in
/// row-major order.
pub(crate) fn map_stretched<T: Float, const N: usize>(
    f: &dyn Function,
    walk: &Broadcast<N>,
    x: [Input<'_, T>; N],
    each: &mut dyn FnMut(&[T::Wide]),
) {
    let size = BLOCK.min(walk.len());
    if size == 0 {
        return;
    }
    let mut spaces = lend(size * (N + 1));
    let (wide, spaces) = spaces.split_at_mut(size);
    let mut compute = |spaces: &[T::Wide], n: usize| {
        let parts: [&[T::Wide]; N] = std::array::from_fn(|k| &spaces[k * size..][..n]);
        T::Wide::map(f, &parts, &mut wide[..n]);
        each(&wide[..n]);
    };
    let mut filled = 0;
    walk.each_row(|len, runs| {
        let mut done = 0;
        while done < len {
            let n = (len - done).min(size - filled);
            for ((x, run), space) in x.iter().zip(runs).zip(spaces.chunks_exact_mut(size)) {
                x.read(run.start + done * run.step, run.step, &mut space[filled..][..n]);
            }
            (done, filled) = (done + n, filled + n);
            if filled == size {
                compute(spaces, size);
                filled = 0;
            }
        }
    });
    if filled > 0 {
        compute(spaces, filled);
    }
}

/// What a backward pass reads of the forward pass. The rest need not be kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Nothing,
    Input,
    Output,
}

/// A differentiable function of one number.
pub(crate) trait Unary: Copy + Send + Sync + 'static {
    /// What [`slope`](Unary::slope) is given.
    const KEPT: Kept;
    /// As [`Pointwise::DIRECT`], for both.
    const DIRECT: bool = false;
    /// f(x).
    fn value<R: Real>(self, x: R) -> R;
    /// f'(x), given x or f(x) as [`KEPT`](Unary::KEPT) says.
    fn slope<R: Real>(self, kept: R) -> R;
}

/// A differentiable function of two numbers.
pub(crate) trait Binary: Copy + Send + Sync + 'static {
    /// Whether the slopes are constants, so that nothing need be kept.
    const CONSTANT_SLOPES: bool = false;
    /// As [`Pointwise::DIRECT`], for all three.
    const DIRECT: bool = false;
    /// f(a, b).
    fn value<R: Real>(self, a: R, b: R) -> R;
    /// The two partial derivatives.
    fn slopes<R: Real>(self, a: R, b: R) -> (R, R);
    /// f of two integers, exact but for wrapping; `None` where integers have no such function.
    fn integer(self, _a: i64, _b: i64) -> Option<i64> {
        None
    }
}

/// f(x).
#[derive(Clone, Copy)]
pub(crate) struct Value<F>(pub F);

impl<F: Unary> Pointwise for Value<F> {
    const INPUTS: usize = 1;
    const DIRECT: bool = F::DIRECT;
    #[inline(always)]
    fn at<R: Real>(self, x: &[R]) -> R {
        self.0.value(x[0])
    }
}

/// The gradient times f'; of the gradient and of what was kept.
#[derive(Clone, Copy)]
pub(crate) struct Slope<F>(pub F);

impl<F: Unary> Pointwise for Slope<F> {
    const INPUTS: usize = 2;
    const DIRECT: bool = F::DIRECT;
    #[inline(always)]
    fn at<R: Real>(self, x: &[R]) -> R {
        x[0] * self.0.slope(x[1])
    }
}

/// f(a, b).
#[derive(Clone, Copy)]
pub(crate) struct PairValue<F>(pub F);

impl<F: Binary> Pointwise for PairValue<F> {
    const INPUTS: usize = 2;
    const DIRECT: bool = F::DIRECT;
    #[inline(always)]
    fn at<R: Real>(self, x: &[R]) -> R {
        self.0.value(x[0], x[1])
    }
}

/// The gradient times one of the partial derivatives; of the gradient, a and b.
#[derive(Clone, Copy)]
pub(crate) struct PairSlope<F, const SECOND: bool>(pub F);

impl<F: Binary, const SECOND: bool> Pointwise for PairSlope<F, SECOND> {
    const INPUTS: usize = 3;
    const DIRECT: bool = F::DIRECT;
    #[inline(always)]
    fn at<R: Real>(self, x: &[R]) -> R {
        let (first, second) = self.0.slopes(x[1], x[2]);
        x[0] * if SECOND { second } else { first }
    }
}

/// A product with a constant.
#[derive(Clone, Copy)]
pub(crate) struct Times(pub f64);

impl Pointwise for Times {
    const INPUTS: usize = 1;
    const DIRECT: bool = true;
    #[inline(always)]
    fn at<R: Real>(self, x: &[R]) -> R {
        x[0] * R::of(self.0)
    }
}

/// A sum.
#[derive(Clone, Copy)]
pub(crate) struct Sum;

impl Pointwise for Sum {
    const INPUTS: usize = 2;
    const DIRECT: bool = true;
    #[inline(always)]
    fn at<R: Real>(self, x: &[R]) -> R {
        x[0] + x[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::math;

    #[derive(Clone, Copy)]
    struct Mixed;

    impl Pointwise for Mixed {
        const INPUTS: usize = 2;
        const DIRECT: bool = true;
        #[inline(always)]
        fn at<R: Real>(self, x: &[R]) -> R {
            if x[0] <= R::zero() { math::exp(x[1]) - x[0] } else { x[0] * x[1] }
        }
    }

    /// Blocks, and groups of every width that the machine has, against each number by itself, bit for bit.
    fn check<T: Lanes>(x: &[T]) {
        let reversed: Vec<T> = x.iter().rev().copied().collect();
        let slices = [x, &reversed[..]];
        let want: Vec<T> = x.iter().zip(&reversed).map(|(a, b)| T::narrow(Mixed.at(&[a.widen(), b.widen()]))).collect();
        let same = |got: &[T], how: &str| {
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                // Which of two NaN a product is, the compiler may choose.
                let same =
                    got.widen().to_bits() == want.widen().to_bits() || got.widen().is_nan() && want.widen().is_nan();
                assert!(same, "element {i} of {}, {how}: {got:?}, {want:?}", x.len());
            }
        };
        let mut out = vec![T::default(); x.len()];
        by_blocks(&Mixed, &slices, &mut out);
        same(&out, "blocks");
        same(&map(&Mixed, &slices), "map");
        for width in simd::widths() {
            let mut out = vec![T::default(); x.len()];
            assert!(simd::run_with(width, Groups { f: Mixed, x: &slices, y: &mut out }).is_ok());
            same(&out, &format!("{width:?}"));
        }
    }

    #[test]
    fn groups_and_blocks_are_as_numbers_at_every_length() {
        for len in (0..200).chain([1023, 1024, 1025, 5000]) {
            let x: Vec<f32> = (0..len).map(|i| (i as f32 - 90.5) * 0.037).collect();
            check(&x);
            check(&x.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>());
            check(&x.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn groups_and_blocks_are_as_numbers_for_every_16_bit_number() {
        check(&(0..=u16::MAX).map(f16::from_bits).collect::<Vec<_>>());
        check(&(0..=u16::MAX).map(bf16::from_bits).collect::<Vec<_>>());
    }

    /// Index of the element of an array of `shape` that stands at place `i` of `to`, by the definition.
    fn place(mut i: usize, to: &[usize], shape: &[usize]) -> usize {
        let (mut at, mut size) = (0, 1);
        for (axis, &len) in to.iter().enumerate().rev() {
            if let Some(own) = (axis + shape.len()).checked_sub(to.len()).map(|axis| shape[axis]) {
                at += size * if own == 1 { 0 } else { i % len };
                size *= own;
            }
            i /= len;
        }
        at
    }

    #[test]
    fn stretched_slices_are_as_numbers() {
        let to = [3, 700, 5];
        let shapes: [&[usize]; 6] = [&[3, 700, 5], &[5], &[700, 1], &[3, 1, 5], &[1], &[3, 1, 1]];
        for a in shapes {
            for b in shapes {
                let numbers = |shape: &[usize], factor: f32| -> Vec<f16> {
                    (0..shape.iter().product()).map(|i: usize| f16::from_f32((i as f32 * factor).sin())).collect()
                };
                let (x, y) = (numbers(a, 0.7), numbers(b, 1.3));
                let wide: Vec<f32> = y.iter().map(|y| y.to_f32()).collect();
                let mut got = vec![];
                let inputs = [Input::Stored(&x[..]), Input::Wide(&wide)];
                map_stretched(&Mixed, &Broadcast::new(&to, [a, b]), inputs, &mut |part| got.extend_from_slice(part));
                let want: Vec<f32> = (0..to.iter().product())
                    .map(|i| Mixed.at(&[x[place(i, &to, a)].to_f32(), wide[place(i, &to, b)]]))
                    .collect();
                assert_eq!(got, want, "{a:?} {b:?}");
            }
        }
        let nothing = Broadcast::new(&[0, 3], [&[0, 3], &[1, 3]]);
        let inputs = [Input::<f32>::Stored(&[]), Input::Stored(&[1.0; 3])];
        map_stretched(&Mixed, &nothing, inputs, &mut |_| panic!("nothing is there"));
    }
}
