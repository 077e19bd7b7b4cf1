//! Gradients where a formula divides 0 by 0 or overflows on the way, though the op has a value: those of torch 2.15 (in
//! f64; in f32 for points too far out), or a finite number where torch has none, as documented in COMPARE.md.

use precast::{DType, Reduction, Result, Tensor};

type Call = fn(&[Tensor]) -> Result<Tensor>;

/// Description, input vectors, op, and the gradient of each input.
type Case<'a> = (&'a str, &'a [&'a [f64]], Call, &'a [&'a [f64]]);

/// Returns the gradients of the sum of an op's output.
fn gradients(name: &str, dtype: DType, inputs: &[&[f64]], f: Call) -> Vec<Vec<f64>> {
    let leaf = |x: &&[f64]| Tensor::from_vec(x.to_vec(), &[x.len()]).unwrap().cast(dtype).requires_grad();
    let leaves: Vec<Tensor> = inputs.iter().map(leaf).collect();
    let y = f(&leaves).unwrap_or_else(|e| panic!("{name}: {e}"));
    let grads = y.sum_all().unwrap().backward().unwrap();
    leaves.iter().map(|x| grads.of(x).map_or(vec![], |grad| grad.to_f64())).collect()
}

#[track_caller]
fn hold(name: &str, dtype: DType, got: &[Vec<f64>], want: &[&[f64]]) {
    assert_eq!(got.len(), want.len(), "{name} {dtype}");
    for (got, want) in got.iter().zip(want) {
        assert_eq!(got.len(), want.len(), "{name} {dtype}");
        for (g, w) in got.iter().zip(*want) {
            // 16-bit inputs are themselves rounded.
            let bound = 4.0 * dtype.epsilon() * w.abs();
            let same = g.is_nan() && w.is_nan() || g == w || (g - w).abs() <= bound;
            assert!(same, "{name} {dtype}: {got:?} instead of {want:?}");
        }
    }
}

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

