//! Optimizers compared with the published formulas, written out again in f64 for one number.

use precast::{
    Adafactor, Adagrad, Adam, AdamW, DType, Lamb, Lion, Muon, Optimizer, Param, RmsProp, Sgd, Tensor, cell::Params,
};

use super::{gradient, grads_of};

/// Runs an optimizer and a formula side by side in f64, where they must agree to rounding, and in f32.
fn follows<O: Optimizer>(make: impl Fn(Params) -> O, mut formula: impl FnMut(usize, f64, f64) -> f64) {
    let expected: Vec<f64> = (0..40)
        .scan(1.5, |p, step| {
            *p = formula(step, *p, gradient(step));
            Some(*p)
        })
        .collect();
    for (dtype, tolerance) in [(DType::F64, 1e-13), (DType::F32, 2e-5)] {
        let param = Param::new(Tensor::full(&[2, 3], 1.5, dtype));
        let mut optimizer = make([param.clone()].into_iter().collect());
        for (step, expected) in expected.iter().enumerate() {
            optimizer.update(&grads_of(&param, gradient(step))).unwrap();
            for value in param.value().to_f64() {
                assert!(
                    (value - expected).abs() <= tolerance * expected.abs().max(1.0),
                    "{dtype} step {step}: {value} {expected}"
                );
            }
        }
    }
}

#[test]
fn sgd_follows_its_formula() {
    for (momentum, dampening, nesterov, decay) in [
        (0.0, 0.0, false, 0.0),
        (0.0, 0.0, false, 0.1),
        (0.9, 0.0, false, 0.0),
        (0.9, 0.3, false, 0.01),
        (0.8, 0.0, true, 0.05),
    ] {
        let lr = 0.05;
        let mut velocity = 0.0;
        follows(
            |params| {
                let sgd = Sgd::new(params, lr).momentum(momentum).dampening(dampening).weight_decay(decay);
                if nesterov { sgd.nesterov(true) } else { sgd }
            },
            move |step, p, grad| {
                let g = grad + decay * p;
                velocity = if step == 0 { g } else { momentum * velocity + (1.0 - dampening) * g };
                p - lr * if nesterov { g + momentum * velocity } else { velocity }
            },
        );
    }
}

#[test]
fn adam_follows_its_formula() {
    for (decoupled, decay, b1, b2, eps) in [
        (false, 0.0, 0.9, 0.999, 1e-8),
        (false, 0.1, 0.9, 0.999, 1e-8),
        (true, 0.01, 0.9, 0.999, 1e-8),
        (true, 0.2, 0.5, 0.9, 1e-3),
        (false, 0.0, 0.0, 0.0, 0.1),
    ] {
        let lr = 0.02;
        let (mut m, mut v) = (0.0, 0.0);
        // Kingma and Ba, algorithm 1; Loshchilov and Hutter, algorithm 2.
        let formula = move |step, p: f64, grad| {
            let t = step as i32 + 1;
            let g = if decoupled { grad } else { grad + decay * p };
            m = b1 * m + (1.0 - b1) * g;
            v = b2 * v + (1.0 - b2) * g * g;
            let (m_hat, v_hat) = (m / (1.0 - f64::powi(b1, t)), v / (1.0 - f64::powi(b2, t)));
            p - lr * (m_hat / (v_hat.sqrt() + eps) + if decoupled { decay * p } else { 0.0 })
        };
        match decoupled {
            false => follows(|params| Adam::new(params, lr).betas(b1, b2).eps(eps).weight_decay(decay), formula),
            true => follows(|params| AdamW::new(params, lr).betas(b1, b2).eps(eps).weight_decay(decay), formula),
        }
    }
}

#[test]
fn lion_follows_its_formula() {
    for (decay, b1, b2) in [(0.0, 0.9, 0.99), (0.1, 0.5, 0.8)] {
        let lr = 0.02;
        let mut m = 0.0;
        follows(
            |params| Lion::new(params, lr).betas(b1, b2).weight_decay(decay),
            move |_, p: f64, grad| {
                // Chen et al., algorithm 2.
                let c: f64 = b1 * m + (1.0 - b1) * grad;
                m = b2 * m + (1.0 - b2) * grad;
                p - lr * (c.signum() + decay * p)
            },
        );
    }
}

#[test]
fn lion_leaves_alone_what_has_no_direction() {
    let param = Param::new(Tensor::ones(&[3], DType::F32));
    Lion::new([param.clone()].into_iter().collect(), 0.5).update(&grads_of(&param, 0.0)).unwrap();
    assert_eq!(param.value().to_f64(), [1.0; 3]);
}

