//! Steps over shards: in the order of the tree, with the same bits for every number of ranks. Ranks are threads.

use std::time::Duration;

use precast::{
    Adafactor, CrossEntropy, ErrorKind, Lamb, Reduction, cell::Params, optim::Method, prelude::*, scale::Cause,
};
use precast_mpi::{Ranks, Threads, Wire};
use precast_train::{
    DataParallel, Evaluation, Fit, FitOptions, data,
    data::{Batch, Dataset, IGNORED, Inputs, Split, Targets},
};

pub(super) type Net = Child<Sequential>;

/// Runs ranks as threads.
pub(super) fn on<T: Send>(ranks: usize, work: impl Fn(&Ranks) -> T + Sync) -> Vec<T> {
    Threads::run(ranks, &[], Duration::from_secs(60), work).unwrap()
}

pub(super) fn of_classes(net: &Net, shard: &Batch) -> Result<Tensor> {
    net.call(&shard.x)?.cross_entropy(&shard.y)
}

pub(super) fn bits(net: &Net) -> Vec<u64> {
    net.named_params().iter().flat_map(|(_, param)| param.full().to_f64()).map(f64::to_bits).collect()
}

/// Convolution, batch norm and dropout.
pub(super) fn conv() -> Net {
    let rng = &mut Rng::seed(3);
    Child::new(sequential![
        Conv2d::new(1, 4, 3, rng),
        BatchNorm2d::new(4),
        ReLU,
        Dropout::new(0.3, rng),
        Flatten::default(),
        Dense::new(4 * 36, 10, rng)
    ])
}

fn transformer() -> Net {
    let rng = &mut Rng::seed(4);
    let layer = TransformerEncoderLayerSpec::new(8, 2).dim_feedforward(16).dropout(0.1);
    let encoder = TransformerEncoderSpec::new(layer, 2).build(rng).unwrap();
    Child::new(sequential![encoder, Flatten::default(), Dense::new(64, 10, rng)])
}

pub(super) fn lstm() -> Net {
    let rng = &mut Rng::seed(5);
    Child::new(sequential![LSTMSpec::new(8, 6).build(rng).unwrap(), Flatten::default(), Dense::new(48, 10, rng)])
}

/// Trains by steps of a loop, and returns the bytes of a checkpoint with the outcomes.
fn trained(
    ranks: &Ranks,
    (net, rows): (&dyn Fn() -> Net, bool),
    (level, dtype): (Level, DType),
    shards: usize,
    steps: usize,
) -> (Vec<u8>, Vec<Outcome>) {
    let mut net = net();
    let policy = Policy::new(level, dtype).unwrap();
    policy.apply(&mut net).unwrap();
    let (mut optimizer, mut scale) = (Adam::new(net.params(), 2e-3), policy.loss_scale().unwrap());
    if policy.level == Level::O2 && dtype == DType::F16 {
        scale.set_scale(2f32.powi(20)).unwrap(); // overflows in the first steps
    }
    let mut parallel = DataParallel::new(ranks, shards, Wire::Float32).unwrap();
    parallel.begin(&mut net, &mut [&mut optimizer], &mut scale).unwrap();
    net.set_train(true);
    let data = data::digits().unwrap();
    let mut outcomes = Vec::new();
    for mut batch in data.shuffled_batches(37, 1, 0).unwrap().take(steps) {
        if rows {
            batch.x = batch.x.reshape(&[-1, 8, 8]).unwrap();
        }
        outcomes.push(parallel.step(&net, &mut optimizer, &mut scale, &batch, of_classes).unwrap());
    }
    (Checkpoint::of(&net, &[&optimizer], &scale).to_bytes().unwrap(), outcomes)
}

#[test]
fn any_number_of_ranks_has_the_same_bits() {
    let nets: [(&(dyn Fn() -> Net + Sync), bool, Level, DType); 3] = [
        (&conv, false, Level::O2, DType::F16),
        (&transformer, true, Level::O2, DType::Bf16),
        (&lstm, true, Level::O0, DType::F16),
    ];
    for (net, rows, level, dtype) in nets {
        for shards in [4, 6, 7, 8] {
            let run = |ranks: &Ranks| trained(ranks, (net, rows), (level, dtype), shards, 6);
            let alone = on(1, run).remove(0);
            if level == Level::O2 && dtype == DType::F16 {
                assert!(alone.1.iter().any(|outcome| matches!(outcome, Outcome::Skipped { .. })), "{:?}", alone.1);
                assert_eq!(alone.1.last(), Some(&Outcome::Stepped));
            }
            for ranks in 2..=4 {
                for (rank, met) in on(ranks, run).into_iter().enumerate() {
                    assert_eq!(met.1, alone.1, "{level} {dtype}, {shards} shards, rank {rank} of {ranks}");
                    assert!(met.0 == alone.0, "{level} {dtype}, {shards} shards, rank {rank} of {ranks}");
                }
            }
        }
    }
}

