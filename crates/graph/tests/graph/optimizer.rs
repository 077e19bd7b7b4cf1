//! `enable_mixed_precision_graph_rewrite`: steps, skips, signatures, refusals.

use precast::{
    ErrorKind, Outcome,
    policy::{DynamicScale, LossScaleSpec, Pack},
    prelude::*,
    sequential,
};
use precast_graph::{
    Graph, GraphLevel, GraphPolicy,
    tensorflow::{GraphRewrite, IntoLossScale, enable_mixed_precision_graph_rewrite},
};

use crate::common::tensors::{bits, random};

fn regression() -> Child {
    let r = &mut Rng::seed(1);
    Child::of(sequential![Dense::new(8, 16, r), ReLU, Dense::new(16, 4, r), Softmax::default()])
}

fn loss(net: &Child, given: &[Tensor]) -> Result<Tensor> {
    net.call(&given[0])?.mse_loss(&given[1], Reduction::Mean)
}

fn batch(size: usize, seed: u64) -> [Tensor; 2] {
    [random(&[size, 8], seed), random(&[size, 4], seed + 100).softmax(1).unwrap()]
}

fn values(net: &Child) -> Vec<Vec<u64>> {
    net.named_params().iter().map(|(_, param)| bits(&param.value())).collect()
}

/// A step equals the rewritten graph, the scaled loss and the optimizer, combined by hand.
#[test]
fn a_step_is_its_parts() {
    let (net, by_hand) = (regression(), regression());
    let mut optimizer = enable_mixed_precision_graph_rewrite(Sgd::new(net.params(), 0.5), "dynamic").unwrap();
    let mut sgd = Sgd::new(by_hand.params(), 0.5);
    let mut scale = LossScale::new(optimizer.loss_scale().spec().clone()).unwrap();
    for step in 0..4 {
        let given = batch(6, step);
        assert_eq!(optimizer.step(&net, &given, loss).unwrap(), Outcome::Stepped);
        let graph = Graph::trace_with(&by_hand, &given, |net, x| Ok(vec![loss(net, x)?])).unwrap();
        let policy = GraphPolicy::from_pack(DType::F16, Pack::named("tensorflow-2.21-fp16").unwrap());
        let low = graph.rewrite(&policy.unwrap()).unwrap().graph;
        assert!(low.casts() > 0);
        let loss = low.run(&given).unwrap().remove(0);
        assert_eq!(scale.step(&mut sgd, &loss).unwrap(), Outcome::Stepped);
        assert_eq!(values(&net), values(&by_hand), "step {step}");
    }
    assert_eq!(optimizer.global_step(), 4);
}

#[test]
fn a_step_that_is_not_finite_changes_nothing_but_the_scale() {
    let net = regression();
    // Gradients times 1e9 are beyond f16 where the graph is low.
    let dynamic = DynamicScale::tensorflow().init(1e9).growth(2.0).backoff(0.5).interval(2);
    let sgd = Sgd::new(net.params(), 0.1).momentum(0.9);
    let mut optimizer = enable_mixed_precision_graph_rewrite(sgd, LossScaleSpec::Dynamic(dynamic)).unwrap();
    let before = values(&net);
    let outcome = optimizer.step(&net, &batch(6, 1), loss).unwrap();
    assert!(matches!(outcome, Outcome::Skipped { .. }), "{outcome:?}");
    assert_eq!((values(&net), optimizer.global_step(), optimizer.loss_scale().value()), (before, 0, 5e8));
    // The scale falls until a step fits, and that one counts.
    let outcomes: Vec<Outcome> = (0..40).map(|step| optimizer.step(&net, &batch(6, step), loss).unwrap()).collect();
    let stepped = outcomes.iter().filter(|outcome| **outcome == Outcome::Stepped).count();
    assert!(stepped > 20, "{outcomes:?}");
    assert_eq!(optimizer.global_step(), stepped as u64);
}

#[test]
fn a_graph_is_recorded_once_for_each_signature() {
    let net = regression();
    let calls = std::cell::Cell::new(0);
    let counted = |net: &Child, given: &[Tensor]| {
        calls.set(calls.get() + 1);
        loss(net, given)
    };
    let mut optimizer = enable_mixed_precision_graph_rewrite(Sgd::new(net.params(), 0.1), 128.0).unwrap();
    for (step, size) in [6, 6, 5, 6, 1].into_iter().enumerate() {
        assert_eq!(optimizer.step(&net, &batch(size, step as u64), counted).unwrap(), Outcome::Stepped);
    }
    // Twice, to detect the dependence on the batch.
    assert_eq!((calls.get(), optimizer.graphs().count()), (2, 1));
    optimizer.forget();
    let _ = optimizer.step(&net, &batch(6, 1), counted).unwrap();
    assert_eq!(calls.get(), 4);
    let mut sgd = optimizer.disable();
    assert_eq!(sgd.lr(), 0.1);
    sgd.set_lr(0.2);
}

