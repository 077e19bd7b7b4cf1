//! Optimizers, loss scales and policies on low-precision parameters.

use precast::{
    Grads,
    cell::Params,
    layers::Init,
    policy::{LossScaleSpec, Pack},
    prelude::*,
    scale::Cause,
};

use super::{bits, bits_of, input, low, net, param, rounded};

/// Makes a parameter with the single number 1, stored low.
fn one(how: Decorate) -> Param {
    let net = Child::of(sequential![PReLU::new(1)]);
    let weight = param(&net, "0.weight");
    weight.set(&Tensor::ones(&[1], DType::F32)).unwrap();
    decorate(&net, how).unwrap();
    weight
}

fn of(params: &[&Param]) -> Params {
    params.iter().map(|&param| param.clone()).collect()
}

fn grads(param: &Param, grad: &Tensor) -> Grads {
    let mut grads = Grads::default();
    grads.set(param, grad.clone());
    grads
}

/// Updates of an eighth of the spacing below 1. The master is 1 less k/8 of it, and the low number the nearest, at a
/// tie the even one: 1 up to k = 4, then one spacing less, from k = 12 two. Without a master each update is rounded
/// away.
#[test]
fn masters_add_up_updates_that_the_low_number_loses() {
    for dtype in DType::LOW {
        let eighth = dtype.epsilon() / 16.0;
        let grad = Tensor::ones(&[1], dtype);
        let (with, without) = (one(low(dtype)), one(low(dtype).masters(false)));
        let mut optimizer = Sgd::new(of(&[&with, &without]), eighth);
        for k in 1..=20 {
            let mut both = grads(&with, &grad);
            both.set(&without, grad.clone());
            optimizer.update(&both).unwrap();
            let exact = 1.0 - f64::from(k) * eighth;
            assert_eq!(with.master().unwrap().item().unwrap(), exact);
            let steps = (f64::from(k) / 8.0).round_ties_even();
            assert_eq!(with.value().item().unwrap(), 1.0 - steps * 8.0 * eighth, "{dtype}, step {k}");
            assert_eq!(without.value().item().unwrap(), 1.0, "{dtype}, step {k}");
        }
    }
}

/// Adam moves by the learning rate when all gradients are equal (Kingma and Ba, section 2.1).
#[test]
fn adam_moves_a_master_and_not_a_low_number() {
    for dtype in DType::LOW {
        let eighth = dtype.epsilon() / 16.0;
        let grad = Tensor::full(&[1], 0.5, dtype);
        for (how, moves) in [(low(dtype), true), (low(dtype).masters(false), false)] {
            let weight = one(how);
            let mut optimizer = Adam::new(of(&[&weight]), eighth);
            for _ in 0..10 {
                optimizer.update(&grads(&weight, &grad)).unwrap();
            }
            let expected = if moves { 1.0 - 8.0 * eighth } else { 1.0 };
            assert_eq!(weight.value().item().unwrap(), expected, "{dtype}");
        }
    }
}