/// With more ranks than some optimizers have parameters with state, and overflows on the way.
#[test]
fn a_sharded_state_has_the_bits_of_a_whole_one() {
    let makes: [&(dyn Fn(Params) -> Box<dyn Optimizer> + Sync); 4] = [
        &|params| Box::new(Adam::new(params, 2e-3)),
        &|params| Box::new(Lamb::new(params, 2e-3)),
        &|params| Box::new(Adafactor::new(params, 2e-3)),
        &|params| Box::new(Sgd::new(params, 2e-3)),
    ];
    for (which, make) in makes.into_iter().enumerate() {
        let run = |ranks: &Ranks, sharded: bool| {
            let mut net = conv();
            let policy = Policy::new(Level::O2, DType::F16).unwrap();
            policy.apply(&mut net).unwrap();
            let (mut optimizer, mut scale) = (make(net.params()), policy.loss_scale().unwrap());
            scale.set_scale(2f32.powi(20)).unwrap();
            let parallel = DataParallel::new(ranks, 6, Wire::Float32).unwrap();
            let mut parallel = if sharded { parallel.sharding_state() } else { parallel };
            parallel.begin(&mut net, &mut [&mut *optimizer], &mut scale).unwrap();
            net.set_train(true);
            let mut checkpoints = Vec::new();
            for batch in data::digits().unwrap().shuffled_batches(37, 1, 0).unwrap().take(9) {
                let _ = parallel.step(&net, &mut *optimizer, &mut scale, &batch, of_classes).unwrap();
                let checkpoint = parallel.checkpoint(&net, &[&*optimizer], &scale).unwrap();
                checkpoints.extend(checkpoint.map(|checkpoint| checkpoint.to_bytes().unwrap()));
            }
            let kept: usize = optimizer.state().tensors.iter().map(|(_, tensor)| tensor.len()).sum();
            (checkpoints, bits(&net), kept)
        };
        let alone = on(1, |ranks| run(ranks, false)).remove(0);
        for ranks in 1..=4 {
            let met = on(ranks, |ranks| run(ranks, true));
            assert!(met[0].0 == alone.0, "optimizer {which} on {ranks} ranks");
            assert!(met[1..].iter().all(|met| met.0.is_empty()));
            assert!(met.iter().all(|met| met.1 == alone.1), "optimizer {which} on {ranks} ranks");
            assert_eq!(met.iter().map(|met| met.2).sum::<usize>(), alone.2, "each number is kept once");
        }
    }
}

/// The state of a rank that begins with the whole one, and of ranks that take the checkpoint of others.
#[test]
fn a_sharded_state_begins_from_a_checkpoint_of_any_ranks() {
    let run = |ranks: &Ranks, from: Option<&[u8]>, steps: std::ops::Range<usize>| {
        let mut net = conv();
        let (mut optimizer, mut scale) = (Adam::new(net.params(), 2e-3), LossScale::none());
        let mut parallel = DataParallel::new(ranks, 4, Wire::Float32).unwrap().sharding_state();
        if let Some(bytes) = from.filter(|_| ranks.rank() == 0) {
            let checkpoint = Checkpoint::from_bytes(bytes).unwrap();
            checkpoint.restore(&mut net, &mut [&mut optimizer], &mut scale).unwrap();
            parallel.set_steps(checkpoint.count("steps").unwrap());
        }
        parallel.begin(&mut net, &mut [&mut optimizer], &mut scale).unwrap();
        net.set_train(true);
        let batches = data::digits().unwrap().shuffled_batches(40, 1, 0).unwrap().collect::<Vec<_>>();
        for batch in &batches[steps] {
            let _ = parallel.step(&net, &mut optimizer, &mut scale, batch, of_classes).unwrap();
        }
        parallel.checkpoint(&net, &[&optimizer], &scale).unwrap().map(|checkpoint| checkpoint.to_bytes().unwrap())
    };
    let whole = on(1, |ranks| run(ranks, None, 0..8)).remove(0);
    for (before, after) in [(1, 3), (3, 2), (4, 1)] {
        let half = on(before, |ranks| run(ranks, None, 0..3)).remove(0);
        let met = on(after, |ranks| run(ranks, half.as_deref(), 3..8)).remove(0);
        assert!(met == whole, "{before} ranks, and then {after}");
    }
}

