//! Steps from several batches, clipped gradients and groups in the training loop.

use precast::{
    optim::{Average, Method, SgdOptions},
    prelude::*,
};
use precast_train::{
    Fit, FitOptions, GroupOptions, Loss,
    data::{Dataset, IGNORED, Inputs, Split, Targets},
    fit,
};

fn net() -> Child {
    let rng = &mut Rng::seed(4);
    Child::of(sequential![Dense::new(3, 8, rng), Tanh, Dense::new(8, 3, rng)])
}

fn inputs(n: usize) -> Vec<f32> {
    (0..n * 6).map(|i| (i as f32 * 0.61).sin()).collect()
}

/// 26 examples of two rows of three numbers; each row is of one of three classes, or ignored.
fn classes(ignored: &[usize]) -> Split {
    let target = |i: usize| if ignored.contains(&i) { IGNORED } else { (i * i % 3) as i64 };
    let of = |n: usize| {
        let targets = Targets::Classes { shape: vec![2], values: (0..n * 2).map(target).collect() };
        Dataset::of(Inputs::Numbers(inputs(n)), &[2, 3], targets).unwrap()
    };
    Split { train: of(26), test: of(6) }
}

fn numbers() -> Split {
    let of = |n: usize| {
        let values = (0..n * 6).map(|i| (i as f32 * 0.3).cos()).collect();
        Dataset::regression(inputs(n), &[2, 3], values, &[2, 3]).unwrap()
    };
    Split { train: of(26), test: of(6) }
}

fn options(batch: usize, accumulate: usize) -> FitOptions {
    let sgd = Method::Sgd(SgdOptions { momentum: 0.5, ..SgdOptions::default() });
    FitOptions::default().epochs(3).batch(batch).accumulate(accumulate).lr(0.2).method(sgd)
}

fn weights(net: &Child) -> Vec<f64> {
    net.params().iter().flat_map(|(_, param)| param.value().to_f64()).collect()
}

/// With whole batches, a last step of fewer, and batches in which few targets or none count.
#[test]
fn a_step_of_several_batches_is_that_of_one_large_batch() {
    let weighted = Loss::CrossEntropy { label_smoothing: 0.1, ignore_index: None, weight: Some(vec![1.0, 3.0, 0.5]) };
    let few: Vec<usize> = (0..52).filter(|i| i % 7 != 0).collect();
    let cases = [
        (classes(&[]), None),
        (classes(&few), None),
        (classes(&few), Some(weighted)),
        (numbers(), None),
        (numbers(), Some(Loss::L1 {})),
    ];
    for (case, (data, loss)) in cases.into_iter().enumerate() {
        let run = |batch, accumulate| {
            let mut net = net();
            let mut options = options(batch, accumulate);
            options.loss.clone_from(&loss);
            let history = fit(&mut net, &data, &options, &mut |_| {}).unwrap();
            (weights(&net), history)
        };
        let (large, by_large) = run(8, 1);
        for (batch, accumulate) in [(4, 2), (2, 4), (1, 8)] {
            let (parts, by_parts) = run(batch, accumulate);
            let far = parts.iter().zip(&large).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(far < 2e-6, "case {case}: {batch} x {accumulate} is {far} away");
            assert_eq!(by_parts.steps.len(), by_large.steps.len());
            for (a, b) in by_parts.steps.iter().zip(&by_large.steps) {
                assert!(a.loss.is_nan() && b.loss.is_nan() || (a.loss - b.loss).abs() < 1e-5, "{} {}", a.loss, b.loss);
                assert_eq!(a.outcome, b.outcome);
            }
            assert!(by_parts.tape_bytes < by_large.tape_bytes, "a tape of one batch");
        }
    }
}

