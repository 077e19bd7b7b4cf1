//! Loss scales and training steps on networks of burn.

mod networks;

use burn::{
    module::{Module, Param},
    nn::{Linear, LinearConfig},
    optim::{AdamConfig, ModuleOptimizer, SgdConfig},
    tensor::{DType, Device, FloatDType, Tensor},
};
use networks::{Mlp, Tower, device, images, rows};
use precast_burn::{Amp, Cause, ErrorKind, Forward, LossScale, Outcome, Policy};

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().try_to_vec().unwrap()
}

/// A network of one weight, whose gradients have a closed form.
#[derive(Module, Debug)]
struct One {
    weight: Param<Tensor<1>>,
}

impl One {
    fn new(weight: f32, device: &Device) -> Self {
        One { weight: Param::from_tensor(Tensor::from_floats([weight], device)) }
    }
}

impl Forward<Tensor<1>> for One {
    type Output = Tensor<1>;

    fn forward(&self, x: Tensor<1>) -> Tensor<1> {
        self.weight.val() * x
    }
}

fn o2() -> Policy {
    Policy::named("o2").unwrap()
}

/// The loss is w x: its gradient is the scale times x in f16, which ends at 65504. So a step with x = 1 is skipped at
/// the scale 65536 and taken at 32768, where w becomes 1 - 0.5 * 1.
#[test]
fn an_overflow_halves_the_scale_and_leaves_everything_else() {
    let device = device();
    let mut net = Amp::new(One::new(1.0, &device));
    let policy = o2();
    let _applied = policy.apply(&mut net).unwrap();
    let mut optimizer: ModuleOptimizer = AdamConfig::new().init();
    let mut scale = LossScale::new(&policy).unwrap();
    let x = || Tensor::<1>::from_floats([1.0], &device);

    let loss = net.forward(x()).sum();
    let (mut net, outcome) = scale.step(&mut optimizer, 0.5, net, loss).unwrap();
    assert_eq!(outcome, Outcome::Skipped { cause: Cause::Overflow { scale: 65536.0, first: "weight".into() } });
    assert_eq!(outcome.to_string(), "skipped: a gradient was not finite at loss scale 65536, first seen in `weight`");
    assert_eq!(scale.value(), 32768.0);
    assert_eq!(numbers(net.inner().weight.base()), [1.0]);
    assert_eq!(optimizer.to_record().into_bytes().unwrap().len(), {
        let fresh: ModuleOptimizer = AdamConfig::new().init();
        fresh.to_record().into_bytes().unwrap().len()
    });

    let mut sgd: ModuleOptimizer = SgdConfig::new().init();
    let loss = net.forward(x()).sum();
    (net, _) = scale.step(&mut sgd, 0.5, net, loss).unwrap();
    assert_eq!(numbers(net.inner().weight.base()), [0.5]);
}

#[test]
fn a_gradient_that_f16_loses_is_saved_by_the_scale() {
    let device = device();
    let policy = o2();
    // The gradient of w x * 2^-12 * 2^-13 is 2^-25 x, half of the smallest number of f16.
    let gradient = |scale: LossScale| {
        let mut net = Amp::new(One::new(1.0, &device));
        let _applied = policy.apply(&mut net).unwrap();
        let x = Tensor::<1>::from_floats([2f32.powi(-12)], &device);
        let loss = net.with(x, |net, x| net.forward(x) * 2f32.powi(-13)).sum();
        let checked = scale.backward(loss, &net).unwrap().unscale(&net);
        numbers(checked.grads.get::<1>(net.inner().weight.id).unwrap())[0]
    };
    let fixed = |scale| precast_policy::scale::ScaleMachine::fixed(scale).unwrap().into();
    assert_eq!(gradient(fixed(1.0)), 0.0);
    assert_eq!(gradient(fixed(1024.0)), 2f32.powi(-25));
}