/// Gradients that are steady to more digits than f32 has: the average of their squares less the square of their average
/// would be below 0, or 0.
#[test]
fn centered_rmsprop_of_steady_gradients_follows_its_formula() {
    // Graves 2013, equations 38 to 43, with n - a^2 written as one average of squared deviations, in f64.
    let expected = |steps: usize, momentum: f64, grad: &dyn Fn(usize) -> f64| {
        let (mut n, mut a, mut b, mut p) = (0.0, 0.0, 0.0, 0.0);
        for step in 0..steps {
            let g = grad(step);
            (n, a) = (0.99 * (n + 0.01 * (g - a) * (g - a)), a + 0.01 * (g - a));
            b = momentum * b + g / (f64::sqrt(n) + 1e-8);
            p -= 1e-3 * b;
        }
        p
    };
    for momentum in [0.0, 0.9] {
        for (mean, noise) in [(100.3, 0.0), (50.2, 0.0), (37.1, 0.0), (779.3, 0.0), (1.0, 1e-4), (-30.0, 1e-2)] {
            let grad = move |step: usize| f64::from((mean + noise * f64::sin(step as f64)) as f32);
            let param = Param::new(Tensor::zeros(&[3], DType::F32));
            let mut rms = RmsProp::new([param.clone()].into_iter().collect(), 1e-3).centered(true).momentum(momentum);
            // Beyond, the variance of gradients without noise is below what the rounding of their average adds.
            let steps = if noise == 0.0 { 1200 } else { 3000 };
            for step in 0..steps {
                rms.update(&grads_of(&param, grad(step))).unwrap();
            }
            let right = expected(steps, momentum, &grad);
            for met in param.value().to_f64() {
                assert!((met - right).abs() < 0.01 * right.abs(), "{mean} {noise}: {met}, not {right}");
            }
            for step in steps..3000 {
                rms.update(&grads_of(&param, grad(step))).unwrap();
            }
            assert!(param.value().to_f64().iter().all(|x| x.is_finite()));
        }
    }
}

#[test]
fn a_state_of_centered_rmsprop_with_an_average_of_squares_is_read() {
    let param = Param::new(Tensor::zeros(&[2], DType::F32));
    let mut rms = RmsProp::new([("w".to_string(), param.clone())].into_iter().collect(), 0.1).centered(true);
    rms.update(&grads_of(&param, 1.0)).unwrap();
    let mut state = rms.state();
    for (name, tensor) in &mut state.tensors {
        let numbers = if name == "w/mean" { vec![3f32, 2.0] } else { vec![13.0, 3.9999] };
        (*name, *tensor) = (name.replace("variance", "square"), Tensor::from_vec(numbers, &[2]).unwrap());
    }
    rms.restore(state).unwrap();
    let variances = rms.state().tensors.into_iter().find(|(name, _)| name == "w/variance").unwrap().1;
    assert_eq!(variances.to_f64(), [4.0, 0.0]);
}

/// Six equal elements: both norms are those of one, times the root of six, so their ratio is that of one.
#[test]
fn lamb_follows_its_formula() {
    for (decay, b1, b2, eps) in [(0.0, 0.9, 0.999, 1e-6), (0.2, 0.5, 0.9, 1e-3)] {
        let lr = 0.02;
        let (mut m, mut v) = (0.0, 0.0);
        follows(
            |params| Lamb::new(params, lr).betas(b1, b2).eps(eps).weight_decay(decay),
            move |step, p: f64, g| {
                // You et al., algorithm 2.
                let t = step as i32 + 1;
                m = b1 * m + (1.0 - b1) * g;
                v = b2 * v + (1.0 - b2) * g * g;
                let (m_hat, v_hat) = (m / (1.0 - f64::powi(b1, t)), v / (1.0 - f64::powi(b2, t)));
                let r: f64 = m_hat / (v_hat.sqrt() + eps) + decay * p;
                p - lr * p.abs() / r.abs() * r
            },
        );
    }
}

