//! The effect of a parameter's storage on an update.

use precast::{Grads, Param, prelude::*, storage::Decorate};

use super::{ALL, bits, noise};

fn stored(value: Tensor, how: Option<Decorate>) -> (Child<Dense>, Param) {
    let net = Child::new(Dense::new(value.shape()[1], value.shape()[0], &mut Rng::seed(1)));
    let weight = net.cell().weight.clone();
    weight.set(&value).unwrap();
    if let Some(how) = how {
        decorate(&net, how).unwrap();
    }
    (net, weight)
}

fn only(param: &Param) -> precast::cell::Params {
    [("w".to_string(), param.clone())].into_iter().collect()
}

fn update(optimizer: &mut dyn Optimizer, param: &Param, grad: &Tensor) {
    let mut grads = Grads::default();
    grads.set(param, grad.clone());
    optimizer.update(&grads).unwrap();
}

fn bf16() -> Decorate {
    Decorate::new(DType::Bf16)
}

/// Gradients of a tenth of a unit in the last place of bf16: with plain rounding nothing ever changes.
#[test]
fn small_updates_are_lost_by_nearest_rounding_alone() {
    let step = DType::Bf16.epsilon() / 10.0;
    let run = |how: Decorate| {
        let (_net, weight) = stored(Tensor::ones(&[64, 64], DType::F32), Some(how));
        let mut sgd = Sgd::new(only(&weight), step).count_lost_updates();
        // Upwards: below 1 the units are half as large.
        (0..100).for_each(|_| update(&mut sgd, &weight, &Tensor::full(&[64, 64], -1.0, DType::F32)));
        let mean = weight.value().to_f64().iter().sum::<f64>() / 4096.0;
        (mean, sgd.lost_updates().to_vec())
    };
    let right = 1.0 + 100.0 * step;
    let (mean, lost) = run(bf16().masters(false));
    assert_eq!(mean, 1.0);
    assert_eq!((lost[0].path.as_str(), lost[0].updates, lost[0].lost), ("w", 4096, 4096));
    assert!(lost[0].share() == 1.0 && lost[0].is_high());

    let (mean, lost) = run(bf16().stochastic_rounding(1));
    // Each update goes up one unit with probability 0.1: five standard deviations of the mean of 4096 sums of 100.
    let deviation = DType::Bf16.epsilon() * (100.0 * 0.1 * 0.9 / 4096.0f64).sqrt();
    assert!((mean - right).abs() < 5.0 * deviation, "{mean} {right}");
    assert!((lost[0].share() - 0.9).abs() < 0.05 && !lost[0].is_high(), "{lost:?}");

    let (mean, lost) = run(bf16().kahan());
    // The sum is kept in 16 bits, and the value is the nearest bf16.
    assert!((mean - right).abs() <= DType::Bf16.epsilon() / 2.0, "{mean} {right}");
    assert_eq!(lost[0].lost, 0);

    let (mean, lost) = run(bf16());
    assert!((mean - right).abs() <= DType::Bf16.epsilon() / 2.0);
    assert_eq!((lost[0].updates, lost[0].share()), (0, 0.0));
}

#[test]
fn nothing_is_counted_unless_asked_and_zero_updates_are_none() {
    let (_net, weight) = stored(Tensor::ones(&[4, 4], DType::F32), Some(bf16().masters(false)));
    let mut sgd = Sgd::new(only(&weight), 1e-9);
    update(&mut sgd, &weight, &Tensor::ones(&[4, 4], DType::F32));
    assert!(sgd.lost_updates().is_empty());
    let mut sgd = sgd.count_lost_updates();
    update(&mut sgd, &weight, &Tensor::zeros(&[4, 4], DType::F32));
    assert_eq!((sgd.lost_updates()[0].updates, sgd.lost_updates()[0].share()), (0, 0.0));
}

/// With a master, training is f32 training, bit for bit, and the value is the rounded master.
#[test]
fn masters_are_trained_as_f32() {
    for (name, make) in ALL {
        for dtype in DType::LOW {
            let start = noise(&[70, 65], 1);
            let ((_a, plain), (_b, low)) = (stored(start.clone(), None), stored(start, Some(Decorate::new(dtype))));
            let (mut one, mut other) = (make(only(&plain)), make(only(&low)));
            for step in 0..4 {
                let grad = noise(&[70, 65], 10 + step);
                update(&mut *one, &plain, &grad);
                update(&mut *other, &low, &grad);
            }
            assert_eq!(bits(&low.master().unwrap()), bits(&plain.value()), "{name} {dtype}");
            assert_eq!(bits(&low.value()), bits(&plain.value().cast(dtype)), "{name} {dtype}");
        }
    }
}

/// A 16-bit gradient is widened when read.
#[test]
fn a_gradient_of_another_width_is_read_as_its_widening() {
    for (name, make) in ALL {
        for dtype in [DType::F16, DType::Bf16, DType::F64] {
            let start = noise(&[70, 65], 1);
            let ((_a, one), (_b, other)) = (stored(start.clone(), None), stored(start, None));
            let grad = noise(&[70, 65], 2).cast(dtype);
            update(&mut *make(only(&one)), &one, &grad);
            update(&mut *make(only(&other)), &other, &grad.cast(DType::F32));
            assert_eq!(bits(&one.value()), bits(&other.value()), "{name} {dtype}");
        }
    }
}

/// Readers of the old value, such as a tape, keep reading it.
#[test]
fn a_value_that_somebody_holds_is_not_changed_in_place() {
    for how in
        [None, Some(bf16()), Some(bf16().masters(false)), Some(bf16().stochastic_rounding(1)), Some(bf16().kahan())]
    {
        let start = noise(&[70, 65], 1);
        let ((_a, held), (_b, free)) = (stored(start.clone(), how.clone()), stored(start, how));
        let mut optimizers = [&held, &free].map(|param| Adam::new(only(param), 0.1));
        for step in 0..3 {
            let (value, master) = (held.tensor(), held.master());
            let before = (bits(&value), master.as_ref().map(bits));
            for (optimizer, param) in optimizers.iter_mut().zip([&held, &free]) {
                update(optimizer, param, &noise(&[70, 65], 5 + step));
            }
            assert_eq!((bits(&value), master.as_ref().map(bits)), before);
            assert_ne!(bits(&held.value()), before.0);
            assert_eq!(bits(&held.value()), bits(&free.value()));
        }
    }
}

#[test]
fn random_rounding_depends_on_its_seed_and_is_repeated() {
    let run = |seed| {
        let (_net, weight) = stored(noise(&[70, 65], 1), Some(bf16().stochastic_rounding(seed)));
        let mut sgd = Sgd::new(only(&weight), 1e-3);
        (0..3).for_each(|step| update(&mut sgd, &weight, &noise(&[70, 65], step)));
        bits(&weight.value())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn f16_has_masters_and_nothing_else() {
    let net = Child::new(Dense::new(2, 2, &mut Rng::seed(1)));
    for (how, words) in [
        (Decorate::new(DType::F16).stochastic_rounding(3), "with stochastic rounding (seed 3), got float16"),
        (Decorate::new(DType::F16).kahan(), "with Kahan compensation, got float16"),
    ] {
        let error = decorate(&net, how).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(net.cell().weight.dtype(), DType::F32);
    }
    let decorated = decorate(&net, bf16().kahan()).unwrap();
    assert!(decorated.to_string().starts_with("stored in bfloat16, with Kahan compensation\n"));
}