#[test]
fn ranks_without_examples_take_part() {
    let data = data::digits().unwrap();
    let data = Split { train: data.select(&[0, 1, 2, 3, 4, 5]).unwrap(), test: data.select(&[6, 7, 8]).unwrap() };
    let run = |ranks: &Ranks| {
        let mut net = conv();
        Policy::new(Level::O2, DType::F16).unwrap().apply(&mut net).unwrap();
        let options = FitOptions::default().epochs(2).batch(2).shards(4);
        let mut fit = Fit::new(&net, &options).unwrap();
        let mut parallel = DataParallel::new(ranks, 4, Wire::Float32).unwrap();
        while fit.advance_on(&mut parallel, &mut net, &data).unwrap().is_some() {}
        (bits(&net), fit.history().epochs.iter().map(|epoch| epoch.score).collect::<Vec<_>>())
    };
    let alone = on(1, run).remove(0);
    for ranks in 2..=4 {
        for met in on(ranks, run) {
            assert_eq!(met, alone, "{ranks} ranks");
        }
    }
}

/// Targets are standardized, and some outputs are not finite.
#[test]
fn scores_have_the_bits_of_one_process() {
    let n = 97;
    let x: Vec<f32> = (0..2 * n).map(|i| ((i * 37) % 101) as f32 / 17.0).collect();
    for (targets, not_finite) in [
        (Targets::Numbers { shape: vec![3], values: (0..3 * n).map(|i| (i % 13) as f32 / 3.0).collect() }, false),
        (Targets::Numbers { shape: vec![3], values: vec![1.0; 3 * n] }, true),
        (Targets::Classes { shape: vec![], values: (0..n as i64).map(|i| i % 3).collect() }, false),
        (Targets::Classes { shape: vec![], values: (0..n as i64).map(|i| i % 3).collect() }, true),
    ] {
        let mut x = x.clone();
        if not_finite {
            x[20] = 3e38; // infinite after the layer
        }
        let all = Dataset::of(Inputs::Numbers(x), &[2], targets).unwrap();
        let split = Split { train: all.clone(), test: all };
        let score = |ranks: &Ranks| {
            let net = &mut Child::new(sequential![Dense::new(2, 3, &mut Rng::seed(8))]);
            for (_, param) in net.params().iter() {
                param.set(&(param.full() * 10.0).unwrap()).unwrap();
            }
            let options = FitOptions::default().batch(n).shards(5).epochs(1).lr(0.0).monitor(false);
            // The examples of a batch differ from the shards of a step.
            let mut fit = Fit::new(net, &options.batch(10)).unwrap();
            let mut parallel = DataParallel::new(ranks, 5, Wire::Float32).unwrap();
            while fit.advance_on(&mut parallel, net, &split).unwrap().is_some() {}
            let score = fit.history().score().unwrap();
            assert_eq!(score.not_finite() > 0, not_finite);
            (format!("{score:?}"), format!("{:?}", Evaluation::of(net, &split.test, 10).unwrap().score()))
        };
        for ranks in 1..=5 {
            for (met, expected) in on(ranks, score) {
                assert_eq!(met, expected, "{ranks} ranks");
            }
        }
    }
}

