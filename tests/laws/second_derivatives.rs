//! Gradients on the tape: their values, their cost, and refusals. `gradients` checks every op.

use precast::{Backward, CustomOp, GridPadding, Interpolation, gradcheck, prelude::*, twice_differentiable};

fn vector(x: &[f64]) -> Tensor {
    Tensor::from_vec(x.to_vec(), &[x.len()]).unwrap()
}

/// Returns the one gradient of a scalar, on the tape.
fn slope(y: &Tensor, x: &Tensor) -> Tensor {
    y.gradients_on_tape(&[x]).unwrap().swap_remove(0).expect("it depends on x")
}

#[test]
fn derivatives_of_every_order_follow_from_each_other() {
    // x⁵, whose derivatives are known; the last of them is a constant, which depends on nothing.
    let x = vector(&[1.5]).requires_grad();
    let derivatives: Vec<Option<f64>> = twice_differentiable(|| {
        let mut y = x.powf(5.0).unwrap().sum_all().unwrap();
        let mut next = || {
            y = y.gradients_on_tape(&[&x]).unwrap()[0].clone()?.sum_all().unwrap();
            y.item().ok()
        };
        (0..5).map(|_| next()).collect()
    });
    let expected = [5.0 * 1.5f64.powi(4), 20.0 * 1.5f64.powi(3), 60.0 * 1.5f64.powi(2), 120.0 * 1.5, 120.0];
    for (found, expected) in derivatives.iter().zip(expected) {
        assert!((found.unwrap() - expected).abs() < 1e-9 * expected, "{derivatives:?}, not {expected}");
    }
}

/// `d³/dx³` of a network of several ops, compared with central differences of the second derivative.
#[test]
fn third_derivatives_of_formulas_and_products() {
    let weight = Tensor::from_vec(vec![0.3, -0.7, 0.5, 0.2, 0.9, -0.4], &[2, 3]).unwrap();
    let x = vector(&[0.4, -0.2, 0.7]).reshape(&[1, 3]).unwrap();
    let found = gradcheck::second(&[x, weight], |x| {
        let y = x[0].linear(&x[1], None)?.tanh()?.log_softmax(-1)?.layer_norm(&[2], None, None, 0.1)?.square()?;
        let grads = y.sum_all()?.gradients_on_tape(&[&x[0]])?;
        grads[0].clone().expect("it depends on x").square()
    });
    let found = found.unwrap();
    assert!(found.relative < 1e-6, "{found:?}");
}

#[test]
fn one_tensor_that_is_read_twice_gets_one_gradient() {
    let x = vector(&[2.0, 3.0]).requires_grad();
    // x³ by a square and a product that share x.
    let y = twice_differentiable(|| x.mul(&x)?.mul(&x)?.sum_all()).unwrap();
    let first = slope(&y, &x);
    assert_eq!(first.to_f64(), [12.0, 27.0]);
    assert_eq!(first.sum_all().unwrap().backward().unwrap().of(&x).unwrap().to_f64(), [12.0, 18.0]);
}

#[test]
fn results_of_ops_are_variables_too() {
    let x = vector(&[2.0]).requires_grad();
    let (h, y) = twice_differentiable(|| {
        let h = x.square()?;
        Ok::<_, Error>((h.clone(), h.square()?.sum_all()?))
    })
    .unwrap();
    let grads = y.gradients_on_tape(&[&h, &x, &y]).unwrap();
    let values: Vec<Vec<f64>> = grads.iter().map(|grad| grad.as_ref().unwrap().to_f64()).collect();
    assert_eq!(values, [vec![8.0], vec![32.0], vec![1.0]]);
    // d(2h)/dx with h = x².
    let again = grads[0].as_ref().unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(again.of(&x).unwrap().to_f64(), [8.0]);
}

#[test]
fn what_a_scalar_does_not_depend_on_has_no_gradient() {
    let (x, other) = (vector(&[2.0]).requires_grad(), vector(&[1.0]).requires_grad());
    let y = twice_differentiable(|| x.square()?.sum_all()).unwrap();
    let grads = y.gradients_on_tape(&[&other, &x]).unwrap();
    assert!(grads[0].is_none() && grads[1].is_some());
    // The slope of a line is a constant: its own gradient reaches nothing.
    let line = twice_differentiable(|| (&x * 3.0)?.sum_all()).unwrap();
    assert!(slope(&line, &x).sum_all().unwrap().backward().unwrap().of(&x).is_none());
}

