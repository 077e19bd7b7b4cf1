//! Values of the elementwise ops: closed forms, tables, one rounding, NaN and infinity, and refusals.

use half::{bf16, f16};
use precast::{DType, ErrorKind, Result, Tensor, TensorElement};

type Unary = (&'static str, fn(&Tensor) -> Result<Tensor>);

const UNARY: &[Unary] = &[
    ("relu", |x| x.relu()),
    ("relu6", |x| x.relu6()),
    ("leaky_relu", |x| x.leaky_relu(0.01)),
    ("elu", |x| x.elu(1.0)),
    ("gelu", |x| x.gelu()),
    ("gelu_tanh", |x| x.gelu_tanh()),
    ("silu", |x| x.silu()),
    ("sigmoid", |x| x.sigmoid()),
    ("tanh", |x| x.tanh()),
    ("softplus", |x| x.softplus()),
    ("log_sigmoid", |x| x.log_sigmoid()),
    ("mish", |x| x.mish()),
    ("hard_sigmoid", |x| x.hard_sigmoid()),
    ("hard_swish", |x| x.hard_swish()),
    ("selu", |x| x.selu()),
    ("celu", |x| x.celu(0.7)),
    ("softsign", |x| x.softsign()),
    ("tanh_shrink", |x| x.tanh_shrink()),
    ("softshrink", |x| x.softshrink(0.5)),
    ("asinh", |x| x.asinh()),
    ("acosh", |x| x.acosh()),
    ("atanh", |x| x.atanh()),
    ("erfc", |x| x.erfc()),
    ("trunc", |x| x.trunc()),
    ("hard_tanh", |x| x.hard_tanh()),
    ("exp", |x| x.exp()),
    ("expm1", |x| x.expm1()),
    ("log", |x| x.log()),
    ("log2", |x| x.log2()),
    ("log10", |x| x.log10()),
    ("log1p", |x| x.log1p()),
    ("sqrt", |x| x.sqrt()),
    ("rsqrt", |x| x.rsqrt()),
    ("reciprocal", |x| x.reciprocal()),
    ("square", |x| x.square()),
    ("abs", |x| x.abs()),
    ("neg", |x| x.neg()),
    ("sign", |x| x.sign()),
    ("floor", |x| x.floor()),
    ("ceil", |x| x.ceil()),
    ("round", |x| x.round()),
    ("sin", |x| x.sin()),
    ("cos", |x| x.cos()),
    ("tan", |x| x.tan()),
    ("asin", |x| x.asin()),
    ("acos", |x| x.acos()),
    ("atan", |x| x.atan()),
    ("sinh", |x| x.sinh()),
    ("cosh", |x| x.cosh()),
    ("erf", |x| x.erf()),
    ("erfinv", |x| x.erfinv()),
    ("clamp", |x| x.clamp(-1.5, 2.5)),
    ("powf", |x| x.powf(1.5)),
];

fn of<T: TensorElement>(data: &[T]) -> Tensor {
    Tensor::from_vec(data.to_vec(), &[data.len()]).unwrap()
}

fn close(name: &str, got: &[f64], want: &[f64], relative: f64) {
    assert_eq!(got.len(), want.len(), "{name}");
    for (got, want) in got.iter().zip(want) {
        assert!((got - want).abs() <= relative * want.abs(), "{name}: {got:e} instead of {want:e}");
    }
}

/// Iterates over all patterns of 16 bits; only some of them under Miri, which would take hours.
fn patterns() -> impl Iterator<Item = u16> + Clone {
    (0..=u16::MAX).step_by(if cfg!(miri) { 301 } else { 1 })
}

#[test]
fn every_16_bit_input_gives_the_f32_result_rounded_once() {
    let bits = patterns();
    let inputs =
        [of(&bits.clone().map(f16::from_bits).collect::<Vec<_>>()), of(&bits.map(bf16::from_bits).collect::<Vec<_>>())];
    for (name, f) in UNARY {
        for x in &inputs {
            let low = f(x).unwrap();
            let full = f(&of(&x.to_f64().iter().map(|&x| x as f32).collect::<Vec<_>>())).unwrap().cast(x.dtype());
            assert_eq!(low.dtype(), x.dtype());
            for ((x, low), full) in x.to_f64().iter().zip(low.to_f64()).zip(full.to_f64()) {
                assert!(low.to_bits() == full.to_bits() || low.is_nan() && full.is_nan(), "{name}({x}): {low} {full}");
            }
        }
    }
}

#[test]
fn f16_results_are_the_exact_ones_but_for_a_last_bit() {
    // The formulas are the same in f64, but not their rounding errors: cancellation or overflow in f32 shows here.
    let all: Vec<f16> = patterns().map(f16::from_bits).collect();
    let (x, wide) = (of(&all), of(&all.iter().map(|x| x.to_f64()).collect::<Vec<_>>()));
    // The two zeros are neighbours, and so one apart.
    let order = |x: f16| if x.is_sign_negative() { -1 - ((x.to_bits() & 0x7fff) as i32) } else { x.to_bits() as i32 };
    for (name, f) in UNARY {
        let low: Vec<f16> = f(&x).unwrap().to_vec().unwrap();
        let exact: Vec<f16> = f(&wide).unwrap().cast(DType::F16).to_vec().unwrap();
        let mut differ = 0;
        for ((x, low), exact) in all.iter().zip(low).zip(exact) {
            let apart = if low.is_nan() && exact.is_nan() { 0 } else { (order(low) - order(exact)).abs() };
            let zeros = low == f16::ZERO && exact == f16::ZERO;
            assert!(apart <= i32::from(!zeros), "{name}({x}): {low} instead of {exact}");
            differ += apart;
        }
        assert!(differ <= 64, "{name}: {differ} of 65536 results are off by one");
    }
}

#[test]
fn known_values() {
    // Φ(1), Φ(2), Φ(-6) and erf(1/2) as tabled (Abramowitz and Stegun, 26.1 and 7.1).
    close(
        "gelu",
        &of(&[1f64, -1., 2.]).gelu().unwrap().to_f64(),
        &[0.8413447460685429, -0.1586552539314571, 1.954499736103642],
        1e-14,
    );
    close("gelu tail", &of(&[-6f32]).gelu().unwrap().to_f64(), &[-6.0 * 9.865876450376946e-10], 1e-5);
    close("erf", &of(&[0.5f64]).erf().unwrap().to_f64(), &[0.5204998778130465], 1e-14);
    // The quantiles of the standard normal at 0.75 and 0.975 (Abramowitz and Stegun, 26.5), over the square root of 2.
    let quantiles =
        [0.6744897501960817 * std::f64::consts::FRAC_1_SQRT_2, -1.959963984540054 * std::f64::consts::FRAC_1_SQRT_2];
    close("erfinv", &of(&[0.5f64, -0.95]).erfinv().unwrap().to_f64(), &quantiles, 1e-14);
    let all: Vec<f64> = (0..2000).map(|i| (i as f64 / 100.0).exp2() * 1e-6).filter(|x| *x < 1.0).collect();
    close("erfinv undoes erf", &of(&all).erfinv().unwrap().erf().unwrap().to_f64(), &all, 1e-15);
    assert_eq!(of(&[-1f32, 0., 1.]).erfinv().unwrap().to_f64(), [f64::NEG_INFINITY, 0.0, f64::INFINITY]);
    assert!(of(&[1.5f32]).erfinv().unwrap().item().unwrap().is_nan());
    close(
        "atan",
        &of(&[1f64, -(3f64.sqrt())]).atan().unwrap().to_f64(),
        &[0.25, -1. / 3.].map(|x| x * std::f64::consts::PI),
        1e-15,
    );
    close("log_sigmoid", &of(&[-(3f64.ln()), -1000.]).log_sigmoid().unwrap().to_f64(), &[0.25f64.ln(), -1000.], 1e-15);
    // tanh(ln(y)) is (y² - 1) / (y² + 1), and softplus(ln 3) is ln 4.
    close("mish", &of(&[3f64.ln()]).mish().unwrap().to_f64(), &[15. / 17. * 3f64.ln()], 1e-15);
    let tanh = |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh());
    close(
        "gelu_tanh",
        &of(&[1f64, -2., 0.3]).gelu_tanh().unwrap().to_f64(),
        &[tanh(1.0), tanh(-2.0), tanh(0.3)],
        1e-14,
    );
    close("sigmoid", &of(&[0f64, 3f64.ln(), -(3f64.ln())]).sigmoid().unwrap().to_f64(), &[0.5, 0.75, 0.25], 1e-15);
    close("silu", &of(&[3f64.ln()]).silu().unwrap().to_f64(), &[0.75 * 3f64.ln()], 1e-15);
    close("softplus", &of(&[0f64, 1000., -1000.]).softplus().unwrap().to_f64(), &[2f64.ln(), 1000., 0.], 1e-15);
    close("elu", &of(&[-(2f64.ln()), 2.]).elu(3.0).unwrap().to_f64(), &[-1.5, 2.0], 1e-15);
    // Klambauer et al. give both constants; tanh(ln 3) is 4/5, artanh(4/5) is ln 3.
    close(
        "selu",
        &of(&[1f64, -(2f64.ln())]).selu().unwrap().to_f64(),
        &[1.0507009873554805, -1.7580993408473766 / 2.0],
        1e-15,
    );
    close("celu", &of(&[-3.0 * 2f64.ln(), 2.]).celu(3.0).unwrap().to_f64(), &[-1.5, 2.0], 1e-15);
    close("softsign", &of(&[-3f64, 1.]).softsign().unwrap().to_f64(), &[-0.75, 0.5], 0.0);
    close("tanh_shrink", &of(&[3f64.ln()]).tanh_shrink().unwrap().to_f64(), &[3f64.ln() - 0.8], 1e-15);
    close("tanh_shrink", &of(&[1e-5f64]).tanh_shrink().unwrap().to_f64(), &[1e-15 / 3.0 - 2e-25 / 15.0], 1e-14);
    close("softshrink", &of(&[-2f64, 0.3, 2.]).softshrink(0.5).unwrap().to_f64(), &[-1.5, 0.0, 1.5], 0.0);
    close("asinh", &of(&[0.75f64]).asinh().unwrap().to_f64(), &[2f64.ln()], 1e-15);
    close("acosh", &of(&[1.25f64]).acosh().unwrap().to_f64(), &[2f64.ln()], 1e-15);
    close("atanh", &of(&[0.8f64]).atanh().unwrap().to_f64(), &[3f64.ln()], 1e-15);
    close("erfc", &of(&[0.5f64, 10.]).erfc().unwrap().to_f64(), &[0.4795001221869535, 2.088487583762545e-45], 1e-13);
    assert_eq!(of(&[-1.7f64, 1.7]).trunc().unwrap().to_f64(), [-1.0, 1.0]);
    let (y, x) = (of(&[1f64, 1., -1., 0.]), of(&[1f64, -1., -1., -2.]));
    let turns = [0.25, 0.75, -0.75, 1.0].map(|x| x * std::f64::consts::PI);
    close("atan2", &y.atan2(&x).unwrap().to_f64(), &turns, 1e-15);
    close("hypot", &of(&[3e200f64]).hypot(&of(&[4e200])).unwrap().to_f64(), &[5e200], 1e-15);
    let (a, b) = (of(&[-5f64, 5., 5.5, -6.]), of(&[3f64, -3., 2., 3.]));
    assert_eq!(a.remainder(&b).unwrap().to_f64(), [1., -1., 1.5, 0.]);
    assert_eq!(of(&[-5f64, 5., 5.5]).fmod(&of(&[3f64, -3., 2.])).unwrap().to_f64(), [-2., 2., 1.5]);
    assert_eq!(of(&[1f64, 1.]).lerp(&of(&[3f64, 3.]), 0.25).unwrap().to_f64(), [1.5, 1.5]);
    close("log1p", &of(&[1e-10f64]).log1p().unwrap().to_f64(), &[1e-10 - 0.5e-20], 1e-15);
    close("rsqrt", &of(&[4f64, 0.25]).rsqrt().unwrap().to_f64(), &[0.5, 2.0], 0.0);
    assert_eq!(of(&[-4f64, 0., 1.5, 4.]).hard_sigmoid().unwrap().to_f64(), [0., 0.5, 0.75, 1.]);
    assert_eq!(of(&[-4f64, 0., 1., 4.]).hard_swish().unwrap().to_f64(), [0., 0., 4. / 6., 4.]);
    assert_eq!(of(&[0.5f64, 1.5, 2.5, -0.5, -1.5]).round().unwrap().to_f64(), [0., 2., 2., 0., -2.]);
    assert_eq!(of(&[-0.5f64, 0., 2.]).sign().unwrap().to_f64(), [-1., 0., 1.]);
    assert_eq!(of(&[-2f64, 3.]).powf(3.0).unwrap().to_f64(), [-8., 27.]);
}

