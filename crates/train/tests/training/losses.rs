//! One description of a loss: scores, weights of shards and means of epochs are those of its targets that count.

use precast::{
    CrossEntropy, Reduction,
    optim::{Method, SgdOptions},
    prelude::*,
};
use precast_mpi::{Ranks, Wire};
use precast_train::{
    ClassScores, DataParallel, Evaluation, FitOptions, Loss, Score,
    data::{Batch, Dataset, IGNORED, Inputs, Split, Standardization, Targets},
    fit,
};

fn identity() -> Child<Identity> {
    Child::new(Identity)
}

/// Outputs that are the inputs, with their targets.
fn pairs(outputs: &[f32], targets: &[f32]) -> Dataset {
    Dataset::regression(outputs.to_vec(), &[1], targets.to_vec(), &[1]).unwrap()
}

fn near(met: f64, right: f64) -> bool {
    (met - right).abs() <= 1e-6 * right.abs().max(1e-6)
}

/// Numbers of `torch.nn.functional` in f64, or by hand.
#[test]
fn a_score_is_the_loss_of_the_examples() {
    let data = pairs(&[1.0, 2.0, 5.0, -1.0], &[0.0, 2.5, 1.0, -1.0]);
    let logits = pairs(&[3.0, -2.0, 0.5, 80.0, -80.0], &[1.0, 0.0, 0.25, 1.0, 0.5]);
    let bce = [3f64, -2.0, 0.5, 80.0, -80.0].iter().zip([1.0, 0.0, 0.25, 1.0, 0.5]);
    let bce = bce.map(|(x, t)| (1.0 + x.exp()).ln() - t * x).sum::<f64>() / 5.0;
    let cases = [
        (Loss::Mse {}, &data, "mean squared error", (1.0 + 0.25 + 16.0) / 4.0),
        (Loss::L1 {}, &data, "mean absolute error", 5.5 / 4.0),
        (Loss::Huber { delta: 0.5 }, &data, "Huber loss", (0.5 * 0.75 + 0.125 + 0.5 * 3.75) / 4.0),
        (Loss::BceWithLogits {}, &logits, "binary cross entropy", bce),
    ];
    for (loss, data, name, right) in cases {
        for batch in [1, 2, 7] {
            let found = Evaluation::of_loss(&loss, &identity(), data, batch, None).unwrap();
            let score = found.score();
            assert!(near(score.number(), right), "{name}: {score}, {right}");
            assert_eq!((score.name(), loss.measure()), (name, name));
            let text = serde_json::to_string(&found).unwrap();
            assert_eq!(serde_json::from_str::<Evaluation>(&text).unwrap(), found);
        }
        // What training computes, in f32.
        let batch = data.batches(9).unwrap().next().unwrap();
        assert!(near(loss.of(&batch.x, &batch.y).unwrap().item().unwrap(), right));
        assert!(Evaluation::of_loss(&Loss::cross_entropy(), &identity(), data, 2, None).is_err());
    }
    let of =
        |error: f32| Evaluation::of_loss(&Loss::L1 {}, &identity(), &pairs(&[error], &[0.0]), 1, None).unwrap().score();
    assert!(of(1.0).is_better_than(of(2.0)) && !of(1.0).is_better_than(Score::of_squared_error(2.0)));
}

/// Sure answers have an error of 0 or infinity, not NaN.
#[test]
fn infinite_logits_have_the_limit_of_the_loss() {
    #[derive(Cell, Debug)]
    struct Sure;
    impl Forward for Sure {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            x.div(&Tensor::zeros(x.shape(), DType::F32))
        }
    }
    let of = |targets: [f32; 2]| {
        let data = pairs(&[1.0, -1.0], &targets);
        Evaluation::of_loss(&Loss::BceWithLogits {}, &Child::new(Sure), &data, 2, None).unwrap().score().number()
    };
    assert_eq!((of([1.0, 0.0]), of([1.0, 0.5])), (0.0, f64::INFINITY));
}

/// By hand: probabilities 0.75 and 0.2 for targets 1 and 0, and 0.4 for a target of 1.
#[test]
fn logits_are_evaluated_as_probabilities() {
    let logits = [3f32.ln(), -(4f32.ln()), (0.4f32 / 0.6).ln()];
    let data = pairs(&logits, &[1.0, 0.0, 1.0]);
    let found = Evaluation::of_loss(&Loss::BceWithLogits {}, &identity(), &data, 2, None).unwrap();
    let Evaluation::Numbers(scores) = found else { panic!() };
    let total = &scores.total;
    assert!(near(total.mean_absolute_error, (0.25 + 0.2 + 0.6) / 3.0), "{total:?}");
    assert!(near(total.mean_squared_error, (0.0625 + 0.04 + 0.36) / 3.0), "{total:?}");
    assert!(near(total.r_squared, 1.0 - 0.4625 / (2.0 / 3.0)), "{total:?}");
    assert_eq!(total.accuracy, Some(2.0 / 3.0));
}