/// By gradients of each shard alone, which this test adds itself.
#[test]
fn gradients_are_added_in_the_order_of_the_tree() {
    let dense = || {
        let rng = &mut Rng::seed(2);
        Child::new(sequential![Flatten::default(), Dense::new(64, 12, rng), Tanh, Dense::new(12, 10, rng)])
    };
    let batch = data::digits().unwrap().batches(23).unwrap().next().unwrap();
    let (net, by_hand) = (dense(), dense());
    let of_shard = |shard: &Batch| -> Vec<Vec<f32>> {
        let share = Tensor::scalar(shard.y.len() as f64 / 23.0, DType::F32);
        let loss = of_classes(&by_hand, shard).unwrap().mul(&share).unwrap();
        let grads = loss.backward().unwrap();
        by_hand.params().iter().map(|(_, param)| grads.get(param).unwrap().to_vec().unwrap()).collect()
    };
    let add = |a: Vec<Vec<f32>>, b: Vec<Vec<f32>>| -> Vec<Vec<f32>> {
        a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(a, b)| a + b).collect()).collect()
    };
    let [a, b, c, d, e]: [_; 5] = batch.shards(5).unwrap().iter().map(of_shard).collect::<Vec<_>>().try_into().unwrap();
    let sum = add(add(add(a, b), add(c, d)), e);
    let mut grads = precast::Grads::default();
    for ((_, param), sum) in by_hand.params().iter().zip(sum) {
        grads.set(param, Tensor::from_vec(sum, &param.shape()).unwrap());
    }
    Sgd::new(by_hand.params(), 0.5).update(&grads).unwrap();

    let ranks = Ranks::of_launcher().unwrap();
    let mut parallel = DataParallel::new(&ranks, 5, Wire::Float32).unwrap();
    let mut optimizer = Sgd::new(net.params(), 0.5);
    let outcome = parallel.step(&net, &mut optimizer, &mut LossScale::none(), &batch, of_classes).unwrap();
    assert_eq!(outcome, Outcome::Stepped);
    assert_eq!(bits(&net), bits(&by_hand));
}

#[test]
fn running_statistics_move_once_by_the_mean_over_shards() {
    let values: Vec<f32> = (0..24).map(|i| ((i * i) % 11) as f32).collect();
    let data = Dataset::new(values.clone(), &[2], vec![0; 12]).unwrap();
    let batch = data.batches(12).unwrap().next().unwrap();
    for size in 1..=3 {
        let met = on(size, |ranks| {
            let mut net = Child::new(sequential![BatchNorm1d::new(2), Dense::new(2, 2, &mut Rng::seed(1))]);
            net.set_train(true);
            let (mut optimizer, mut scale) = (Sgd::new(net.params(), 0.1), LossScale::none());
            let mut parallel = DataParallel::new(ranks, 3, Wire::Float32).unwrap();
            let _ = parallel.step(&net, &mut optimizer, &mut scale, &batch, of_classes).unwrap();
            let of = |path: &str| {
                let params = net.named_params();
                params.iter().find(|(name, _)| name == path).unwrap().1.value().to_f64()
            };
            (of("0.running_mean"), of("0.running_var"))
        });
        for (mean, var) in met {
            for channel in 0..2 {
                let x = |row: usize| f64::from(values[2 * row + channel]);
                let (mut moved_mean, mut moved_var) = (0.0, 0.0);
                for shard in 0..3 {
                    let rows = 4 * shard..4 * shard + 4;
                    let m = rows.clone().map(x).sum::<f64>() / 4.0;
                    let v = rows.map(|row| (x(row) - m).powi(2)).sum::<f64>() / 3.0;
                    (moved_mean, moved_var) = (moved_mean + 0.1 * m / 3.0, moved_var + (0.9 + 0.1 * v) / 3.0);
                }
                assert!((mean[channel] - moved_mean).abs() < 1e-6, "{} {moved_mean}", mean[channel]);
                assert!((var[channel] - moved_var).abs() < 1e-6, "{} {moved_var}", var[channel]);
            }
        }
    }
}

/// Each shard in turn has a number that overflows, or a loss that is not finite: all ranks skip, for the same reason, and no
/// running statistics move.
#[test]
fn a_step_that_one_shard_spoils_is_skipped_by_all() {
    for (spoilt, is_loss) in [0, 1, 2, 3].into_iter().flat_map(|shard| [(shard, false), (shard, true)]) {
        let met = on(4, |ranks| {
            let mut net = conv();
            let policy = Policy::new(Level::O2, DType::F16).unwrap();
            policy.apply(&mut net).unwrap();
            net.set_train(true);
            let (mut optimizer, mut scale) = (Adam::new(net.params(), 1e-3), LossScale::dynamic());
            let mut parallel = DataParallel::new(ranks, 4, Wire::Float32).unwrap();
            let batch = data::digits().unwrap().batches(32).unwrap().next().unwrap();
            let before = bits(&net);
            let loss = |net: &Net, shard: &Batch| {
                let loss = of_classes(net, shard)?;
                let is_spoilt = shard.x.to_f64() == batch.shards(4)?[spoilt].x.to_f64();
                match (is_spoilt, is_loss) {
                    (false, _) => Ok(loss),
                    (true, true) => loss * f64::NAN,
                    (true, false) => loss * 1e4,
                }
            };
            let outcome = parallel.step(&net, &mut optimizer, &mut scale, &batch, loss).unwrap();
            assert_eq!(bits(&net), before);
            // The next step is taken by all.
            scale.set_scale(1024.0).unwrap();
            let next = parallel.step(&net, &mut optimizer, &mut scale, &batch, of_classes).unwrap();
            assert_eq!(next, Outcome::Stepped);
            (outcome, scale.value(), bits(&net))
        });
        match (&met[0].0, is_loss) {
            (Outcome::Skipped { cause: Cause::Loss { .. } }, true) => {}
            (Outcome::Skipped { cause: Cause::Overflow { .. } }, false) => {}
            (other, _) => panic!("shard {spoilt}: {other:?}"),
        }
        met.iter().for_each(|of_rank| assert_eq!(*of_rank, met[0]));
    }
}