#[test]
fn gradients_at_legal_points_are_torchs() {
    let zeros: &[f64] = &[0.0; 3];
    let cases: &[Case] = &[
        ("std of a constant", &[&[2.0, 2.0, 2.0]], |x| x[0].std(&[], 0, false), &[zeros]),
        ("unbiased std of a constant", &[&[2.0, 2.0, 2.0]], |x| x[0].std(&[], 1, false), &[zeros]),
        ("unbiased std of one", &[&[2.0]], |x| x[0].std(&[], 1, false), &[&[NAN]]),
        ("var of a constant", &[&[2.0, 2.0]], |x| x[0].var(&[], 1, false), &[&[0.0, 0.0]]),
        ("unbiased var of one", &[&[2.0]], |x| x[0].var(&[], 1, false), &[&[NAN]]),
        ("1-norm of 0", &[zeros], |x| x[0].norm(1.0, &[], false), &[zeros]),
        ("2-norm of 0", &[zeros], |x| x[0].norm(2.0, &[], false), &[zeros]),
        ("3-norm of 0", &[zeros], |x| x[0].norm(3.0, &[], false), &[zeros]),
        ("1.5-norm of 0", &[zeros], |x| x[0].norm(1.5, &[], false), &[zeros]),
        ("0.5-norm of 0", &[zeros], |x| x[0].norm(0.5, &[], false), &[zeros]),
        ("largest of 0", &[zeros], |x| x[0].norm(INF, &[], false), &[zeros]),
        (
            "1.5-norm",
            &[&[0.0, 3.0, 4.0]],
            |x| x[0].norm(1.5, &[], false),
            &[&[0.0, 0.7329564758289748, 0.8463452372482761]],
        ),
        (
            "0.5-norm",
            &[&[0.0, 3.0, 4.0]],
            |x| x[0].norm(0.5, &[], false),
            &[&[0.0, 2.154700538379252, 1.8660254037844386]],
        ),
        ("0 to the 0", &[&[0.0], &[0.0]], |x| x[0].pow(&x[1]), &[&[0.0], &[0.0]]),
        ("0 squared", &[&[0.0], &[2.0]], |x| x[0].pow(&x[1]), &[&[0.0], &[0.0]]),
        ("0 to the 1", &[&[0.0], &[1.0]], |x| x[0].pow(&x[1]), &[&[1.0], &[0.0]]),
        ("0 to the 1/2", &[&[0.0], &[0.5]], |x| x[0].pow(&x[1]), &[&[INF], &[0.0]]),
        ("0 to the -1", &[&[0.0], &[-1.0]], |x| x[0].pow(&x[1]), &[&[-INF], &[-INF]]),
        ("-2 squared", &[&[-2.0], &[2.0]], |x| x[0].pow(&x[1]), &[&[-4.0], &[NAN]]),
        ("0 to a number 0", &[&[0.0]], |x| x[0].powf(0.0), &[&[0.0]]),
        ("0 to a number 1", &[&[0.0]], |x| x[0].powf(1.0), &[&[1.0]]),
        ("0 to a number 1/2", &[&[0.0]], |x| x[0].powf(0.5), &[&[INF]]),
        ("cosine of 0 and 0", &[zeros, zeros], |x| x[0].cosine_similarity(&x[1], 0, 1e-8), &[zeros, zeros]),
        ("product with one 0", &[&[0.0, 2.0, 3.0]], |x| x[0].prod(&[], false), &[&[6.0, 0.0, 0.0]]),
        ("product with two 0", &[&[0.0, 0.0, 3.0]], |x| x[0].prod(&[], false), &[zeros]),
        ("running product", &[&[2.0, 0.0, 3.0, 0.0]], |x| x[0].cumprod(0), &[&[1.0, 8.0, 0.0, 0.0]]),
        ("1-distance of equal points", &[&[1.0, 2.0], &[1.0, 2.0]], |x| distances(x, 1.0), &[&[0.0; 2], &[0.0; 2]]),
        ("distance of equal points", &[&[1.0, 2.0], &[1.0, 2.0]], |x| distances(x, 2.0), &[&[0.0; 2], &[0.0; 2]]),
        ("3-distance of equal points", &[&[1.0, 2.0], &[1.0, 2.0]], |x| distances(x, 3.0), &[&[0.0; 2], &[0.0; 2]]),
        ("largest distance", &[&[1.0, 2.0], &[1.0, 2.0]], |x| distances(x, INF), &[&[0.0; 2], &[0.0; 2]]),
        ("pdist", &[&[1.0, 2.0, 1.0, 2.0]], |x| x[0].reshape(&[2, 2])?.pdist(2.0), &[&[0.0; 4]]),
        ("dist", &[&[1.0, 2.0], &[1.0, 2.0]], |x| x[0].dist(&x[1], 2.0), &[&[0.0; 2], &[0.0; 2]]),
        ("logsumexp with -inf", &[&[-INF, 1.0]], |x| x[0].logsumexp(&[0], false), &[&[0.0, 1.0]]),
        ("logsumexp of -inf", &[&[-INF, -INF]], |x| x[0].logsumexp(&[0], false), &[&[NAN, NAN]]),
        ("softmax with -inf", &[&[-INF, 1.0]], |x| x[0].softmax(0)?.slice(0, 1..2), &[&[0.0, 0.0]]),
        ("log_softmax with -inf", &[&[-INF, 1.0]], |x| x[0].log_softmax(0)?.slice(0, 1..2), &[&[0.0, 0.0]]),
        ("sqrt of 0", &[&[0.0]], |x| x[0].sqrt(), &[&[INF]]),
        ("abs of 0", &[&[0.0]], |x| x[0].abs(), &[&[0.0]]),
        ("atan2 of the origin", &[&[0.0], &[0.0]], |x| x[0].atan2(&x[1]), &[&[0.0], &[0.0]]),
        ("asin", &[&[1.0, -1.0]], |x| x[0].asin(), &[&[INF, INF]]),
        ("acos", &[&[1.0, -1.0]], |x| x[0].acos(), &[&[-INF, -INF]]),
        ("acosh", &[&[1.0]], |x| x[0].acosh(), &[&[INF]]),
        ("atanh", &[&[1.0, -1.0]], |x| x[0].atanh(), &[&[INF, INF]]),
        ("erfinv", &[&[1.0, -1.0]], |x| x[0].erfinv(), &[&[INF, INF]]),
        ("softplus", &[&[800.0, -800.0]], |x| x[0].softplus(), &[&[1.0, 0.0]]),
        ("log_sigmoid", &[&[800.0, -800.0]], |x| x[0].log_sigmoid(), &[&[0.0, 1.0]]),
        ("mish", &[&[800.0, -800.0]], |x| x[0].mish(), &[&[1.0, 0.0]]),
        ("silu", &[&[800.0, -800.0]], |x| x[0].silu(), &[&[1.0, 0.0]]),
        ("gelu", &[&[800.0, -800.0]], |x| x[0].gelu(), &[&[1.0, 0.0]]),
        ("gelu_tanh", &[&[800.0, -800.0]], |x| x[0].gelu_tanh(), &[&[1.0, 0.0]]),
        ("elu", &[&[800.0, -800.0]], |x| x[0].elu(1.0), &[&[1.0, 0.0]]),
        ("celu", &[&[800.0, -800.0]], |x| x[0].celu(1.0), &[&[1.0, 0.0]]),
        ("tanh_shrink", &[&[800.0, -800.0]], |x| x[0].tanh_shrink(), &[&[1.0, 1.0]]),
        ("sigmoid", &[&[800.0, -800.0]], |x| x[0].sigmoid(), &[&[0.0, 0.0]]),
        ("tanh", &[&[800.0, -800.0]], |x| x[0].tanh(), &[&[0.0, 0.0]]),
        ("layer_norm of a constant", &[&[2.0, 2.0, 2.0]], |x| x[0].layer_norm(&[3], None, None, 1e-5), &[zeros]),
        ("rms_norm of 0", &[zeros], |x| x[0].rms_norm(None, 1e-5), &[&[316.2277660168379; 3]]),
        ("ties", &[&[1.0, 1.0]], |x| x[0].max(&[], false), &[&[0.5, 0.5]]),
        ("a tie", &[&[0.0], &[0.0]], |x| x[0].maximum(&x[1]), &[&[0.5], &[0.5]]),
        ("log1p of 0", &[&[0.0]], |x| x[0].log1p(), &[&[1.0]]),
        ("selu", &[&[800.0, -800.0]], |x| x[0].selu(), &[&[1.0507009873554805, 0.0]]),
        ("logsumexp of inf", &[&[INF, 1.0]], |x| x[0].logsumexp(&[0], false), &[&[NAN, 0.0]]),
        ("fmod by 0", &[&[1.0], &[0.0]], |x| x[0].fmod(&x[1]), &[&[1.0], &[-INF]]),
        (
            "bce with logits",
            &[&[800.0, 800.0]],
            |x| x[0].bce_with_logits(&tensor(&[1.0, 0.0], &x[0]), NONE),
            &[&[0.0, 1.0]],
        ),
        ("smooth_l1 of 0", &[&[0.0]], |x| x[0].smooth_l1_loss(&tensor(&[0.0], &x[0]), 0.0, NONE), &[&[0.0]]),
        ("huber of 0", &[&[0.0]], |x| x[0].huber_loss(&tensor(&[0.0], &x[0]), 1.0, NONE), &[&[0.0]]),
    ];
    for (name, inputs, f, want) in cases {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16] {
            hold(name, dtype, &gradients(name, dtype, inputs, *f), want);
        }
    }
}

