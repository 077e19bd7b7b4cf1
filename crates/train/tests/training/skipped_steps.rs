//! A skipped step changes nothing, and a step is taken only with finite numbers.

use precast::{
    policy::Rule,
    prelude::*,
    scale::{Cause, all_finite},
    twice_differentiable,
};
use precast_train::{
    Evaluation, FitOptions, Loss, Step,
    data::{Dataset, IGNORED, Inputs, Targets},
    fit,
};

/// Returns the bits of all state of a network.
fn bits(net: &Child) -> Vec<(String, Vec<u64>)> {
    let bits = |x: Tensor| x.to_f64().into_iter().map(f64::to_bits).collect();
    net.named_params().into_iter().map(|(path, param)| (path, bits(param.value()))).collect()
}

fn buffer(net: &Child, path: &str) -> Vec<f64> {
    let named = net.named_params().into_iter().find(|(other, _)| other == path);
    named.unwrap_or_else(|| panic!("no {path}")).1.value().to_f64()
}

/// Makes a network of a dense layer and a batch norm in a nested part, followed by a layer.
fn net() -> Child {
    let rng = &mut Rng::seed(2);
    let body = sequential![Dense::new(3, 8, rng), BatchNorm1d::new(8), ReLU];
    let mut net = Child::of(sequential![body, Dense::new(8, 2, rng)]);
    net.set_train(true);
    net
}

fn examples(seed: u64) -> (Tensor, Tensor) {
    (Tensor::rand(&[4, 3], &mut Rng::seed(seed)).unwrap(), Tensor::from_vec(vec![0i64, 1, 0, 1], &[4]).unwrap())
}

/// Makes examples with which no step can be taken.
fn bad(x: &Tensor) -> Tensor {
    x.clone().mul(&Tensor::scalar(f64::NAN, DType::F32)).unwrap()
}

fn loss(net: &Child, x: &Tensor) -> Tensor {
    net.call(x).unwrap().cast(DType::F32).cross_entropy(&examples(1).1).unwrap()
}

#[test]
fn a_skipped_step_is_as_if_it_had_never_been() {
    let policies = [
        ("O0", Level::O0, DType::F16, false),
        ("O1", Level::O1, DType::F16, false),
        ("O2", Level::O2, DType::F16, false),
        ("O3", Level::O3, DType::F16, false),
        ("auto", Level::Auto, DType::F16, false),
        ("O2 in bf16", Level::O2, DType::Bf16, false),
        ("recomputed", Level::O2, DType::F16, true),
    ];
    let good = examples(1).0;
    for (name, level, dtype, recompute) in policies {
        let run = |spoil: &[usize]| {
            let mut net = net();
            let mut policy = Policy::new(level, dtype).unwrap();
            if recompute {
                policy = policy.rule(Rule::recompute("0").unwrap()).unwrap();
            }
            policy.apply(&mut net).unwrap();
            let (mut sgd, mut scale) = (Sgd::new(net.params(), 0.1).momentum(0.9), LossScale::fixed(64.0).unwrap());
            for step in 0..6 {
                if spoil.contains(&step) {
                    let before = bits(&net);
                    let outcome = scale.step(&mut sgd, loss(&net, &bad(&good))).unwrap();
                    assert_eq!(outcome, Outcome::Skipped { cause: Cause::Loss { origin: None } }, "{name}");
                    assert_eq!(bits(&net), before, "{name}");
                }
                assert_eq!(scale.step(&mut sgd, loss(&net, &good)).unwrap(), Outcome::Stepped, "{name}");
            }
            net.set_train(false);
            assert!(net.call(&good).unwrap().all_finite(), "{name}");
            bits(&net)
        };
        assert_eq!(run(&[0, 3, 4]), run(&[]), "{name}");
    }
}

#[test]
fn steps_skipped_for_their_gradients_leave_the_statistics() {
    // The statistics are finite; the first gradients overflow at this scale.
    let net = net();
    let (mut sgd, mut scale) = (Sgd::new(net.params(), 0.1), LossScale::fixed(1e38).unwrap());
    let before = bits(&net);
    let loss = loss(&net, &examples(1).0).mul(&Tensor::scalar(1e3, DType::F32)).unwrap();
    assert_ne!(buffer(&net, "0.1.running_mean"), [0.0; 8], "a forward pass stores at once");
    let Outcome::Skipped { cause: Cause::Overflow { .. } } = scale.step(&mut sgd, loss).unwrap() else {
        panic!("skips")
    };
    assert_eq!(bits(&net), before);
}