#[test]
fn an_error_of_one_rank_is_that_of_all_and_the_next_step_is_taken() {
    let met = on(3, |ranks| {
        let net = lstm();
        let (mut optimizer, mut scale) = (Sgd::new(net.params(), 0.1), LossScale::none());
        let mut parallel = DataParallel::new(ranks, 6, Wire::Float32).unwrap();
        let mut batch = data::digits().unwrap().batches(18).unwrap().next().unwrap();
        batch.x = batch.x.reshape(&[-1, 8, 8]).unwrap();
        let rank = ranks.rank();
        let wrong = |net: &Net, shard: &Batch| {
            let x = if rank == 1 { shard.x.slice(2, 0..7)? } else { shard.x.clone() };
            net.call(&x)?.cross_entropy(&shard.y)
        };
        let before = bits(&net);
        let error = parallel.step(&net, &mut optimizer, &mut scale, &batch, wrong).unwrap_err();
        assert_eq!(bits(&net), before);
        let next = parallel.step(&net, &mut optimizer, &mut scale, &batch, of_classes).unwrap();
        (error.kind(), error.to_string(), next, bits(&net))
    });
    for of_rank in &met {
        assert_eq!(of_rank, &met[0]);
        assert_eq!(of_rank.0, ErrorKind::Ranks);
        assert!(of_rank.1.contains("rank 1: in cell `0`"), "{}", of_rank.1);
        assert_eq!(of_rank.2, Outcome::Stepped);
    }
}

/// A head that one shard alone uses has its gradient; one that none uses keeps its state.
#[test]
fn a_parameter_without_a_gradient_in_any_shard_is_left_alone() {
    #[derive(Cell, Debug)]
    #[cell(new)]
    struct Heads {
        always: Child<Dense>,
        once: Child<Dense>,
        never: Child<Dense>,
    }
    impl Forward for Heads {}
    for size in 1..=4 {
        let met = on(size, |ranks| {
            let rng = &mut Rng::seed(6);
            let net = Child::new(Heads::new(Dense::new(3, 2, rng), Dense::new(2, 2, rng), Dense::new(2, 2, rng)));
            let mut optimizer = Adam::new(net.params(), 0.1);
            let mut parallel = DataParallel::new(ranks, 4, Wire::Float32).unwrap();
            let x = (0..24).map(|i| (i as f32).sin()).collect();
            let data = Dataset::new(x, &[3], vec![1; 8]).unwrap();
            let batch = data.batches(8).unwrap().next().unwrap();
            let first = batch.shards(4).unwrap()[2].x.to_f64();
            let loss = |net: &Child<Heads>, shard: &Batch| {
                net.with(&shard.x, |net, x| {
                    let y = net.always.call(&x)?;
                    let y = if shard.x.to_f64() == first { net.once.call(&y)? } else { y };
                    y.cross_entropy(&shard.y)
                })
            };
            let values = |net: &Child<Heads>| -> Vec<Vec<f64>> {
                net.params().iter().map(|(_, param)| param.value().to_f64()).collect()
            };
            let before = values(&net);
            let _ = parallel.step(&net, &mut optimizer, &mut LossScale::none(), &batch, loss).unwrap();
            let after = values(&net);
            let has_moved: Vec<bool> = before.iter().zip(&after).map(|(a, b)| a != b).collect();
            assert_eq!(has_moved, [true, true, true, true, false, false]);
            (after, optimizer.state().tensors.len())
        });
        met.iter().for_each(|of_rank| assert_eq!(*of_rank, met[0]));
    }
}

