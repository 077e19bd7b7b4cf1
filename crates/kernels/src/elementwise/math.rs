//! Exponential and related functions in f32, as branch-free polynomials, so that loops over them are vectorized. In f64
//! they are those of the standard library and libm.
//!
//! Every step is one IEEE operation (including `mul_add`), so the bits are the same with and without vectors, on every
//! machine. The coefficients are our own minimax fits (Lawson's iteration, each coefficient rounded to f32 before the
//! next is fitted).
//!
//! Maximum errors of f32 results, in units in the last place of the exact one. `tests/laws/ops/accuracy.rs` reads this table
//! and checks the ops against it over a sample of all f32. The tests below read it for the functions of this file, and
//! iterate over all numbers with `cargo test --release -- --ignored all_f32`. Functions not written here are the
//! standard library's (`log`, `sin`, `pow` and so on) or libm's (`erfc`); these errors were measured on Linux with
//! glibc. Below -87 the sigmoid is subnormal and has few digits, and `silu` and `mish` multiply its error by x.
//!
//! | function | error |
//! | --- | --- |
//! | `exp` | 1 |
//! | `expm1` | 1 |
//! | `tanh` | 2 |
//! | `sigmoid` | 3 |
//! | `erf` | 2 |
//! | `normal` | 6.5 |
//! | `density` | 2.5 |
//! | `raised_exp` | 1.5 |
//! | `asinh` | 0.5 |
//! | `acosh` | 0.5 |
//! | `atanh` | 0.5 |
//! | `sqrt` | 0.5 |
//! | `rsqrt` | 1.5 |
//! | `reciprocal` | 0.5 |
//! | `log` | 1 |
//! | `log2` | 1 |
//! | `log10` | 2 |
//! | `log1p` | 1 |
//! | `sin` | 1 |
//! | `cos` | 1 |
//! | `tan` | 1.5 |
//! | `asin` | 1 |
//! | `acos` | 1 |
//! | `atan` | 1 |
//! | `sinh` | 2 |
//! | `cosh` | 2 |
//! | `erfc` | 3 |
//! | `erfinv` | 0.5 |
//! | `pow` | 1 |
//! | `softplus` | 2 |
//! | `log_sigmoid` | 2 |
//! | `silu` | 53 |
//! | `silu` above -87 | 4 |
//! | `mish` | 53 |
//! | `mish` above -87 | 5 |
//! | `gelu` | 7.5 |
//! | `tanh_shrink` | 0.5 |

