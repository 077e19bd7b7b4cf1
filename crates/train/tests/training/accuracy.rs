//! The cost of rounding weights when updates are small: digits, learnt slowly by a network with bf16 weights.

use precast::{prelude::*, storage::Decorate};
use precast_train::{accuracy, data};

const SEEDS: u64 = 3;

struct Learnt {
    /// Share of the digits classified correctly, averaged over several seeds.
    accuracy: f64,
    /// Share of the updates of the last step that were lost.
    lost: f64,
}

fn learn(how: Option<fn() -> Decorate>) -> Learnt {
    let digits = data::digits().unwrap().reshape(&[64]).unwrap();
    let mut learnt = Learnt { accuracy: 0.0, lost: 0.0 };
    for seed in 0..SEEDS {
        let rng = &mut Rng::seed(seed);
        let mut net = Child::new(sequential![Dense::new(64, 32, rng), ReLU, Dense::new(32, 10, rng)]);
        if let Some(how) = how {
            decorate(&net, how()).unwrap();
            auto_mixed_precision(&mut net, Level::O2, DType::Bf16).unwrap();
        }
        let mut optimizer = Sgd::new(net.params(), 0.005).count_lost_updates();
        net.set_train(true);
        for epoch in 0..EPOCHS {
            for batch in digits.shuffled_batches(32, seed, epoch).unwrap() {
                let loss = net.call(&batch.x).unwrap().cross_entropy(&batch.y).unwrap();
                assert_eq!(LossScale::none().step(&mut optimizer, &loss).unwrap(), Outcome::Stepped);
            }
        }
        let (updates, lost) = optimizer.lost_updates().iter().fold((0, 0), |(u, l), of| (u + of.updates, l + of.lost));
        learnt.accuracy += accuracy(&net, &digits, 64).unwrap() / SEEDS as f64;
        learnt.lost += lost as f64 / updates.max(1) as f64 / SEEDS as f64;
    }
    learnt
}

const EPOCHS: u64 = 20;

#[test]
fn nearest_rounding_alone_falls_behind_at_a_small_learning_rate() {
    let exact = learn(None);
    let nearest = learn(Some(|| Decorate::new(DType::Bf16).masters(false)));
    let stochastic = learn(Some(|| Decorate::new(DType::Bf16).stochastic_rounding(1)));
    let kahan = learn(Some(|| Decorate::new(DType::Bf16).kahan()));
    for (name, Learnt { accuracy, lost }) in
        [("f32", &exact), ("nearest", &nearest), ("stochastic", &stochastic), ("Kahan", &kahan)]
    {
        println!("{name:10} {:.2} % right, {:.1} % of the updates lost", 100.0 * accuracy, 100.0 * lost);
    }
    // The step must be small for that: most updates are less than half a unit of bf16.
    assert!(nearest.lost > 0.7, "{}", nearest.lost);
    assert!(exact.accuracy - nearest.accuracy > 0.01, "{} {}", exact.accuracy, nearest.accuracy);
    for other in [stochastic, kahan] {
        assert!((other.accuracy - exact.accuracy).abs() <= 0.003, "{} {}", other.accuracy, exact.accuracy);
    }
}
