//! Averages of weights: by their closed form, evaluated, and continued from a checkpoint with the same bits.

use precast::{ErrorKind, optim::Average, prelude::*};

use crate::common::folder::Folder;

fn net() -> Child {
    let rng = &mut Rng::seed(2);
    Child::of(sequential![Dense::new(4, 6, rng), ReLU, Dense::new(6, 2, rng)])
}

fn values(net: &Child) -> Vec<Vec<f64>> {
    net.params().iter().map(|(_, param)| param.full().to_f64()).collect()
}

fn step(net: &Child, optimizer: &mut Adam) {
    let x = Tensor::from_f64(&[0.5, -1.0, 2.0, 0.3, 1.0, 1.0, -0.2, 0.7], &[2, 4], DType::F32).unwrap();
    let dtype = net.params().iter().next().unwrap().1.dtype();
    let loss = net.call(&x.cast(dtype)).unwrap().cast(DType::F32).square().unwrap().mean_all().unwrap();
    assert_eq!(LossScale::none().step(optimizer, loss).unwrap(), Outcome::Stepped);
}

/// The weight of `w_i` in the average after n updates is `(1 - d_i) * d_(i+1) * ... * d_n`, in f64.
#[test]
fn an_average_has_its_closed_form() {
    for (constant, decay) in [(true, 0.9), (false, 0.9), (false, 0.5)] {
        let net = net();
        let mut optimizer = Adam::new(net.params(), 0.05);
        let average = Average::new(net.params(), decay).unwrap();
        let mut average = if constant { average.constant() } else { average };
        let mut history = vec![values(&net)];
        for _ in 0..30 {
            step(&net, &mut optimizer);
            average.update().unwrap();
            history.push(values(&net));
        }
        let d = |update: usize| if constant { decay } else { f64::min(decay, update as f64 / (update as f64 + 9.0)) };
        let weight = |i: usize| {
            let own = if i == 0 { 1.0 } else { 1.0 - d(i) };
            own * (i + 1..=30).map(d).product::<f64>()
        };
        for (p, (path, met)) in average.values().enumerate() {
            for (e, met) in met.to_f64().into_iter().enumerate() {
                let expected: f64 = (0..=30).map(|i| weight(i) * history[i][p][e]).sum();
                assert!((met - expected).abs() < 1e-6, "{path} {e}: {met} {expected}");
            }
        }
    }
}

/// In f32 although weights are bf16, with a master or without; the weights come back with every bit, after an error as well.
#[test]
fn weights_are_their_averages_for_a_while() {
    for masters in [true, false] {
        let net = net();
        let _ = decorate(&net, Decorate::new(DType::Bf16).masters(masters)).unwrap();
        let mut optimizer = Adam::new(net.params(), 0.05);
        let mut average = Average::new(net.params(), 0.9).unwrap();
        // Without an update there is no average: the weights are used as they are.
        step(&net, &mut optimizer);
        assert_eq!(average.with(|| Ok(values(&net))).unwrap(), values(&net));
        (0..5).for_each(|_| {
            step(&net, &mut optimizer);
            average.update().unwrap();
        });
        let before = values(&net);
        let within = average.with(|| Ok(values(&net))).unwrap();
        for ((_, mean), (met, before)) in average.values().zip(within.iter().zip(&before)) {
            assert_eq!(mean.dtype(), DType::F32);
            let expected = if masters { mean.to_f64() } else { mean.cast(DType::Bf16).to_f64() };
            assert!(*met == expected && met != before);
        }
        assert_eq!(values(&net), before);
        assert!(average.with(|| Err::<(), _>(Error::value("an evaluation"))).is_err());
        assert_eq!(values(&net), before);
        average.put().unwrap();
        assert_eq!(values(&net), within);
    }
}