use crate::float::Real;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident, $wide:expr;)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name<R: Real>(x: R) -> R {
            x.apply(single::$name, $wide)
        }
    )* };
}
functions! {
    /// Computes `e^x`.
    exp, f64::exp;
    /// Computes `e^x` times [`RAISED_ONE`], for x up to 0. It is cheaper than [`exp`] because such numbers are not
    /// subnormal. If they are divided by their sum, the factor cancels. Where `e^x` is 0 as an f32, the result is below
    /// 2^-87.
    raised_exp, |x| x.exp() * RAISED_ONE;
    /// Computes `e^x - 1`.
    expm1, f64::exp_m1;
    /// Computes the hyperbolic tangent.
    tanh, f64::tanh;
    /// Computes `1 / (1 + e^-x)` without overflow on either side.
    sigmoid, |x| {
        let e = (-x.abs()).exp();
        (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
    };
    /// Computes the error function.
    erf, libm::erf;
    /// Computes the distribution function of the standard normal from the nearer tail, without cancellation. Its error
    /// is largest far from 0.
    normal, |x| 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
    /// Computes the density of the standard normal.
    density, |x| (-0.5 * x * x).exp() * (0.5 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2);
    /// Computes the inverse hyperbolic sine. In f32 it is computed in f64 and rounded once, as are the two below.
    asinh, libm::asinh;
    /// Computes the inverse hyperbolic cosine; NaN below 1.
    acosh, from_one_acosh;
    /// Computes the inverse hyperbolic tangent: infinite at -1 and 1, NaN outside. Odd to the last bit.
    atanh, libm::atanh;
}

/// Computes `acosh` with NaN below 1. libm's returns numbers for some negative x.
fn from_one_acosh(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}

/// Value of [`raised_exp`] at 0.
pub const RAISED_ONE: f64 = (1u128 << 64) as f64;

/// The functions in f32.
mod single {
    use std::f32::consts::LOG2_E;

    use super::RAISED_ONE;
    use crate::arrays::mapped;

    /// `ln 2` in two parts. The product of the first with an integer below 2^9 is exact.
    const LN_2: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];
    /// Constant that leaves the nearest integer in the last bits when added to a number below 2^22.
    const ROUND: f32 = 12_582_912.0;

    /// Evaluates a polynomial by Horner's rule, with the coefficient of the highest power last.
    #[inline(always)]
    fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
        let mut sum = coefficients[N - 1];
        let mut i = N - 1;
        while i > 0 {
            i -= 1;
            sum = sum.mul_add(x, coefficients[i]);
        }
        sum
    }

    /// Returns 2^n for n from -126 to 127. Other n arise only from NaN, with any result.
    #[inline(always)]
    fn power_of_two(n: i32) -> f32 {
        f32::from_bits((n.wrapping_add(127) as u32) << 23)
    }

    /// Clamps x to two bounds; NaN stays NaN.
    #[inline(always)]
    fn between(x: f32, low: f32, high: f32) -> f32 {
        let x = if x < low { low } else { x };
        if x > high { high } else { x }
    }

    /// Returns an integer n, an r with |r| at most `ln(2) / 2`, and a rest such that `x = n ln(2) + r + rest`; the rest
    /// is the rounding error of r.
    #[inline(always)]
    fn reduced(x: f32) -> (i32, f32, f32) {
        let shifted = x.mul_add(LOG2_E, ROUND);
        let n = shifted - ROUND;
        let upper = n.mul_add(-LN_2[0], x);
        let r = n.mul_add(-LN_2[1], upper);
        let rest = n.mul_add(-LN_2[1], upper - r);
        ((shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32), r, rest)
    }

    #[inline(always)]
    pub(super) fn exp(x: f32) -> f32 {
        // Beyond these bounds the result is 0 or infinite anyway.
        let (n, r, rest) = reduced(between(x, -105.0, 89.0));
        let p = polynomial(r, [0.499_999_94, 0.166_665_21, 0.041_668_27, 0.008_368_677, 0.001_382_041_1]);
        // In two steps, because the power itself may be subnormal or infinite.
        let half = n >> 1;
        ((r * r).mul_add(p, rest) + r + 1.0) * power_of_two(half) * power_of_two(n.wrapping_sub(half))
    }

    /// Constant that leaves the nearest integer and the exponent of its power of two, raised by 64, in the last bits
    /// when added to a number below 2^22.
    const RAISED_ROUND: f32 = ROUND + (127 + 64) as f32;

    /// Computes e^r times the raised power of two whose exponent is in the last bits of `shifted`.
    #[inline(always)]
    fn raised(shifted: f32, r: f32) -> f32 {
        let p = polynomial(r, [1.0, 1.0, 0.499_999_94, 0.166_665_21, 0.041_668_27, 0.008_368_677, 0.001_382_041_1]);
        p * f32::from_bits(shifted.to_bits() << 23)
    }

    #[inline(always)]
    pub(super) fn raised_exp(x: f32) -> f32 {
        let x = if x < -105.0 { -105.0 } else { x };
        let shifted = x.mul_add(LOG2_E, RAISED_ROUND);
        let n = shifted - RAISED_ROUND;
        raised(shifted, n.mul_add(-LN_2[1], n.mul_add(-LN_2[0], x)))
    }

    #[inline(always)]
    pub(super) fn expm1(x: f32) -> f32 {
        let (n, r, rest) = reduced(between(x, -18.0, 89.0));
        let p = polynomial(r, [0.5, 0.166_666_66, 0.041_666_493, 0.008_333_544, 0.001_393_233_1, 0.000_197_633_48]);
        let curved = (r * r).mul_add(p, rest);
        let q = r + curved;
        let lost = curved - (q - r);
        // Half of the result: 2^128 is not an f32. The first of the two terms is the larger one, or 0, so the rounding
        // error of their sum is known.
        let power = power_of_two(n.wrapping_sub(1));
        let (first, second) = (power - 0.5, power * q);
        let sum = first + second;
        let wide = 2.0 * (sum + power.mul_add(lost, second - (sum - first) + (power - first - 0.5)));
        if x.abs() < 3e-8 { x } else { wide }
    }

    #[inline(always)]
    pub(super) fn tanh(x: f32) -> f32 {
        let (a, square) = (x.abs(), x * x);
        let p = polynomial(square, [-0.333_332_84, 0.133_314_86, -0.053_743_172, 0.020_649_709, -0.005_716_203]);
        let near = (square * x).mul_add(p, x);
        let far = 1.0 - 2.0 / (exp(a + a) + 1.0);
        (if a < 0.625 { near } else { far }).copysign(x)
    }

    #[inline(always)]
    pub(super) fn sigmoid(x: f32) -> f32 {
        let e = exp(-x.abs());
        (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
    }

    /// Computes the error function: by the series in `x²` near 0, and by `1 - exp(p(x))` elsewhere.
    #[inline(always)]
    pub(super) fn erf(x: f32) -> f32 {
        let (a, square) = (x.abs(), x * x);
        let near = [
            0.128_379_17,
            -0.376_126_3,
            0.112_836_24,
            -0.026_855_586,
            0.005_191_935,
            -0.000_804_358_45,
            7.968_063_4e-5,
        ];
        let near = polynomial(square, near).mul_add(x, x);
        // From 4 it is 1 in all digits.
        let far = between(a, 0.0, 4.0);
        let log =
            [1.128_652_9, 0.635_133_3, 0.106_266_56, -0.023_787_562, 0.003_654_482, -0.000_325_752_4, 1.152_503_1e-5];
        let far = (1.0 - exp(-far * polynomial(far, log))).copysign(x);
        if a < 0.927_7 { near } else { far }
    }

    /// Computes `exp(-a² / 2)` times [`RAISED_ONE`](RAISED_ONE), for a from 0 to 15, including the rounding error of
    /// the square.
    #[inline(always)]
    fn raised_bell(a: f32) -> f32 {
        let square = a * a;
        let rest = a.mul_add(a, -square);
        let shifted = square.mul_add(-0.5 * LOG2_E, RAISED_ROUND);
        let n = shifted - RAISED_ROUND;
        let r = n.mul_add(-LN_2[1], n.mul_add(-LN_2[0], -0.5 * square));
        raised(shifted, rest.mul_add(-0.5, r))
    }

    /// Returns |x|, limited to 15, beyond which density and tail are 0.
    #[inline(always)]
    fn in_bell(x: f32) -> f32 {
        let a = x.abs();
        if a > 15.0 { 15.0 } else { a }
    }

    /// Computes the distribution function. With a = |x|, the tail beyond a is `exp(-a² / 2)` times a function that
    /// falls slowly, from 1/2 at 0 like `1 / (a sqrt(2π))`: a quotient of polynomials without negative terms, so that
    /// no digits are lost.
    #[inline(always)]
    pub(super) fn normal(x: f32) -> f32 {
        const BELOW: [f32; 6] = [1.0, 1.675_040_4, 1.203_359_8, 0.470_003_25, 0.102_024_94, 0.010_340_787_5];
        let a = in_bell(x);
        let above = polynomial(a, [0.5, 0.438_577_74, 0.183_437_68, 0.040_699_545, 0.004_125_423_7]);
        // Raised like the bell.
        let tail = raised_bell(a) * above / polynomial(a, mapped(BELOW, |x| x * RAISED_ONE as f32));
        if x > 0.0 { 1.0 - tail } else { tail }
    }

    #[inline(always)]
    pub(super) fn density(x: f32) -> f32 {
        raised_bell(in_bell(x)) * (0.398_942_3 / RAISED_ONE as f32)
    }

    pub(super) fn asinh(x: f32) -> f32 {
        libm::asinh(f64::from(x)) as f32
    }

    pub(super) fn acosh(x: f32) -> f32 {
        super::from_one_acosh(f64::from(x)) as f32
    }

    pub(super) fn atanh(x: f32) -> f32 {
        libm::atanh(f64::from(x)) as f32
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::{cast::Convert, float::Float, simd::vectorized};

    /// A function in f32 and in f64.
    type Function = (&'static str, fn(&mut [f32]), fn(f64) -> f64);

    macro_rules! all {
        ($($name:ident),*) => { [$((
            stringify!($name),
            (|x| vectorized(|| x.iter_mut().for_each(|x| *x = $name(*x)))) as fn(&mut [f32]),
            $name::<f64> as fn(f64) -> f64,
        )),*] };
    }
    const FUNCTIONS: [Function; 7] = all![exp, expm1, tanh, sigmoid, erf, normal, density];

    /// Returns the error allowed by the table above.
    fn allowed(name: &str) -> f64 {
        let row = format!("//! | `{name}` | ");
        let row = include_str!("math.rs").lines().find_map(|line| line.strip_prefix(&row));
        row.and_then(|row| row.trim_end_matches(" |").parse().ok()).expect("a row of the table")
    }

    /// Returns the distance in units in the last place of the f32 nearest to `exact`.
    fn ulps(got: f32, exact: f64) -> f64 {
        let near = exact as f32;
        if got.is_nan() || exact.is_nan() || got.is_infinite() || near.is_infinite() {
            return if got.is_nan() && exact.is_nan() || got == near { 0.0 } else { f64::INFINITY };
        }
        let exponent = (near.abs().to_bits() >> 23).max(1) as i32;
        (f64::from(got) - exact).abs() / 2f64.powi(exponent - 150)
    }

    /// Checks the errors at every `step`th bit pattern.
    fn hold(step: usize) {
        for (name, f, exact) in FUNCTIONS {
            let (mut worst, mut at) = (0.0, 0.0);
            let mut patterns = (0..=u32::MAX).step_by(step);
            loop {
                let x: Vec<f32> = patterns.by_ref().take(1 << 12).map(f32::from_bits).collect();
                if x.is_empty() {
                    break;
                }
                let mut y = x.clone();
                f(&mut y);
                for (&x, &y) in x.iter().zip(&y) {
                    let error = ulps(y, exact(f64::from(x)));
                    if error > worst {
                        (worst, at) = (error, x);
                    }
                }
            }
            println!("{name}: {worst:.3} at {at:e}");
            assert!(worst <= allowed(name), "{name}({at:e}) is {worst} units in the last place away");
        }
    }

    #[test]
    fn errors_are_small_over_a_sample_of_all_f32() {
        hold(if cfg!(miri) { 8191 << 7 } else { 8191 });
    }

    #[test]
    #[ignore = "walks through all 2^32 numbers for each function, which takes five minutes"]
    fn errors_are_small_over_all_f32() {
        hold(1);
    }

    #[test]
    fn edges_are_exact() {
        let of = |i: usize, x: f32| {
            let mut x = [x];
            FUNCTIONS[i].1(&mut x);
            x[0]
        };
        let (inf, tiny) = (f32::INFINITY, f32::from_bits(1));
        let edges = [
            (0, [(0.0, 1.0), (-0.0, 1.0), (inf, inf), (-inf, 0.0), (tiny, 1.0), (88.8, inf), (-104.0, 0.0)]),
            (1, [(0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -1.0), (tiny, tiny), (88.8, inf), (-18.0, -1.0)]),
            (2, [(0.0, 0.0), (-0.0, -0.0), (inf, 1.0), (-inf, -1.0), (tiny, tiny), (10.0, 1.0), (-100.0, -1.0)]),
            (3, [(0.0, 0.5), (-0.0, 0.5), (inf, 1.0), (-inf, 0.0), (tiny, 0.5), (18.0, 1.0), (-105.0, 0.0)]),
            (4, [(0.0, 0.0), (-0.0, -0.0), (inf, 1.0), (-inf, -1.0), (tiny, tiny), (4.0, 1.0), (-5.0, -1.0)]),
            (5, [(0.0, 0.5), (-0.0, 0.5), (inf, 1.0), (-inf, 0.0), (tiny, 0.5), (6.0, 1.0), (-15.0, 0.0)]),
        ];
        for (i, edges) in edges {
            for (x, want) in edges {
                assert_eq!(of(i, x).to_bits(), want.to_bits(), "{}({x})", FUNCTIONS[i].0);
            }
            assert!(of(i, f32::NAN).is_nan() && of(i, -f32::NAN).is_nan(), "{}", FUNCTIONS[i].0);
        }
    }

    #[test]
    fn bits_are_the_same_without_vectors() {
        let x: Vec<f32> = (0..=u32::MAX).step_by(65_521).map(f32::from_bits).collect();
        let plain: [fn(f32) -> f32; 7] = [exp, expm1, tanh, sigmoid, erf, normal, density];
        for ((name, f, ..), plain) in FUNCTIONS.iter().zip(plain) {
            let mut y = x.clone();
            f(&mut y);
            for (&x, y) in x.iter().zip(y) {
                let want = plain(x);
                assert!(
                    want.to_bits() == y.to_bits() || want.is_nan() && y.is_nan(),
                    "{name}({x:e}): {y:e} and {want:e}"
                );
            }
        }
    }

    #[test]
    fn raised_exponentials_are_near_the_exact_ones() {
        let step = if cfg!(miri) { 1021 << 7 } else { 1021 };
        let x: Vec<f32> = (0..=(105f32).to_bits()).step_by(step).map(|bits| -f32::from_bits(bits)).collect();
        let mut y = x.clone();
        vectorized(|| y.iter_mut().for_each(|y| *y = raised_exp(*y)));
        let mut worst = 0f64;
        for (&x, &y) in x.iter().zip(&y) {
            assert_eq!(y.to_bits(), raised_exp(x).to_bits(), "without vectors, {x:e}");
            worst = worst.max(ulps(y, raised_exp(f64::from(x))));
        }
        assert!(worst <= allowed("raised_exp"), "{worst} units in the last place away");
        let one = RAISED_ONE as f32;
        assert_eq!([0.0, -0.0].map(|x: f32| raised_exp(x)), [one, one]);
        assert!([f32::NEG_INFINITY, f32::MIN, -105.0].iter().all(|&x| raised_exp(x) < 2f32.powi(-87)));
        assert!(raised_exp(f32::NAN).is_nan() && raised_exp(-f32::NAN).is_nan());
    }

    /// Counts the inputs of a format whose result differs from the exact result rounded once.
    fn misrounded<T: Float<Wide = f32>>(all: impl Iterator<Item = T>, (_, f, exact): Function) -> usize
    where
        f64: Convert<T>,
    {
        let x: Vec<T> = all.collect();
        let mut y: Vec<f32> = x.iter().map(|x| x.widen()).collect();
        f(&mut y);
        // `half`'s own `from_f64` rounds twice, or truncates first, depending on the machine.
        let round = |exact: f64| {
            let mut rounded = [T::narrow(0.0)];
            f64::convert(&[exact], &mut rounded);
            rounded[0]
        };
        let same = |x: &T, y: f32| {
            let (got, want) = (T::narrow(y).widen(), round(exact(f64::from(x.widen()))).widen());
            got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan()
        };
        x.iter().zip(y).filter(|&(x, y)| !same(x, y)).count()
    }

    #[test]
    fn results_of_16_bit_inputs_are_the_exact_ones_rounded() {
        let step = if cfg!(miri) { 37 } else { 1 };
        for function in FUNCTIONS {
            let bits = || (0..=u16::MAX).step_by(step);
            let half = misrounded(bits().map(f16::from_bits), function);
            let brain = misrounded(bits().map(bf16::from_bits), function);
            // An f32 halfway between two neighbors may represent an exact result next to it.
            println!("{}: {half} {brain}", function.0);
            assert!(half <= 8 && brain <= 8, "{}: {half} of f16 and {brain} of bf16", function.0);
        }
    }
}