#[test]
fn training_masters_is_training_in_f32_bit_for_bit() {
    let optimizers: [fn(Params) -> Box<dyn Optimizer>; 4] = [
        |params| Box::new(Sgd::new(params, 0.05)),
        |params| Box::new(Sgd::new(params, 0.05).momentum(0.9).nesterov(true).weight_decay(0.01)),
        |params| Box::new(Adam::new(params, 0.01).weight_decay(0.1)),
        |params| Box::new(AdamW::new(params, 0.01)),
    ];
    for dtype in DType::LOW {
        for make in optimizers {
            let (full, stored) = (net(1), net(1));
            // One optimizer was made before the parameters were lowered.
            let (mut of_full, mut of_stored) = (make(full.params()), make(stored.params()));
            let decorated = decorate(&stored, low(dtype)).unwrap();
            let mut rng = Rng::seed(9);
            for step in 0..30 {
                let (mut a, mut b) = (Grads::default(), Grads::default());
                for ((_, full), (_, stored)) in full.params().iter().zip(stored.params().iter()) {
                    // Gradients straight from the backward pass are low; unscaled ones are f32.
                    let grad = Init::Normal { std: 1.0 }.sample(&full.shape(), &mut rng).unwrap();
                    let grad = if step % 2 == 0 { grad.cast(stored.dtype()) } else { grad };
                    a.set(full, grad.clone());
                    b.set(stored, grad);
                }
                of_full.update(&a).unwrap();
                of_stored.update(&b).unwrap();
                for ((path, full), (_, stored)) in full.params().iter().zip(stored.params().iter()) {
                    let master = stored.master().unwrap_or_else(|| stored.value());
                    assert_eq!(bits_of(&master), bits_of(&full.value()), "{path}, step {step}");
                    if stored.dtype().is_low() {
                        let nearest: Vec<f64> = master.to_f64().into_iter().map(|x| rounded(x, dtype)).collect();
                        assert_eq!(stored.value().to_f64(), nearest);
                    }
                }
            }
            decorated.undo().unwrap();
            assert_eq!(bits(&stored), bits(&full));
            // The optimizer continues from its state.
            let grad = Tensor::ones(&[3], DType::F32);
            of_full.update(&grads(&param(&full, "7.bias"), &grad)).unwrap();
            of_stored.update(&grads(&param(&stored, "7.bias"), &grad)).unwrap();
            assert_eq!(bits(&stored), bits(&full));
        }
    }
}

/// Each weight is read low at its only place in a low region, whether stored low or cast, and its gradient is rounded
/// to the same low dtype, whether kept or widened. A decorated network therefore trains like any other at O3.
#[test]
fn a_decorated_network_trains_as_a_cast_one_does() {
    for dtype in DType::LOW {
        let (mut cast, mut stored) = (net(1), net(1));
        let decorated = decorate(&stored, low(dtype)).unwrap();
        let finish = [&mut cast, &mut stored].map(|net| {
            auto_mixed_precision(net, Level::O3, dtype).unwrap();
            net.set_train(true);
            let mut optimizer = Adam::new(net.params(), 0.01);
            let mut scale = LossScale::new(LossScaleSpec::usual(Level::O3, dtype)).unwrap();
            (0..25).for_each(|step| {
                let labels = Tensor::from_vec(vec![0i64, 1, 2, 1], &[4]).unwrap();
                let loss = net.call(&input(step)).unwrap().cross_entropy(&labels).unwrap();
                let _ = scale.step(&mut optimizer, &loss).unwrap();
            });
            scale.state()
        });
        assert_eq!(finish[0], finish[1]);
        decorated.undo().unwrap();
        assert_eq!(bits(&stored), bits(&cast), "{dtype}");
    }
}

#[test]
fn a_decorated_network_runs_under_every_policy_and_under_none() {
    for stored in DType::LOW {
        for region in DType::LOW {
            for level in Level::ALL {
                let mut net = net(7);
                let applied = auto_mixed_precision(&mut net, level, region).unwrap();
                let reference = net.call(&input(1)).unwrap();
                decorate(&net, low(stored)).unwrap();
                for training in [false, true] {
                    net.set_train(training);
                    // At O0 nothing is cast: inputs come in the dtype of the network.
                    let x = if level == Level::O0 { input(1).cast(stored) } else { input(1) };
                    let y = net.call(&x).unwrap_or_else(|e| panic!("{stored} at {level}, {region}: {e}"));
                    assert!(y.to_f64().iter().all(|y| y.is_finite()));
                    let grads = y.cast(DType::F32).sum(&[], false).unwrap().backward().unwrap();
                    for (path, param) in net.params().iter() {
                        let grad = grads.get(param).unwrap_or_else(|| panic!("{path} has no gradient"));
                        assert_eq!(grad.dtype(), param.dtype(), "{path}");
                    }
                    if !training {
                        // A few roundings to the coarser of the two dtypes.
                        let allowed = 8.0 * stored.epsilon().max(region.epsilon());
                        for (y, reference) in y.to_f64().iter().zip(reference.to_f64()) {
                            assert!((y - reference).abs() <= allowed, "{stored} at {level}, {region}: {y} {reference}");
                        }
                    }
                }
                net.set_train(false);
                applied.undo(&mut net).unwrap();
                assert_eq!(net.call(&input(1).cast(stored)).unwrap().dtype(), stored);
            }
        }
    }
}

