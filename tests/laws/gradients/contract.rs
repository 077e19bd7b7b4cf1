//! The measurements of `gradcheck::gradients` and `gradcheck::low_gradients`, and their refusals.

use precast::{
    DType::{self, Bf16, F16, F32, F64},
    ErrorKind, Result, Tensor, gradcheck,
};

fn of(data: &[f64]) -> Tensor {
    Tensor::from_vec(data.to_vec(), &[data.len()]).unwrap()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind, message: &str) {
    let error = result.unwrap_err();
    assert_eq!((error.kind(), error.to_string()), (kind, message.to_string()));
}

#[test]
fn a_wrong_gradient_is_measured() -> Result<()> {
    // The value of x, and twice its gradient.
    let doubled = |x: &[Tensor]| (&x[0] * 2.0)?.sub(&x[0].detach());
    let found = gradcheck::gradients(&[of(&[0.3, -1.0])], doubled)?;
    assert!((found.relative - 0.5).abs() < 1e-6, "{found:?}");
    assert!((found.found - 2.0 * found.expected).abs() < 1e-6 && found.input == 0, "{found:?}");
    // A gradient that is an eighth too large in 16 bit.
    let off = |x: &[Tensor]| if x[0].dtype().is_low() { &x[0] * 1.125 } else { &x[0] * 1.0 };
    let found = gradcheck::low_gradients(&[of(&[0.3, -1.0])], F16, off)?;
    assert!((found.relative - 128.0).abs() < 1.0, "an eighth in epsilons of 2^-10: {found:?}");
    // NaN is the largest disagreement.
    let found = gradcheck::gradients(&[of(&[1.0, -1.0])], |x| x[0].log())?;
    assert_eq!(found.relative, f64::INFINITY);
    Ok(())
}

#[test]
fn a_forgotten_sum_over_a_broadcast_axis_is_seen() -> Result<()> {
    // The gradient of b as if it were that of the first row.
    let forgetful = |x: &[Tensor]| {
        let first = x[0].slice(0, 0..1)?.mul(&x[1])?;
        let others = x[0].slice(0, 1..3)?.mul(&x[1].detach())?;
        Tensor::concat(&[&first, &others], 0)
    };
    let inputs = [Tensor::from_vec(vec![0.5, 1.0, -2.0, 1.5, 0.75, 3.0], &[3, 2])?, of(&[1.0, 2.0])];
    let found = gradcheck::gradients(&inputs, forgetful)?;
    assert!(found.input == 1 && found.relative > 0.1, "{found:?}");
    Ok(())
}

#[test]
fn a_missing_gradient_is_an_error() {
    let (x, y) = (of(&[0.5, 2.0]), of(&[3.0, 4.0]));
    let one_lost = |x: &[Tensor]| x[0].mul(&x[1].detach());
    let error = gradcheck::gradients(&[x.clone(), y.clone()], one_lost).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gradient);
    let message = error.to_string();
    let start = "no gradient reaches input 1, but the result changes with its element 0 (slope ";
    assert!(message.starts_with(start), "{message}");

    // In one dtype only.
    let lost_in = |lost: DType| {
        move |x: &[Tensor]| {
            let second = if x[1].dtype() == lost { x[1].detach() } else { x[1].clone() };
            x[0].mul(&second)
        }
    };
    let both = [x.clone(), y];
    let words = "input 1 gets a gradient in f32 and none in bf16";
    refused(gradcheck::low_gradients(&both, Bf16, lost_in(Bf16)), ErrorKind::Gradient, words);
    let words = "input 1 gets a gradient in f16 and none in f32";
    refused(gradcheck::low_gradients(&both, F16, lost_in(F32)), ErrorKind::Gradient, words);

    let constant = |x: &[Tensor]| Ok(Tensor::ones(&[2], x[0].dtype()));
    let words = "no gradient reaches any input: the result depends on none of them";
    refused(gradcheck::gradients(std::slice::from_ref(&x), constant), ErrorKind::Gradient, words);
    let words = "no gradient reaches any input in f16 or f32: the result depends on none of them";
    refused(gradcheck::low_gradients(&[x], F16, constant), ErrorKind::Gradient, words);
}

#[test]
fn gradients_are_checked_where_nothing_is_recorded() -> Result<()> {
    let x = [of(&[0.5, 2.0])];
    precast::no_grad(|| {
        assert!(gradcheck::gradients(&x, |x| x[0].square())?.relative < 1e-6);
        assert!(gradcheck::low_gradients(&x, F16, |x| x[0].square())?.relative <= 0.5);
        assert!(gradcheck::low_gradients(&x, F32, |x| x[0].tanh())?.relative <= 1.0);
        Ok(())
    })
}

/// An input that does not affect the result has no gradient, and none is missing.
#[test]
fn an_unused_input_is_none_of_the_matter() -> Result<()> {
    let inputs = [of(&[0.5, 2.0]), of(&[3.0])];
    assert!(gradcheck::gradients(&inputs, |x| x[0].square())?.relative < 1e-6);
    assert!(gradcheck::low_gradients(&inputs, F16, |x| x[0].square())?.relative <= 0.5);
    Ok(())
}

#[test]
fn a_slope_of_zero_is_a_gradient_and_a_truth_value_has_none() -> Result<()> {
    let x = [of(&[0.5, 2.25])];
    assert_eq!(gradcheck::gradients(&x, |x| x[0].floor())?.relative, 0.0);
    assert_eq!(gradcheck::low_gradients(&x, Bf16, |x| x[0].floor())?.relative, 0.0);
    let positive = |x: &[Tensor]| x[0].gt(&Tensor::scalar(0.0, x[0].dtype()));
    let words = "gradients are checked in f64; the result is bool";
    refused(gradcheck::gradients(&x, positive), ErrorKind::DType, words);
    let words = "a result of bool has no gradient";
    refused(gradcheck::low_gradients(&x, F16, positive), ErrorKind::DType, words);
    refused(
        gradcheck::low_gradients(&x, F16, |x| x[0].argmax(0, false)),
        ErrorKind::DType,
        "a result of i64 has no gradient",
    );
    Ok(())
}

#[test]
fn inputs_that_cannot_be_checked_are_refused() {
    let index = Tensor::arange(3);
    let mask = Tensor::ones(&[3], DType::Bool);
    let whole = |x: &[Tensor]| Ok(x[0].cast(F64));
    let words = "gradients are checked in f64; the inputs are i64, bool";
    refused(gradcheck::gradients(&[index.clone(), mask], whole), ErrorKind::DType, words);
    let words = "gradients are checked in f64; the inputs are f32";
    refused(gradcheck::gradients(&[Tensor::ones(&[3], F32)], whole), ErrorKind::DType, words);
    refused(gradcheck::gradients(&[], whole), ErrorKind::DType, "gradients are checked in f64; the inputs are none");
    let words = "no input is floating; the inputs are i64";
    refused(gradcheck::low_gradients(&[index], F16, whole), ErrorKind::DType, words);
    for dtype in [DType::I64, F64] {
        let words = format!("gradients are compared in f32, f16 or bf16, not in {dtype}");
        refused(gradcheck::low_gradients(&[of(&[1.0])], dtype, whole), ErrorKind::DType, &words);
    }
    let words = "gradients are checked in f64; the result is f32";
    refused(gradcheck::gradients(&[of(&[1.0])], |x| Ok(x[0].cast(F32))), ErrorKind::DType, words);
}