#[test]
fn nan_goes_through_and_infinity_is_met_as_it_should_be() {
    for (name, f) in UNARY {
        assert!(f(&of(&[f32::NAN])).unwrap().item().unwrap().is_nan(), "{name}");
        let x = of(&[f32::NAN]).requires_grad();
        let grads = f(&x).unwrap().sum_all().unwrap().backward().unwrap();
        // A step function has no slope, not even at NaN.
        let constant = ["neg", "sign", "floor", "ceil", "trunc", "round"].contains(name);
        assert!(constant || grads.of(&x).unwrap().item().unwrap().is_nan(), "{name}");
    }
    let inf = of(&[f32::INFINITY, f32::NEG_INFINITY]);
    assert_eq!(inf.relu().unwrap().to_f64(), [f64::INFINITY, 0.0]);
    assert_eq!(inf.sigmoid().unwrap().to_f64(), [1.0, 0.0]);
    assert_eq!(inf.softplus().unwrap().to_f64(), [f64::INFINITY, 0.0]);
    assert_eq!(inf.clamp(-1.0, 1.0).unwrap().to_f64(), [1.0, -1.0]);
    for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
        assert!(of(&[a]).maximum(&of(&[b])).unwrap().item().unwrap().is_nan());
        assert!(of(&[a]).minimum(&of(&[b])).unwrap().item().unwrap().is_nan());
    }
}