/// Compared with the whole formula, for distinct elements and more of them than one part of a sum has.
#[test]
fn lamb_divides_the_norms_of_the_whole_parameter() {
    let (start, grad) = (super::noise(&[300, 70], 1), super::noise(&[300, 70], 2));
    let param = Param::new(start.clone());
    let mut grads = precast::Grads::default();
    grads.set(&param, grad.clone());
    Lamb::new([param.clone()].into_iter().collect(), 0.1).weight_decay(0.5).update(&grads).unwrap();
    // At the first update the bias-corrected averages are the gradient and its square.
    let (start, grad) = (start.to_f64(), grad.to_f64());
    let r: Vec<f64> = start.iter().zip(&grad).map(|(p, g)| g / (g.abs() + 1e-6) + 0.5 * p).collect();
    let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let trust = norm(&start) / norm(&r);
    for ((p, r), met) in start.iter().zip(&r).zip(param.value().to_f64()) {
        assert!((p - 0.1 * trust * r - met).abs() < 1e-6);
    }
    let zeros = Param::new(Tensor::zeros(&[2], DType::F32));
    Lamb::new([zeros.clone()].into_iter().collect(), 0.1).update(&grads_of(&zeros, 1.0)).unwrap();
    assert!(zeros.value().to_f64().iter().all(|x| (x + 0.1).abs() < 1e-6), "{:?}", zeros.value());
}

#[test]
fn muon_makes_an_update_nearly_orthogonal() {
    for shape in [[40, 40], [20, 60], [60, 20]] {
        let param = Param::new(Tensor::zeros(&shape, DType::F32));
        let mut grads = precast::Grads::default();
        grads.set(&param, super::noise(&shape, 3));
        Muon::new([param.clone()].into_iter().collect(), 1.0).update(&grads).unwrap();
        let size = (shape[0] as f64 / shape[1] as f64).max(1.0).sqrt();
        let x = param.value();
        let gram = if shape[0] > shape[1] { x.t().unwrap().matmul(&x) } else { x.matmul(&x.t().unwrap()) };
        // The singular values end between 0.68 and 1.13 (Jordan et al.); the mean of the diagonal is that of their
        // squares.
        let short = shape[0].min(shape[1]);
        let diagonal = gram.unwrap().to_f64().into_iter().step_by(short + 1).sum::<f64>() / short as f64;
        assert!((0.4..1.3).contains(&(diagonal / size / size)), "{shape:?}: {diagonal}");

        // The iteration of torch, all of it in bfloat16, differs by 1.5 % for these sizes.
        let low = Param::new(Tensor::zeros(&shape, DType::F32));
        let mut grads = precast::Grads::default();
        grads.set(&low, super::noise(&shape, 3));
        Muon::new([low.clone()].into_iter().collect(), 1.0).low_products(true).update(&grads).unwrap();
        let (low, x) = (low.value().to_f64(), x.to_f64());
        let norm = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
        let error = norm(&mut low.iter().zip(&x).map(|(a, b)| a - b)) / norm(&mut x.iter().copied());
        assert!((1e-4..2.5e-2).contains(&error), "{shape:?}: {error}");
    }
    let vector = Param::new(Tensor::zeros(&[3], DType::F32));
    let error = Muon::new([vector.clone()].into_iter().collect(), 1.0).update(&grads_of(&vector, 1.0)).unwrap_err();
    assert!(error.to_string().contains("Muon trains matrices only"), "{error}");
}

#[test]
fn a_tied_parameter_is_updated_once() {
    let param = Param::new(Tensor::ones(&[1], DType::F32));
    let other = Param::new(Tensor::ones(&[1], DType::F32));
    let twice: Params = [("encoder.table", &param), ("middle", &other), ("decoder.table", &param)]
        .map(|(n, p)| (n.to_string(), p.clone()))
        .into_iter()
        .collect();
    assert_eq!(twice.iter().map(|(path, _)| path).collect::<Vec<_>>(), ["encoder.table", "middle"]);
    let mut optimizer = Sgd::new(twice, 0.25);
    optimizer.update(&grads_of(&param, 1.0)).unwrap();
    assert_eq!(param.value().item().unwrap(), 0.75);
    assert_eq!(other.value().item().unwrap(), 1.0);
}

#[test]
fn buffers_are_not_trained() {
    let params: Params = [Param::buffer(Tensor::ones(&[1], DType::F32))].into_iter().collect();
    assert!(params.is_empty());
}