/// Makes a tensor of numbers in the dtype of another.
fn tensor(x: &[f64], like: &Tensor) -> Tensor {
    Tensor::from_vec(x.to_vec(), &[x.len()]).unwrap().cast(like.dtype())
}

const NONE: Reduction = Reduction::None;

#[test]
fn large_gradients_of_small_lengths_are_torchs() {
    // Not in f16, where most of these are infinite.
    let cases: &[Case] = &[
        (
            "cosine of 0",
            &[&[0.0; 3], &[1.0, 2.0, 3.0]],
            |x| x[0].cosine_similarity(&x[1], 0, 1e-8),
            &[&[26726124.191242438, 53452248.382484876, 80178372.57372732], &[0.0; 3]],
        ),
        ("normalize of 0", &[&[0.0; 3]], |x| x[0].normalize(2.0, 0, 1e-12), &[&[1e12; 3]]),
        (
            "cosine_embedding_loss of 0",
            &[&[0.0, 0.0], &[1.0, 2.0]],
            |x| {
                let (a, b) = (x[0].unsqueeze(0)?, x[1].unsqueeze(0)?);
                a.cosine_embedding_loss(&b, &tensor(&[1.0], &a), 0.0, NONE)
            },
            &[&[-447213.595, -894427.191], &[0.0; 2]],
        ),
        (
            "renorm of a row of 0",
            &[&[0.0, 0.0, 3.0, 4.0]],
            |x| x[0].reshape(&[2, 2])?.renorm(2.0, 0, 1.0),
            &[&[1.0, 1.0, 0.03200000271999987, -0.023999995040000194]],
        ),
        (
            "binary_cross_entropy of 0 and 1",
            &[&[0.0, 1.0, 0.0, 1.0]],
            |x| x[0].binary_cross_entropy(&tensor(&[0.0, 1.0, 1.0, 0.0], &x[0]), NONE),
            &[&[0.0, 0.0, -1e12, 1e12]],
        ),
        (
            "poisson_nll_loss of 0",
            &[&[0.0]],
            |x| x[0].poisson_nll_loss(&tensor(&[1.0], &x[0]), false, NONE),
            &[&[-99999999.0]],
        ),
    ];
    for (name, inputs, f, want) in cases {
        for (got, want) in gradients(name, DType::F64, inputs, *f).iter().zip(*want) {
            for (g, w) in got.iter().zip(*want) {
                assert!((g - w).abs() <= 1e-8 * w.abs(), "{name}: {got:?} instead of {want:?}");
            }
        }
        for dtype in [DType::F32, DType::Bf16] {
            let got = gradients(name, dtype, inputs, *f);
            assert!(got.iter().flatten().all(|g| g.is_finite()), "{name} {dtype}: {got:?}");
        }
    }
}