#[test]
fn parts_of_a_batch_are_taken_or_given_up_together() {
    let net = net();
    let mut scale = LossScale::fixed(8.0).unwrap();
    let mut sgd = Sgd::new(net.params(), 0.1);
    let before = bits(&net);
    let part = |x: &Tensor, scale: &LossScale| scale.scale(loss(&net, x)).unwrap().into_grads().unwrap();
    let mut sum = part(&examples(1).0, &scale);
    sum.accumulate(part(&bad(&examples(2).0), &scale)).unwrap();
    sum.accumulate(part(&examples(3).0, &scale)).unwrap();
    let grads = sum.unscale(sgd.params()).unwrap();
    assert_ne!(scale.apply(&mut sgd, &grads).unwrap(), Outcome::Stepped);
    scale.update().unwrap();
    assert_eq!(bits(&net), before);
}

#[test]
fn one_of_two_forward_passes_is_reverted_alone() {
    let (a, b) = (examples(5).0, examples(6).0);
    let only_b = net();
    let mut sgd = Sgd::new(only_b.params(), 0.0);
    sgd.update(&loss(&only_b, &b).into_grads().unwrap()).unwrap();

    for a_ends_first in [true, false] {
        let net = net();
        let mut sgd = Sgd::new(net.params(), 0.0);
        let (first, second) = (loss(&net, &a).into_grads().unwrap(), loss(&net, &b).into_grads().unwrap());
        if a_ends_first {
            first.discard();
            sgd.update(&second).unwrap();
        } else {
            sgd.update(&second).unwrap();
            first.discard();
        }
        assert_eq!(bits(&net), bits(&only_b), "{a_ends_first}");
    }
}

#[test]
fn loops_without_a_loss_scale_leave_nothing_of_a_skipped_step() {
    let net = net();
    let mut sgd = Sgd::new(net.params(), 0.1);
    let before = bits(&net);
    for x in [bad(&examples(1).0), examples(1).0.mul(&Tensor::scalar(f64::INFINITY, DType::F32)).unwrap()] {
        let grads = loss(&net, &x).into_grads().unwrap();
        assert!(!all_finite(&grads, sgd.params()));
        // Updating regardless fails at the first number that cannot be stored.
        let error = sgd.update(&grads).unwrap_err().to_string();
        assert!(error.starts_with("`0.1.running_mean` would not be finite"), "{error}");
        drop(grads);
        assert_eq!(bits(&net), before);
    }
    let outcome = LossScale::none().step(&mut sgd, loss(&net, &bad(&examples(1).0))).unwrap();
    assert_eq!(outcome, Outcome::Skipped { cause: Cause::Loss { origin: None } });
    assert_eq!(bits(&net), before);
}

#[test]
fn a_forward_pass_that_fails_stores_nothing() {
    let mut net = Child::of(sequential![BatchNorm1d::new(3), Dense::new(4, 2, &mut Rng::seed(1))]);
    net.set_train(true);
    let before = bits(&net);
    net.call(&examples(1).0).unwrap_err();
    precast::no_grad(|| net.call(&examples(1).0)).unwrap_err();
    assert_eq!(bits(&net), before);
}

#[test]
fn statistics_without_a_later_step_move_at_once_or_are_errors() {
    let mut net = Child::of(sequential![BatchNorm1d::new(3)]);
    net.set_train(true);
    precast::no_grad(|| net.call(&examples(1).0)).unwrap();
    let moved = bits(&net);
    assert_ne!(buffer(&net, "0.running_mean"), [0.0; 3]);
    let error = precast::no_grad(|| net.call(&bad(&examples(1).0))).unwrap_err().to_string();
    assert!(error.contains("`0.running_mean` would not be finite"), "{error}");
    assert_eq!(bits(&net), moved);
    // A pass whose loss is not used for a step moves them, as usual.
    drop(net.call(&examples(2).0).unwrap().sum_all().unwrap());
    assert_ne!(bits(&net), moved);
}

/// A cell that returns its input, and keeps the largest number it has seen, or its multiple.
#[derive(Cell, Debug)]
struct Watch {
    gain: Param,
    seen: Param,
    times: f64,
}

impl Forward for Watch {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let largest = x.detach().abs()?.max(&[], false)?.cast(DType::F32);
        let largest = largest.maximum(&self.seen.value())?.mul(&Tensor::scalar(self.times, DType::F32))?;
        self.seen.set(&largest)?;
        x.mul(&self.gain.tensor())
    }
}

