//! NaN, infinities, zeros of both signs and the largest and smallest numbers, in all binary functions and all
//! reductions: compared with IEEE arithmetic in f64, rounded to the dtype.

use precast::{ConvOptions, DType, Padding, Result, Tensor};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

fn tensor(x: &[f64], dtype: DType) -> Tensor {
    Tensor::from_vec(x.to_vec(), &[x.len()]).unwrap().cast(dtype)
}

/// Returns whether a result is the exact one rounded once, within a few units in the last place; 0, NaN and infinity
/// must be exact, including the sign.
fn same(got: f64, exact: f64, dtype: DType) -> bool {
    let want = tensor(&[exact], dtype).item().unwrap();
    let subnormal = tensor(&[f64::MIN_POSITIVE * dtype.epsilon()], dtype).item().unwrap();
    match want {
        w if w.is_nan() => got.is_nan(),
        w if w == 0.0 || w.is_infinite() => got.to_bits() == w.to_bits(),
        w => (got - w).abs() <= 2.0 * dtype.epsilon() * w.abs() + subnormal,
    }
}

const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::Bf16];

/// Returns numbers at the borders of a dtype.
fn borders(dtype: DType) -> Vec<f64> {
    let largest = match dtype {
        DType::F16 => 65504.0,
        DType::Bf16 => f64::from(half::bf16::MAX),
        DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    };
    let numbers = [0.0, 1.0, 2.5, 3.0, 1e-3, largest, INF];
    [NAN].into_iter().chain(numbers).chain(numbers.map(|x| -x)).collect()
}

