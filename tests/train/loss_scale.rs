//! The loss scale: its bounds, its file form, and the training step. Comparisons with other systems are in
//! tests/conformance/scalers.

use precast::{
    Adam, DType, LossScale, Op, Optimizer, Outcome, Param, Result, Sgd, Tensor,
    cell::Params,
    observe,
    policy::{DynamicScale, LossScaleSpec},
    scale::{Cause, all_finite},
    twice_differentiable,
};

fn unbounded(init: f32, factor: f64, interval: u32) -> LossScaleSpec {
    let (growth, backoff) = (factor, 1.0 / factor);
    LossScaleSpec::Dynamic(
        DynamicScale::default().init(init).growth(growth).backoff(backoff).interval(interval).max(f32::MAX),
    )
}

#[test]
fn the_scale_stays_between_its_bounds() {
    let bounds = DynamicScale::default().init(8.0).interval(1).min(2.0).max(16.0);
    let mut scale = LossScale::new(LossScaleSpec::Dynamic(bounds)).unwrap();
    let mut seen = |finite: bool| {
        scale.adjust(finite);
        scale.value()
    };
    assert_eq!([true, true, true].map(&mut seen), [16.0, 16.0, 16.0]);
    assert_eq!([false, false, false, false].map(&mut seen), [8.0, 4.0, 2.0, 2.0]);
}

#[test]
fn a_restored_scale_continues_as_if_nothing_had_happened() {
    let spec = unbounded(1024.0, 2.0, 3);
    let mut scale = LossScale::new(spec.clone()).unwrap();
    for finite in [true, true, false, true] {
        scale.adjust(finite);
    }
    let text = serde_json::to_string(&scale.state()).unwrap();
    let mut restored = LossScale::new(spec).unwrap();
    restored.restore(serde_json::from_str(&text).unwrap()).unwrap();
    assert_eq!(restored, scale);
    for finite in [true, true, true, false] {
        restored.adjust(finite);
        scale.adjust(finite);
        assert_eq!(restored, scale);
    }
    let mut state = scale.state();
    state.scale = f32::NAN;
    assert!(scale.restore(state).is_err());
    state = scale.state();
    state.counter = 3;
    assert!(scale.restore(state).is_err());
    assert!(LossScale::none().restore(scale.state()).unwrap_err().to_string().contains("allowed: 1 to 1"));
}

/// Two weights by which the inputs are multiplied; the loss is linear in them, so its gradients are the inputs.
struct Net {
    a: Param,
    b: Param,
}

impl Net {
    fn new() -> Net {
        let weight = || Param::new(Tensor::ones(&[1, 1], DType::F32));
        Net { a: weight(), b: weight() }
    }

    fn params(&self) -> Params {
        [("a".to_string(), self.a.clone()), ("b".to_string(), self.b.clone())].into_iter().collect()
    }

    /// Computes `a * x + b * y` in a dtype.
    fn loss(&self, x: f64, y: f64, dtype: DType) -> Result<Tensor> {
        let times = |p: &Param, x: f64| p.tensor().cast(dtype).matmul(&Tensor::full(&[1, 1], x, dtype));
        times(&self.a, x)?.add(&times(&self.b, y)?)
    }

    fn values(&self) -> [f64; 2] {
        [&self.a, &self.b].map(|p| p.value().item().unwrap())
    }
}

#[test]
fn a_step_divides_the_scale_out_of_the_gradients() {
    for spec in
        [LossScaleSpec::None, LossScaleSpec::Fixed { scale: 1024.0 }, LossScaleSpec::Dynamic(DynamicScale::default())]
    {
        let net = Net::new();
        let mut optimizer = Sgd::new(net.params(), 0.5);
        let mut scale = LossScale::new(spec).unwrap();
        let outcome = scale.step(&mut optimizer, net.loss(0.25, -2.0, DType::F32).unwrap()).unwrap();
        assert_eq!(outcome, Outcome::Stepped);
        assert_eq!(net.values(), [0.875, 2.0]);
    }
}