/// Returns the distance of two points as an element of a matrix of distances.
fn distances(x: &[Tensor], p: f64) -> Result<Tensor> {
    x[0].unsqueeze(0)?.cdist(&x[1].unsqueeze(0)?, p)
}

#[test]
fn gradients_are_finite_where_squares_overflow_or_vanish() {
    // In f32 and bf16 the square of 1e30 is infinite and that of 1e-30 is 0. Values from torch, except for gelu_tanh
    // (NaN there) and atan2 (0 there).
    let cases: &[Case] = &[
        ("gelu_tanh", &[&[1e30, -1e30]], |x| x[0].gelu_tanh(), &[&[1.0, 0.0]]),
        ("gelu", &[&[1e30, -1e30]], |x| x[0].gelu(), &[&[1.0, 0.0]]),
        ("mish", &[&[1e30, -1e30]], |x| x[0].mish(), &[&[1.0, 0.0]]),
        ("silu", &[&[1e30, -1e30]], |x| x[0].silu(), &[&[1.0, 0.0]]),
        ("hard_swish", &[&[1e30, -1e30]], |x| x[0].hard_swish(), &[&[1.0, 0.0]]),
        ("0 / 1e-30", &[&[0.0], &[1e-30]], |x| x[0].div(&x[1]), &[&[1e30], &[0.0]]),
        ("1e30 / 1e30", &[&[1e30], &[1e30]], |x| x[0].div(&x[1]), &[&[1e-30], &[-1e-30]]),
        ("hypot", &[&[1e30], &[1e30]], |x| x[0].hypot(&x[1]), &[&[0.5f64.sqrt()], &[0.5f64.sqrt()]]),
        ("atan2", &[&[1e-30], &[1e-30]], |x| x[0].atan2(&x[1]), &[&[5e29], &[-5e29]]),
        ("asinh", &[&[1e30, -1e30]], |x| x[0].asinh(), &[&[1e-30, 1e-30]]),
        ("acosh", &[&[1e30]], |x| x[0].acosh(), &[&[1e-30]]),
        ("softsign", &[&[1e30]], |x| x[0].softsign(), &[&[0.0]]),
        ("logsumexp", &[&[1e30, -1e30]], |x| x[0].logsumexp(&[0], false), &[&[1.0, 0.0]]),
    ];
    for (name, inputs, f, want) in cases {
        for dtype in [DType::F32, DType::Bf16] {
            // The rounding of the inputs, once for each factor.
            let got = gradients(name, dtype, inputs, *f);
            for (got, want) in got.iter().zip(*want) {
                for (g, w) in got.iter().zip(*want) {
                    let bound = 8.0 * dtype.epsilon() * w.abs() + 1e-37;
                    assert!((g - w).abs() <= bound, "{name} {dtype}: {got:?} instead of {want:?}");
                }
            }
        }
    }
}