#[test]
fn operators_keep_the_tensors_dtype() -> Result<()> {
    let x = of(&[f16::ONE, f16::from_f32(2.0)]);
    let y = (&(&(&x * 2.0)? + 1.0)? / &x)?;
    assert_eq!((y.dtype(), y.to_f64()), (DType::F16, vec![3.0, 2.5]));
    assert_eq!((-(x.clone() - &x)?)?.to_f64(), [0.0, 0.0]);
    assert_eq!((x + of(&[0.5f32]))?.dtype(), DType::F32);
    let ids = of(&[1i64 << 62, 7]);
    assert_eq!((&ids - 3.0)?.to_vec::<i64>()?, [(1 << 62) - 3, 4]);
    assert_eq!(ids.mul(&ids)?.to_vec::<i64>()?, [0, 49]);
    assert_eq!(ids.maximum(&of(&[9i64]))?.to_vec::<i64>()?, [1 << 62, 9]);
    assert_eq!((of(&[true, false]) * of(&[2.5f32]))?.to_f64(), [2.5, 0.0]);
    assert_eq!(ids.div(&ids).unwrap_err().kind(), ErrorKind::DType);
    let message = (&ids * 0.5).unwrap_err().to_string();
    assert!(message.contains("0.5") && message.contains("i64"), "{message}");
    assert_eq!((of(&[true]) * 2.0).unwrap_err().kind(), ErrorKind::DType);
    Ok(())
}