/// Paddle's combination: parameters by `decorate`, ops by `auto_cast` at the same level.
#[test]
fn a_decorated_network_runs_in_the_regions_of_every_pack() {
    for pack in Pack::names().map(|name| Pack::named(name).unwrap()) {
        let regions = pack.regions.iter().flat_map(|(level, _)| pack.dtypes.iter().map(move |dtype| (level, *dtype)));
        for (op_level, dtype) in regions {
            let place = format!("{} {op_level} {dtype}", pack.name);
            let mut net = net(7);
            let reference = net.call(&input(1)).unwrap().to_f64();
            decorate(&net, Decorate::new(dtype).pack(&pack.name).unwrap()).unwrap();
            let region = Autocast::new(&pack.name).unwrap().dtype(dtype).op_level(&**op_level);
            for training in [false, true] {
                net.set_train(training);
                // Unlisted ops that refuse mixed dtypes get inputs of the network's dtype.
                let y = autocast(&region, || net.call(&input(1).cast(dtype)));
                let y = y.unwrap_or_else(|e| panic!("{place}: {e}"));
                let grads = y.cast(DType::F32).sum(&[], false).unwrap().backward().unwrap();
                for (path, param) in net.params().iter() {
                    assert_eq!(grads.get(param).map(|grad| grad.dtype()), Some(param.dtype()), "{path}, {place}");
                }
                if !training {
                    for (y, reference) in y.to_f64().iter().zip(&reference) {
                        assert!((y - reference).abs() <= 8.0 * dtype.epsilon(), "{place}: {y} {reference}");
                    }
                }
            }
        }
    }
}

/// A network is not stored in a dtype for which the pack has no lists.
#[test]
fn a_pack_for_the_other_dtype_is_refused() {
    let net = net(1);
    let before = bits(&net);
    let error = decorate(&net, Decorate::new(DType::F16).pack("tensorflow-2.21-bf16").unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DType);
    assert_eq!(error.to_string(), "the pack tensorflow-2.21-bf16 is for bfloat16, not for float16");
    assert_eq!(bits(&net), before);
}

#[test]
fn a_low_parameter_is_not_cast_in_a_region_of_its_dtype() {
    let mut rng = Rng::seed(1);
    let mut net = Child::of(sequential![Dense::new(4, 8, &mut rng), Tanh, Dense::new(8, 2, &mut rng)]);
    auto_mixed_precision(&mut net, Level::O3, DType::Bf16).unwrap();
    let mut optimizer = Sgd::new(net.params(), 0.1);
    // The input; and two weights and two biases, again after each update.
    for (is_stored, expected) in [(false, 5), (true, 1)] {
        if is_stored {
            decorate(&net, low(DType::Bf16)).unwrap();
        }
        for _ in 0..3 {
            let (y, trace) = net.trace(|net| net.call(&Tensor::ones(&[1, 4], DType::F32)).unwrap());
            assert_eq!(trace.casts(), expected);
            assert_eq!(LossScale::none().step(&mut optimizer, y.sum(&[], false).unwrap()).unwrap(), Outcome::Stepped);
        }
    }
}

/// A pack that keeps no norms: the running statistics are stored low and move in their masters, like f32 ones.
#[test]
fn running_statistics_that_are_stored_low_move_in_their_masters() {
    let statistics = |how: Option<Decorate>| {
        let mut net = Child::of(sequential![BatchNorm1d::new(3)]);
        if let Some(how) = how {
            decorate(&net, how).unwrap();
        }
        net.set_train(true);
        let mut rng = Rng::seed(3);
        for _ in 0..20 {
            net.call(&Init::Normal { std: 2.0 }.sample(&[5, 3], &mut rng).unwrap()).unwrap();
        }
        ["0.running_mean", "0.running_var"].map(|path| param(&net, path))
    };
    let how = Decorate::new(DType::Bf16).pack("torch-2.15-cpu").unwrap();
    for (full, stored) in statistics(None).iter().zip(statistics(Some(how))) {
        assert_eq!(stored.dtype(), DType::Bf16);
        assert_eq!(bits_of(&stored.master().unwrap()), bits_of(&full.value()));
    }
}