/// Shards with 1 and with 7 targets that count weigh as much as these: the gradient is that of one batch.
#[test]
fn shards_are_weighted_by_their_targets_that_count() {
    let values: Vec<f32> = (0..48).map(|i| (i as f32 * 0.7).cos()).collect();
    let targets = (0..16).map(|i| if (1..8).contains(&i) { IGNORED } else { i % 3 }).collect();
    let targets = Targets::Classes { shape: vec![1], values: targets };
    let data = Dataset::of(Inputs::Numbers(values), &[1, 3], targets).unwrap();
    let batch = data.batches(16).unwrap().next().unwrap();
    let dense = || Child::new(sequential![Dense::new(3, 3, &mut Rng::seed(7))]);
    let whole = dense();
    let ignoring = |net: &Net, shard: &Batch| {
        let options = CrossEntropy::default().ignore_index(IGNORED);
        net.call(&shard.x)?.reshape(&[-1, 3])?.cross_entropy_with(&shard.y.flatten(0)?, &options)
    };
    let loss = ignoring(&whole, &batch).unwrap();
    let _ = LossScale::none().step(&mut Sgd::new(whole.params(), 1.0), loss).unwrap();
    for size in [1, 2] {
        for net in on(size, |ranks| {
            let net = dense();
            let mut parallel = DataParallel::new(ranks, 2, Wire::Float32).unwrap();
            let mut optimizer = Sgd::new(net.params(), 1.0);
            let _ = parallel.step(&net, &mut optimizer, &mut LossScale::none(), &batch, ignoring).unwrap();
            net.params().iter().flat_map(|(_, param)| param.value().to_f64()).collect::<Vec<_>>()
        }) {
            let whole = whole.params().iter().flat_map(|(_, param)| param.value().to_f64()).collect::<Vec<_>>();
            net.iter().zip(&whole).for_each(|(a, b)| assert!((a - b).abs() < 1e-6, "{a} {b}"));
        }
    }
}

#[test]
fn all_ranks_begin_with_the_state_of_rank_0() {
    let met = on(3, |ranks| {
        let mut net = conv();
        let (mut optimizer, mut scale) = (Adam::new(net.params(), 1e-3), LossScale::dynamic());
        for _ in 0..ranks.rank() {
            let x = Tensor::randn(&[4, 1, 8, 8], &mut Rng::seed(ranks.rank() as u64)).unwrap();
            net.set_train(true);
            let _ = scale.step(&mut optimizer, net.call(&x).unwrap().square().unwrap().mean_all().unwrap()).unwrap();
            net.set_train(false);
        }
        scale.set_scale(2f32.powi(ranks.rank() as i32)).unwrap();
        let mut parallel = DataParallel::new(ranks, 3, Wire::Float32).unwrap();
        parallel.begin(&mut net, &mut [&mut optimizer], &mut scale).unwrap();
        Checkpoint::of(&net, &[&optimizer], &scale).to_bytes().unwrap()
    });
    met.iter().for_each(|of_rank| assert!(*of_rank == met[0]));
    let other_layers = on(2, |ranks| {
        let mut net = if ranks.rank() == 0 { conv() } else { lstm() };
        let (mut optimizer, mut scale) = (Adam::new(net.params(), 1e-3), LossScale::none());
        let mut parallel = DataParallel::new(ranks, 2, Wire::Float32).unwrap();
        parallel.begin(&mut net, &mut [&mut optimizer], &mut scale).unwrap_err().to_string()
    });
    assert!(other_layers[0].starts_with("rank 1: ") && other_layers[0] == other_layers[1], "{other_layers:?}");
}

#[test]
fn what_cannot_be_divided_is_refused() {
    let words = on(3, |ranks| DataParallel::new(ranks, 2, Wire::Float32).unwrap_err().to_string());
    assert!(words[0].starts_with("2 shards for 3 ranks; "), "{}", words[0]);
    let words = on(2, |ranks| {
        let mut net = Child::new(sequential![Dense::new(1, 1, &mut Rng::seed(1))]);
        net.params().iter().for_each(|(_, param)| param.set(&param.value()).unwrap());
        let mut wide = Child::new(Wide { weight: Param::new(Tensor::ones(&[2], DType::F64)) });
        let (mut optimizer, mut scale) = (Sgd::new(wide.params(), 1.0), LossScale::none());
        let mut parallel = DataParallel::new(ranks, 2, Wire::Float32).unwrap();
        let error = parallel.begin(&mut wide, &mut [&mut optimizer], &mut scale).unwrap_err();
        net.set_train(false);
        (error.kind(), error.to_string())
    });
    let expected = "`weight` is float64; gradients are summed over ranks in float32".to_string();
    assert_eq!(words[0], (ErrorKind::DType, expected));
    let batch = data::digits().unwrap().batches(4).unwrap().next().unwrap();
    assert_eq!(batch.shards(0).unwrap_err().kind(), ErrorKind::Value);
}