/// Gradients that the check looks at number by number, in rows, and in neither, as nothing divides a prime number.
#[derive(Module, Debug)]
struct Sizes {
    small: Param<Tensor<1>>,
    rows: Param<Tensor<3>>,
    prime: Param<Tensor<1>>,
    last: Param<Tensor<2>>,
}

impl Sizes {
    const NUMBERS: [(&str, usize); 4] = [("small", 3), ("rows", 20 * 30 * 70), ("prime", 20_011), ("last", 2 * 9000)];

    /// All weights are `number`, except one.
    fn new(number: f32, except: Option<(&str, usize, f32)>, device: &Device) -> Self {
        let [small, rows, prime, last] = Sizes::NUMBERS.map(|(name, count)| {
            let mut numbers = vec![number; count];
            match except {
                Some((of, at, other)) if of == name => numbers[at] = other,
                _ => {}
            }
            Tensor::<1>::from_floats(&numbers[..], device)
        });
        Sizes {
            small: Param::from_tensor(small),
            rows: Param::from_tensor(rows.reshape([20, 30, 70])),
            prime: Param::from_tensor(prime),
            last: Param::from_tensor(last.reshape([2, 9000])),
        }
    }

    /// The sum of a function of each weight.
    fn sum(&self, f: impl Fn(Tensor<1>) -> Tensor<1>) -> Tensor<1> {
        let all = [self.small.val(), self.rows.val().reshape([-1]), self.prime.val(), self.last.val().reshape([-1])];
        all.map(|weight| f(weight).sum()).into_iter().reduce(|a, b| a + b).unwrap()
    }
}

/// The derivative of the square root is infinite at 0, where the loss is finite.
#[test]
fn an_infinite_gradient_is_found_and_named_wherever_it_is() {
    let device = device();
    let scale: LossScale = precast_policy::scale::ScaleMachine::none().into();
    let check = |except| {
        let net = Sizes::new(1.0, except, &device);
        scale.backward(net.sum(Tensor::sqrt), &net).unwrap().unscale(&net)
    };
    assert_eq!(check(None).first_non_finite, None);
    for (name, count) in Sizes::NUMBERS {
        for at in [0, count / 2, count - 1] {
            let checked = check(Some((name, at, 0.0)));
            assert_eq!(checked.first_non_finite.as_deref(), Some(name), "at {at}");
            assert!(checked.finite_loss && checked.missing.is_empty());
        }
        // Below 0 it is NaN, and so is the loss.
        let checked = check(Some((name, count / 2, -1.0)));
        assert_eq!((checked.finite_loss, checked.first_non_finite.as_deref()), (false, Some(name)));
    }
}

/// The sum of two of these gradients is infinite, and each is finite.
#[test]
fn the_largest_gradients_are_finite() {
    let device = device();
    let net = Sizes::new(0.0, None, &device);
    let scale: LossScale = precast_policy::scale::ScaleMachine::none().into();
    let checked = scale.backward(net.sum(|weight| weight.mul_scalar(f32::MAX)), &net).unwrap().unscale(&net);
    assert!(checked.finite_loss);
    assert_eq!(checked.first_non_finite, None);
    assert!(numbers(checked.grads.get::<3>(net.rows.id).unwrap()).iter().all(|number| *number == f32::MAX));
}

#[test]
fn a_gradient_of_f64_that_is_no_f32_is_finite() {
    let device = device();
    let weight = |number: f32| Tensor::<1>::from_floats([number, 0.0], &device);
    let net = vec![Param::from_tensor(weight(0.0).cast(FloatDType::F64)), Param::from_tensor(weight(1.0))];
    let scale: LossScale = precast_policy::scale::ScaleMachine::none().into();
    let check = |by: f64| {
        let wide = net[0].val().mul_scalar(by).sum().cast(FloatDType::F32);
        scale.backward(wide + net[1].val().sum(), &net).unwrap().unscale(&net)
    };
    let checked = check(1e300);
    assert_eq!(checked.first_non_finite, None);
    assert_eq!(checked.grads.get::<1>(net[0].id).unwrap().into_data().try_to_vec::<f64>().unwrap(), [1e300, 1e300]);
    assert_eq!(check(f64::INFINITY).first_non_finite.as_deref(), Some("0"));
}

