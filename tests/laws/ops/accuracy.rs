//! Accuracy of f32 results, checked by the table in `elementwise/math.rs` of `precast-kernels`; and the inverse hyperbolic
//! functions in f64, compared with numbers of 60 digits.

use std::{fs, path::Path};

use precast::{Result, Tensor};

type Op = fn(&Tensor) -> Result<Tensor>;

/// A row of the table, the op, and the exact function.
type Row = (&'static str, Op, fn(f64) -> f64);

/// Stride of the sampled bit patterns of f32: odd, so that all exponents and all last bits occur.
const STEP: usize = if cfg!(miri) {
    16_777_259
} else if cfg!(debug_assertions) {
    65_537
} else {
    8_191
};

/// Returns the source with the table. The published package has no other package.
fn table() -> Option<String> {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    packages.exists().then(|| fs::read_to_string(packages.join("kernels/src/elementwise/math.rs")).unwrap())
}

/// Returns the units in the last place allowed by the table.
fn allowed(table: &str, name: &str) -> f64 {
    let (name, range) = name.split_once(' ').map_or((name, String::new()), |(name, rest)| (name, format!(" {rest}")));
    let row = format!("//! | `{name}`{range} | ");
    let row = table.lines().find_map(|line| line.strip_prefix(&row));
    // Rounding to the nearest f32 is half a unit; the f64 reference has an error of about 2^-27 of that.
    row.and_then(|row| row.trim_end_matches(" |").parse::<f64>().ok()).expect("a row of the table") + 1e-6
}

/// Returns the distance in units in the last place of the f32 nearest to `exact`.
fn units(got: f32, exact: f64) -> f64 {
    let near = exact as f32;
    if got.is_nan() || exact.is_nan() || got.is_infinite() || near.is_infinite() {
        return if got.is_nan() && exact.is_nan() || got == near { 0.0 } else { f64::INFINITY };
    }
    if near == 0.0 && got.to_bits() != near.to_bits() && got == 0.0 {
        // The other zero.
        return f64::INFINITY;
    }
    let exponent = (near.abs().to_bits() >> 23).max(1) as i32;
    (f64::from(got) - exact).abs() / 2f64.powi(exponent - 150)
}

/// Returns the largest error of a function over a sample, and its position.
fn largest_error(f: impl Fn(&Tensor) -> Result<Tensor>, exact: impl Fn(f64) -> f64) -> (f64, f32) {
    // Signaling NaN are left out: an operation may return NaN for them where it has a number for quiet ones (pow(NaN,
    // 0)).
    let x: Vec<f32> = (0..=u32::MAX).step_by(STEP).map(f32::from_bits).filter(|x| !x.is_nan()).collect();
    let edges = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN, 0.5, 2.0];
    let nearly =
        [1u32, 0x8000_0001, 0x3f7f_ffff, 0xbf7f_ffff, 0x3f80_0001, 0x007f_ffff, 0x0080_0000].map(f32::from_bits);
    let x: Vec<f32> = x.into_iter().chain(edges).chain(nearly).collect();
    let y: Vec<f32> = f(&Tensor::from_vec(x.clone(), &[x.len()]).unwrap()).unwrap().to_vec().unwrap();
    let errors = x.iter().zip(&y).map(|(&x, &y)| (units(y, exact(f64::from(x))), x));
    errors.fold((0.0, 0.0), |worst, error| if error.0 > worst.0 { error } else { worst })
}

/// Computes `ln(a + sqrt(a² + 1))` with a = |x|, as the logarithm of 1 plus the rest.
fn asinh(x: f64) -> f64 {
    let a = x.abs();
    let rest = if a.is_infinite() { a } else { a + a * (a / (1.0 + a.hypot(1.0))) };
    rest.ln_1p().copysign(x)
}

/// Computes `ln(x + sqrt(x² - 1))`, like [`asinh`].
fn acosh(x: f64) -> f64 {
    let t = x - 1.0;
    if x < 1.0 { f64::NAN } else { (t + (t * (t + 2.0)).sqrt()).ln_1p() }
}