#[derive(Cell, Debug)]
struct Wide {
    weight: Param,
}
impl Forward for Wide {}

/// 97 examples in batches of 24, of which the last has one more; with parts, clipping, an average and mixed images.
#[test]
fn a_run_over_shards_has_the_same_bits_on_any_ranks_and_resumed_on_others() {
    let digits = data::digits().unwrap();
    let split = |n: usize| {
        let (train, test) = (digits.split(n, 3).unwrap().train, digits.split(n, 3).unwrap().test);
        Split { train, test: test.split(30, 0).unwrap().train }
    };
    let data = split(97);
    let augment = precast_train::Augment::default().crop(1).mixup(0.2);
    let options = FitOptions::default()
        .epochs(2)
        .batch(12)
        .accumulate(2)
        .shards(5)
        .method(Method::Adam(Default::default()))
        .lr(2e-3)
        .clip(0.5)
        .average(0.9)
        .augment(augment);
    let run = |ranks: &Ranks, stop: usize, from: Option<&[u8]>| {
        let mut net = conv();
        auto_mixed_precision(&mut net, Level::O2, DType::Bf16).unwrap();
        let mut parallel = DataParallel::new(ranks, 5, Wire::Float32).unwrap();
        let mut fit = match from {
            None => Fit::new(&net, &options).unwrap(),
            Some(bytes) => {
                let checkpoint = Checkpoint::from_bytes(bytes).unwrap();
                Fit::resume(&mut net, &options, &checkpoint, Default::default()).unwrap()
            }
        };
        for _ in 0..stop {
            if fit.advance_on(&mut parallel, &mut net, &data).unwrap().is_none() {
                break;
            }
        }
        let losses: Vec<f64> = fit.history().steps.iter().map(|step| step.loss).collect();
        (fit.checkpoint(&net).to_bytes().unwrap(), losses, fit.history().score())
    };
    let whole = on(1, |ranks| run(ranks, 100, None)).remove(0);
    assert!(whole.1.last().unwrap() < &whole.1[0], "{:?}", whole.1);
    for size in 2..=4 {
        on(size, |ranks| run(ranks, 100, None)).iter().for_each(|met| assert!(*met == whole, "{size} ranks"));
    }
    // Without ranks, with a run of one process.
    let mut net = conv();
    auto_mixed_precision(&mut net, Level::O2, DType::Bf16).unwrap();
    let mut fit = Fit::new(&net, &options).unwrap();
    while fit.advance(&mut net, &data).unwrap().is_some() {}
    assert!(fit.checkpoint(&net).to_bytes().unwrap() == whole.0);
    for (stop, before, after) in [(1, 4, 2), (3, 2, 3), (6, 3, 1), (7, 1, 4)] {
        let half = on(before, |ranks| run(ranks, stop, None).0).remove(0);
        let rest = on(after, |ranks| run(ranks, 100, Some(&half)).0);
        rest.iter().for_each(|met| assert!(*met == whole.0, "stopped after {stop}, {before} to {after} ranks"));
    }
}