/// As a loop does that unscales, clips and applies; with a loss scale, which clipping must not see.
#[test]
fn clipping_and_groups_are_those_of_a_loop() {
    let data = classes(&[]);
    let mut clipped = 0;
    for scale in [1.0f32, 1024.0] {
        let mut by_fit = net();
        let group = |path: &str, lr_factor, weight_decay| GroupOptions {
            path: path.into(),
            lr_factor,
            weight_decay,
            state_8bit: None,
        };
        let groups = [group("0.**", Some(0.5), None), group("**.bias", None, Some(0.0))];
        let sgd = SgdOptions { momentum: 0.9, weight_decay: 0.1, ..SgdOptions::default() };
        let options = options(8, 1).method(Method::Sgd(sgd)).groups(groups).clip(0.3);
        let options = options.loss_scale(LossScale::fixed(scale).unwrap().spec().clone());
        fit(&mut by_fit, &data, &options, &mut |_| {}).unwrap();

        let net = net();
        let mut optimizer = Sgd::new(net.params(), 0.2)
            .momentum(0.9)
            .weight_decay(0.1)
            .group("0.**", |group| group.lr_factor(0.5))
            .unwrap()
            .group("**.bias", |group| group.weight_decay(0.0))
            .unwrap();
        let mut scale = LossScale::fixed(scale).unwrap();
        for epoch in 0..3 {
            for batch in data.train.shuffled_batches(8, 0, epoch).unwrap() {
                let loss = Loss::cross_entropy().of(&net.call(&batch.x).unwrap(), &batch.y).unwrap();
                let mut scaled = scale.scale(&loss).unwrap().backward().unwrap();
                let mut grads = scaled.unscale(optimizer.params()).unwrap();
                clipped += usize::from(grads.clip_norm(0.3).unwrap() > 0.3);
                assert_eq!(scale.apply(&mut optimizer, &grads).unwrap(), Outcome::Stepped);
                scale.update().unwrap();
            }
        }
        assert_eq!(weights(&by_fit), weights(&net));
    }
    assert!(clipped > 6, "{clipped}");
}

#[test]
fn options_that_make_no_sense_are_errors() {
    let net = net();
    let words = |options: FitOptions| Fit::new(&net, &options).unwrap_err().to_string();
    let group =
        |path: &str| GroupOptions { path: path.into(), lr_factor: Some(0.1), weight_decay: None, state_8bit: None };
    assert!(words(options(8, 0)).contains("`accumulate` is 0"));
    assert!(words(options(8, 1).clip(0.0)).contains("`clip` is 0"));
    assert!(words(options(8, 1).average(1.0)).contains("`average` is 1"));
    let near = "the group `0.wieght` matches no parameter (did you mean `0.weight`?)";
    assert_eq!(words(options(8, 1).groups([group("0.wieght")])), near);
    net.freeze("0").unwrap();
    assert!(words(options(8, 1).groups([group("0.weight")])).starts_with("the group `0.weight` matches no parameter"));
    net.freeze("**").unwrap();
    assert!(words(options(8, 1)).ends_with("all are frozen"));
}

/// The scores are those of the averaged weights, and so are those of a resumed run.
#[test]
fn the_average_is_scored() {
    let data = classes(&[]);
    let options = options(4, 2).average(0.9);
    let mut net = net();
    let mut run = Fit::new(&net, &options).unwrap();
    while run.advance(&mut net, &data).unwrap().is_some() {}
    let score = || Ok(precast_train::Evaluation::of(&net, &data.test, 4)?.score());
    assert_eq!(run.with_average(score).unwrap(), run.history().score().unwrap());
    let last = weights(&net);
    assert_ne!(run.with_average(|| Ok(weights(&net))).unwrap(), last);
    assert_eq!(weights(&net), last);
}

#[test]
fn the_average_of_a_run_has_the_statistics_of_batch_norms() {
    let net: Child = sequential![Dense::new(3, 4, &mut Rng::seed(1)), BatchNorm1d::new(4)].into();
    let checkpoint = Fit::new(&net, &FitOptions::default().average(0.9)).unwrap().checkpoint(&net);
    let weights = Average::new(net.params(), 0.9).unwrap();
    checkpoint.restore_average(&mut weights.clone().statistics(&net)).unwrap();
    let error = checkpoint.restore_average(&mut weights.clone()).unwrap_err().to_string();
    assert!(error.contains("an average of `1.running_mean`"), "{error}");
}
