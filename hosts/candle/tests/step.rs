//! Steps with a loss scale: updates, skips, refusals, and missing gradients.

mod common;

use candle_core::{DType, Module, Result, Tensor, Var};
use candle_nn::{AdamW, Linear, ModuleT, Optimizer, SGD, VarBuilder, VarMap, batch_norm, loss::mse};
use common::{CPU, Net, all_bits, bits, loss, network, policy, tensor};
use precast_candle::{
    Cause, ErrorKind, Network, Outcome, Policy, ScaleMachine, linear,
    precast_policy::{
        DType as Named, Level,
        policy::{DynamicScale, LossScaleSpec, Scaler},
    },
};

fn dynamic(init: f32) -> ScaleMachine {
    ScaleMachine::new(LossScaleSpec::Dynamic(DynamicScale::default().init(init))).unwrap()
}

fn apply(net: &mut Network<Net>, name: &str) {
    net.apply(net.plan(&Policy::named(name).unwrap()).unwrap()).unwrap();
}

/// A scale that is a power of two changes no bit of an f32 step.
#[test]
fn a_scaled_step_in_f32_is_the_plain_step() {
    let (mut net, vars) = network(1);
    let (mut adamw, mut scale) = (AdamW::new_lr(net.vars(), 0.01).unwrap(), dynamic(65536.0));
    for _ in 0..5 {
        let loss = loss(&net.build().unwrap());
        assert_eq!(net.step(&mut scale, &mut adamw, &loss).unwrap(), Outcome::Stepped);
    }
    let (plain, plain_vars) = network(1);
    let mut adamw = AdamW::new_lr(plain.vars(), 0.01).unwrap();
    for _ in 0..5 {
        let model = Net::new(VarBuilder::from_varmap(&plain_vars, DType::F32, CPU)).unwrap();
        adamw.backward_step(&loss(&model)).unwrap();
    }
    assert_eq!(all_bits(&vars), all_bits(&plain_vars));
}

/// f16 at a scale of 2^24: the scale falls until the gradients fit, and the network learns.
#[test]
fn training_in_f16_overflows_skips_and_converges() {
    let (mut net, vars) = network(1);
    apply(&mut net, "o2");
    let mut scale = ScaleMachine::new(LossScaleSpec::Dynamic(DynamicScale::default().init(16777216.0))).unwrap();
    let mut adamw = AdamW::new_lr(net.vars(), 0.02).unwrap();
    let (mut skipped, mut losses) = (0, Vec::new());
    for _ in 0..60 {
        let before = all_bits(&vars);
        let at = scale.value();
        let loss = loss(&net.build().unwrap());
        match net.step(&mut scale, &mut adamw, &loss).unwrap() {
            Outcome::Stepped => {
                losses.push(loss.to_scalar::<f32>().unwrap());
                assert_ne!(all_bits(&vars), before);
            }
            outcome => {
                skipped += 1;
                let Some(Cause::Overflow { scale, first }) = outcome.cause() else { panic!("{outcome}") };
                assert_eq!((*scale, first.as_str()), (at, "up.weight"));
                assert_eq!(all_bits(&vars), before, "nothing was updated");
            }
        }
    }
    assert!((3..12).contains(&skipped), "{skipped}");
    assert_eq!(scale.value(), 16777216.0 / 2f32.powi(skipped));
    assert!(losses.last().unwrap() < &(losses[0] / 5.0), "{losses:?}");
}

/// Without a scale, small gradients are 0 in f16; with one they are not.
#[test]
fn small_gradients_survive_by_the_scale() {
    let (mut net, _) = network(1);
    apply(&mut net, "o3");
    let count = |scale: &ScaleMachine| {
        let loss = (loss(&net.build().unwrap()) * 1e-7).unwrap();
        let grads = net.backward(scale, &loss).unwrap().unscale().unwrap();
        common::floats(grads.get("up.weight").unwrap()).iter().filter(|x| **x != 0.0).count()
    };
    assert_eq!(count(&ScaleMachine::none()), 0);
    assert!(count(&dynamic(65536.0)) > 40);
}