/// A wire of bfloat16 rounds each sum twice at most, by 2^-9 of itself each time.
#[test]
fn a_wire_of_bfloat16_is_near() {
    let regression = |wire: Wire| {
        on(4, |ranks| {
            let rng = &mut Rng::seed(9);
            let net = Child::new(sequential![Dense::new(6, 1, rng)]);
            let x = (0..96).map(|i| (i as f32 * 0.37).sin()).collect();
            let y = (0..16).map(|i| (i as f32 * 0.9).cos()).collect();
            let data = Dataset::regression(x, &[6], y, &[1]).unwrap();
            let batch = data.batches(16).unwrap().next().unwrap();
            let mut parallel = DataParallel::new(ranks, 4, wire).unwrap();
            let mut optimizer = Sgd::new(net.params(), 1.0);
            let before: Vec<f64> = net.params().iter().flat_map(|(_, param)| param.value().to_f64()).collect();
            let loss = |net: &Net, shard: &Batch| net.call(&shard.x)?.mse_loss(&shard.y, Reduction::Mean);
            let _ = parallel.step(&net, &mut optimizer, &mut LossScale::none(), &batch, loss).unwrap();
            let after = net.params().iter().flat_map(|(_, param)| param.value().to_f64()).collect::<Vec<_>>();
            before.iter().zip(after).map(|(a, b)| a - b).collect::<Vec<f64>>()
        })
        .remove(0)
    };
    let (exact, near) = (regression(Wire::Float32), regression(Wire::BFloat16));
    let length = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let apart: Vec<f64> = exact.iter().zip(&near).map(|(a, b)| a - b).collect();
    assert!(length(&apart) > 0.0 && length(&apart) < 5e-3 * length(&exact), "{} {}", length(&apart), length(&exact));
}

/// Delayed scales take the largest magnitude over all shards, once in a step: checkpoints, which have the histories, are the
/// same for every number of ranks.
#[test]
fn delayed_scales_are_those_of_all_shards() {
    let text = "version: 1\nlevel: O2\ndtype: bfloat16\nrules: [{ path: '**', operands: delayed }]\n";
    let run = |ranks: &Ranks| {
        let rng = &mut Rng::seed(6);
        let first = Dense::new(64, 32, rng);
        let mut net = Child::new(sequential![Flatten::default(), first, Tanh, Dense::new(32, 10, rng)]);
        Policy::parse(text, "delayed.yaml").unwrap().apply(&mut net).unwrap();
        let (mut optimizer, mut scale) = (Adam::new(net.params(), 2e-3), LossScale::none());
        let mut parallel = DataParallel::new(ranks, 5, Wire::Float32).unwrap();
        parallel.begin(&mut net, &mut [&mut optimizer], &mut scale).unwrap();
        let mut inputs = Vec::new();
        for (step, mut batch) in data::digits().unwrap().shuffled_batches(37, 1, 0).unwrap().take(4).enumerate() {
            // One shard has the largest numbers, another one in each step.
            let factor = |i: usize| if i == 9 * step { 3.0 + step as f64 } else { 1.0 };
            let factors: Vec<f64> = (0..37).map(factor).collect();
            let factors = Tensor::from_f64(&factors, &[37, 1, 1, 1], DType::F32).unwrap();
            batch.x = batch.x.mul(&factors).unwrap();
            inputs.push(batch.x.to_f64().into_iter().fold(0.0, f64::max));
            let outcome = parallel.step(&net, &mut optimizer, &mut scale, &batch, of_classes).unwrap();
            assert_eq!(outcome, Outcome::Stepped);
        }
        (Checkpoint::of(&net, &[&optimizer], &scale).to_bytes().unwrap(), inputs)
    };
    let (alone, inputs) = on(1, run).remove(0);
    for ranks in 2..=5 {
        assert!(on(ranks, run).into_iter().all(|(found, _)| found == alone), "{ranks} ranks");
    }
    // The header has the history of the input of the first layer: the largest number of each batch, in f32, at its end.
    let length = u64::from_le_bytes(alone[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&alone[8..8 + length]).unwrap();
    let words = header["__metadata__"].as_object().unwrap().values().map(|text| text.as_str().unwrap());
    let head = words.filter_map(|text| serde_json::from_str::<serde_json::Value>(text).ok());
    let head = head.into_iter().find(|head| head["operands"]["1"].is_array()).unwrap();
    let words: Vec<u64> = head["operands"]["1"].as_array().unwrap().iter().map(|word| word.as_u64().unwrap()).collect();
    // Calls, product, operand, scale, length, and the history, whose place 0 is that of the running step.
    assert_eq!(words[..3], [0, 0, 0]);
    let history: Vec<f64> =
        words[5..5 + words[4] as usize].iter().map(|bits| f32::from_bits(*bits as u32).into()).collect();
    let low: Vec<f64> = inputs.iter().map(|x| Tensor::scalar(*x, DType::F32).cast(DType::Bf16).to_f64()[0]).collect();
    assert_eq!(history[history.len() - 4..], low);
    assert!(history[..history.len() - 4].iter().all(|amax| *amax == 0.0));
}