/// Errors in units of the data; the Huber loss in deviations, as in training.
#[test]
fn scores_of_standardized_targets_have_the_units_of_the_loss() {
    let (by, data) = (Standardization { mean: vec![10.0], deviation: vec![4.0] }, pairs(&[0.0, 3.0], &[12.0, 10.0]));
    let of = |loss: &Loss| Evaluation::of_loss(loss, &identity(), &data, 1, Some(&by)).unwrap().score().number();
    // Outputs 10 and 22 of the data, so that errors are 2 and 12, and 0.5 and 3 deviations.
    assert_eq!((of(&Loss::L1 {}), of(&Loss::Mse {})), (7.0, 74.0));
    let huber = Loss::Huber { delta: 1.0 };
    assert_eq!(of(&huber), (0.125 + 2.5) / 2.0);
    let batch = data.targets_standardized(&by).unwrap().batches(2).unwrap().next().unwrap();
    assert_eq!(huber.of(&batch.x, &batch.y).unwrap().item().unwrap(), (0.125 + 2.5) / 2.0);
}

/// The network returns its inputs.
fn answered(pairs: &[(i64, i64)]) -> Dataset {
    let one = |&(_, answer): &(i64, i64)| (0..3).map(move |class| f32::from(u8::from(class == answer)));
    Dataset::new(pairs.iter().flat_map(one).collect(), &[3], pairs.iter().map(|pair| pair.0).collect()).unwrap()
}

/// Class 2 does not count: neither its targets, nor a row for answers of it, which are wrong.
#[test]
fn ignored_classes_are_ignored_by_all_scores() {
    let data = answered(&[(0, 0), (0, 1), (2, 0), (2, 2), (1, 1), (1, 2), (2, 1)]);
    let ignored = Loss::CrossEntropy { label_smoothing: 0.0, ignore_index: Some(2), weight: None };
    let weightless = Loss::CrossEntropy { label_smoothing: 0.0, ignore_index: None, weight: Some(vec![1.0, 7.0, 0.0]) };
    for loss in [ignored, weightless] {
        for batch in [1, 3] {
            let found = Evaluation::of_loss(&loss, &identity(), &data, batch, None).unwrap();
            assert_eq!(found.score().accuracy(), Some(0.5));
            let Evaluation::Classes(ClassScores { count, macro_f1, classes, confusion, .. }) = found else { panic!() };
            // F1 of class 0: 1 answer, 1 right, 2 targets; of class 1: 2 answers, 1 right, 2 targets.
            assert_eq!((count, macro_f1, classes.len()), (4, (2.0 / 3.0 + 0.5) / 2.0, 2));
            assert_eq!(confusion, [[1, 1], [0, 1]]);
        }
        let only = answered(&[(2, 0), (2, 2)]);
        assert!(Evaluation::of_loss(&loss, &identity(), &only, 2, None).is_err());
    }
    // Without the option, they count.
    assert_eq!(Evaluation::of(&identity(), &data, 2).unwrap().score().accuracy(), Some(3.0 / 7.0));
}

/// A learning rate that changes no weight, so that each epoch has the loss of all examples.
fn loss_of_epoch(data: &Dataset, loss: Option<Loss>, batch: usize, accumulate: usize) -> f64 {
    let mut net = Child::new(DenseSpec::new(1, 3).build(&mut Rng::seed(1)).unwrap());
    let mut options = FitOptions::default().epochs(1).batch(batch).accumulate(accumulate).lr(1e-30);
    options.loss = loss;
    options.method = Method::Sgd(SgdOptions::default());
    let split = Split { train: data.clone(), test: data.clone() };
    fit(&mut net, &split, &options, &mut |_| {}).unwrap().epochs[0].loss
}

#[test]
fn the_loss_of_an_epoch_is_that_of_its_targets_whatever_the_batch() {
    let x: Vec<f32> = (0..11).map(|i| i as f32 / 10.0).collect();
    let y = (0..33).map(|i| if i == 3 { 100.0 } else { i as f32 * 0.1 }).collect();
    let numbers = Dataset::regression(x.clone(), &[1], y, &[3]).unwrap();
    let classes = Dataset::new(x, &[1], vec![0, 1, 2, 0, 0, 0, 1, 2, 2, 0, 1]).unwrap();
    // Sequences of five places, of which few count.
    let places = (0..55).map(|i| if i % 5 > i / 11 { IGNORED } else { i % 3 }).collect();
    let inputs = Inputs::Numbers((0..55).map(|i| (i as f32 * 0.7).sin()).collect());
    let places = Dataset::of(inputs, &[5, 1], Targets::Classes { shape: vec![5], values: places }).unwrap();
    let weighted =
        Loss::CrossEntropy { label_smoothing: 0.1, ignore_index: Some(1), weight: Some(vec![1.0, 3.0, 9.0]) };
    let elsewhere =
        Loss::CrossEntropy { label_smoothing: 0.1, ignore_index: Some(IGNORED), weight: Some(vec![1.0, 3.0, 9.0]) };
    for (data, loss) in [
        (&numbers, None),
        (&numbers, Some(Loss::L1 {})),
        (&classes, None),
        (&classes, Some(weighted)),
        (&places, None),
        (&places, Some(elsewhere)),
    ] {
        let right = loss_of_epoch(data, loss.clone(), 11, 1);
        for (batch, accumulate) in [(8, 1), (4, 1), (2, 1), (3, 2), (2, 4), (1, 4)] {
            let met = loss_of_epoch(data, loss.clone(), batch, accumulate);
            assert!(near(met, right), "batches of {batch}, {accumulate} a step: {met}, right {right}, {loss:?}");
        }
    }
}