#[test]
fn hyperparameters_out_of_range_are_refused_without_a_change() {
    let param = Param::new(Tensor::ones(&[1], DType::F32));
    let params = || -> Params { [param.clone()].into_iter().collect() };
    let mut set_later = Sgd::new(params(), 0.1);
    set_later.set_lr(f64::NAN);
    assert!(set_later.lr().is_nan());
    let cases: Vec<(Box<dyn Optimizer>, &str)> = vec![
        (Box::new(set_later), "learning rate is NaN"),
        (Box::new(Sgd::new(params(), -1.0)), "learning rate is -1; allowed: a finite number of at least 0"),
        (Box::new(Sgd::new(params(), f64::INFINITY)), "learning rate is inf"),
        (Box::new(Sgd::new(params(), 0.1).momentum(-0.1)), "`momentum` is -0.1"),
        (Box::new(Sgd::new(params(), 0.1).dampening(1.5)), "`dampening` is 1.5"),
        (Box::new(Sgd::new(params(), 0.1).weight_decay(-1.0)), "`weight_decay` is -1"),
        (Box::new(Sgd::new(params(), 0.1).nesterov(true)), "nesterov needs a momentum"),
        (Box::new(Adam::new(params(), 0.1).betas(1.0, 0.9)), "`betas[0]` is 1; allowed: 0 up to but not including 1"),
        (Box::new(Adam::new(params(), 0.1).betas(0.9, f64::NAN)), "`betas[1]` is NaN"),
        (Box::new(Adam::new(params(), 0.1).eps(-1.0)), "`eps` is -1"),
        (Box::new(RmsProp::new(params(), 0.1).alpha(1.0)), "`alpha` is 1; allowed: 0 up to but not including 1"),
        (Box::new(Adagrad::new(params(), 0.1).lr_decay(-1.0)), "`lr_decay` is -1"),
        (Box::new(Lion::new(params(), 0.1).betas(0.9, 1.0)), "`betas[1]` is 1"),
        (Box::new(Adafactor::new(params(), 0.1).beta2_decay(0.1)), "`beta2_decay` is 0.1"),
        (
            Box::new(Adafactor::new(params(), 0.1).threshold(0.5)),
            "`threshold` is 0.5; allowed: a finite number of at least 1",
        ),
        (Box::new(Muon::new(params(), 0.1).rounds(100)), "`rounds` is 100; allowed: below 100"),
        (
            Box::new(Sgd::new(params(), 0.1).group("0", |g| g.lr_factor(-1.0)).unwrap()),
            "factor of the learning rate is -1",
        ),
        (Box::new(Sgd::new(params(), 0.1).group("0", |g| g.weight_decay(f64::NAN)).unwrap()), "weight decay is NaN"),
    ];
    for (mut optimizer, part) in cases {
        let message = optimizer.update(&grads_of(&param, 1.0)).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
        assert_eq!(param.value().item().unwrap(), 1.0);
    }
}

#[test]
fn a_gradient_of_another_shape_is_refused_without_a_change() {
    let (good, bad) = (Param::new(Tensor::ones(&[1], DType::F32)), Param::new(Tensor::ones(&[2], DType::F32)));
    let params: Params = [("good".to_string(), good.clone()), ("bad".to_string(), bad.clone())].into_iter().collect();
    let mut grads = grads_of(&good, 1.0);
    grads.set(&bad, Tensor::ones(&[3], DType::F32));
    let message = Sgd::new(params, 0.1).update(&grads).unwrap_err().to_string();
    assert_eq!(message, "the gradient of `bad` is f32 [3], the parameter has the shape [2]");
    assert_eq!(good.value().item().unwrap(), 1.0);
}

#[test]
fn an_f16_parameter_is_updated_in_f32_and_rounded_once() {
    // A tenth of f16's epsilon vanishes in the value, but accumulates in the f32 velocity, which then becomes visible.
    let param = Param::new(Tensor::full(&[1], 1.0, DType::F16));
    let mut optimizer = Sgd::new([param.clone()].into_iter().collect(), 1.0).momentum(1.0);
    let g = 2f64.powi(-10) / 10.0;
    let (mut velocity, mut value) = (0.0f32, 1.0f32);
    for _ in 0..12 {
        optimizer.update(&grads_of(&param, g)).unwrap();
        velocity += half::f16::from_f64(g).to_f32();
        value = half::f16::from_f32(value - velocity).to_f32();
    }
    assert!(value < 1.0);
    assert_eq!(param.value().item().unwrap(), f64::from(value));
}

#[test]
fn zero_size_parameters_are_no_trouble() {
    let param = Param::new(Tensor::zeros(&[0, 3], DType::F32));
    Adam::new([param.clone()].into_iter().collect(), 0.1).update(&grads_of(&param, 1.0)).unwrap();
    assert_eq!(param.shape(), [0, 3]);
}