fn watch(times: f64) -> Child {
    let gain = Param::new(Tensor::ones(&[1], DType::F32));
    Child::of(sequential![Watch { gain, seen: Param::buffer(Tensor::scalar(0.5, DType::F32)), times }])
}

#[test]
fn what_a_cell_of_a_program_stores_is_part_of_the_step() {
    let net = watch(1.0);
    let (mut sgd, mut scale) = (Sgd::new(net.params(), 0.1), LossScale::fixed(1e38).unwrap());
    let x = Tensor::full(&[2, 1], 3.0, DType::F32);
    let step = |factor: f64, scale: &mut LossScale, sgd: &mut Sgd| {
        let loss = net.call(&x).unwrap().mul(&Tensor::scalar(factor, DType::F32)).unwrap().sum_all().unwrap();
        assert_eq!(buffer(&net, "0.seen"), [3.0]);
        scale.step(sgd, loss).unwrap()
    };
    assert_ne!(step(10.0, &mut scale, &mut sgd), Outcome::Stepped);
    assert_eq!(buffer(&net, "0.seen"), [0.5]);
    let mut scale = LossScale::none();
    assert_eq!(step(1.0, &mut scale, &mut sgd), Outcome::Stepped);
    assert_eq!(buffer(&net, "0.seen"), [3.0]);
}

#[test]
fn a_number_that_would_not_be_finite_is_not_stored_and_named() {
    let net = watch(f64::INFINITY);
    let mut sgd = Sgd::new(net.params(), 0.1);
    let before = bits(&net);
    let loss = || net.call(&Tensor::ones(&[2, 1], DType::F32)).unwrap().sum_all().unwrap();
    for mut scale in [LossScale::none(), LossScale::fixed(4.0).unwrap(), LossScale::dynamic()] {
        let value = scale.value();
        let outcome = scale.step(&mut sgd, loss()).unwrap();
        assert_eq!(outcome, Outcome::Skipped { cause: Cause::Stored { first: "0.seen".into() } });
        assert_eq!(
            outcome.to_string(),
            "skipped: the forward pass would have stored a number in `0.seen` that is not finite"
        );
        assert_eq!((scale.value(), bits(&net)), (value, before.clone()));
    }
    let error = sgd.update(&loss().into_grads().unwrap()).unwrap_err().to_string();
    assert!(error.starts_with("`0.seen` would not be finite"), "{error}");
    assert_eq!(bits(&net), before);
    // The twentieth in a row is a stall.
    let mut scale = LossScale::dynamic();
    let last = (0..20).map(|_| scale.step(&mut sgd, loss()).unwrap()).last().unwrap();
    assert!(matches!(last, Outcome::Stalled { cause: Cause::Stored { .. }, skipped: 20 }), "{last}");
}

#[test]
fn one_optimizer_that_steps_keeps_what_the_pass_stored() {
    for first_is_skipped in [true, false] {
        let net = net();
        let (skipped, taken): (Vec<_>, Vec<_>) =
            net.named_params().into_iter().filter(|(_, p)| p.is_trained()).partition(|(path, _)| path == "1.weight");
        let of = |named: Vec<(String, Param)>| Sgd::new(named.into_iter().collect(), 0.1);
        let (mut skipped, mut taken) = (of(skipped), of(taken));
        let mut scale = LossScale::none();
        let mut scaled = scale.scale(loss(&net, &examples(1).0)).unwrap().into_grads().unwrap();
        let (mut a, b) = (scaled.unscale(skipped.params()).unwrap(), scaled.unscale(taken.params()).unwrap());
        let weight = net.named_params().into_iter().find(|(path, _)| path == "1.weight").unwrap().1;
        a.set(&weight, Tensor::full(&[2, 8], f64::NAN, DType::F32));
        let mut apply = |first: bool| match first {
            true => assert_ne!(scale.apply(&mut skipped, &a).unwrap(), Outcome::Stepped),
            false => assert_eq!(scale.apply(&mut taken, &b).unwrap(), Outcome::Stepped),
        };
        apply(first_is_skipped);
        apply(!first_is_skipped);
        scale.update().unwrap();
        drop((a, b, scaled));
        assert_ne!(buffer(&net, "0.1.running_mean"), [0.0; 8]);
    }
}