#[test]
fn what_cannot_be_rewritten_is_refused_and_loses_nothing() {
    let mut net = regression();
    let words = enable_mixed_precision_graph_rewrite(Sgd::new(net.params(), 0.1), "dynamik").unwrap_err().to_string();
    assert!(words.contains("did you mean `dynamic`?"), "{words}");
    let mut forced = GraphPolicy::new(DType::Bf16).unwrap();
    forced.level = GraphLevel::ForceAll;
    assert_eq!(GraphRewrite::new(Sgd::new(net.params(), 0.1), "none", &forced).unwrap_err().kind(), ErrorKind::Level);

    let before = values(&net);
    let mut optimizer = enable_mixed_precision_graph_rewrite(Sgd::new(net.params(), 0.1), "none").unwrap();
    let applied = Policy::new(Level::O2, DType::F16).unwrap().apply(&mut net).unwrap();
    let error = optimizer.step(&net, &batch(6, 1), loss).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Value);
    assert!(error.to_string().contains("has an adapter"), "{error}");
    applied.undo(&mut net).unwrap();
    let not_a_scalar = |net: &Child, given: &[Tensor]| net.call(&given[0]);
    assert_eq!(optimizer.step(&net, &batch(6, 1), not_a_scalar).unwrap_err().kind(), ErrorKind::Shape);
    // A refused graph is not kept.
    assert_eq!((values(&net), optimizer.graphs().count()), (before, 0));
    assert_eq!((optimizer.step(&net, &batch(6, 1), loss).unwrap(), optimizer.global_step()), (Outcome::Stepped, 1));
    assert!(optimizer.last_loss().is_some_and(f64::is_finite));
}

/// Makes a network of a dense layer and a batch norm in a nested part, followed by a layer.
fn with_statistics() -> Child {
    let rng = &mut Rng::seed(2);
    let body = sequential![Dense::new(3, 8, rng), BatchNorm1d::new(8), ReLU];
    let mut net = Child::of(sequential![body, Dense::new(8, 2, rng)]);
    net.set_train(true);
    net
}

#[test]
fn graphs_that_are_rewritten_store_with_their_step() {
    let good = Tensor::rand(&[4, 3], &mut Rng::seed(1)).unwrap();
    let y = Tensor::from_vec(vec![0i64, 1, 0, 1], &[4]).unwrap();
    // No step can be taken with these.
    let bad = good.mul(&Tensor::scalar(f64::NAN, DType::F32)).unwrap();
    let run = |spoil: &[usize]| {
        let net = with_statistics();
        let mut steps = enable_mixed_precision_graph_rewrite(Sgd::new(net.params(), 0.1), 128.0).unwrap();
        for step in 0..4 {
            let train =
                |net: &Child, inputs: &[Tensor]| net.call(&inputs[0])?.cast(DType::F32).cross_entropy(&inputs[1]);
            if spoil.contains(&step) {
                let before = values(&net);
                assert_ne!(steps.step(&net, &[bad.clone(), y.clone()], train).unwrap(), Outcome::Stepped);
                assert_eq!(values(&net), before);
            }
            assert_eq!(steps.step(&net, &[good.clone(), y.clone()], train).unwrap(), Outcome::Stepped);
        }
        values(&net)
    };
    assert_eq!(run(&[1, 2]), run(&[]));
    // Also when the first examples, on which the graph is recorded, are the bad ones.
    assert_eq!(run(&[0]), run(&[]));
}

/// Accepted values in place of TensorFlow's argument `loss_scale`.
#[test]
fn a_loss_scale_is_given_as_a_word_a_number_or_itself() {
    fn of(given: impl IntoLossScale) -> Result<LossScale> {
        given.into_loss_scale()
    }
    let numbers = DynamicScale::default().init(32768.0).max(f32::MAX);
    assert_eq!(of("dynamic").unwrap().spec(), &LossScaleSpec::Dynamic(numbers));
    assert_eq!(of("none").unwrap(), LossScale::none());
    for fixed in [of(128.0), of(128), of(128.0_f32), of(LossScale::fixed(128.0).unwrap())] {
        assert_eq!(fixed.unwrap(), LossScale::fixed(128.0).unwrap());
    }
    assert_eq!(of(1).unwrap().value(), 1.0);
    assert_eq!(of(0.1_f32 + 1.0).unwrap().value(), 1.1);
    // A user's own loss scale is accepted, along with its state.
    let mut own = LossScale::dynamic();
    own.adjust(false);
    assert_eq!(of(own.clone()).unwrap(), own);
    assert_eq!(of(LossScaleSpec::Fixed { scale: 0.5 }).unwrap().value(), 0.5);

    let message = |refused: Result<LossScale>| refused.unwrap_err().to_string();
    let allowed = "allowed: dynamic, none, a number of at least 1, a `LossScale`";
    assert_eq!(message(of("dynamc")), format!("unknown loss scale `dynamc` (did you mean `dynamic`?); {allowed}"));
    assert_eq!(message(of("8")), "the loss scale is the text \"8\"; write a number without quotes: 8");
    assert_eq!(message(of(0.5)), "a loss scale of 0.5; allowed: at least 1, and finite in float32");
    for bad in [0.999_999_999, 0.0, -8.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e39] {
        assert_eq!(message(of(bad)), format!("a loss scale of {bad}; allowed: at least 1, and finite in float32"));
    }
    assert!(of(0).is_err() && of(f32::NAN).is_err());
    assert!(of(LossScaleSpec::Fixed { scale: f32::NAN }).is_err());
}
