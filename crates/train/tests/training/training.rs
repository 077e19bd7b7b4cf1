//! Training runs: they learn, they are reproducible bit for bit, and their record is correct.

use precast::{
    Child, DType, ErrorKind, Outcome, Policy, Result, Tensor,
    io::models,
    layers::{Dense, Rng},
    optim::{AdamOptions, Method},
    policy::{DynamicScale, LossScaleSpec},
};
use precast_train::{
    Event, Fit, FitOptions, History, accuracy,
    data::{Dataset, Split, digits},
    fit,
};

const MLP: &str = "
version: 1
name: small
net:
  kind: Sequential
  cells:
  - {kind: Dense, in_features: 64, out_features: 32}
  - {kind: BatchNorm1d, num_features: 32}
  - {kind: ReLU}
  - {kind: Dense, in_features: 32, out_features: 10}
";

fn net() -> Child {
    models::parse(MLP, "small", 7).unwrap()
}

/// Makes the network as one region of a dtype.
fn lowered(dtype: DType) -> Child {
    net().to_float(dtype).unwrap()
}

fn dynamic(init: f32, interval: u32) -> LossScaleSpec {
    LossScaleSpec::Dynamic(DynamicScale::default().init(init).interval(interval))
}

fn data() -> Split {
    digits().unwrap().reshape(&[64]).unwrap().split(1500, 0).unwrap()
}

fn options(epochs: usize) -> FitOptions {
    FitOptions::default().epochs(epochs)
}

fn train(net: &mut Child, options: &FitOptions) -> Result<History> {
    fit(net, &data(), options, &mut |_| {})
}

/// Returns the network's weights and buffers, bit for bit.
fn bits(net: &Child) -> Vec<(String, Vec<u64>)> {
    let bits = |x: Tensor| x.to_f64().iter().map(|x| x.to_bits()).collect();
    net.named_params().into_iter().map(|(path, param)| (path, bits(param.value()))).collect()
}

#[test]
fn digits_are_learnt_at_every_level() {
    for (level, dtype) in
        [("O0", DType::F16), ("O1", DType::F16), ("O2", DType::F16), ("O2", DType::Bf16), ("O3", DType::F16)]
    {
        let mut net = net();
        let policy = Policy::new(level, dtype).unwrap();
        let _ = policy.apply(&mut net).unwrap();
        let options = options(4).loss_scale(policy.loss_scale.clone());
        let history = train(&mut net, &options).unwrap();
        let accuracy = history.accuracy().unwrap();
        assert!(accuracy > 0.93, "{level} {dtype}: {accuracy}");
        let (first, last) = (&history.epochs[0], &history.epochs[3]);
        assert!(last.loss < first.loss / 3.0, "{level} {dtype}: {} {}", first.loss, last.loss);
    }
}

#[test]
fn the_same_seed_gives_the_same_bits() {
    let run = |seed: u64| {
        let mut net = lowered(DType::F16);
        let (method, loss_scale) = (Method::Adam(AdamOptions::default()), dynamic(16_777_216.0, 10));
        let history = train(&mut net, &options(2).method(method).lr(0.01).seed(seed).loss_scale(loss_scale)).unwrap();
        let steps: Vec<_> = history.steps.into_iter().map(|s| (s.loss.to_bits(), s.scale, s.outcome)).collect();
        (bits(&net), steps)
    };
    let (weights, steps) = run(1);
    assert_eq!((&weights, &steps), (&run(1).0, &run(1).1));
    assert_ne!(weights, run(2).0, "another seed, another order, other weights");
    assert!(steps.iter().any(|(_, _, outcome)| *outcome != Outcome::Stepped), "the start scale was too high");
    assert!(weights.iter().all(|(_, bits)| bits.iter().all(|&b| f64::from_bits(b).is_finite())));
}

#[test]
fn the_record_adds_up() {
    let plain = train(&mut net(), &options(1)).unwrap();
    let mut net = lowered(DType::F16);
    let loss_scale = LossScaleSpec::Fixed { scale: 128.0 };
    let options = options(2).batch(100).loss_scale(loss_scale);
    let (mut steps, mut epochs) = (0, 0);
    let history = fit(&mut net, &data(), &options, &mut |event| match event {
        Event::Step(step) => {
            assert_eq!(step.scale, 128.0);
            assert!(step.seconds > 0.0);
            steps += 1;
        }
        Event::Epoch(epoch) => {
            assert_eq!((epoch.epoch, steps), (epochs, 15 * (epochs + 1)));
            epochs += 1;
        }
        other => panic!("{other:?}"),
    })
    .unwrap();
    assert_eq!((steps, epochs, options.steps(1500)), (30, 2, 30));
    assert_eq!((history.steps.len(), history.epochs.len(), history.skipped()), (30, 2, 0));
    // Two dense layers with bias, and weight and bias of the norm, in f32.
    assert_eq!(history.param_bytes, 4 * (64 * 32 + 32 + 2 * 32 + 32 * 10 + 10));
    assert_eq!(plain.casts, 0, "nothing is cast in f32");
    assert!(history.casts > 0);
    // Per example: the input, the inputs of norm and relu and of the last layer, and of the loss; half of it is low.
    let (low, full) = (history.tape_bytes as f64 / 100.0, plain.tape_bytes as f64 / 32.0);
    assert!(low < 0.9 * full, "{low} bytes an example in f16, {full} in f32");
    let last = &history.epochs[1];
    let mean = history.steps[15..].iter().map(|step| step.loss).sum::<f64>() / 15.0;
    assert!((last.loss - mean).abs() < 1e-12);
    assert_eq!(
        accuracy(&net, &data().test, 297).unwrap(),
        last.score.accuracy().unwrap(),
        "the batch size does not matter in evaluation"
    );
    assert_eq!(history.accuracy(), last.score.accuracy());
}

