//! Functions and losses at infinity, which f16 reaches from finite numbers, at the largest numbers and at -0: values
//! and slopes from closed forms.

use precast::{CrossEntropy, DType, Reduction, Result, Tensor};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;
const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::Bf16];
const NONE: Reduction = Reduction::None;

fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::Bf16 => half::bf16::MAX.into(),
        DType::F32 => f32::MAX.into(),
        _ => f64::MAX,
    }
}

/// Returns whether a number is the wanted one, rounded, within a few units in the last place, and with its sign if it
/// is 0.
fn same(got: f64, want: f64, dtype: DType) -> bool {
    let want = Tensor::from_f64(&[want], &[1], dtype).unwrap().item().unwrap();
    let least = if dtype == DType::F64 { f64::MIN_POSITIVE } else { f64::from(f32::MIN_POSITIVE) } * 1e-6;
    got.is_nan() && want.is_nan()
        || got == want && (got != 0.0 || got.is_sign_negative() == want.is_sign_negative())
        || want != 0.0 && (got - want).abs() <= 8.0 * dtype.epsilon() * want.abs() + least
}

type One = fn(&Tensor) -> Result<Tensor>;

/// A function, and its values and slopes at minus infinity, infinity, -m, m and -0, where m is the largest number; NaN
/// where undefined.
type Row = (&'static str, One, fn(f64) -> [[f64; 2]; 5]);

const HALF_PI: f64 = std::f64::consts::FRAC_PI_2;
const LN_2: f64 = std::f64::consts::LN_2;
const BELL: f64 = std::f64::consts::FRAC_2_SQRT_PI;
const SELU: [f64; 2] = [1.050_700_987_355_480_5, 1.050_700_987_355_480_5 * 1.673_263_242_354_377_2];
const NO: [f64; 2] = [NAN, NAN];

/// Returns the values and slopes of a linear unit with the given slope at 0.
const fn unit(m: f64, slope: f64) -> [[f64; 2]; 5] {
    [[-0.0, 0.0], [INF, 1.0], [-0.0, 0.0], [m, 1.0], [-0.0, slope]]
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("relu", |x| x.relu(), |m| [[0.0, 0.0], [INF, 1.0], [0.0, 0.0], [m, 1.0], [-0.0, 0.0]]),
    ("relu6", |x| x.relu6(), |_| [[0.0, 0.0], [6.0, 0.0], [0.0, 0.0], [6.0, 0.0], [-0.0, 0.0]]),
    ("leaky_relu", |x| x.leaky_relu(0.125), |m| [[-INF, 0.125], [INF, 1.0], [-m / 8.0, 0.125], [m, 1.0], [-0.0, 0.125]]),
    ("leaky_relu of 0", |x| x.leaky_relu(0.0), |m| unit(m, 0.0)),
    ("elu", |x| x.elu(0.5), |m| [[-0.5, 0.0], [INF, 1.0], [-0.5, 0.0], [m, 1.0], [-0.0, 0.5]]),
    ("celu", |x| x.celu(2.0), |m| [[-2.0, 0.0], [INF, 1.0], [-2.0, 0.0], [m, 1.0], [-0.0, 1.0]]),
    ("selu", |x| x.selu(), |m| [[-SELU[1], 0.0], [INF, SELU[0]], [-SELU[1], 0.0], [SELU[0] * m, SELU[0]], [-0.0, SELU[1]]]),
    ("gelu", |x| x.gelu(), |m| unit(m, 0.5)),
    ("gelu_tanh", |x| x.gelu_tanh(), |m| unit(m, 0.5)),
    ("silu", |x| x.silu(), |m| unit(m, 0.5)),
    ("mish", |x| x.mish(), |m| unit(m, 0.6)),
    ("hard_swish", |x| x.hard_swish(), |m| unit(m, 0.5)),
    ("sigmoid", |x| x.sigmoid(), |_| [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.5, 0.25]]),
    ("tanh", |x| x.tanh(), |_| [[-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [-0.0, 1.0]]),
    ("softplus", |x| x.softplus(), |m| [[0.0, 0.0], [INF, 1.0], [0.0, 0.0], [m, 1.0], [LN_2, 0.5]]),
    ("log_sigmoid", |x| x.log_sigmoid(), |m| [[-INF, 1.0], [-0.0, 0.0], [-m, 1.0], [-0.0, 0.0], [-LN_2, 0.5]]),
    ("hard_sigmoid", |x| x.hard_sigmoid(), |_| [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.5, 1.0 / 6.0]]),
    ("hard_tanh", |x| x.hard_tanh(), |_| [[-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [-0.0, 1.0]]),
    ("softsign", |x| x.softsign(), |m| {
        let (value, slope) = (m / (1.0 + m), 1.0 / (1.0 + m) / (1.0 + m));
        [[-1.0, 0.0], [1.0, 0.0], [-value, slope], [value, slope], [-0.0, 1.0]]
    }),
    ("tanh_shrink", |x| x.tanh_shrink(), |m| [[-INF, 1.0], [INF, 1.0], [1.0 - m, 1.0], [m - 1.0, 1.0], [-0.0, 0.0]]),
    ("softshrink", |x| x.softshrink(0.5), |m| [[-INF, 1.0], [INF, 1.0], [0.5 - m, 1.0], [m - 0.5, 1.0], [0.0, 0.0]]),
    ("exp", |x| x.exp(), |_| [[0.0, 0.0], [INF, INF], [0.0, 0.0], [INF, INF], [1.0, 1.0]]),
    ("expm1", |x| x.expm1(), |_| [[-1.0, 0.0], [INF, INF], [-1.0, 0.0], [INF, INF], [-0.0, 1.0]]),
    ("log", |x| x.log(), |m| [NO, [INF, 0.0], NO, [m.ln(), 1.0 / m], NO]),
    ("log2", |x| x.log2(), |m| [NO, [INF, 0.0], NO, [m.log2(), 1.0 / LN_2 / m], NO]),
    ("log10", |x| x.log10(), |m| [NO, [INF, 0.0], NO, [m.log10(), std::f64::consts::LOG10_E / m], NO]),
    ("log1p", |x| x.log1p(), |m| [NO, [INF, 0.0], NO, [m.ln_1p(), 1.0 / (m + 1.0)], [-0.0, 1.0]]),
    ("sqrt", |x| x.sqrt(), |m| [NO, [INF, 0.0], NO, [m.sqrt(), 0.5 / m.sqrt()], NO]),
    ("rsqrt", |x| x.rsqrt(), |m| [NO, [0.0, -0.0], NO, [1.0 / m.sqrt(), -0.5 / m / m.sqrt()], [-INF, -INF]]),
    ("reciprocal", |x| x.reciprocal(), |m| {
        let slope = -1.0 / m / m;
        [[-0.0, -0.0], [0.0, -0.0], [-1.0 / m, slope], [1.0 / m, slope], [-INF, -INF]]
    }),
    ("square", |x| x.square(), |m| [[INF, -INF], [INF, INF], [m * m, -2.0 * m], [m * m, 2.0 * m], [0.0, -0.0]]),
    ("powf 2", |x| x.powf(2.0), |m| [[INF, -INF], [INF, INF], [m * m, -2.0 * m], [m * m, 2.0 * m], [0.0, -0.0]]),
    ("powf 1/2", |x| x.powf(0.5), |m| [NO, [INF, 0.0], NO, [m.sqrt(), 0.5 / m.sqrt()], NO]),
    ("powf 0", |x| x.powf(0.0), |_| [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]),
    ("abs", |x| x.abs(), |m| [[INF, -1.0], [INF, 1.0], [m, -1.0], [m, 1.0], [0.0, -0.0]]),
    ("neg", |x| x.neg(), |m| [[INF, -1.0], [-INF, -1.0], [m, -1.0], [-m, -1.0], [0.0, -1.0]]),
    ("sign", |x| x.sign(), |_| [[-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [-0.0, 0.0]]),
    ("floor", |x| x.floor(), |m| [[-INF, 0.0], [INF, 0.0], [-m, 0.0], [m, 0.0], [-0.0, 0.0]]),
    ("ceil", |x| x.ceil(), |m| [[-INF, 0.0], [INF, 0.0], [-m, 0.0], [m, 0.0], [-0.0, 0.0]]),
    ("trunc", |x| x.trunc(), |m| [[-INF, 0.0], [INF, 0.0], [-m, 0.0], [m, 0.0], [-0.0, 0.0]]),
    ("round", |x| x.round(), |m| [[-INF, 0.0], [INF, 0.0], [-m, 0.0], [m, 0.0], [-0.0, 0.0]]),
    ("clamp", |x| x.clamp(-1.0, INF), |m| [[-1.0, 0.0], [INF, 1.0], [-1.0, 0.0], [m, 1.0], [-0.0, 1.0]]),
    ("sin", |x| x.sin(), |_| [NO, NO, NO, NO, [-0.0, 1.0]]),
    ("cos", |x| x.cos(), |_| [NO, NO, NO, NO, [1.0, 0.0]]),
    ("tan", |x| x.tan(), |_| [NO, NO, NO, NO, [-0.0, 1.0]]),
    ("asin", |x| x.asin(), |_| [NO, NO, NO, NO, [-0.0, 1.0]]),
    ("acos", |x| x.acos(), |_| [NO, NO, NO, NO, [HALF_PI, -1.0]]),
    ("atan", |x| x.atan(), |m| {
        let slope = 1.0 / (1.0 + m * m);
        [[-HALF_PI, 0.0], [HALF_PI, 0.0], [-m.atan(), slope], [m.atan(), slope], [-0.0, 1.0]]
    }),
    ("sinh", |x| x.sinh(), |_| [[-INF, INF], [INF, INF], [-INF, INF], [INF, INF], [-0.0, 1.0]]),
    ("cosh", |x| x.cosh(), |_| [[INF, -INF], [INF, INF], [INF, -INF], [INF, INF], [1.0, -0.0]]),
    ("asinh", |x| x.asinh(), |m| {
        let value = m.ln() + LN_2;
        [[-INF, 0.0], [INF, 0.0], [-value, 1.0 / m], [value, 1.0 / m], [-0.0, 1.0]]
    }),
    ("acosh", |x| x.acosh(), |m| [NO, [INF, 0.0], NO, [m.ln() + LN_2, 1.0 / m], NO]),
    ("atanh", |x| x.atanh(), |_| [NO, NO, NO, NO, [-0.0, 1.0]]),
    ("erf", |x| x.erf(), |_| [[-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [-0.0, BELL]]),
    ("erfc", |x| x.erfc(), |_| [[2.0, -0.0], [0.0, -0.0], [2.0, -0.0], [0.0, -0.0], [1.0, -BELL]]),
    ("erfinv", |x| x.erfinv(), |_| [NO, NO, NO, NO, [-0.0, 1.0 / BELL]]),
];

/// Returns values and slopes of a function at these numbers, repeated often enough to use vectors.
fn met(f: One, points: &[f64], dtype: DType) -> [Vec<f64>; 2] {
    let long = points.repeat(20);
    let x = Tensor::from_f64(&long, &[long.len()], dtype).unwrap().requires_grad();
    let y = f(&x).unwrap();
    [y.to_f64(), y.backward_from(&Tensor::ones(y.shape(), dtype)).unwrap().of(&x).unwrap().to_f64()]
}

#[test]
fn functions_of_one_number_have_their_limits() {
    for dtype in FLOATS {
        let m = largest(dtype);
        let points = [-INF, INF, -m, m, -0.0];
        for (name, f, want) in ROWS {
            let [values, slopes] = met(*f, &points, dtype);
            for (i, (value, slope)) in values.into_iter().zip(slopes).enumerate() {
                let (point, want) = (points[i % points.len()], want(m)[i % points.len()]);
                if want[0].is_nan() {
                    continue;
                }
                assert!(same(value, want[0], dtype), "{name}({point}) in {dtype} is {value}, right {}", want[0]);
                assert!(
                    same(slope, want[1], dtype),
                    "slope of {name} at {point} in {dtype} is {slope}, right {}",
                    want[1]
                );
            }
            let [values, _] = met(*f, &[NAN], dtype);
            assert!(*name == "powf 0" || values.iter().all(|value| value.is_nan()), "{name}(NaN) in {dtype}");
        }
    }
}

/// Each unary function of the catalogue is in the table above, or has no limits.
#[test]
fn the_table_of_limits_is_complete() {
    let others = ["cast", "dropout", "pow", "is_finite", "logical_not", "cumsum"];
    let x = Tensor::ones(&[2, 2], DType::F32);
    for op in precast::Op::ALL.iter().filter(|op| op.has_kernel()) {
        let Ok(y) = precast::run(*op, &[&x]) else { continue };
        let name = op.name().to_lowercase().replace('_', "");
        let listed = ROWS.iter().any(|(row, ..)| row.split(' ').next().unwrap().replace('_', "") == name);
        let elementwise = y.shape() == x.shape() && y.dtype() == DType::F32;
        assert!(listed || !elementwise || others.contains(&op.name().to_lowercase().as_str()), "{op} is in no row");
    }
}

type Two = fn(&Tensor, &Tensor) -> Result<Tensor>;

/// A binary function, its inputs, its value, and its slopes.
type Pair = (&'static str, Two, [f64; 2], f64, [f64; 2]);

#[test]
fn functions_and_losses_of_two_numbers_have_their_limits() {
    #[rustfmt::skip]
    let rows: &[Pair] = &[
        ("bce_with_logits", |x, t| x.bce_with_logits(t, NONE), [-INF, 0.0], 0.0, [0.0, INF]),
        ("bce_with_logits", |x, t| x.bce_with_logits(t, NONE), [INF, 1.0], 0.0, [0.0, -INF]),
        ("bce_with_logits", |x, t| x.bce_with_logits(t, NONE), [-INF, 1.0], INF, [-1.0, INF]),
        ("bce_with_logits", |x, t| x.bce_with_logits(t, NONE), [INF, 0.0], INF, [1.0, -INF]),
        ("bce_with_logits", |x, t| x.bce_with_logits(t, NONE), [INF, 0.25], INF, [0.75, -INF]),
        ("bce_with_logits", |x, t| x.bce_with_logits(t, NONE), [-INF, 0.25], INF, [-0.25, INF]),
        ("soft_margin_loss", |x, t| x.soft_margin_loss(t, NONE), [INF, 1.0], 0.0, [-0.0, -0.0]),
        ("soft_margin_loss", |x, t| x.soft_margin_loss(t, NONE), [-INF, -1.0], 0.0, [0.0, 0.0]),
        ("soft_margin_loss", |x, t| x.soft_margin_loss(t, NONE), [-INF, 1.0], INF, [-1.0, INF]),
        ("kl_div", |x, t| x.kl_div(t, NONE), [-INF, 0.0], 0.0, [-0.0, 0.0]),
        ("kl_div", |x, t| x.kl_div(t, NONE), [-INF, 0.5], INF, [-0.5, INF]),
        ("poisson_nll_loss of a logarithm", |x, t| x.poisson_nll_loss(t, true, NONE), [-INF, 0.0], 0.0, [0.0, INF]),
        ("poisson_nll_loss of a logarithm", |x, t| x.poisson_nll_loss(t, true, NONE), [-INF, 2.0], INF, [-2.0, INF]),
        ("poisson_nll_loss of a logarithm", |x, t| x.poisson_nll_loss(t, true, NONE), [INF, 2.0], INF, [INF, -INF]),
        ("poisson_nll_loss", |x, t| x.poisson_nll_loss(t, false, NONE), [INF, 2.0], INF, [1.0, -INF]),
        ("poisson_nll_loss", |x, t| x.poisson_nll_loss(t, false, NONE), [INF, 0.0], INF, [1.0, -INF]),
        ("mse_loss", |x, t| x.mse_loss(t, NONE), [INF, INF], 0.0, [0.0, 0.0]),
        ("mse_loss", |x, t| x.mse_loss(t, NONE), [INF, 1.0], INF, [INF, -INF]),
        ("l1_loss", |x, t| x.l1_loss(t, NONE), [-INF, -INF], 0.0, [0.0, 0.0]),
        ("l1_loss", |x, t| x.l1_loss(t, NONE), [-INF, 1.0], INF, [-1.0, 1.0]),
        ("smooth_l1_loss", |x, t| x.smooth_l1_loss(t, 1.0, NONE), [INF, INF], 0.0, [0.0, -0.0]),
        ("smooth_l1_loss", |x, t| x.smooth_l1_loss(t, 1.0, NONE), [INF, 1.0], INF, [1.0, -1.0]),
        ("huber_loss", |x, t| x.huber_loss(t, 2.0, NONE), [-INF, -INF], 0.0, [0.0, -0.0]),
        ("huber_loss", |x, t| x.huber_loss(t, 2.0, NONE), [-INF, 1.0], INF, [-2.0, 2.0]),
        ("hinge_embedding_loss", |x, t| x.hinge_embedding_loss(t, 1.0, NONE), [INF, -1.0], 0.0, [0.0, 0.0]),
        ("hinge_embedding_loss", |x, t| x.hinge_embedding_loss(t, 1.0, NONE), [-INF, -1.0], INF, [-1.0, 0.0]),
        ("multilabel_soft_margin_loss", |x, t| x.multilabel_soft_margin_loss(t, NONE), [-INF, 1.0], INF, [-1.0, INF]),
        ("margin_ranking_loss", |a, b| a.margin_ranking_loss(b, &Tensor::ones(&[1], a.dtype()), 0.0, NONE), [INF, 1.0], 0.0, [0.0, 0.0]),
        ("margin_ranking_loss", |a, b| a.margin_ranking_loss(b, &Tensor::ones(&[1], a.dtype()), 0.0, NONE), [-INF, 1.0], INF, [-1.0, 1.0]),
        ("gaussian_nll_loss", |x, t| x.gaussian_nll_loss(t, &Tensor::ones(&[1], x.dtype()), 1e-6, NONE), [INF, 1.0], INF, [INF, -INF]),
        ("hypot", |a, b| a.hypot(b), [-INF, 1.0], INF, [-1.0, 0.0]),
        ("hypot", |a, b| a.hypot(b), [1.0, INF], INF, [0.0, 1.0]),
        ("atan2", |a, b| a.atan2(b), [INF, 1.0], HALF_PI, [0.0, 0.0]),
        ("atan2", |a, b| a.atan2(b), [1.0, INF], 0.0, [0.0, 0.0]),
        ("atan2", |a, b| a.atan2(b), [INF, INF], HALF_PI / 2.0, [0.0, 0.0]),
        ("pow", |a, b| a.pow(b), [0.5, INF], 0.0, [0.0, -0.0]),
        ("pow", |a, b| a.pow(b), [INF, -1.0], 0.0, [-0.0, 0.0]),
        ("pow", |a, b| a.pow(b), [2.0, -INF], 0.0, [-0.0, 0.0]),
        ("pow", |a, b| a.pow(b), [INF, 2.0], INF, [INF, INF]),
        ("div", |a, b| a.div(b), [1.0, INF], 0.0, [0.0, -0.0]),
        ("div", |a, b| a.div(b), [INF, 2.0], INF, [0.5, -INF]),
        ("maximum", |a, b| a.maximum(b), [INF, 1.0], INF, [1.0, 0.0]),
        ("minimum", |a, b| a.minimum(b), [-INF, 1.0], -INF, [1.0, 0.0]),
        ("fmod", |a, b| a.fmod(b), [1.0, INF], 1.0, [1.0, -0.0]),
        ("remainder", |a, b| a.remainder(b), [1.0, INF], 1.0, [1.0, -0.0]),
        ("remainder", |a, b| a.remainder(b), [-1.0, INF], INF, [1.0, 1.0]),
        ("remainder", |a, b| a.remainder(b), [-1e-4, 1e4], 1e4 - 1e-4, [1.0, 1.0]),
        ("lerp", |a, b| a.lerp(b, 0.25), [INF, 1.0], INF, [0.75, 0.25]),
        ("lerp", |a, b| a.lerp(b, 0.75), [1.0, -INF], -INF, [0.25, 0.75]),
        ("lerp", |a, b| a.lerp(b, 0.25), [INF, INF], INF, [0.75, 0.25]),
        ("lerp", |a, b| a.lerp(b, 0.0), [1.0, INF], 1.0, [1.0, 0.0]),
    ];
    for dtype in FLOATS {
        for (name, f, point, value, slopes) in rows {
            let [a, b] = point.map(|x| Tensor::from_f64(&[x], &[1], dtype).unwrap().requires_grad());
            let y = f(&a, &b).unwrap();
            assert!(
                same(y.item().unwrap() + 0.0, value + 0.0, dtype),
                "{name}{point:?} in {dtype} is {y:?}, right {value}"
            );
            let grads = y.sum_all().unwrap().backward().unwrap();
            for (x, want) in [a, b].iter().zip(slopes) {
                // The sign of a zero slope does not matter.
                let got = grads.of(x).map_or(0.0, |grad| grad.item().unwrap());
                let right = same(got, *want, dtype) || got == *want;
                assert!(right, "slopes of {name}{point:?} in {dtype}: {got}, right {want}");
            }
        }
    }
}

#[test]
fn losses_of_rows_have_their_limits() -> Result<()> {
    for dtype in FLOATS {
        let scores = |x: &[f64]| Tensor::from_f64(x, &[1, x.len()], dtype).unwrap().requires_grad();
        let class = |c: i64| Tensor::from_vec(vec![c], &[1]).unwrap();
        let loss = |x: &Tensor, y: Tensor| (y.item().unwrap(), y.backward().unwrap().of(x).unwrap().to_f64());
        // An infinite score of the right class costs nothing, that of a wrong one everything.
        let x = scores(&[0.0, INF, 1.0]);
        assert_eq!(loss(&x, x.cross_entropy(&class(1))?), (0.0, vec![0.0; 3]), "{dtype}");
        assert_eq!(loss(&x, x.cross_entropy(&class(0))?), (INF, vec![-1.0, 1.0, 0.0]), "{dtype}");
        let soft = Tensor::from_f64(&[0.0, 1.0, 0.0], &[1, 3], dtype)?;
        assert_eq!(loss(&x, x.cross_entropy(&soft)?), (0.0, vec![0.0; 3]), "{dtype}");
        let weights = CrossEntropy::default().label_smoothing(0.3);
        assert_eq!(x.cross_entropy_with(&class(1), &weights)?.item()?, INF, "{dtype}");
        // Two of them have no answer.
        let two = scores(&[INF, INF, 0.0]);
        assert!(two.cross_entropy(&class(0))?.item()?.is_nan(), "{dtype}");
        let x = scores(&[-INF, 0.0]);
        assert_eq!(loss(&x, x.cross_entropy(&class(1))?), (0.0, vec![0.0; 2]), "{dtype}");
        assert_eq!(loss(&x, x.cross_entropy(&class(0))?), (INF, vec![-1.0, 1.0]), "{dtype}");

        for p in [1, 2] {
            let x = scores(&[0.0, INF, 1.0]);
            assert_eq!(
                loss(&x, x.multi_margin_loss(&class(1), p, 1.0, NONE)?.sum_all()?),
                (0.0, vec![0.0; 3]),
                "{dtype}"
            );
        }
        let x = scores(&[INF, INF, 0.0]);
        let right = Tensor::from_vec(vec![0i64, 1, -1], &[1, 3])?;
        assert_eq!(loss(&x, x.multilabel_margin_loss(&right, NONE)?.sum_all()?), (0.0, vec![0.0; 3]), "{dtype}");
        let x = scores(&[INF, -INF, 0.0]);
        let targets = Tensor::from_f64(&[1.0, 0.0, 1.0], &[1, 3], dtype)?;
        let (value, slopes) = loss(&x, x.multilabel_soft_margin_loss(&targets, NONE)?.sum_all()?);
        assert!(same(value, LN_2 / 3.0, dtype) && same(slopes[2], -0.5 / 3.0, dtype), "{dtype}: {value} {slopes:?}");
        assert_eq!(slopes[..2], [0.0, 0.0], "{dtype}");
    }
    Ok(())
}

#[test]
fn second_derivatives_vanish_at_infinity() -> Result<()> {
    let functions: [One; 4] = [Tensor::silu, Tensor::gelu, Tensor::gelu_tanh, Tensor::mish];
    for f in functions {
        let x = Tensor::from_vec(vec![-INF, INF], &[2])?.requires_grad();
        let slopes = precast::twice_differentiable(|| f(&x)?.sum_all()?.gradients_on_tape(&[&x]))?;
        let slopes = slopes[0].clone().unwrap();
        assert_eq!(slopes.to_f64(), [0.0, 1.0]);
        assert_eq!(slopes.sum_all()?.backward()?.of(&x).unwrap().to_f64(), [0.0, 0.0]);
    }
    Ok(())
}

/// Two infinite terms, of which one outgrows the other; and no part of an infinite number.
#[test]
fn limits_of_a_learned_slope_and_of_a_rate() -> Result<()> {
    for dtype in [DType::F16, DType::F32] {
        let x = Tensor::from_f64(&[-INF, 2.0], &[1, 2], dtype)?.requires_grad();
        let y = x.prelu(&Tensor::zeros(&[1], dtype))?;
        assert_eq!(y.to_f64(), [0.0, 2.0], "{dtype}");
    }
    let (x, t) = (Tensor::scalar(3e38, DType::F32), Tensor::scalar(2.5, DType::F32));
    assert_eq!(x.poisson_nll_loss(&t, true, Reduction::None)?.item()?, INF);
    Ok(())
}