#[test]
fn a_gradient_penalty_is_a_step_of_the_pass_of_its_gradients() {
    let net = net();
    let (mut sgd, mut scale) = (Sgd::new(net.params(), 0.1), LossScale::fixed(2.0).unwrap());
    let before = bits(&net);
    let penalty = twice_differentiable(|| {
        let x = examples(1).0.requires_grad();
        let grads = net.call(&x)?.square()?.sum_all()?.gradients_on_tape(&[&x])?;
        grads[0].as_ref().unwrap().square()?.sum_all()?.mul(&Tensor::scalar(f64::INFINITY, DType::F32))
    });
    assert_ne!(buffer(&net, "0.1.running_mean"), [0.0; 8]);
    assert_ne!(scale.step(&mut sgd, penalty.unwrap()).unwrap(), Outcome::Stepped);
    assert_eq!(bits(&net), before);
}

#[test]
fn a_loss_that_is_not_finite_is_no_step_whatever_its_gradients() {
    let y = |label: i64| Tensor::from_vec(vec![label], &[1]).unwrap();
    let weight = Param::new(Tensor::ones(&[1, 3], DType::F32));
    let ignored = CrossEntropy::default().ignore_index(Some(-100));
    let smooth = CrossEntropy::default().label_smoothing(0.1);
    let masked = Tensor::from_f64(&[0.0, f64::NEG_INFINITY, 0.0], &[1, 3], DType::F32).unwrap();
    let far = Tensor::full(&[1, 3], f64::NEG_INFINITY, DType::F32);
    let constant = |x: f64| weight.tensor().sum_all().unwrap().add(&Tensor::scalar(x, DType::F32)).unwrap();
    let w = || weight.tensor();
    for mut scale in [LossScale::none(), LossScale::fixed(8.0).unwrap(), LossScale::dynamic()] {
        let losses = [
            w().cross_entropy_with(&y(-100), &ignored).unwrap(),
            w().add(&masked).unwrap().cross_entropy_with(&y(0), &smooth).unwrap(),
            w().add(&far).unwrap().bce_with_logits(&w().ones_like(), Reduction::Mean).unwrap(),
            constant(f64::NAN),
            constant(f64::INFINITY),
        ];
        let mut adam = AdamW::new([weight.clone()].into_iter().collect(), 0.1);
        let _ = LossScale::none().step(&mut adam, w().cross_entropy(&y(0)).unwrap()).unwrap(); // a memory
        let (before, at) = (weight.value().to_f64(), scale.value());
        for (i, loss) in losses.into_iter().enumerate() {
            assert!(!loss.all_finite(), "{i}");
            assert_eq!(
                scale.step(&mut adam, loss).unwrap(),
                Outcome::Skipped { cause: Cause::Loss { origin: None } },
                "{i}"
            );
            assert_eq!((weight.value().to_f64(), scale.value()), (before.clone(), at), "{i}");
        }
    }
}

/// Returns sequences of four classes, in which every fourth has no target that counts.
fn language() -> Dataset {
    let (n, length) = (64, 4);
    let inputs = (0..n * length).map(|i| (i % 5) as i64).collect();
    let class = |i: usize| if (i / length).is_multiple_of(4) { IGNORED } else { ((i + 1) % 5) as i64 };
    let values = (0..n * length).map(class).collect();
    Dataset::of(Inputs::Indices(inputs), &[length], Targets::Classes { shape: vec![length], values }).unwrap()
}

#[test]
fn a_batch_without_a_target_has_no_loss_and_no_step() {
    for batch in [1, 2, 8] {
        let rng = &mut Rng::seed(1);
        let mut net = Child::new(sequential![Embedding::new(5, 8, rng), Dense::new(8, 5, rng)]);
        let options = FitOptions::default().epochs(1).batch(batch);
        let history = fit(&mut net, &language().split(48, 0).unwrap(), &options, &mut |_| {}).unwrap();
        let none = Outcome::Skipped { cause: Cause::NoTarget };
        let taken: Vec<&Step> = history.steps.iter().filter(|step| step.outcome == Outcome::Stepped).collect();
        let skipped = history.steps.iter().filter(|step| step.outcome == none).count();
        assert_eq!(taken.len() + skipped, history.steps.len());
        if batch == 1 {
            assert!(skipped > 4, "{skipped}");
        }
        let data = language().split(48, 0).unwrap();
        let counted = data.train.labels().iter().filter(|class| **class != IGNORED).count() as f64;
        assert_eq!(history.steps.iter().map(|step| step.weight).sum::<f64>(), counted);
        let mean = taken.iter().map(|step| step.loss * step.weight).sum::<f64>() / counted;
        assert!(mean.is_finite() && (history.epochs[0].loss - mean).abs() < 1e-12, "{mean}");
        assert!(history.median_seconds() > Some(0.0));
    }
}