/// 2^-20 times 2^-6 is below half of f16's smallest number, 2^-24, and is lost without a scale.
#[test]
fn a_scale_saves_a_gradient_that_underflows_in_f16() {
    let small = |scale: &LossScale| -> Result<f64> {
        let p = Param::new(Tensor::full(&[1, 1], 1.0, DType::F32));
        let low = p.tensor().cast(DType::F16);
        let x = Tensor::full(&[1, 1], 2f64.powi(-20), DType::F16);
        let y = low.matmul(&x)?.matmul(&Tensor::full(&[1, 1], 2f64.powi(-6), DType::F16))?;
        let params: Params = [p.clone()].into_iter().collect();
        let grads = scale.scale(&y)?.backward()?.unscale(&params)?;
        assert_eq!(grads.non_finite(), None);
        assert!(all_finite(&grads, &params));
        grads.get(&p).unwrap().item()
    };
    assert_eq!(small(&LossScale::none()).unwrap(), 0.0);
    assert_eq!(small(&LossScale::fixed(1024.0).unwrap()).unwrap(), 2f64.powi(-26));
}

#[test]
fn a_low_loss_is_scaled_in_f32() {
    let loss = Tensor::scalar(3.0, DType::F16);
    let scaled = LossScale::dynamic().scale(&loss).unwrap();
    assert_eq!((scaled.dtype(), scaled.item().unwrap()), (DType::F32, 3.0 * 65536.0));
    let double = LossScale::dynamic().scale(Tensor::scalar(1e300, DType::F64)).unwrap();
    assert_eq!((double.dtype(), double.item().unwrap()), (DType::F64, 1e300 * 65536.0));
}

#[test]
fn a_scaled_loss_says_its_scale_and_none_computes_nothing() {
    let loss = Tensor::scalar(3.0, DType::F32);
    for (scale, expected, ops) in
        [(LossScale::none(), 1.0, 0), (LossScale::fixed(8.0).unwrap(), 8.0, 1), (LossScale::dynamic(), 65536.0, 1)]
    {
        let (scaled, events) = observe::watch(|| scale.scale(&loss).unwrap());
        assert_eq!((scaled.scale(), scaled.item().unwrap()), (expected as f32, 3.0 * expected));
        assert_eq!(events.iter().filter(|event| event.op == Op::Mul).count(), ops);
    }
}

#[test]
fn scaled_gradients_say_their_scale_and_how_many_are_left() {
    let [a, b] = [2.0, 3.0].map(|x| Param::new(Tensor::scalar(x, DType::F32)));
    let of = |params: &[&Param]| -> Params { params.iter().map(|p| ("p".to_string(), (*p).clone())).collect() };
    let scale = LossScale::fixed(8.0).unwrap();
    let mut grads = scale.scale(a.tensor().mul(&b.tensor()).unwrap()).unwrap().backward().unwrap();
    assert_eq!((grads.scale(), grads.len(), grads.is_empty()), (8.0, 2, false));
    assert_eq!(grads.unscale(&of(&[&a])).unwrap().get(&a).unwrap().item().unwrap(), 3.0);
    assert_eq!((grads.len(), grads.is_empty()), (1, false));
    let _rest = grads.unscale(&of(&[&b])).unwrap();
    assert_eq!((grads.scale(), grads.len(), grads.is_empty()), (8.0, 0, true));
}

/// Non-finite gradients of two losses are attributed to the scale if both losses are finite, and to the losses if one
/// is not.
#[test]
fn a_sum_with_a_non_finite_loss_is_not_blamed_on_the_scale() {
    let w = Param::new(Tensor::scalar(1.0, DType::F32));
    let params = || -> Params { [("w".to_string(), w.clone())].into_iter().collect() };
    for (factors, by_scale) in
        [([1e38, f64::INFINITY], false), ([f64::INFINITY, 1e38], false), ([1e38, 1.0], true), ([1.0, 1e38], true)]
    {
        let mut scale = LossScale::dynamic();
        let backward = |factor: f64| {
            let loss = w.tensor().mul(&Tensor::scalar(factor, DType::F32)).unwrap();
            scale.scale(&loss).unwrap().backward().unwrap()
        };
        let mut grads = backward(factors[0]);
        grads.accumulate(backward(factors[1])).unwrap();
        let unscaled = grads.unscale(&params()).unwrap();
        let Outcome::Skipped { cause } = scale.apply(&mut Sgd::new(params(), 0.5), &unscaled).unwrap() else {
            panic!()
        };
        assert_eq!(matches!(cause, Cause::Overflow { .. }), by_scale, "{factors:?}: {cause:?}");
    }
}