#[test]
fn an_op_on_no_list_that_mixes_no_dtypes_says_so() {
    let net = net(1);
    decorate(&net, low(DType::Bf16)).unwrap();
    let x = Tensor::ones(&[1, 3], DType::F32);
    let message = x.bias_add(&param(&net, "7.bias").tensor()).unwrap_err().to_string();
    let words = "inputs of different dtypes meet (f32, bf16); cast them to one dtype, or run under a policy";
    assert_eq!(message, format!("BiasAdd: {words}"));
}

#[test]
fn running_statistics_move_in_f32() {
    let mut net = net(1);
    decorate(&net, low(DType::F16)).unwrap();
    auto_mixed_precision(&mut net, Level::O2, DType::F16).unwrap();
    net.set_train(true);
    let before = param(&net, "1.running_mean").value().to_f64();
    net.call(&input(1)).unwrap();
    let mean = param(&net, "1.running_mean").value();
    assert_eq!(mean.dtype(), DType::F32);
    assert_ne!(mean.to_f64(), before);
    assert!(mean.to_f64().iter().any(|&x| x != rounded(x, DType::F16)), "it has more bits than an f16");
}

/// A sum of ones in bf16 stops at 256, in f16 at 2048. The results are numbers of their dtype.
#[test]
fn gradients_of_a_low_parameter_that_is_read_often_are_summed_in_f32() {
    for (dtype, reads) in [(DType::Bf16, 600), (DType::F16, 3000)] {
        let weight = one(low(dtype));
        let mut sum = Tensor::zeros(&[1], DType::F32);
        for _ in 0..reads {
            sum = sum.add(&weight.tensor().cast(DType::F32)).unwrap();
        }
        let grads = sum.backward().unwrap();
        let grad = grads.get(&weight).unwrap();
        assert_eq!((grad.dtype(), grad.item().unwrap()), (dtype, f64::from(reads)));
    }
}

/// 2^-14 is the smallest normal f16; unscaled by 2^16 it is 2^-30, far below the smallest f16 of all, 2^-24.
#[test]
fn gradients_of_f16_parameters_are_unscaled_in_f32() {
    let weight = one(low(DType::F16));
    let mut optimizer = Sgd::new(of(&[&weight]), 2f64.powi(20));
    let mut scale = LossScale::fixed(65536.0).unwrap();
    let loss = weight.tensor().cast(DType::F32).mul(&Tensor::full(&[1], 2f64.powi(-30), DType::F32)).unwrap();
    let loss = loss.sum(&[], false).unwrap();
    let scaled = loss.mul(&Tensor::scalar(65536.0, DType::F32)).unwrap().backward().unwrap();
    assert_eq!(scaled.get(&weight).unwrap().dtype(), DType::F16);
    assert_eq!(scaled.get(&weight).unwrap().to_f64(), [2f64.powi(-14)]);
    assert_eq!(scale.step(&mut optimizer, &loss).unwrap(), Outcome::Stepped);
    assert_eq!(weight.master().unwrap().item().unwrap(), 1.0 - 2f64.powi(-10));
}

#[test]
fn an_overflow_of_f16_gradients_is_found_and_nothing_changes() {
    let weight = one(low(DType::F16));
    let mut optimizer = Sgd::new(of(&[&weight]), 0.5);
    let mut scale = LossScale::dynamic();
    // The gradient 2 times the scale 65536 overflows f16.
    let loss =
        |weight: &Param| weight.tensor().cast(DType::F32).mul(&Tensor::full(&[1], 2.0, DType::F32))?.sum(&[], false);
    let outcome = scale.step(&mut optimizer, loss(&weight).unwrap()).unwrap();
    assert_eq!(
        outcome,
        Outcome::Skipped { cause: Cause::Overflow { scale: 65536.0, first: "0".into(), origin: None } }
    );
    assert_eq!((weight.value().item().unwrap(), weight.master().unwrap().item().unwrap()), (1.0, 1.0));
    while scale.step(&mut optimizer, loss(&weight).unwrap()).unwrap() != Outcome::Stepped {}
    assert_eq!(scale.value(), 16384.0);
    assert_eq!(weight.value().item().unwrap(), 0.0);
}