#[test]
fn a_loss_that_is_not_finite_leaves_the_scale() {
    let device = device();
    let mut net = Amp::new(One::new(f32::INFINITY, &device));
    let policy = o2();
    let _applied = policy.apply(&mut net).unwrap();
    let mut scale = LossScale::new(&policy).unwrap();
    let mut optimizer: ModuleOptimizer = SgdConfig::new().init();
    let mut outcome = Outcome::Stepped;
    for _ in 0..20 {
        let loss = net.forward(Tensor::<1>::from_floats([1.0], &device)).sum();
        (net, outcome) = scale.step(&mut optimizer, 0.5, net, loss).unwrap();
        assert_eq!(outcome.cause(), Some(&Cause::Loss));
    }
    assert_eq!(scale.value(), 65536.0);
    assert!(matches!(outcome, Outcome::Stalled { skipped: 20, .. }), "{outcome}");
}

#[test]
fn a_skipped_step_takes_back_the_running_states() {
    let mut net = Amp::new(Tower::new(&device()));
    let policy = o2();
    let _applied = policy.apply(&mut net).unwrap();
    let mut scale = LossScale::new(&policy).unwrap();
    let mut optimizer: ModuleOptimizer = SgdConfig::new().init();
    let states = |net: &Amp<Tower>| {
        let norm = net.inner().norm.inner();
        [numbers(norm.running_mean.value_sync()), numbers(norm.running_var.value_sync())]
    };
    let loss = |net: &Amp<Tower>, by: f32| net.forward(images(&device()).mul_scalar(by)).square().mean();
    // A good step at a scale that fits.
    scale.restore(precast_policy::scale::ScaleState { scale: 256.0, ..scale.state() }).unwrap();
    let good = loss(&net, 1.0);
    let (stepped, outcome) = scale.step(&mut optimizer, 0.01, net, good).unwrap();
    assert_eq!(outcome, Outcome::Stepped);
    net = stepped;
    let before = states(&net);
    assert_ne!(before[1], vec![1.0, 1.0], "the good step counts");
    // 1e30 is infinite in f16.
    let bad = loss(&net, 1e30);
    let (skipped, outcome) = scale.step(&mut optimizer, 0.01, net, bad).unwrap();
    assert_eq!(outcome, Outcome::Skipped { cause: Cause::Loss });
    assert_eq!(states(&skipped), before);
    // And the next step goes as if nothing had been.
    let next = loss(&skipped, 1.0);
    let (next, outcome) = scale.step(&mut optimizer, 0.01, skipped, next).unwrap();
    assert_eq!(outcome, Outcome::Stepped);
    assert!(states(&next).iter().flatten().all(|number| number.is_finite()));
}

/// All gradients are infinite; the backward pass meets that of the last layer first.
#[test]
fn the_parameter_nearest_to_the_loss_is_named() {
    let mut net = Amp::new(networks::Mlp::new(&device()));
    let policy = o2();
    let _applied = policy.apply(&mut net).unwrap();
    let scale = LossScale::new(&policy).unwrap();
    let loss = net.forward(rows(&device())).square().mean() * 1e35;
    let checked = scale.backward(loss, &net).unwrap().unscale(&net);
    assert_eq!((checked.finite_loss, checked.first_non_finite.as_deref()), (true, Some("down.bias")));
}

/// burn alone: the running states of a batch norm are lost with the first batch that overflows.
#[test]
fn without_the_step_a_running_state_is_lost() {
    let mut net = Amp::new(Tower::new(&device()));
    let _applied = o2().apply(&mut net).unwrap();
    let _loss = net.forward(images(&device()).mul_scalar(1e30)).square().mean();
    assert!(numbers(net.inner().norm.inner().running_mean.value_sync()).iter().all(|mean| !mean.is_finite()));
}