/// Returns by how much a step over so many shards moves the weights.
fn moves(shards: usize, loss: impl Fn(&Tensor, &Batch) -> Result<Tensor>, weight: Option<&Loss>) -> Result<Vec<f64>> {
    let ranks = Ranks::of_launcher().map_err(Error::ranks)?;
    let mut net = Child::new(sequential![Dense::new(4, 3, &mut Rng::seed(1))]);
    let (mut optimizer, mut scale) = (Sgd::new(net.params(), 1.0), LossScale::none());
    let mut parallel = DataParallel::new(&ranks, shards, Wire::Float32)?;
    parallel.begin(&mut net, &mut [&mut optimizer], &mut scale)?;
    net.set_train(true);
    let y = Tensor::from_vec(vec![0i64, 0, 0, 1, 2, 1, 2, 1], &[8])?;
    let batch = Batch { x: Tensor::randn(&[8, 4], &mut Rng::seed(2))?, further: vec![], y };
    let weights = |net: &Child<Sequential>| -> Vec<f64> {
        net.params().iter().flat_map(|(_, param)| param.value().to_f64()).collect()
    };
    let before = weights(&net);
    let of_shard = |net: &Child<Sequential>, shard: &Batch| loss(&net.call(&shard.x)?, shard);
    let _ = match weight {
        None => parallel.step(&net, &mut optimizer, &mut scale, &batch, of_shard)?,
        Some(by) => {
            let weight = |shard: &Batch| by.weight_of(&shard.y);
            parallel.step_weighted(&net, &mut optimizer, &mut scale, &batch, weight, of_shard)?
        }
    };
    Ok(weights(&net).iter().zip(before).map(|(now, before)| now - before).collect())
}

#[test]
fn shards_weigh_as_their_loss_says() {
    let weight = Some(vec![1.0, 10.0, 100.0]);
    for loss in [
        Loss::cross_entropy(),
        Loss::CrossEntropy { label_smoothing: 0.0, ignore_index: Some(0), weight: None },
        Loss::CrossEntropy { label_smoothing: 0.0, ignore_index: None, weight: weight.clone() },
        Loss::CrossEntropy { label_smoothing: 0.2, ignore_index: Some(2), weight },
    ] {
        let of = |shards| moves(shards, |outputs, shard| loss.of(outputs, &shard.y), Some(&loss)).unwrap();
        let one = of(1);
        for shards in [2, 3, 4] {
            let met = of(shards);
            assert!(met.iter().zip(&one).all(|(met, one)| (met - one).abs() < 1e-6), "{loss:?}: {met:?} {one:?}");
        }
    }
}

#[test]
fn a_loss_in_code_whose_weights_are_not_known_is_refused() {
    let weight = Tensor::from_vec(vec![1f32, 10.0, 100.0], &[3]).unwrap();
    let of = |options: CrossEntropy| move |y: &Tensor, shard: &Batch| y.cross_entropy_with(&shard.y, &options);
    let refused = |loss: &dyn Fn(&Tensor, &Batch) -> Result<Tensor>, words: &str| {
        // One shard is the whole batch.
        assert!(moves(1, loss, None).is_ok());
        let error = moves(4, loss, None).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("step_weighted"), "{error}");
    };
    refused(&of(CrossEntropy::default().weight(weight)), "has weights of classes");
    refused(&of(CrossEntropy::default().ignore_index(0)), "ignores class 0");
    refused(&of(CrossEntropy::default().reduction(Reduction::Sum)), "is a sum");
    refused(&|y: &Tensor, _: &Batch| y.mse_loss(&Tensor::zeros(y.shape(), DType::F32), Reduction::Sum), "is a sum");
    refused(&|y: &Tensor, _: &Batch| y.square()?.sum_all(), "is a sum");
    type Mean<'a> = &'a dyn Fn(&Tensor, &Batch) -> Result<Tensor>;
    let means: [Mean; 3] = [
        &of(CrossEntropy::default().ignore_index(IGNORED).label_smoothing(0.1)),
        &|y: &Tensor, _: &Batch| y.square()?.mean_all(),
        &|y: &Tensor, shard: &Batch| y.cross_entropy(&shard.y)?.add(&y.square()?.mean_all()?),
    ];
    for mean in means {
        let (one, four) = (moves(1, mean, None).unwrap(), moves(4, mean, None).unwrap());
        assert!(one.iter().zip(&four).all(|(one, four)| (one - four).abs() < 1e-6), "{one:?} {four:?}");
    }
}