#[test]
fn without_the_scope_it_is_an_error_that_says_what_to_do() {
    let x = vector(&[2.0]).requires_grad();
    let y = x.exp().unwrap().sum_all().unwrap();
    let error = y.gradients_on_tape(&[&x]).unwrap_err();
    assert_eq!((error.kind(), error.op()), (ErrorKind::Unsupported, Some("Sum")));
    assert_eq!(
        error.to_string(),
        "Sum: backward: its call was not kept; compute what is to be differentiated twice within `twice_differentiable`"
    );
    // A gradient taken outside can be differentiated once.
    let y = twice_differentiable(|| x.exp()?.sum_all()).unwrap();
    let first = slope(&y, &x).sum_all().unwrap();
    first.backward().unwrap();
    let error = first.gradients_on_tape(&[&x]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let error = y.gradients_on_tape(&[&vector(&[1.0])]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "tensor 0 is not on the tape, so nothing depends on it; call `requires_grad` before it is used"
    );
    let error = twice_differentiable(|| x.exp()).unwrap().gradients_on_tape(&[&x]);
    assert!(error.is_ok(), "one element is a scalar");
    let pair = vector(&[1.0, 2.0]).requires_grad();
    let error = twice_differentiable(|| pair.exp()).unwrap().gradients_on_tape(&[&pair]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape);
}

#[test]
fn an_op_without_a_second_derivative_is_named() {
    let x = Tensor::ones(&[1, 1, 1, 2], DType::F32).requires_grad();
    let places = Tensor::zeros(&[1, 1, 1, 2], DType::F32);
    let read = || x.grid_sample(&places, Interpolation::Linear, GridPadding::Zeros, true)?.sum_all();
    let y = twice_differentiable(read).unwrap();
    let error = y.gradients_on_tape(&[&x]).unwrap_err();
    assert_eq!((error.kind(), error.op()), (ErrorKind::Unsupported, Some("GridSampler2d")));
    assert_eq!(
        error.to_string(),
        "GridSampler2d: backward: has no second derivative; sampling by a grid and the CTC loss have none, all other ops of the \
         catalogue have one"
    );
    // Paths without a gradient do not matter.
    let z = twice_differentiable(|| y.detach().add(&x.square()?.sum_all()?)).unwrap();
    assert_eq!(slope(&z, &x).to_f64(), [2.0, 2.0]);
}

#[test]
fn a_forward_pass_outside_of_the_scope_keeps_nothing_more() {
    let x = Tensor::ones(&[10, 100], DType::F32).requires_grad();
    let forward = || x.square()?.neg()?.sum_all();
    let (plain, kept) = (forward().unwrap(), twice_differentiable(forward).unwrap());
    // The square keeps x. In the scope the sum and the negation keep their inputs as well.
    assert_eq!((plain.tape_bytes(), kept.tape_bytes()), (4000, 12000));
    assert_eq!(forward().unwrap().tape_bytes(), 4000);
}

#[test]
fn a_chain_of_a_hundred_thousand_ops_is_walked_and_dropped() {
    let x = vector(&[1.0]).requires_grad();
    let last = twice_differentiable(|| (0..100_000).try_fold(x.clone(), |y, _| y.neg())).unwrap();
    let y = twice_differentiable(|| last.square()?.sum_all()).unwrap();
    drop(last);
    let first = twice_differentiable(|| slope(&y, &x));
    assert_eq!(first.to_f64(), [2.0]);
    drop(y);
    assert_eq!(first.sum_all().unwrap().backward().unwrap().of(&x).unwrap().to_f64(), [2.0]);
    drop(first);
}

/// In bf16, gradients on the tape have the bits of the ordinary ones, and second derivatives are near those in f32.
#[test]
fn low_precision_rounds_as_the_forward_pass_does() {
    let (x, w) = (Tensor::from_vec(vec![0.5f32, -0.25, 1.0], &[1, 3]).unwrap(), Tensor::ones(&[2, 3], DType::F32));
    let second = |low: bool| {
        let (x, w) = (x.requires_grad(), w.requires_grad());
        let forward = || {
            x.linear(&w, None)?.sigmoid()?.cross_entropy_with(&Tensor::from_vec(vec![1i64], &[1])?, &Default::default())
        };
        let loss = twice_differentiable(|| match low {
            true => autocast(Autocast::new("torch-2.15-cpu")?.dtype(DType::Bf16), forward),
            false => forward(),
        })
        .unwrap();
        let grads = loss.gradients_on_tape(&[&x, &w]).unwrap();
        let plain = loss.backward().unwrap();
        for (grad, leaf) in grads.iter().zip([&x, &w]) {
            let (grad, plain) = (grad.as_ref().unwrap(), plain.of(leaf).unwrap());
            assert_eq!((grad.dtype(), grad.to_f64()), (plain.dtype(), plain.to_f64()));
        }
        let penalty = grads[1].as_ref().unwrap().square().unwrap().sum_all().unwrap();
        penalty.backward().unwrap().of(&w).unwrap().to_f64()
    };
    let (full, low) = (second(false), second(true));
    let largest = full.iter().fold(0f64, |m, x| m.max(x.abs()));
    assert!(largest > 1e-3);
    for (full, low) in full.iter().zip(&low) {
        assert!((full - low).abs() < 4.0 * DType::Bf16.epsilon() * largest, "{full} in f32, {low} in bf16");
    }
}

/// The smooth step `x² (3 - 2x)`; in one of the two its gradient is written with ops.
#[derive(Clone)]
struct Step<const WRITTEN: bool>;

impl<const WRITTEN: bool> CustomOp for Step<WRITTEN> {
    const NAME: &'static str = if WRITTEN { "WrittenStep" } else { "PlainStep" };

    fn forward(&self, inputs: &[Tensor], saved: &mut Vec<Tensor>) -> Result<Tensor> {
        saved.push(inputs[0].clone());
        inputs[0].square()?.mul(&((&inputs[0] * -2.0)? + 3.0)?)
    }

    fn backward(&self, back: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
        let x = &back.saved[0];
        Ok(vec![Some((x.sub(&x.square()?)? * 6.0)?.mul(back.grad)?)])
    }

    fn gradients(&self, inputs: &[Tensor], grad: &Tensor, _: &[bool]) -> Result<Vec<Option<Tensor>>> {
        if !WRITTEN {
            return Err(Error::unsupported("the op has no second derivative; write `CustomOp::gradients`"));
        }
        let x = &inputs[0];
        Ok(vec![Some((x.sub(&x.square()?)? * 6.0)?.mul(grad)?)])
    }
}

#[test]
fn custom_ops_say_their_gradients_with_ops() {
    let x = vector(&[0.3, 0.8]);
    assert!(gradcheck::second(std::slice::from_ref(&x), |x| Step::<true>.apply(&[&x[0]])).unwrap().relative < 1e-6);
    let x = x.requires_grad();
    let y = twice_differentiable(|| Step::<false>.apply(&[&x])?.sum_all()).unwrap();
    let first = slope(&y, &x);
    let error = first.sum_all().unwrap().backward().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("PlainStep"), "{error}");
    assert!(error.to_string().ends_with("the op has no second derivative; write `CustomOp::gradients`"), "{error}");
}

