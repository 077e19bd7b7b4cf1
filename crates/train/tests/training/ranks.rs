//! Ranks, which are threads, where data parallelism goes wrong elsewhere: ranks without gradients, skipped steps in a row,
//! parameters that come and go, scores, and scales that differ.

use precast::prelude::*;
use precast_mpi::{Ranks, Wire};
use precast_train::{
    DataParallel, Fit, FitOptions, accuracy, data,
    data::{Batch, Dataset, IGNORED, Split},
};

use super::shards::{bits, conv, lstm, of_classes, on};

/// The last batch of the digits has 5 examples, which fill two of the four shards, and in the one before the targets of a
/// shard are ignored.
#[test]
fn a_rank_without_gradients_takes_the_step_of_all() {
    let digits = data::digits().unwrap();
    let mut batches: Vec<Batch> = digits.batches(128).unwrap().collect();
    let last = batches.pop().unwrap();
    let lengths: Vec<usize> = last.shards(4).unwrap().iter().map(|shard| shard.y.len()).collect();
    assert_eq!(lengths, [2, 3, 0, 0]);
    let mut ignored = batches.pop().unwrap();
    let targets: Vec<i64> = ignored.y.to_vec().unwrap();
    let targets = targets.iter().enumerate().map(|(i, y)| if i / 32 == 1 { IGNORED } else { *y }).collect();
    ignored.y = Tensor::from_vec(targets, &[128]).unwrap();
    let train = |ranks: &Ranks| {
        let mut net = conv();
        let policy = Policy::new(Level::O2, DType::F16).unwrap();
        policy.apply(&mut net).unwrap();
        net.set_train(true);
        let (mut optimizer, mut scale) = (Adam::new(net.params(), 1e-3), LossScale::dynamic());
        scale.set_scale(1024.0).unwrap();
        let mut parallel = DataParallel::new(ranks, 4, Wire::Float32).unwrap();
        for batch in [&ignored, &last] {
            let before = bits(&net);
            let outcome = parallel.step(&net, &mut optimizer, &mut scale, batch, |net, shard| {
                assert!(!shard.y.is_empty());
                net.call(&shard.x)?
                    .cross_entropy_with(&shard.y, &precast::CrossEntropy::default().ignore_index(IGNORED))
            });
            assert_eq!(outcome.unwrap(), Outcome::Stepped);
            assert_ne!(bits(&net), before);
        }
        Checkpoint::of(&net, &[&optimizer], &scale).to_bytes().unwrap()
    };
    let alone = on(1, train).remove(0);
    for size in 2..=4 {
        on(size, train).iter().for_each(|met| assert!(*met == alone, "{size} ranks"));
    }
}

#[test]
fn skipped_steps_in_a_row_stall_all() {
    for is_loss in [true, false] {
        let met = on(3, |ranks| {
            let net = lstm();
            let (mut optimizer, mut scale) = (Sgd::new(net.params(), 0.1), LossScale::dynamic());
            scale.set_scale(4.0).unwrap();
            let mut parallel = DataParallel::new(ranks, 3, Wire::Float32).unwrap();
            let mut batch = data::digits().unwrap().batches(18).unwrap().next().unwrap();
            batch.x = batch.x.reshape(&[-1, 8, 8]).unwrap();
            let spoilt = batch.shards(3).unwrap()[2].x.to_f64();
            let mut outcomes = Vec::new();
            for _ in 0..30 {
                let outcome = parallel.step(&net, &mut optimizer, &mut scale, &batch, |net, shard| {
                    let loss = of_classes(net, shard)?;
                    match (shard.x.to_f64() == spoilt, is_loss) {
                        (false, _) => Ok(loss),
                        (true, true) => loss * f64::NAN,
                        // The gradient of a square root at 0 is infinite, whatever the scale.
                        (true, false) => {
                            let weight = &net.named_params()[0].1;
                            loss.add(&weight.tensor().mul(&Tensor::scalar(0.0, DType::F32))?.sqrt()?.sum_all()?)
                        }
                    }
                });
                outcomes.push(outcome.unwrap());
            }
            (outcomes, scale.value())
        });
        let (outcomes, scale) = &met[0];
        let stalled = outcomes.iter().position(|outcome| matches!(outcome, Outcome::Stalled { .. }));
        // A scale of 4 falls twice before it cannot help any longer.
        assert_eq!((stalled, *scale), (Some(19), if is_loss { 4.0 } else { 1.0 }), "{outcomes:?}");
        assert!(outcomes.iter().all(|outcome| *outcome != Outcome::Stepped), "{outcomes:?}");
        met.iter().for_each(|of_rank| assert_eq!(of_rank, &met[0]));
    }
}