type Pair = (&'static str, fn(&Tensor, &Tensor) -> Result<Tensor>, fn(f64, f64) -> f64);

#[test]
fn functions_of_two_numbers_meet_extremes_as_ieee_does() {
    let ops: &[Pair] = &[
        ("add", |a, b| a.add(b), |a, b| a + b),
        ("sub", |a, b| a.sub(b), |a, b| a - b),
        ("mul", |a, b| a.mul(b), |a, b| a * b),
        ("div", |a, b| a.div(b), |a, b| a / b),
        ("pow", |a, b| a.pow(b), f64::powf),
        ("atan2", |a, b| a.atan2(b), f64::atan2),
        ("hypot", |a, b| a.hypot(b), f64::hypot),
        ("fmod", |a, b| a.fmod(b), |a, b| a % b),
        // Python's: with the sign of b, and NaN if it is not the remainder of a finite division.
        (
            "remainder",
            |a, b| a.remainder(b),
            |a, b| {
                let rest = a % b;
                if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
            },
        ),
    ];
    for dtype in FLOATS {
        let numbers = borders(dtype);
        let pairs: Vec<(f64, f64)> = numbers.iter().flat_map(|&a| numbers.iter().map(move |&b| (a, b))).collect();
        let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        let (a, b) = (tensor(&a, dtype), tensor(&b, dtype));
        for (name, f, exact) in ops {
            for ((a, b), got) in a.to_f64().into_iter().zip(b.to_f64()).zip(f(&a, &b).unwrap().to_f64()) {
                assert!(same(got, exact(a, b), dtype), "{name}({a}, {b}) in {dtype} is {got}, not {}", exact(a, b));
            }
        }
        // IEEE lets either zero be the larger.
        for (name, f, exact) in [
            ("maximum", a.maximum(&b), f64::max as fn(f64, f64) -> f64),
            ("minimum", a.minimum(&b), f64::min as fn(f64, f64) -> f64),
        ] {
            for ((a, b), got) in a.to_f64().into_iter().zip(b.to_f64()).zip(f.unwrap().to_f64()) {
                let want = if a.is_nan() || b.is_nan() { NAN } else { exact(a, b) };
                assert!(got == want || got.is_nan() && want.is_nan(), "{name}({a}, {b}) in {dtype} is {got}");
            }
        }
        for (name, got, want) in [
            ("eq", a.eq(&b), (|a, b| a == b) as fn(f64, f64) -> bool),
            ("ne", a.ne(&b), |a, b| a != b),
            ("lt", a.lt(&b), |a, b| a < b),
            ("le", a.le(&b), |a, b| a <= b),
            ("gt", a.gt(&b), |a, b| a > b),
            ("ge", a.ge(&b), |a, b| a >= b),
        ] {
            let got = got.unwrap().to_vec::<bool>().unwrap();
            for ((a, b), got) in a.to_f64().into_iter().zip(b.to_f64()).zip(got) {
                assert_eq!(got, want(a, b), "{name}({a}, {b}) in {dtype}");
            }
        }
    }
}

/// Returns the lanes to reduce: short ones, and long ones with one non-finite number at each kind of position.
fn lanes() -> Vec<Vec<f64>> {
    let mut lanes: Vec<Vec<f64>> = vec![
        vec![1.0, INF, 2.0],
        vec![1.0, -INF, 2.0],
        vec![INF, -INF],
        vec![INF, INF],
        vec![-INF, -INF],
        vec![NAN, 1.0],
        vec![1.0, NAN],
        vec![INF, NAN],
        vec![NAN, -INF, NAN],
        vec![0.0, INF],
        vec![-2.0, 0.0, 3.0],
        vec![NAN],
        vec![-INF],
    ];
    for special in [NAN, INF, -INF] {
        for (len, at) in [(17, 0), (17, 16), (65, 64), (300, 0), (300, 150), (300, 299), (530, 271)] {
            let mut lane: Vec<f64> = (0..len).map(|i| f64::from(i % 5) / 4.0 - 0.5).collect();
            lane[at] = special;
            lanes.push(lane);
        }
    }
    lanes
}

fn largest(x: &[f64]) -> f64 {
    if x.iter().any(|x| x.is_nan()) { NAN } else { x.iter().copied().fold(-INF, f64::max) }
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

fn variance(x: &[f64]) -> f64 {
    let m = mean(x);
    x.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / x.len() as f64
}

fn logsumexp(x: &[f64]) -> f64 {
    match largest(x) {
        m if m.is_infinite() || m.is_nan() => m,
        m => m + x.iter().map(|x| (x - m).exp()).sum::<f64>().ln(),
    }
}

fn softmax(x: &[f64]) -> Vec<f64> {
    let m = largest(x);
    let e: Vec<f64> = x.iter().map(|x| (x - m).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|e| e / sum).collect()
}

fn running(x: &[f64], f: fn(f64, f64) -> f64, start: f64) -> Vec<f64> {
    x.iter()
        .scan(start, |sum, &x| {
            *sum = f(*sum, x);
            Some(*sum)
        })
        .collect()
}

type Reduction = (&'static str, fn(&Tensor) -> Result<Tensor>, fn(&[f64]) -> Vec<f64>);

#[test]
fn reductions_meet_nan_and_infinity_as_ieee_does() {
    let ops: &[Reduction] = &[
        ("sum", |x| x.sum(&[0], false), |x| vec![x.iter().sum()]),
        ("mean", |x| x.mean(&[0], false), |x| vec![mean(x)]),
        ("max", |x| x.max(&[0], false), |x| vec![largest(x)]),
        ("min", |x| x.min(&[0], false), |x| vec![-largest(&x.iter().map(|x| -x).collect::<Vec<_>>())]),
        ("prod", |x| x.slice(0, 0..x.len().min(3))?.prod(&[0], false), |x| vec![x[..x.len().min(3)].iter().product()]),
        ("var", |x| x.var(&[0], 0, false), |x| vec![variance(x)]),
        ("std", |x| x.std(&[0], 0, false), |x| vec![variance(x).sqrt()]),
        ("1-norm", |x| x.norm(1.0, &[0], false), |x| vec![x.iter().map(|x| x.abs()).sum()]),
        ("2-norm", |x| x.norm(2.0, &[0], false), |x| vec![x.iter().map(|x| x * x).sum::<f64>().sqrt()]),
        ("3-norm", |x| x.norm(3.0, &[0], false), |x| vec![x.iter().map(|x| x.abs().powi(3)).sum::<f64>().cbrt()]),
        (
            "largest norm",
            |x| x.norm(INF, &[0], false),
            |x| vec![largest(&x.iter().map(|x| x.abs()).collect::<Vec<_>>())],
        ),
        ("logsumexp", |x| x.logsumexp(&[0], false), |x| vec![logsumexp(x)]),
        ("cumsum", |x| x.cumsum(0), |x| running(x, |a, b| a + b, 0.0)),
        (
            "cumprod",
            |x| x.slice(0, 0..x.len().min(3))?.cumprod(0),
            |x| running(&x[..x.len().min(3)], |a, b| a * b, 1.0),
        ),
        ("softmax", |x| x.softmax(0), softmax),
        (
            "log_softmax",
            |x| x.log_softmax(0),
            |x| {
                let all = logsumexp(x);
                // Minus infinity alone has no distribution.
                x.iter().map(|x| if all.is_infinite() { NAN } else { x - all }).collect()
            },
        ),
        (
            "argmax",
            |x| Ok(x.argmax(0, false)?.cast(DType::F64)),
            |x| {
                let nan = x.iter().position(|x| x.is_nan());
                vec![nan.or(x.iter().position(|y| *y == largest(x))).unwrap() as f64]
            },
        ),
    ];
    for dtype in FLOATS {
        for lane in lanes() {
            for (name, f, exact) in ops {
                let x = tensor(&lane, dtype);
                let (got, exact) = (f(&x).unwrap(), exact(&lane));
                assert_eq!(got.len(), exact.len(), "{name}");
                for (got, exact) in got.to_f64().into_iter().zip(exact) {
                    // Long sums of 16-bit numbers are exact; a sum of f32 may lose as many units as its depth.
                    let near = exact.is_finite() && (got - exact).abs() <= 8.0 * dtype.epsilon() * exact.abs() + 1e-6;
                    assert!(near || same(got, exact, dtype), "{name} of {lane:?} in {dtype} is {got}, not {exact}");
                }
            }
        }
    }
}

/// The result of each function at the two zeros, as bits: by IEEE 754 (section 6.3, 9.2.1), where specified, else as in
/// torch 2.15.
#[test]
fn zeros_keep_their_sign() {
    type Row = (&'static str, fn(&Tensor) -> Result<Tensor>, [f64; 2]);
    const ODD: [f64; 2] = [0.0, -0.0];
    const EVEN: [f64; 2] = [0.0, 0.0];
    let rows: &[Row] = &[
        ("relu", |x| x.relu(), ODD),
        ("relu6", |x| x.relu6(), ODD),
        ("leaky_relu", |x| x.leaky_relu(0.01), ODD),
        ("elu", |x| x.elu(1.0), ODD),
        ("selu", |x| x.selu(), ODD),
        ("celu", |x| x.celu(0.7), ODD),
        ("gelu", |x| x.gelu(), ODD),
        ("gelu_tanh", |x| x.gelu_tanh(), ODD),
        ("silu", |x| x.silu(), ODD),
        ("mish", |x| x.mish(), ODD),
        ("tanh", |x| x.tanh(), ODD),
        ("hard_swish", |x| x.hard_swish(), ODD),
        ("hard_tanh", |x| x.hard_tanh(), ODD),
        ("softsign", |x| x.softsign(), ODD),
        ("asinh", |x| x.asinh(), ODD),
        ("atanh", |x| x.atanh(), ODD),
        ("sinh", |x| x.sinh(), ODD),
        ("sin", |x| x.sin(), ODD),
        ("tan", |x| x.tan(), ODD),
        ("asin", |x| x.asin(), ODD),
        ("atan", |x| x.atan(), ODD),
        ("erf", |x| x.erf(), ODD),
        ("erfinv", |x| x.erfinv(), ODD),
        ("expm1", |x| x.expm1(), ODD),
        ("log1p", |x| x.log1p(), ODD),
        ("sqrt", |x| x.sqrt(), ODD),
        ("trunc", |x| x.trunc(), ODD),
        ("floor", |x| x.floor(), ODD),
        ("ceil", |x| x.ceil(), ODD),
        ("round", |x| x.round(), ODD),
        ("clamp", |x| x.clamp(-1.0, 1.0), ODD),
        ("cube", |x| x.powf(3.0), ODD),
        ("neg", |x| x.neg(), [-0.0, 0.0]),
        ("square", |x| x.square(), EVEN),
        ("abs", |x| x.abs(), EVEN),
        ("power 1.5", |x| x.powf(1.5), EVEN),
        ("reciprocal", |x| x.reciprocal(), [INF, -INF]),
        ("rsqrt", |x| x.rsqrt(), [INF, -INF]),
        ("power -1", |x| x.powf(-1.0), [INF, -INF]),
        ("log", |x| x.log(), [-INF, -INF]),
    ];
    for dtype in FLOATS {
        for (name, f, want) in rows {
            let got = f(&tensor(&[0.0, -0.0], dtype)).unwrap().to_f64();
            assert_eq!(got.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), want.map(f64::to_bits), "{name} {dtype}");
        }
        // Results that are 0 by rounding or underflow keep their sign as well.
        let bits = |x: Result<Tensor>| x.unwrap().to_f64().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let small = tensor(&[-0.3, 0.3], dtype);
        for rounded in [small.trunc(), small.round()] {
            assert_eq!(bits(rounded), [-0.0, 0.0].map(f64::to_bits), "{dtype}");
        }
        assert_eq!(bits(small.ceil()), [-0.0, 1.0].map(f64::to_bits), "{dtype}");
        assert_eq!(bits(tensor(&[-INF, INF], dtype).reciprocal()), [-0.0, 0.0].map(f64::to_bits), "{dtype}");
    }
    let tiny = tensor(&[-1e-30, 1e-30], DType::F64).cast(DType::F16).to_f64();
    assert_eq!(tiny.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), [-0.0, 0.0].map(f64::to_bits));
}

/// Taps and outputs so far apart that the padded input would not fit in memory: most of them read padding.
#[test]
fn convolutions_reach_far_at_no_cost() -> Result<()> {
    let far = |stride: usize, dilation: Vec<usize>, padding: Padding| {
        ConvOptions::default().stride(vec![stride]).padding(padding).dilation(dilation)
    };
    let counted = |shape: &[usize], dtype: DType| {
        let n = shape.iter().product::<usize>();
        Tensor::from_vec((1..=n).map(|i| i as f64).collect(), shape).unwrap().cast(dtype)
    };
    for dtype in FLOATS {
        // Only the first of eight taps is inside. The sizes of the padded axes multiply to 2^64 + 640.
        let dilation = vec![49315455, 583550760, 640];
        let padding = Padding::Explicit(dilation.iter().map(|&d| (0, d)).collect());
        let (x, w) = (counted(&[1; 5], dtype).requires_grad(), counted(&[1, 1, 2, 2, 2], dtype).requires_grad());
        let out = x.conv3d(&w, None, &far(1, dilation, padding))?;
        assert_eq!(out.to_f64(), [1.0]);
        let grads = out.backward_from(&counted(&[1; 5], dtype))?;
        assert_eq!(grads.of(&x).unwrap().to_f64(), [1.0]);
        assert_eq!(grads.of(&w).unwrap().to_f64(), [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        // One output.
        let (x, w) = (counted(&[1, 1, 8, 8], dtype), counted(&[1, 1, 3, 3], dtype));
        let out = x.conv2d(&w, None, &far(100_000, vec![1], Padding::Valid))?;
        let sum: usize = (0..9).map(|i| (i + 1) * (i / 3 * 8 + i % 3 + 1)).sum();
        assert_eq!(out.to_f64(), [tensor(&[sum as f64], dtype).item()?]);
        // Only the tap in the middle is inside.
        let out = x.conv2d(&w, None, &far(1, vec![100_000], Padding::Same))?;
        assert_eq!(out.to_f64(), x.mul(&tensor(&[5.0], dtype))?.to_f64());
        // Of three outputs along each axis, the one in the middle reads a pixel.
        let (x, w) = (x.requires_grad(), counted(&[1, 1, 1, 1], dtype).requires_grad());
        let out = x.conv2d(&w, None, &far(5000, vec![1], Padding::all(5000)))?;
        assert_eq!(out.to_f64(), [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
        let grads = out.backward_from(&counted(&[1, 1, 3, 3], dtype))?;
        let of_x = grads.of(&x).unwrap().to_f64();
        assert!(of_x[0] == 5.0 && of_x[1..].iter().all(|&x| x == 0.0));
        assert_eq!(grads.of(&w).unwrap().to_f64(), [5.0]);
    }
    Ok(())
}