#[test]
fn frozen_parameters_and_integer_targets_get_no_gradient() {
    let x = Tensor::from_vec(vec![0.2, 0.5, -0.3, 0.1], &[2, 2]).unwrap().requires_grad();
    let target = Tensor::from_vec(vec![0i64, 1], &[2]).unwrap();
    let y = twice_differentiable(|| x.log_softmax(1)?.nll_loss(&target, Reduction::Mean)).unwrap();
    let penalty = slope(&y, &x).square().unwrap().sum_all().unwrap();
    assert_eq!(penalty.backward().unwrap().len(), 1);
}

/// A detached tensor stays detached when it is cast back to the dtype it came from.
#[test]
fn a_widening_that_was_moved_on_the_tape_does_not_lead_back() {
    let x = Tensor::ones(&[2], DType::Bf16).requires_grad();
    let wide = x.cast(DType::F32);
    assert!(!wide.detach().cast(DType::Bf16).is_tracked());
    let leaf = wide.requires_grad();
    let grads = leaf.cast(DType::Bf16).sum_all().unwrap().backward().unwrap();
    assert!(grads.of(&leaf).is_some() && grads.of(&x).is_none());
    let untracked = no_grad(|| x.cast(DType::F32));
    assert!(!untracked.cast(DType::Bf16).is_tracked());
}