/// Computes `ln((1 + a) / (1 - a)) / 2` with a = |x|, like [`asinh`].
fn atanh(x: f64) -> f64 {
    let a = x.abs();
    (0.5 * (2.0 * a / (1.0 - a)).ln_1p()).copysign(x)
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Replaces minus infinity by the least finite number, at which the functions below have their limit 0.
fn raised(x: f64) -> f64 {
    if x < f64::MIN { f64::MIN } else { x }
}

fn silu(x: f64) -> f64 {
    raised(x) / (1.0 + (-x).exp())
}

fn mish(x: f64) -> f64 {
    raised(x) * softplus(x).tanh()
}

/// Computes the inverse by bisection of the error function, or of its complement.
fn erfinv(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() || a >= 1.0 {
        return if a == 1.0 { x * f64::INFINITY } else { f64::NAN };
    }
    if a < 1e-9 {
        // erf(y) = 2 y / sqrt(π) to all digits.
        return x / std::f64::consts::FRAC_2_SQRT_PI;
    }
    let below = |y: f64| if a < 0.5 { libm::erf(y) < a } else { libm::erfc(y) > 1.0 - a };
    let (mut low, mut high) = (0.0, 7.0);
    for _ in 0..90 {
        let middle = (low + high) / 2.0;
        if below(middle) { low = middle } else { high = middle }
    }
    low.copysign(x)
}

/// Computes `x - tanh(x)`, near 0 by the first terms of its series.
fn tanh_shrink(x: f64) -> f64 {
    if x.abs() > 0.02 {
        return x - x.tanh();
    }
    let square = x * x;
    x * square * (1.0 / 3.0 - square * (2.0 / 15.0 - square * (17.0 / 315.0 - square * 62.0 / 2835.0)))
}

#[test]
fn f32_results_are_as_near_as_the_table_says() {
    let Some(table) = table() else { return };
    let ops: &[Row] = &[
        ("exp", |x| x.exp(), f64::exp),
        ("expm1", |x| x.expm1(), f64::exp_m1),
        ("tanh", |x| x.tanh(), f64::tanh),
        ("sigmoid", |x| x.sigmoid(), |x| if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }),
        ("erf", |x| x.erf(), libm::erf),
        ("asinh", |x| x.asinh(), asinh),
        ("acosh", |x| x.acosh(), acosh),
        ("atanh", |x| x.atanh(), atanh),
        ("sqrt", |x| x.sqrt(), f64::sqrt),
        ("rsqrt", |x| x.rsqrt(), |x| 1.0 / x.sqrt()),
        ("reciprocal", |x| x.reciprocal(), f64::recip),
        ("log", |x| x.log(), f64::ln),
        ("log2", |x| x.log2(), f64::log2),
        ("log10", |x| x.log10(), f64::log10),
        ("log1p", |x| x.log1p(), f64::ln_1p),
        ("sin", |x| x.sin(), f64::sin),
        ("cos", |x| x.cos(), f64::cos),
        ("tan", |x| x.tan(), f64::tan),
        ("asin", |x| x.asin(), f64::asin),
        ("acos", |x| x.acos(), f64::acos),
        ("atan", |x| x.atan(), f64::atan),
        ("sinh", |x| x.sinh(), f64::sinh),
        ("cosh", |x| x.cosh(), f64::cosh),
        ("erfc", |x| x.erfc(), libm::erfc),
        ("erfinv", |x| x.erfinv(), erfinv),
        ("softplus", |x| x.softplus(), softplus),
        ("log_sigmoid", |x| x.log_sigmoid(), |x| -softplus(-x)),
        ("silu", |x| x.silu(), silu),
        ("silu above -87", |x| x.clamp(-87.0, f64::INFINITY)?.silu(), |x| silu(x.clamp(-87.0, f64::INFINITY))),
        ("mish above -87", |x| x.clamp(-87.0, f64::INFINITY)?.mish(), |x| mish(x.clamp(-87.0, f64::INFINITY))),
        ("gelu", |x| x.gelu(), |x| raised(x) * 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)),
        ("mish", |x| x.mish(), mish),
        ("tanh_shrink", |x| x.tanh_shrink(), tanh_shrink),
    ];
    let mut beyond = vec![];
    for (name, f, exact) in ops {
        let (worst, at) = largest_error(f, exact);
        println!("{name}: {worst:.3} at {at:e}");
        if worst > allowed(&table, name) {
            beyond.push(format!("{name}({at:e}) is {worst} units in the last place away"));
        }
    }
    let exponents =
        [-3.0, -2.0, -1.0, -0.5, -1.0 / 3.0, 0.0, 1e-3, 0.1, 0.5, 2.0 / 3.0, 1.0, 1.5, 2.0, 3.0, 10.5, 100.0];
    for exponent in exponents.map(|x| f64::from(x as f32)) {
        let (worst, at) = largest_error(|x| x.powf(exponent), |x| x.powf(exponent));
        println!("pow {exponent}: {worst:.3} at {at:e}");
        if worst > allowed(&table, "pow") {
            beyond.push(format!("{at:e} to the power {exponent} is {worst} units in the last place away"));
        }
    }
    assert!(beyond.is_empty(), "{beyond:#?}");
}

/// Pairs of x and f(x), the latter by mpmath 1.3 with 60 digits, rounded to f64.
type Known = &'static [(f64, f64)];