/// Sums change their size from step to step: a head has a gradient of one shard, then of none, then of all.
#[test]
fn parameters_come_and_go() {
    #[derive(Cell, Debug)]
    #[cell(new)]
    struct Heads {
        always: Child<Dense>,
        sometimes: Child<Dense>,
    }
    impl Forward for Heads {}
    let x = (0..24).map(|i| (i as f32).sin()).collect();
    let batch = Dataset::new(x, &[3], vec![1; 8]).unwrap().batches(8).unwrap().next().unwrap();
    let train = |ranks: &Ranks| {
        let rng = &mut Rng::seed(6);
        let net = Child::new(Heads::new(Dense::new(3, 2, rng), Dense::new(2, 2, rng)));
        let (mut optimizer, mut scale) = (Adam::new(net.params(), 0.1), LossScale::dynamic());
        let mut parallel = DataParallel::new(ranks, 4, Wire::Float32).unwrap();
        let third = batch.shards(4).unwrap()[2].x.to_f64();
        let mut has_moved = Vec::new();
        for step in 0..4 {
            let before = net.named_params()[2].1.value().to_f64();
            let outcome = parallel.step(&net, &mut optimizer, &mut scale, &batch, |net, shard| {
                net.with(&shard.x, |net, x| {
                    let y = net.always.call(&x)?;
                    let is_used = [shard.x.to_f64() == third, false, true, false][step];
                    (if is_used { net.sometimes.call(&y)? } else { y }).cross_entropy(&shard.y)
                })
            });
            assert_eq!(outcome.unwrap(), Outcome::Stepped);
            has_moved.push(net.named_params()[2].1.value().to_f64() != before);
        }
        assert_eq!(has_moved, [true, false, true, false]);
        Checkpoint::of(&net, &[&optimizer], &scale).to_bytes().unwrap()
    };
    let alone = on(1, train).remove(0);
    for size in 2..=4 {
        on(size, train).iter().for_each(|met| assert!(*met == alone, "{size} ranks"));
    }
}

/// Rank 0 computes a score by itself between steps, for which no other rank has to be there.
#[test]
fn buffers_are_equal_after_each_step_and_one_rank_may_evaluate() {
    let digits = data::digits().unwrap();
    on(3, |ranks| {
        let mut net = conv();
        let (mut optimizer, mut scale) = (Sgd::new(net.params(), 0.1), LossScale::none());
        let mut parallel = DataParallel::new(ranks, 6, Wire::Float32).unwrap();
        let mut before = Vec::new();
        for batch in digits.batches(48).unwrap().take(3) {
            net.set_train(true);
            let outcome = parallel.step(&net, &mut optimizer, &mut scale, &batch, of_classes).unwrap();
            assert_eq!(outcome, Outcome::Stepped);
            let params = net.named_params();
            let buffers = params.iter().filter(|(_, param)| param.is_buffer());
            let now: Vec<u8> =
                buffers.flat_map(|(_, buffer)| buffer.full().to_f64()).flat_map(f64::to_le_bytes).collect();
            assert!(now.len() >= 16 && now != before);
            ranks.gather(&now).unwrap().iter().for_each(|met| assert_eq!(*met, now));
            before = now;
            net.set_train(false);
            if ranks.rank() == 0 {
                assert!(accuracy(&net, &digits, 256).unwrap() > 0.0);
            }
        }
    });
}