/// The loss w^2 with the penalty (2w)^2, whose slope at 3 is 2w + 8w = 30.
#[test]
fn a_penalty_on_gradients_is_computed_without_the_scale() {
    let (w, other) = (Param::new(Tensor::scalar(3.0, DType::F32)), Param::new(Tensor::scalar(1.0, DType::F32)));
    let params = || -> Params { [("w".to_string(), w.clone())].into_iter().collect() };
    for mut scale in [LossScale::none(), LossScale::fixed(1024.0).unwrap(), LossScale::dynamic()] {
        w.set(&Tensor::scalar(3.0, DType::F32)).unwrap();
        let x = w.tensor();
        let (loss, scaled) = twice_differentiable(|| {
            let loss = x.square().unwrap();
            (loss.clone(), scale.scale(&loss).unwrap())
        });
        let grads = scaled.gradients_on_tape(&[&x, &other.tensor()]).unwrap();
        let [Some(grad), None] = &grads[..] else { panic!("{grads:?}") };
        assert_eq!((grad.dtype(), grad.item().unwrap()), (DType::F32, 6.0));
        let total = loss.add(&grad.square().unwrap()).unwrap();
        assert_eq!(total.item().unwrap(), 9.0 + 36.0);
        // Nothing overflowed, so the step is taken: 3 - 0.5 * 30.
        assert_eq!(scale.step(&mut Sgd::new(params(), 0.5), &total).unwrap(), Outcome::Stepped);
        assert_eq!(w.value().item().unwrap(), -12.0);
    }
}

/// A gradient of 65536 is infinite in f16. The penalty is infinite because of the scale, not because of the network.
#[test]
fn a_penalty_that_overflows_shrinks_the_scale() {
    let w = Param::new(Tensor::scalar(3.0, DType::F32));
    let params = || -> Params { [("w".to_string(), w.clone())].into_iter().collect() };
    let step = |scale: &mut LossScale, factor: f64| {
        let x = w.tensor();
        let (loss, scaled) = twice_differentiable(|| {
            let loss = x.cast(DType::F16).mul(&Tensor::scalar(factor, DType::F16)).unwrap();
            (loss.clone(), scale.scale(&loss).unwrap())
        });
        let grads = scaled.gradients_on_tape(&[&x]).unwrap();
        let penalty = grads[0].clone().unwrap().square().unwrap();
        let total = loss.cast(DType::F32).add(&penalty).unwrap();
        scale.step(&mut Sgd::new(params(), 0.5), &total).unwrap()
    };
    let mut scale = LossScale::new(unbounded(65536.0, 2.0, 2000)).unwrap();
    let Outcome::Skipped { cause: Cause::Overflow { scale: at, .. } } = step(&mut scale, 1.0) else { panic!() };
    assert_eq!((at, scale.value(), w.value().item().unwrap()), (65536.0, 32768.0, 3.0));
    assert_eq!(step(&mut scale, 1.0), Outcome::Stepped);
    // A loss that is itself infinite is not attributed to the scale.
    let Outcome::Skipped { cause: Cause::Loss { origin: None } } = step(&mut scale, 1e5) else { panic!() };
    assert_eq!(scale.value(), 32768.0);
}

#[test]
fn overflow_skips_names_the_parameter_and_shrinks_the_scale() {
    let net = Net::new();
    let mut optimizer = Adam::new(net.params(), 0.1);
    let mut scale = LossScale::new(unbounded(32768.0, 2.0, 2000)).unwrap();
    // 32768 * 2 overflows in f16, 32768 * 0.25 does not.
    let outcome = scale.step(&mut optimizer, net.loss(0.25, 2.0, DType::F16).unwrap()).unwrap();
    let Outcome::Skipped { cause } = outcome else { panic!("{outcome:?}") };
    assert_eq!(cause, Cause::Overflow { scale: 32768.0, first: "b".into(), origin: None });
    assert_eq!(cause.to_string(), "a gradient was not finite at loss scale 32768, first seen in `b`");
    assert_eq!((net.values(), scale.value()), ([1.0, 1.0], 16384.0));
    let outcome = scale.step(&mut optimizer, net.loss(0.25, 2.0, DType::F16).unwrap()).unwrap();
    assert_eq!((outcome, scale.value()), (Outcome::Stepped, 16384.0));
    // Adam's first step is the learning rate against the sign of the gradient at any scale.
    for value in net.values() {
        assert!((value - 0.9).abs() < 1e-6, "{value}");
    }
}