#[test]
fn a_skipped_step_leaves_the_optimizer_too() {
    let run = |with_skips: bool| {
        let (mut net, vars) = network(1);
        let (mut adamw, mut scale) = (AdamW::new_lr(net.vars(), 0.01).unwrap(), dynamic(1024.0));
        for step in 0..6 {
            if with_skips && step % 2 == 0 {
                let bad = (loss(&net.build().unwrap()) * f64::INFINITY).unwrap();
                let outcome = net.step(&mut scale, &mut adamw, &bad).unwrap();
                assert_eq!(outcome, Outcome::Skipped { cause: Cause::Loss });
                assert_eq!(scale.value(), 1024.0, "a smaller scale would not help");
            }
            let loss = loss(&net.build().unwrap());
            assert!(net.step(&mut scale, &mut adamw, &loss).unwrap().is_step());
        }
        all_bits(&vars)
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn twenty_skips_that_the_scale_cannot_help_are_a_stall() {
    let (mut net, _) = network(1);
    let (mut sgd, mut scale) = (SGD::new(net.vars(), 0.1).unwrap(), dynamic(1024.0));
    for step in 1..=20 {
        let bad = (loss(&net.build().unwrap()) * f64::NAN).unwrap();
        let outcome = net.step(&mut scale, &mut sgd, &bad).unwrap();
        assert_eq!(matches!(outcome, Outcome::Stalled { .. }), step == 20, "{step}: {outcome}");
    }
}

/// Two batches of half the loss each are one batch; a clipped gradient has the norm asked for.
#[test]
fn gradients_are_added_and_clipped() {
    let (mut net, _) = network(1);
    let scale = dynamic(1024.0);
    let whole = net.backward(&scale, &loss(&net.build().unwrap())).unwrap().unscale().unwrap();
    let half = || net.backward(&scale, &(loss(&net.build().unwrap()) / 2.0).unwrap()).unwrap();
    let mut sum = half();
    sum.accumulate(half()).unwrap();
    let mut grads = sum.unscale().unwrap();
    for (name, grad) in whole.iter() {
        assert_eq!(bits(grads.get(name).unwrap()), bits(grad), "{name}");
    }
    let norm = |grads: &precast_candle::Grads| {
        let squares = grads.iter().flat_map(|(_, grad)| common::floats(grad)).map(|x| f64::from(x).powi(2));
        squares.sum::<f64>().sqrt()
    };
    let before = norm(&grads);
    assert!((grads.clip_norm(2.0 * before).unwrap() / before - 1.0).abs() < 1e-6);
    assert_eq!(norm(&grads), before, "it was below");
    grads.clip_norm(before / 4.0).unwrap();
    assert!((norm(&grads) / before - 0.25).abs() < 1e-6);
    grads.clip_value(1e-3).unwrap();
    let most = grads.iter().flat_map(|(_, grad)| common::floats(grad)).fold(0.0, |most: f32, x| most.max(x.abs()));
    assert_eq!(most, 1e-3);
    for bound in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(grads.clip_norm(bound).unwrap_err().kind(), Some(ErrorKind::Value));
        assert_eq!(grads.clip_value(bound).unwrap_err().kind(), Some(ErrorKind::Value));
    }
    let mut other = half();
    let at_another_scale = net.backward(&dynamic(512.0), &loss(&net.build().unwrap())).unwrap();
    let error = other.accumulate(at_another_scale).unwrap_err().to_string();
    assert!(error.starts_with("gradients at loss scale 512 cannot be added to gradients at 1024"), "{error}");
    let mut scale = dynamic(1024.0);
    let mut sgd = SGD::new(net.vars(), 0.1).unwrap();
    assert!(net.update(&mut scale, &mut sgd, &grads).unwrap().is_step());
}

/// An overflow in one of several batches skips the step, and clipping keeps the fact.
#[test]
fn an_overflow_stays_one_when_gradients_are_added_and_clipped() {
    let (mut net, vars) = network(1);
    apply(&mut net, "o2");
    let mut scale = ScaleMachine::fixed(1024.0).unwrap();
    let mut sum = net.backward(&scale, &(loss(&net.build().unwrap()) * 1e5).unwrap()).unwrap();
    sum.accumulate(net.backward(&scale, &loss(&net.build().unwrap())).unwrap()).unwrap();
    let mut grads = sum.unscale().unwrap();
    assert_eq!(grads.first_non_finite(), Some("up.weight"));
    assert!(!grads.clip_norm(1.0).unwrap().is_finite());
    grads.clip_value(1.0).unwrap();
    let before = all_bits(&vars);
    let mut sgd = SGD::new(net.vars(), 0.1).unwrap();
    assert!(!net.update(&mut scale, &mut sgd, &grads).unwrap().is_step());
    assert_eq!(all_bits(&vars), before);
}

/// The slope of `x + c` is 1 for an infinite `c`: the gradients are finite, and the loss is not.
#[test]
fn a_loss_that_is_not_finite_skips_in_any_of_the_batches() {
    let (mut net, vars) = network(1);
    let mut scale = dynamic(1024.0);
    let mut sgd = SGD::new(net.vars(), 0.1).unwrap();
    let before = all_bits(&vars);
    for bad_first in [true, false] {
        let [one, two] = [bad_first, !bad_first].map(|bad| {
            let loss = loss(&net.build().unwrap());
            net.backward(&scale, &if bad { (loss + f64::INFINITY).unwrap() } else { loss }).unwrap()
        });
        let mut sum = one;
        sum.accumulate(two).unwrap();
        let grads = sum.unscale().unwrap();
        assert_eq!((grads.first_non_finite(), grads.is_loss_finite()), (None, false));
        let outcome = net.update(&mut scale, &mut sgd, &grads).unwrap();
        assert_eq!(outcome, Outcome::Skipped { cause: Cause::Loss });
    }
    assert_eq!(all_bits(&vars), before);
}

/// A loss in 16 bits is scaled in f32: 2.0 at a scale of 40000 is not a number of f16.
#[test]
fn a_loss_in_16_bits_is_one() {
    let (mut net, _) = network(1);
    let mut sgd = SGD::new(net.vars(), 0.1).unwrap();
    for dtype in [DType::F16, DType::BF16] {
        let mut scale = ScaleMachine::fixed(40000.0).unwrap();
        let loss = (loss(&net.build().unwrap()) * 2.0).unwrap().to_dtype(dtype).unwrap();
        assert!(net.step(&mut scale, &mut sgd, &loss).unwrap().is_step(), "{dtype:?}");
    }
}

#[test]
fn what_is_no_loss_is_refused() {
    let (net, _) = network(1);
    let scale = ScaleMachine::none();
    let error = net.backward(&scale, &tensor(&[3, 2], 1)).unwrap_err();
    assert_eq!(error.to_string(), "a loss is one number, and this one has the shape [3, 2]; take its mean");
    let error = net.backward(&scale, &Tensor::new(1u32, CPU).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "a loss is f32, f16 or bf16, and this one is u32");
}

#[test]
fn a_policy_can_require_a_loss_scale() {
    let (mut net, _) = network(1);
    let required = Policy::new(Level::O2, Named::F16).unwrap().with_scaler(Scaler::Required);
    net.apply(net.plan(&required).unwrap()).unwrap();
    let loss = loss(&net.build().unwrap());
    let error = net.backward(&ScaleMachine::none(), &loss).unwrap_err();
    assert!(error.to_string().starts_with("the policy requires a loss scale for f16"), "{error}");
    assert!(net.backward(&dynamic(8.0), &loss).is_ok());
}

/// A norm of candle-nn between two layers.
struct Cut(Linear, candle_nn::LayerNorm, Linear);

impl Cut {
    fn new(vb: VarBuilder) -> Result<Self> {
        let norm = candle_nn::layer_norm(6, 1e-5, vb.pp("norm"))?;
        Ok(Cut(candle_nn::linear(6, 6, vb.pp("up"))?, norm, candle_nn::linear(6, 3, vb.pp("head"))?))
    }
}

impl Module for Cut {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.2.forward(&self.1.forward(&self.0.forward(x)?)?)
    }
}