#[test]
fn a_constant_feature_does_not_spoil_a_step() -> Result<()> {
    let x = Tensor::from_vec(vec![1f32, 5., 2., 5., 6., 5.], &[3, 2])?.requires_grad();
    let y = x.std(&[0], 1, false)?.sum_all()?;
    let grad = y.backward()?.of(&x).unwrap().to_f64();
    // (x - mean) / (2 std) of 1, 2, 6 with the mean 3 and the variance 7.
    let slope = |deviation: f64| deviation / (2.0 * 7f64.sqrt());
    for (got, want) in grad.iter().zip([slope(-2.0), 0.0, slope(-1.0), 0.0, slope(3.0), 0.0]) {
        assert!((got - want).abs() < 1e-6, "{grad:?}");
    }
    Ok(())
}

#[test]
fn gradients_are_numbers_where_torch_has_none() {
    // At a corner the subgradient is 0.
    assert_eq!(gradients("hypot", DType::F32, &[&[0.0], &[0.0]], |x| x[0].hypot(&x[1])), [[0.0], [0.0]]);
    // t ln(t) counts as 0 where t is, and so does its slope.
    assert_eq!(gradients("kl_div", DType::F32, &[&[-1.0], &[0.0]], |x| x[0].kl_div(&x[1], NONE)), [[0.0], [0.0]]);
    // ln(1 + exp(800)) is 800, though exp(800) is infinite.
    let margin: Call = |x| x[0].soft_margin_loss(&tensor(&[1.0, -1.0], &x[0]), NONE);
    assert_eq!(gradients("soft_margin_loss", DType::F64, &[&[800.0, 800.0]], margin), [[0.0, 1.0]]);
    // A variance clamped to eps has no influence.
    let likelihood: Call = |x| x[0].gaussian_nll_loss(&tensor(&[1.0], &x[0]), &x[1], 1e-6, NONE);
    assert_eq!(gradients("gaussian_nll_loss", DType::F32, &[&[1.0], &[0.0]], likelihood), [[0.0], [0.0]]);
}

/// COMPARE.md, differences from torch in numbers: where an input is NaN.
#[test]
fn slopes_at_nan() {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16] {
        let check = |name: &str, inputs: &[&[f64]], f: Call, want: &[&[f64]]| {
            hold(name, dtype, &gradients(name, dtype, inputs, f), want);
        };
        for (name, f) in
            [("relu", (|x| x[0].relu()) as Call), ("abs", |x| x[0].abs()), ("clamp", |x| x[0].clamp(-1.0, 1.0))]
        {
            check(name, &[&[NAN, 0.5]], f, &[&[NAN, 1.0]]);
        }
        check("max", &[&[1.0, NAN, NAN]], |x| x[0].max(&[0], false), &[&[0.0, 0.5, 0.5]]);
        check("min", &[&[NAN, 1.0]], |x| x[0].min(&[0], false), &[&[1.0, 0.0]]);
        let pool: Call = |x| x[0].reshape(&[1, 1, 3])?.max_pool1d(3, 1);
        check("max_pool1d", &[&[1.0, NAN, NAN]], pool, &[&[0.0, 1.0, 0.0]]);
        check(
            "maximum",
            &[&[NAN, NAN, 1.0], &[1.0, NAN, NAN]],
            |x| x[0].maximum(&x[1]),
            &[&[0.5, 0.5, 0.5], &[0.5, 0.5, 0.5]],
        );
    }
}

/// COMPARE.md, differences from torch in numbers: slopes at infinity and at -0.
#[test]
fn slopes_at_the_ends_of_the_range() {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16] {
        hold("softsign", dtype, &gradients("softsign", dtype, &[&[INF, -INF]], |x| x[0].softsign()), &[&[0.0, 0.0]]);
        hold("rsqrt", dtype, &gradients("rsqrt", dtype, &[&[-0.0, 0.0]], |x| x[0].rsqrt()), &[&[-INF, -INF]]);
    }
}