#[test]
fn comparisons_and_choice() -> Result<()> {
    let (a, b) = (of(&[1f32, 2., f32::NAN]), of(&[f16::ONE]));
    assert_eq!(a.eq(&b)?.to_vec::<bool>()?, [true, false, false]);
    assert_eq!(a.ne(&b)?.to_vec::<bool>()?, [false, true, true]);
    assert_eq!(a.lt(&b)?.to_vec::<bool>()?, [false, false, false]);
    assert_eq!(a.le(&b)?.to_vec::<bool>()?, [true, false, false]);
    assert_eq!(a.gt(&b)?.to_vec::<bool>()?, [false, true, false]);
    assert_eq!(a.ge(&b)?.to_vec::<bool>()?, [true, true, false]);
    // As floats the two would be equal.
    assert_eq!(of(&[(1i64 << 60) + 1]).gt(&of(&[1i64 << 60]))?.to_vec::<bool>()?, [true]);
    let mask = of(&[true, false]);
    assert_eq!(mask.select(&of(&[1i64, 2]), &of(&[3i64, 4]))?.to_vec::<i64>()?, [1, 4]);
    assert_eq!(mask.logical_and(&of(&[true]))?.to_vec::<bool>()?, [true, false]);
    assert_eq!(mask.logical_or(&of(&[true]))?.to_vec::<bool>()?, [true, true]);
    assert_eq!(mask.logical_not()?.to_vec::<bool>()?, [false, true]);
    assert!(a.logical_not().unwrap_err().to_string().contains("f32"));
    assert!(a.select(&a, &a).unwrap_err().to_string().starts_with("Where: "));
    assert_eq!(a.is_finite()?.to_vec::<bool>()?, [true, true, false]);
    assert!(!a.all_finite() && mask.all_finite() && of::<f32>(&[]).all_finite());
    for place in [0, 4095, 4096, 9000] {
        let mut data = vec![f16::MAX; 9001];
        assert!(of(&data).all_finite());
        data[place] = f16::NEG_INFINITY;
        assert!(!of(&data).all_finite());
    }
    Ok(())
}

