//! The cost of rounding weights when updates are small: digits, learnt slowly by a network with bf16 weights; and of states
//! in f32.

use precast::{Grads, Param, data, prelude::*, storage::Decorate, train::accuracy};

use super::{ALL, eight_bit::GRADIENTS, noise};

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

/// Every optimizer, on weights whose gradients differ by 1e6, with a state in f32 and in f64.
#[test]
fn two_thousand_steps_in_f32_are_those_in_f64() {
    const STEPS: usize = 2000;
    let mut wrong = Vec::new();
    // The `eps` of Adafactor is that of the dtype of the weight, as in torch.
    for &(name, make) in ALL.iter().filter(|(name, _)| !name.contains("8 bits") && *name != "adafactor") {
        for kind in ["ends after ten steps", "alternates", "vanishes slowly", "comes every fifth step"] {
            let &(.., grad) = GRADIENTS.iter().find(|(of, ..)| *of == kind).unwrap();
            let [wide, exact] = [DType::F32, DType::F64].map(|dtype| {
                let param = Param::new(noise(&[8, 8], 1).cast(dtype));
                let mut optimizer = make([("w".to_string(), param.clone())].into_iter().collect());
                for step in 0..STEPS {
                    let numbers: Vec<f64> = (0..64).map(|i| grad(step) * 10f64.powi(-(i % 7))).collect();
                    let mut grads = Grads::default();
                    grads.set(&param, Tensor::from_f64(&numbers, &[8, 8], DType::F32).unwrap().cast(dtype));
                    optimizer.update(&grads).unwrap();
                }
                param.value().to_f64()
            });
            let start = noise(&[8, 8], 1).to_f64();
            let bound = match name {
                // Its iteration takes the small singular values of such a matrix for large ones.
                "muon" => 0.05,
                // Its steps are proportional to the weights, and so are their errors.
                "lamb" => 0.02,
                _ => 1e-3,
            };
            for (i, ((wide, exact), start)) in wide.iter().zip(&exact).zip(&start).enumerate() {
                // Each step rounds the weight, below 1 here, to half of its last place.
                let rounded = STEPS as f64 * f64::from(f32::EPSILON) / 2.0;
                if (wide - exact).abs() > bound * (exact - start).abs() + rounded {
                    wrong.push(format!("{name}, {kind}, {i}: {wide}, right {exact}, from {start}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