#[test]
fn a_batch_of_classes_without_weight_has_no_loss() {
    let data = Dataset::of(
        Inputs::Numbers((0..8).map(|i| i as f32).collect()),
        &[1],
        Targets::Classes { shape: vec![], values: vec![0, 0, 1, 1, 0, 1, 0, 1] },
    );
    let loss = Loss::CrossEntropy { label_smoothing: 0.0, ignore_index: None, weight: Some(vec![0.0, 1.0]) };
    let options = FitOptions::default().epochs(1).batch(1).loss(loss);
    let mut net = Child::new(Dense::new(1, 2, &mut Rng::seed(1)));
    let history = fit(&mut net, &data.unwrap().split(6, 0).unwrap(), &options, &mut |_| {}).unwrap();
    assert!(history.skipped() > 0 && history.skipped() < 6, "{}", history.skipped());
    assert!(history.epochs[0].loss.is_finite());
    assert!(net.named_params().iter().all(|(_, param)| param.value().all_finite()));
}

#[test]
fn the_loss_of_an_epoch_is_that_of_the_steps_that_were_taken() {
    // One example in forty is beyond f16.
    let x: Vec<f32> = (0..40).map(|i| if i == 7 { 1e6 } else { i as f32 / 40.0 }).collect();
    let y = x.iter().map(|&x| if x > 1.0 { 0.0 } else { 2.0 * x }).collect();
    let data = Dataset::regression(x, &[1], y, &[1]).unwrap();
    let split = precast_train::data::Split { train: data.clone(), test: data };
    let mut net =
        Child::of(sequential![Dense::new(1, 4, &mut Rng::seed(1)), ReLU, Dense::new(4, 1, &mut Rng::seed(2))]);
    Policy::new(Level::O2, DType::F16).unwrap().apply(&mut net).unwrap();
    let loss_scale = LossScale::fixed(4.0).unwrap().spec().clone();
    let options = FitOptions::default().epochs(2).batch(4).loss_scale(loss_scale);
    let history = fit(&mut net, &split, &options, &mut |_| {}).unwrap();
    for epoch in &history.epochs {
        let taken: Vec<f64> = (history.steps.iter().filter(|step| step.epoch == epoch.epoch && !step.is_skipped()))
            .map(|step| step.loss)
            .collect();
        assert_eq!((taken.len(), epoch.skipped), (9, 1));
        assert!((epoch.loss - taken.iter().sum::<f64>() / 9.0).abs() < 1e-12);
        assert_eq!(epoch.score.not_finite(), 1);
        assert!(epoch.score.to_string().ends_with(", 1 not finite"), "{}", epoch.score);
    }
    let json = serde_json::to_string(&history.epochs[0]).unwrap();
    assert!(json.contains("\"not_finite\":1"), "{json}");
}

#[test]
fn an_answer_that_is_not_finite_is_wrong_and_counted() {
    // A network that returns its examples times a weight.
    let data = Dataset::new(vec![1.0, 2.0, 3.0, 1.0, 30.0, 1.0, 5.0, 6.0], &[2], vec![1, 0, 0, 1]).unwrap();
    let mut net = Child::new(Dense::new(2, 2, &mut Rng::seed(1)));
    let set = |net: &mut Child<Dense>, weight: [f64; 4]| {
        net.cell().weight.set(&Tensor::from_f64(&weight, &[2, 2], DType::F32).unwrap()).unwrap();
    };
    set(&mut net, [1.0, 0.0, 0.0, 1.0]);
    let score = Evaluation::of(&net, &data, 4).unwrap().score();
    assert_eq!((score.accuracy(), score.not_finite(), score.to_string()), (Some(1.0), 0, "100.00 %".to_string()));
    // 3e38 times 30 is infinite, times 1 to 5 is not.
    set(&mut net, [6e37, 0.0, 0.0, 1.0]);
    let score = Evaluation::of(&net, &data, 3).unwrap().score();
    assert_eq!((score.accuracy(), score.not_finite()), (Some(0.25), 1));
    set(&mut net, [f64::NAN, 0.0, 0.0, 1.0]);
    let score = Evaluation::of(&net, &data, 3).unwrap().score();
    assert_eq!((score.accuracy(), score.not_finite()), (Some(0.0), 4));
    assert_eq!(score.to_string(), "0.00 %, 4 not finite");
}