const ASINH: Known = &[
    (5e-324, 5e-324),
    (-1e-300, -1e-300),
    (2.5e-09, 2.5e-09),
    (-1e-05, -9.999999999833334e-06),
    (0.1, 0.09983407889920756),
    (-0.7, -0.6526665660823557),
    (1.0, 0.881373587019543),
    (1.9999999, 1.44363543045745),
    (-2.5, -1.6472311463710958),
    (10000.0, 9.903487555036127),
    (-300000000.0, -20.21244021318042),
    (1e+155, 357.593836594637),
    (-1e+308, -709.889355822726),
    (f64::MAX, 710.475860073944),
    (0.0, 0.0),
    (-0.0, -0.0),
    (f64::INFINITY, f64::INFINITY),
    (f64::NEG_INFINITY, f64::NEG_INFINITY),
    (f64::NAN, f64::NAN),
];

const ACOSH: Known = &[
    (1.0, 0.0),
    (1.0000000000000002, 2.1073424255447014e-08),
    (1.000000000001, 1.4142764231805424e-06),
    (1.000001, 0.00141421344446382),
    (1.01, 0.14130376948564863),
    (1.5, 0.9624236501192069),
    (1.9999999999999998, 1.3169578969248166),
    (2.5, 1.566799236972411),
    (10000.0, 9.903487550036129),
    (300000000.0, 20.21244021318042),
    (1e+155, 357.593836594637),
    (1e+308, 709.889355822726),
    (f64::MAX, 710.475860073944),
    (f64::INFINITY, f64::INFINITY),
    (0.9999999999999999, f64::NAN),
    (0.0, f64::NAN),
    (-1.0, f64::NAN),
    (-1.5, f64::NAN),
    (-6854.1386, f64::NAN),
    (-1e5, f64::NAN),
    (-1e300, f64::NAN),
    (f64::NEG_INFINITY, f64::NAN),
    (f64::NAN, f64::NAN),
];

const ATANH: Known = &[
    (5e-324, 5e-324),
    (-1e-300, -1e-300),
    (2.5e-09, 2.5e-09),
    (-1e-05, -1.0000000000333334e-05),
    (0.1, 0.10033534773107558),
    (-0.3, -0.3095196042031117),
    (0.5, 0.5493061443340549),
    (-0.7, -0.8673005276940531),
    (0.99, 2.6466524123622457),
    (-0.9999999, -8.40562139102231),
    (0.9999999999999999, 18.714973875118524),
    (-0.9999999999999999, -18.714973875118524),
    (0.0, 0.0),
    (-0.0, -0.0),
    (1.0, f64::INFINITY),
    (-1.0, f64::NEG_INFINITY),
    (1.0000000000000002, f64::NAN),
    (-2.0, f64::NAN),
    (f64::INFINITY, f64::NAN),
    (f64::NAN, f64::NAN),
];

#[test]
fn inverse_hyperbolic_functions_keep_their_digits_in_f64() {
    let ops: [(&str, Op, Known); 3] =
        [("asinh", |x| x.asinh(), ASINH), ("acosh", |x| x.acosh(), ACOSH), ("atanh", |x| x.atanh(), ATANH)];
    for (name, f, known) in ops {
        let x: Vec<f64> = known.iter().map(|(x, _)| *x).collect();
        let y = f(&Tensor::from_vec(x, &[known.len()]).unwrap()).unwrap().to_f64();
        for ((x, want), got) in known.iter().zip(y) {
            // The distance of numbers of the same sign is that of their bits.
            let apart = got.to_bits().abs_diff(want.to_bits());
            assert!(got.is_nan() && want.is_nan() || apart <= 2, "{name}({x:e}) is {got:e}, not {want:e}");
        }
    }
}

#[test]
fn odd_functions_are_odd_to_the_last_bit() {
    let ops: [(&str, Op); 9] = [
        ("asinh", |x| x.asinh()),
        ("atanh", |x| x.atanh()),
        ("tanh", |x| x.tanh()),
        ("sinh", |x| x.sinh()),
        ("erf", |x| x.erf()),
        ("erfinv", |x| x.erfinv()),
        ("sin", |x| x.sin()),
        ("atan", |x| x.atan()),
        ("tanh_shrink", |x| x.tanh_shrink()),
    ];
    let x: Vec<f32> = (0..f32::INFINITY.to_bits()).step_by(STEP.max(65_537)).map(f32::from_bits).collect();
    let negative: Vec<f32> = x.iter().map(|x| -x).collect();
    let of = |f: Op, x: &[f32]| -> Vec<f32> {
        f(&Tensor::from_vec(x.to_vec(), &[x.len()]).unwrap()).unwrap().to_vec().unwrap()
    };
    for (name, f) in ops {
        for ((x, plus), minus) in x.iter().zip(of(f, &x)).zip(of(f, &negative)) {
            let odd = plus.to_bits() == (-minus).to_bits() || plus.is_nan() && minus.is_nan();
            assert!(odd, "{name} of ±{x:e}: {plus:e} and {minus:e}");
        }
    }
}