#[test]
fn a_parameter_without_a_gradient_is_named() {
    #[derive(Module, Debug)]
    struct Unused {
        used: Linear,
        unused: Linear,
    }
    let device = device();
    let net = Unused { used: LinearConfig::new(8, 1).init(&device), unused: LinearConfig::new(2, 3).init(&device) };
    let scale: LossScale = precast_policy::scale::ScaleMachine::none().into();
    let loss = net.used.forward(rows(&device)).mean();
    let checked = scale.backward(loss, &net).unwrap().unscale(&net);
    assert_eq!(checked.missing, ["unused.weight", "unused.bias"]);
    assert_eq!(checked.first_non_finite, None);
}

#[test]
fn accumulated_gradients_are_those_of_the_sum() {
    let device = device();
    let net = Mlp::new(&device);
    let scale: LossScale = precast_policy::scale::ScaleMachine::fixed(8.0).unwrap().into();
    let part = |from: usize| net.forward(rows(&device).narrow(0, from, 2)).square().sum();
    let whole = scale.backward(net.forward(rows(&device)).square().sum(), &net).unwrap().unscale(&net);
    let mut sum = scale.backward(part(0), &net).unwrap();
    sum.accumulate(scale.backward(part(2), &net).unwrap(), &net).unwrap();
    let sum = sum.unscale(&net);
    let id = net.up.inner().weight.id;
    let (whole, sum) = (numbers(whole.grads.get::<2>(id).unwrap()), numbers(sum.grads.get::<2>(id).unwrap()));
    for (whole, sum) in whole.iter().zip(&sum) {
        assert!((whole - sum).abs() <= 1e-5 * whole.abs().max(1.0), "{whole} {sum}");
    }
    let other: LossScale = precast_policy::scale::ScaleMachine::fixed(4.0).unwrap().into();
    let mut first = scale.backward(part(0), &net).unwrap();
    let error = first.accumulate(other.backward(part(2), &net).unwrap(), &net).unwrap_err();
    assert_eq!(error.to_string(), "gradients at loss scale 4 cannot be added to those at 8");
}

#[test]
fn a_loss_that_no_gradient_reaches_is_refused() {
    let scale = LossScale::new(&o2()).unwrap();
    let plain = Device::default();
    let net = Mlp::new(&plain);
    let loss = net.forward(rows(&plain)).mean();
    let error = scale.backward(loss, &net).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gradient);
    assert!(error.to_string().contains("`device.autodiff()`"), "{error}");
    let net = Mlp::new(&device());
    let error = scale.backward(net.forward(rows(&device())).mean().detach(), &net).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gradient);
    let many = net.forward(rows(&device())).reshape([16]);
    assert_eq!(
        scale.backward(many, &net).unwrap_err().to_string(),
        "a training step starts from one number; the loss has 16"
    );
}

#[test]
fn the_scale_is_that_of_the_policy() {
    let with = |scale: &str| {
        let text = format!("version: 1\nlevel: O2\ndtype: float16\nloss_scale: {scale}\n");
        LossScale::new(&Policy::parse(&text, "scale.yaml").unwrap()).unwrap().value()
    };
    assert_eq!(with("{ kind: dynamic, preset: deepspeed, init: 1024 }"), 1024.0);
    assert_eq!(with("{ kind: fixed, scale: 128 }"), 128.0);
    assert_eq!(with("{ kind: none }"), 1.0);
    assert_eq!(LossScale::new(&Policy::named("o2-bf16").unwrap()).unwrap().value(), 1.0);
}

#[test]
fn a_low_loss_is_scaled_in_f32() {
    let device = device();
    let net = One::new(1.0, &device);
    let low = net.forward(Tensor::from_floats([3.0], &device)).cast(FloatDType::F16);
    assert_eq!(low.dtype(), DType::F16);
    let scale: LossScale = precast_policy::scale::ScaleMachine::fixed(65536.0).unwrap().into();
    let checked = scale.backward(low, &net).unwrap().unscale(&net);
    assert!(checked.finite_loss, "3 * 65536 is not an f16");
}