/// 3e38 / 2^-10 is infinite in f32, though not in f64.
#[test]
fn the_norm_is_that_of_the_gradients_as_they_are_read() {
    let net = Net::new();
    let scale = LossScale::fixed(2f32.powi(-10)).unwrap();
    let mut raw = precast::Grads::default();
    raw.set(&net.a, Tensor::full(&[1, 1], 3e38, DType::F32));
    raw.set(&net.b, Tensor::full(&[1, 1], 1.0, DType::F32));
    let mut grads = scale.already_scaled(raw).unscale(&net.params()).unwrap();
    assert_eq!(grads.clip_norm(1.0).unwrap(), f64::INFINITY);
    assert_eq!([&net.a, &net.b].map(|p| grads.get(p).unwrap().item().unwrap()), [f64::INFINITY, 1024.0]);
}

/// As custom clipping may do.
#[test]
fn a_gradient_that_was_replaced_is_looked_at_again() {
    for mut scale in [LossScale::none(), LossScale::fixed(8.0).unwrap(), LossScale::dynamic()] {
        let net = Net::new();
        let mut optimizer = Sgd::new(net.params(), 0.5);
        let loss = net.loss(1.0, 1.0, DType::F32).unwrap();
        let mut grads = scale.scale(&loss).unwrap().backward().unwrap().unscale(&net.params()).unwrap();
        grads.set(&net.b, Tensor::full(&[1, 1], f64::NAN, DType::F32));
        let outcome = scale.apply(&mut optimizer, &grads).unwrap();
        let cause = Cause::Overflow { scale: scale.value(), first: "b".into(), origin: None };
        assert_eq!(outcome, Outcome::Skipped { cause });
        assert_eq!(net.values(), [1.0, 1.0]);
    }
}

#[test]
fn a_loss_that_is_not_finite_is_not_blamed_on_the_scale() {
    let net = Net::new();
    let mut optimizer = Sgd::new(net.params(), 0.5);
    let mut scale = LossScale::dynamic();
    let outcome = scale.step(&mut optimizer, net.loss(1.0, f64::NAN, DType::F32).unwrap()).unwrap();
    assert_eq!(outcome.to_string(), "skipped: the loss itself was not finite");
    assert_eq!(outcome, Outcome::Skipped { cause: Cause::Loss { origin: None } });
    assert_eq!((net.values(), scale.value(), scale.state().skipped), ([1.0, 1.0], 65536.0, 1));
}

#[test]
fn what_cannot_recover_is_called_stalled() {
    // A non-finite loss: no scale helps.
    let stalls = |mut scale: LossScale, x: f64| {
        let net = Net::new();
        let mut optimizer = Sgd::new(net.params(), 0.5);
        for step in 1..=100 {
            let outcome = scale.step(&mut optimizer, net.loss(x, 0.0, DType::F32).unwrap()).unwrap();
            if let Outcome::Stalled { skipped, .. } = outcome {
                assert_eq!(skipped, step);
                return (step, scale.value());
            }
        }
        panic!("never stalled");
    };
    assert_eq!(stalls(LossScale::none(), f64::INFINITY), (20, 1.0));
    assert_eq!(stalls(LossScale::fixed(8.0).unwrap(), f64::NAN), (20, 8.0));
    assert_eq!(stalls(LossScale::dynamic(), f64::NAN), (20, 65536.0));

    // 1e30 * 1e10 overflows in f32 in the backward pass at every scale, while its product with 1e-30 in the forward pass does not.
    let weight = Param::new(Tensor::full(&[1, 1], 1e-30, DType::F32));
    let mut optimizer = Sgd::new([weight.clone()].into_iter().collect(), 0.5);
    let mut scale = LossScale::dynamic();
    let factor = |x: f64| Tensor::full(&[1, 1], x, DType::F32);
    let outcomes: Vec<Outcome> = (0..21)
        .map(|_| {
            let loss = weight.tensor().matmul(&factor(1e30)).unwrap().matmul(&factor(1e10)).unwrap();
            scale.step(&mut optimizer, &loss).unwrap()
        })
        .collect();
    assert!(outcomes[..19].iter().all(|o| matches!(o, Outcome::Skipped { cause: Cause::Overflow { .. } })));
    let cause = Cause::Overflow { scale: 1.0, first: "0".into(), origin: None };
    assert_eq!(outcomes[19], Outcome::Stalled { cause: cause.clone(), skipped: 20 });
    assert_eq!(outcomes[20], Outcome::Stalled { cause, skipped: 21 });
    scale.adjust(true);
    assert_eq!(scale.state().skipped, 0, "one finite step ends the row");

    // A scale that can still fall is given time: 2^30 is 1 after thirty steps. One that cannot fall is not.
    for (backoff, stalled) in [(0.5, 31), (1.0, 20)] {
        let bounds = DynamicScale::default().init(2f32.powi(30)).max(f32::MAX).backoff(backoff);
        let mut scale = LossScale::new(LossScaleSpec::Dynamic(bounds)).unwrap();
        let first = (1..=40).find(|_| {
            let loss = weight.tensor().matmul(&factor(1e30)).unwrap().matmul(&factor(1e10)).unwrap();
            matches!(scale.step(&mut optimizer, &loss).unwrap(), Outcome::Stalled { .. })
        });
        assert_eq!(first, Some(stalled), "backoff {backoff}");
    }
}