/// 97 examples, which three ranks and batches of 20 do not divide, and none of which counts twice.
#[test]
fn a_score_is_exactly_that_of_one_process() {
    let split = data::digits().unwrap().split(97, 1).unwrap();
    let (train, test) = (split.test.split(30, 0).unwrap().train, split.train);
    assert_eq!(test.len(), 97);
    let data = data::Split { train, test };
    let options = FitOptions::default().epochs(1).batch(600).shards(6).lr(1e-3);
    let run = |ranks: &Ranks| {
        let mut net = conv();
        let mut parallel = DataParallel::new(ranks, 6, Wire::Float32).unwrap();
        let mut fit = Fit::new(&net, &options).unwrap();
        while fit.advance_on(&mut parallel, &mut net, &data).unwrap().is_some() {}
        let score = fit.history().score().unwrap().accuracy().unwrap();
        net.set_train(false);
        (score, accuracy(&net, &data.test, 20).unwrap())
    };
    let (alone, counted) = on(1, run)[0];
    let right = alone * 97.0;
    assert!(alone == counted && (right - right.round()).abs() < 1e-9 && right > 0.0, "{alone} {counted}");
    for size in 2..=4 {
        on(size, run).iter().for_each(|met| assert_eq!(*met, (alone, alone), "{size} ranks"));
    }
}

/// One rank sets another loss scale, as code that looks at its own gradients would.
#[test]
fn a_scale_that_differs_is_an_error() {
    let met = on(3, |ranks| {
        let net = lstm();
        let (mut optimizer, mut scale) = (Sgd::new(net.params(), 0.1), LossScale::dynamic());
        let mut parallel = DataParallel::new(ranks, 3, Wire::Float32).unwrap();
        let mut batch = data::digits().unwrap().batches(18).unwrap().next().unwrap();
        batch.x = batch.x.reshape(&[-1, 8, 8]).unwrap();
        let first = parallel.step(&net, &mut optimizer, &mut scale, &batch, of_classes).unwrap();
        assert_eq!(first, Outcome::Stepped);
        if ranks.rank() == 1 {
            scale.set_scale(2.0).unwrap();
        }
        let before = bits(&net);
        let error = parallel.step(&net, &mut optimizer, &mut scale, &batch, of_classes).unwrap_err().to_string();
        assert_eq!(bits(&net), before);
        error
    });
    assert!(met[0].starts_with("rank 1 has the loss scale 2, and rank 0 65536"), "{}", met[0]);
    met.iter().for_each(|of_rank| assert_eq!(of_rank, &met[0]));
}

#[test]
fn weights_that_differ_are_found_at_a_checkpoint() {
    let data = data::digits().unwrap();
    let data = Split { train: data.clone(), test: data };
    for sharded in [false, true] {
        let met = on(3, |ranks| {
            let rng = &mut Rng::seed(3);
            let mut net = Child::new(sequential![Flatten::default(), Dense::new(64, 10, rng)]);
            let mut fit = Fit::new(&net, &FitOptions::default().shards(3)).unwrap();
            let mut parallel = DataParallel::new(ranks, 3, Wire::Float32).unwrap();
            if sharded {
                parallel = parallel.sharding_state();
            }
            let _ = fit.advance_on(&mut parallel, &mut net, &data).unwrap();
            assert_eq!(fit.checkpoint_on(&parallel, &net).unwrap().is_some(), ranks.rank() == 0);
            if ranks.rank() == 2 {
                let bias = net.params().iter().nth(1).unwrap().1.clone();
                bias.set(&(bias.full() + 1e-7).unwrap()).unwrap();
            }
            fit.checkpoint_on(&parallel, &net).unwrap_err().to_string()
        });
        let words = "rank 2 has other weights or state of the optimizer than rank 0, step 0";
        assert!(met.iter().all(|met| met.starts_with(words)), "{met:?}");
    }
}