#[test]
fn variables_without_a_gradient_are_found() {
    let vars = VarMap::new();
    let new = || Network::new(&vars, CPU, |vb| Cut::new(vb)).unwrap();
    let mut net = new();
    let (mut sgd, mut scale) = (SGD::new(net.vars(), 0.1).unwrap(), dynamic(1024.0));
    let before = all_bits(&vars);
    let loss_of = |net: &Network<Cut>| loss(&net.build().unwrap());
    let error = net.step(&mut scale, &mut sgd, &loss_of(&net)).unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Gradient));
    let words = "no gradient reaches `norm.weight`, `norm.bias`, `up.weight`, `up.bias`. candle_nn's `LayerNorm`";
    assert!(error.to_string().starts_with(words), "{error}");
    assert_eq!(all_bits(&vars), before, "nothing was updated");
    assert_eq!(scale.state().counter, 0);

    // A loss that has nothing to do with the network.
    let error = net.step(&mut scale, &mut sgd, &Tensor::new(1f32, CPU).unwrap()).unwrap_err().to_string();
    assert!(
        error.starts_with("no gradient reaches any variable: the loss is computed from another network"),
        "{error}"
    );

    // Intended, and declared.
    let mut net = new().frozen("norm").unwrap().optional("up.weight").unwrap();
    let grads = net.backward(&scale, &loss_of(&net)).unwrap().unscale().unwrap();
    assert_eq!(grads.missing(), ["up.bias"]);
    let loss = loss_of(&net);
    assert!(net.step(&mut scale, &mut sgd, &loss).unwrap_err().to_string().contains("reaches `up.bias`. "));
    let mut net = net.optional("up").unwrap();
    let mut sgd = SGD::new(net.vars(), 0.1).unwrap();
    assert_eq!(sgd.into_inner().len(), 4, "all but the norm's");
    sgd = SGD::new(net.vars(), 0.1).unwrap();
    let loss = loss_of(&net);
    assert!(net.step(&mut scale, &mut sgd, &loss).unwrap().is_step());
    let after = all_bits(&vars);
    let changed: Vec<&str> =
        before.iter().zip(&after).filter(|(a, b)| a != b).map(|((name, _), _)| name.as_str()).collect();
    assert_eq!(changed, ["head.bias", "head.weight"]);
}