#[test]
fn a_run_that_cannot_recover_ends_and_says_so() {
    let mut net = net();
    // Pixels so large that their sums are infinite: every loss is NaN.
    let broken = Dataset::new(vec![f32::MAX; 64 * 40], &[64], vec![0; 40]).unwrap();
    let split = Split { train: broken, test: data().test };
    let before = bits(&net);
    let history = fit(&mut net, &split, &options(3).batch(2), &mut |_| {}).unwrap();
    assert_eq!((history.steps.len(), history.skipped(), history.epochs.len()), (20, 20, 0));
    assert!(history.stalled().is_some_and(|step| step.loss.is_nan()));
    let trained = |bits: Vec<(String, Vec<u64>)>| -> Vec<_> {
        bits.into_iter().filter(|(path, _)| !path.contains("running")).collect()
    };
    assert_eq!(trained(bits(&net)), trained(before), "no weight was touched");
}

#[test]
fn what_cannot_be_trained_is_refused() {
    let mut net = net();
    let kind = |result: Result<History>| result.unwrap_err().kind();
    assert_eq!(kind(train(&mut net, &options(1).batch(0))), ErrorKind::Value);
    assert_eq!(kind(train(&mut net, &options(1).lr(f64::NAN))), ErrorKind::Value);
    let loss_scale = LossScaleSpec::Fixed { scale: f32::NAN };
    assert_eq!(kind(train(&mut net, &options(1).loss_scale(loss_scale))), ErrorKind::Value);
    let empty = Split { train: Dataset::new(vec![], &[64], vec![]).unwrap(), test: data().test };
    assert_eq!(kind(fit(&mut net, &empty, &options(1), &mut |_| {})), ErrorKind::Data);
    let images = digits().unwrap().split(1500, 0).unwrap();
    assert_eq!(kind(fit(&mut net, &images, &options(1), &mut |_| {})), ErrorKind::Shape);
    let eleven = Dataset::new(vec![0.0; 128], &[64], vec![0, 10]).unwrap();
    assert!(fit(&mut net, &Split { train: eleven.clone(), test: eleven }, &options(1), &mut |_| {}).is_err());
    assert_eq!(accuracy(&net, &empty.train, 1).unwrap_err().kind(), ErrorKind::Data);
    assert_eq!(empty.train.shuffled_batches(2, 0, 0).err().unwrap().kind(), ErrorKind::Data);
    assert_eq!(kind(train(&mut net, &options(0))), ErrorKind::Value);
    let none = Child::new(Dense::new(0, 2, &mut Rng::seed(1)));
    assert_eq!(none.call(&Tensor::zeros(&[1, 0], DType::F32)).unwrap_err().kind(), ErrorKind::Value);
}

/// A run that went back to its start: the record of the epoch is that of the steps since, and not also of those before.
#[test]
fn the_record_of_an_epoch_is_of_its_last_steps() {
    let digits = digits().unwrap().reshape(&[64]).unwrap();
    let data = Split { train: digits.split(64, 1).unwrap().train, test: digits.split(16, 2).unwrap().train };
    let options = FitOptions::default().epochs(2).batch(16);
    let mut net = net();
    let mut fit = Fit::new(&net, &options).unwrap();
    let start = fit.checkpoint(&net);
    while fit.advance(&mut net, &data).unwrap().is_some() {}
    let history = fit.history().clone();
    let mut net = self::net();
    let mut again = Fit::resume(&mut net, &options, &start, history.clone()).unwrap();
    while again.history().epochs.len() == history.epochs.len() {
        let _ = again.advance(&mut net, &data).unwrap().expect("it is not over");
    }
    let (steps, epoch) = (&again.history().steps[history.steps.len()..], again.history().epochs.last().unwrap());
    assert_eq!((steps.len(), epoch.loss.to_bits()), (4, history.epochs[0].loss.to_bits()));
    assert_eq!(epoch.seconds, steps.iter().map(|step| step.seconds).sum::<f64>());
}