#[test]
fn what_is_not_chosen_has_no_gradient_even_if_nan() -> Result<()> {
    let x = of(&[-1f32, 4.0]).requires_grad();
    let y = x.gt(&Tensor::scalar(0.0, DType::F32))?.select(&x.sqrt()?.detach().mul(&x)?, &x)?;
    assert_eq!(y.sum_all()?.backward()?.of(&x).unwrap().to_f64()[1], 2.0);
    let (a, b) = (of(&[f32::NAN]).requires_grad(), of(&[3f32]).requires_grad());
    let grads = of(&[false]).select(&a, &b)?.backward()?;
    assert_eq!((grads.of(&a).unwrap().item()?, grads.of(&b).unwrap().item()?), (0.0, 1.0));
    Ok(())
}

#[test]
fn ties_and_powers_of_zero_have_finite_gradients() -> Result<()> {
    let (a, b) = (of(&[2f64]).requires_grad(), of(&[2f64]).requires_grad());
    let grads = a.maximum(&b)?.backward()?;
    assert_eq!((grads.of(&a).unwrap().item()?, grads.of(&b).unwrap().item()?), (0.5, 0.5));
    let (zero, two) = (of(&[0f64]).requires_grad(), of(&[2f64]).requires_grad());
    let grads = zero.pow(&two)?.backward()?;
    assert_eq!((grads.of(&zero).unwrap().item()?, grads.of(&two).unwrap().item()?), (0.0, 0.0));
    assert_eq!(zero.powf(0.0)?.backward()?.of(&zero).unwrap().item()?, 0.0);
    Ok(())
}

#[test]
fn refusals_say_what_was_met() {
    let x = of(&[1f32, 2., 3.]);
    let message = |result: Result<Tensor>| result.unwrap_err().to_string();
    assert_eq!(message(x.add(&of(&[1f32, 2.]))), "Add: the shapes [3] and [2] do not broadcast");
    assert!(message(x.clamp(2.0, 1.0)).contains("2") && x.clamp(f64::NAN, 1.0).is_err());
    assert!(message(of(&[1i64]).exp()).contains("Exp: needs a floating tensor, got i64"));
    assert!(message(x.prelu(&of(&[1f32, 2.]))).contains("[2]"));
    assert!(message(x.dropout(1.5, 0)).contains("1.5"));
    assert!(x.dropout(f64::NAN, 0).is_err() && x.dropout(-0.1, 0).is_err());
}

#[test]
fn dropout_keeps_the_mean_and_repeats_itself() -> Result<()> {
    let (n, p) = (100_000, 0.3);
    let x = Tensor::ones(&[n], DType::F16).requires_grad();
    let y = x.dropout(p, 5)?;
    let kept = y.to_f64().iter().filter(|&&y| y != 0.0).count() as f64;
    // Five standard deviations of the binomial distribution.
    assert!((kept - n as f64 * (1.0 - p)).abs() < 5.0 * (n as f64 * p * (1.0 - p)).sqrt(), "{kept}");
    let scaled = f16::from_f32(1.0 / 0.7).to_f64();
    assert!(y.to_f64().iter().all(|&y| y == 0.0 || y == scaled));
    assert_eq!(y.sum_all()?.backward()?.of(&x).unwrap().to_f64(), y.to_f64());
    assert_eq!(x.dropout(p, 5)?.to_f64(), y.to_f64());
    assert_ne!(x.dropout(p, 6)?.to_f64(), y.to_f64());
    assert_eq!(x.dropout(0.0, 5)?.to_f64(), x.to_f64());
    // As in torch: everything is dropped, including its gradient.
    let nothing = x.dropout(1.0, 5)?;
    assert_eq!(nothing.to_f64(), vec![0.0; n]);
    assert_eq!(nothing.sum_all()?.backward()?.of(&x).unwrap().to_f64(), vec![0.0; n]);
    let dropped = Tensor::full(&[64], f64::NAN, DType::F32).dropout(0.5, 1)?.to_f64();
    assert!(dropped.contains(&0.0) && dropped.iter().any(|x| x.is_nan()));
    Ok(())
}

#[test]
fn nothing_in_gives_nothing_out() -> Result<()> {
    let empty = Tensor::zeros(&[0, 3], DType::F16).requires_grad();
    for (name, f) in UNARY {
        let y = f(&empty)?;
        assert_eq!(y.shape(), [0, 3], "{name}");
        assert_eq!(y.sum_all()?.backward()?.of(&empty).unwrap().shape(), [0, 3], "{name}");
    }
    let row = of(&[f16::ONE; 3]).requires_grad();
    let grads = empty.mul(&row)?.sum_all()?.backward()?;
    assert_eq!(grads.of(&row).unwrap().to_f64(), [0.0; 3]);
    assert_eq!(empty.gt(&row)?.select(&empty, &row)?.shape(), [0, 3]);
    assert_eq!(empty.dropout(0.5, 0)?.shape(), [0, 3]);
    Ok(())
}