/// A frozen variable gets no update, although a gradient would reach it.
#[test]
fn frozen_variables_stay() {
    let (net, vars) = network(1);
    let mut net = net.frozen("up").unwrap().frozen("head.bias").unwrap();
    let mut adamw = AdamW::new_lr(vars.all_vars(), 0.1).unwrap(); // of all of them
    let before = all_bits(&vars);
    let loss = loss(&net.build().unwrap());
    assert!(net.step(&mut ScaleMachine::none(), &mut adamw, &loss).unwrap().is_step());
    let after = all_bits(&vars);
    let changed: Vec<&str> =
        before.iter().zip(&after).filter(|(a, b)| a != b).map(|((name, _), _)| name.as_str()).collect();
    assert_eq!(changed, ["head.weight", "norm.bias", "norm.weight"]);
}

#[test]
fn a_network_that_is_kept_over_a_step_is_an_error() {
    let (mut net, _) = network(1);
    let mut sgd = SGD::new(net.vars(), 0.1).unwrap();
    let model = net.build().unwrap();
    let first = loss(&model);
    assert!(net.step(&mut ScaleMachine::none(), &mut sgd, &first).unwrap().is_step());
    let error = model.forward(&tensor(&[1, 6], 1)).unwrap_err().to_string();
    assert!(error.contains("has the old weights; build it in every step, with `net.build()`"), "{error}");
    // A skipped step changes nothing, so the network is up to date.
    let model = net.build().unwrap();
    let bad = (loss(&model) * f64::NAN).unwrap();
    assert!(!net.step(&mut ScaleMachine::none(), &mut sgd, &bad).unwrap().is_step());
    loss(&model);
    net.undo();
    assert!(model.forward(&tensor(&[1, 6], 1)).is_err(), "the plan changed");
}

/// Running statistics are changed by forward passes; a skipped step takes that back.
#[test]
fn a_skipped_step_takes_back_running_statistics() {
    let vars = VarMap::new();
    let mut net = Network::new(&vars, CPU, |vb| {
        Ok((linear(6, 4, vb.pp("up"))?, precast_candle::Amp::new(vb.pp("bn"), |vb| batch_norm(4, 1e-5, vb))?))
    })
    .unwrap();
    net.apply(net.plan(&policy("version: 1\nlevel: O2\ndtype: bfloat16")).unwrap()).unwrap();
    assert_eq!(net.vars().len(), 4, "statistics are not trained");
    let mut sgd = SGD::new(net.vars(), 0.1).unwrap();
    let mut scale = ScaleMachine::none();
    let statistics = || ["bn.running_mean", "bn.running_var"].map(|name| bits(&vars.data().lock().unwrap()[name]));
    let pass = |net: &Network<_>| -> Tensor {
        let model: precast_candle::Amp<(precast_candle::Linear, precast_candle::Amp<candle_nn::BatchNorm>)> =
            net.build().unwrap();
        let y = model.call(&tensor(&[5, 6], 2), |net, x| net.1.forward_t(&net.0.forward(x)?, true)).unwrap();
        mse(&y, &tensor(&[5, 4], 3)).unwrap()
    };
    let first = statistics();
    let bad = (pass(&net) * f64::NAN).unwrap();
    assert_ne!(statistics(), first, "the forward pass wrote them");
    assert!(!net.step(&mut scale, &mut sgd, &bad).unwrap().is_step());
    assert_eq!(statistics(), first);
    let good = pass(&net);
    assert!(net.step(&mut scale, &mut sgd, &good).unwrap().is_step());
    let second = statistics();
    assert_ne!(second, first);
    let bad = (pass(&net) * f64::NAN).unwrap();
    assert!(!net.step(&mut scale, &mut sgd, &bad).unwrap().is_step());
    assert_eq!(statistics(), second);
    let _: &dyn ModuleT = net.build().unwrap().inner().1.inner();
}

/// Gradients of variables of others, such as an input, do not disturb.
#[test]
fn other_variables_are_left_alone() {
    let (mut net, _) = network(1);
    let other = Var::from_tensor(&tensor(&[12, 6], 7)).unwrap();
    let y = net.build().unwrap().forward(&other).unwrap();
    let grads = net.backward(&ScaleMachine::none(), &y.sqr().unwrap().mean_all().unwrap()).unwrap().unscale().unwrap();
    assert_eq!(grads.iter().count(), 6);
    let mut sgd = SGD::new(vec![other.clone()], 0.1).unwrap();
    let before = bits(&other);
    assert!(net.update(&mut ScaleMachine::none(), &mut sgd, &grads).unwrap().is_step());
    assert_eq!(bits(&other), before);
}