#[test]
fn what_cannot_be_a_loss_is_refused() {
    let net = Net::new();
    let mut optimizer = Sgd::new(net.params(), 0.5);
    let mut scale = LossScale::dynamic();
    let mut message = |loss: &Tensor| scale.step(&mut optimizer, loss).unwrap_err().to_string();
    assert!(message(&Tensor::zeros(&[2], DType::F32)).contains("the loss is f32 [2]"));
    assert!(message(&Tensor::scalar(1.0, DType::I64)).contains("the loss is i64 []"));
    assert!(message(&Tensor::scalar(1.0, DType::F32)).contains("depends on no parameter"));
    assert_eq!(scale, LossScale::dynamic());
}

#[test]
fn a_parameter_without_gradient_is_left_alone() {
    let net = Net::new();
    let idle = Param::new(Tensor::ones(&[3], DType::F32));
    let params = net.params().into_iter().chain([("idle".to_string(), idle.clone())]).collect();
    let mut optimizer = Sgd::new(params, 0.5).momentum(0.9).weight_decay(0.1);
    assert_eq!(optimizer.params().len(), 3);
    let loss = net.loss(1.0, 1.0, DType::F32).unwrap();
    assert_eq!(LossScale::none().step(&mut optimizer, &loss).unwrap(), Outcome::Stepped);
    assert_eq!(idle.value().to_f64(), [1.0; 3]);
}

#[test]
fn what_trains_nothing_is_an_error_that_says_what_is_missing() {
    let weight = Param::new(Tensor::ones(&[2], DType::F32));
    let params = || -> Params { [("fc.weight".to_string(), weight.clone())].into_iter().collect() };
    let mut optimizer = Sgd::new(params(), 0.1);
    // A constant loss.
    let losses = [
        precast::no_grad(|| weight.tensor().sum_all()).unwrap(),
        weight.value().sum_all().unwrap(),
        weight.tensor().detach().sum_all().unwrap(),
    ];
    for loss in losses {
        let errors = [loss.backward().unwrap_err(), LossScale::dynamic().step(&mut optimizer, &loss).unwrap_err()];
        for error in errors {
            assert_eq!(error.kind(), precast::ErrorKind::Gradient);
            assert!(error.to_string().contains("depends on no parameter: was it computed under `no_grad`"), "{error}");
        }
    }
    // A loss of another network, and gradients already taken by another optimizer.
    let other = Param::new(Tensor::ones(&[2], DType::F32));
    let loss = other.tensor().sum_all().unwrap();
    let named = "none of the optimizer's parameters, the first of which is `fc.weight`, has a gradient";
    let message = optimizer.update(&loss.backward().unwrap()).unwrap_err().to_string();
    assert!(message.starts_with(named), "{message}");
    let message = LossScale::none().step(&mut optimizer, &loss).unwrap_err().to_string();
    assert!(message.starts_with(named), "{message}");
    let mut scaled = LossScale::none().scale(weight.tensor().sum_all().unwrap()).unwrap().backward().unwrap();
    let _first = scaled.unscale(&params()).unwrap();
    let message = scaled.unscale(&params()).unwrap_err().to_string();
    assert!(message.starts_with(named) && message.ends_with("or they were unscaled before"), "{message}");
}