/// As in torch 2.15: a gradient that overflowed on its way reaches no input on which the result does not depend.
#[test]
fn where_a_function_is_constant_no_gradient_passes() {
    // The points, and a flag for each number that gets the gradient.
    type Flat<'a> = (&'a str, &'a [&'a [f64]], Call, &'a [&'a [bool]]);
    let (y, n) = (true, false);
    let cases: &[Flat] = &[
        ("relu", &[&[-1.0, 0.0, 1.0]], |x| x[0].relu(), &[&[n, n, y]]),
        ("relu6", &[&[-1.0, 0.0, 3.0, 6.0, 7.0]], |x| x[0].relu6(), &[&[n, n, y, n, n]]),
        ("hard_tanh", &[&[-2.0, -1.0, 0.0, 1.0, 2.0]], |x| x[0].hard_tanh(), &[&[n, n, y, n, n]]),
        ("hard_sigmoid", &[&[-4.0, -3.0, 0.0, 3.0, 4.0]], |x| x[0].hard_sigmoid(), &[&[n, n, y, n, n]]),
        ("hard_swish", &[&[-4.0, -3.0, 0.0, 3.0, 4.0]], |x| x[0].hard_swish(), &[&[n, n, y, y, y]]),
        ("softshrink", &[&[-1.0, -0.5, 0.0, 0.5, 1.0]], |x| x[0].softshrink(0.5), &[&[y, n, n, n, y]]),
        ("clamp", &[&[-2.0, 0.0, 2.0]], |x| x[0].clamp(-1.0, 1.0), &[&[n, y, n]]),
        ("sign", &[&[1.5, 0.0]], |x| x[0].sign(), &[&[n, n]]),
        ("floor", &[&[1.5, 1.0]], |x| x[0].floor(), &[&[n, n]]),
        ("ceil", &[&[1.5, 1.0]], |x| x[0].ceil(), &[&[n, n]]),
        ("trunc", &[&[1.5, 1.0]], |x| x[0].trunc(), &[&[n, n]]),
        ("round", &[&[1.5, 1.0]], |x| x[0].round(), &[&[n, n]]),
        ("maximum", &[&[1.0, 2.0, 3.0], &[2.0, 2.0, 1.0]], |x| x[0].maximum(&x[1]), &[&[n, y, y], &[y, y, n]]),
        ("minimum", &[&[1.0, 2.0, 3.0], &[2.0, 2.0, 1.0]], |x| x[0].minimum(&x[1]), &[&[y, y, n], &[n, y, y]]),
        ("prelu", &[&[2.0, 1.0], &[0.5]], |x| x[0].prelu(&x[1]), &[&[y, y], &[n]]),
        (
            "hinge_embedding_loss",
            &[&[2.0, 0.5]],
            |x| x[0].hinge_embedding_loss(&Tensor::full(x[0].shape(), -1.0, x[0].dtype()), 1.0, NONE),
            &[&[n, y]],
        ),
        (
            "select",
            &[&[1.0, 2.0], &[1.0, 1.0]],
            |x| x[0].gt(&tensor(&[1.5], &x[0]))?.select(&x[0], &x[1]),
            &[&[n, y], &[y, n]],
        ),
        ("masked_fill", &[&[1.0, 2.0]], |x| x[0].masked_fill(&x[0].lt(&tensor(&[1.5], &x[0]))?, 0.0), &[&[n, y]]),
    ];
    for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16] {
        for (name, points, f, passes) in cases {
            // Long enough for vectors.
            let long = |point: &[f64]| if point.len() == 1 { point.to_vec() } else { point.repeat(20) };
            let leaf = |point: &&[f64]| {
                let point = long(point);
                Tensor::from_f64(&point, &[point.len()], dtype).unwrap().requires_grad()
            };
            let leaves: Vec<Tensor> = points.iter().map(leaf).collect();
            let result = f(&leaves).unwrap();
            for upstream in [INF, -INF, NAN] {
                let grads = result.backward_from(&Tensor::full(result.shape(), upstream, dtype)).unwrap();
                for (x, passes) in leaves.iter().zip(*passes) {
                    let grad = grads.of(x).unwrap().to_f64();
                    let right = |(grad, pass): (&f64, &bool)| if *pass { !grad.is_finite() } else { *grad == 0.0 };
                    let all = grad.iter().zip(passes.iter().cycle()).all(right);
                    assert!(all, "{name} {dtype}: {upstream} arrives as {grad:?}, wanted where {passes:?}");
                }
            }
        }
    }
}

#[test]
fn integers_have_no_backward_pass() {
    let x = Tensor::from_vec(vec![1i64, 2], &[2]).unwrap().requires_grad();
    for y in [x.clone(), x.reshape(&[2, 1]).unwrap()] {
        let error = y.backward_from(&Tensor::ones(y.shape(), DType::I64)).unwrap_err();
        assert_eq!(error.kind(), precast::ErrorKind::DType);
        assert!(error.to_string().contains("i64") && error.to_string().contains("floating"), "{error}");
    }
    assert!(Tensor::scalar(1.0, DType::I64).requires_grad().backward().is_err());
}