/// The mean behind a linear layer is linear in its weights, so that its average is the mean that the averaged weights give.
#[test]
fn averaged_statistics_are_those_of_averaged_weights() {
    let norm = BatchNorm1dSpec::new(3).momentum(1.0).build().unwrap();
    let mut net: Child = sequential![Dense::new(2, 3, &mut Rng::seed(2)), norm].into();
    net.set_train(true);
    let rows = [[49.0, -50.5], [51.5, -48.0], [50.5, -51.0]];
    let x = Tensor::from_f64(rows.as_flattened(), &[3, 2], DType::F32).unwrap();
    let target = Tensor::randn(&[3, 3], &mut Rng::seed(3)).unwrap();
    let mut optimizer = Sgd::new(net.params(), 0.02);
    let mut average = Average::new(net.params(), 0.9).unwrap().statistics(&net);
    for _ in 0..30 {
        let loss = net.call(&x).unwrap().mse_loss(&target, Reduction::Sum).unwrap();
        assert_eq!(LossScale::none().step(&mut optimizer, loss).unwrap(), Outcome::Stepped);
        // Of the weights after the step.
        precast::no_grad(|| net.call(&x)).unwrap();
        average.update().unwrap();
    }
    let means = |net: &Child| {
        let of = |name: &str| net.named_params().into_iter().find(|(path, _)| path == name).unwrap().1.full().to_f64();
        let (weight, bias) = (of("0.weight"), of("0.bias"));
        let mean = |i: usize| rows.iter().map(|row| row[i]).sum::<f64>() / 3.0;
        let linear =
            (0..3).map(|o| weight[2 * o] * mean(0) + weight[2 * o + 1] * mean(1) + bias[o]).collect::<Vec<_>>();
        (linear, of("1.running_mean"))
    };
    let far = |(linear, running): (Vec<f64>, Vec<f64>)| {
        linear.iter().zip(&running).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    };
    let (last, within) = (means(&net), average.with(|| Ok(means(&net))).unwrap());
    assert!(far((within.0.clone(), last.1.clone())) > 0.01, "the weights have moved: {within:?} {last:?}");
    assert!(far(within) < 1e-4 && far(last) < 1e-4);

    net.named_params().iter().filter(|(_, param)| param.is_buffer()).for_each(|(_, param)| param.freeze());
    assert_eq!(Average::new(net.params(), 0.9).unwrap().statistics(&net).values().count(), net.params().len());
}

#[test]
fn an_average_continues_from_a_checkpoint_bit_for_bit() {
    let folder = Folder::new("averages");
    let file = folder.join("checkpoint.safetensors");
    let run = |from: usize, net: &mut Child| -> (Adam, Average) {
        let mut optimizer = Adam::new(net.params(), 0.05);
        let mut average = Average::new(net.params(), 0.95).unwrap();
        if from > 0 {
            let checkpoint = Checkpoint::load(&file).unwrap();
            checkpoint.restore(net, &mut [&mut optimizer], &mut LossScale::none()).unwrap();
            checkpoint.restore_average(&mut average).unwrap();
        }
        for i in from..12 {
            if i == 5 {
                let scale = LossScale::none();
                Checkpoint::of(net, &[&optimizer], &scale).averaging(&average).save(&file).unwrap();
            }
            step(net, &mut optimizer);
            average.update().unwrap();
        }
        (optimizer, average)
    };
    let (_, whole) = run(0, &mut net());
    let (_, resumed) = run(5, &mut net());
    let of = |average: &Average| average.values().map(|(path, x)| (path.to_string(), x.to_f64())).collect::<Vec<_>>();
    assert_eq!((of(&whole), whole.updates()), (of(&resumed), 12));

    let other = Child::of(sequential![Dense::new(4, 6, &mut Rng::seed(1))]);
    let mut average = Average::new(other.params(), 0.95).unwrap();
    let error = Checkpoint::load(&file).unwrap().restore_average(&mut average).unwrap_err();
    assert_eq!((error.kind(), average.updates()), (ErrorKind::Weights, 0));
    let without = Checkpoint::of(&other, &[], &LossScale::none());
    assert_eq!(
        without.restore_average(&mut average).unwrap_err().to_string(),
        "the checkpoint has no average of weights"
    );
    assert_eq!(Average::new(other.params(), 1.5).unwrap_err().kind(), ErrorKind::Value);
}
