//! Updates that leave the range of a 16-bit parameter: numbers that would become infinite keep their old values, and
//! the error names the parameter.

use precast::{ErrorKind, Grads, Param, prelude::*, storage::Decorate};

use super::ALL;

/// Returns every kind of low-precision storage, with the largest number of its dtype.
fn ways() -> [(Decorate, f64); 6] {
    let (f16, bf16) = (|| Decorate::new(DType::F16), || Decorate::new(DType::Bf16));
    let (of_f16, of_bf16) = (65504.0, half::bf16::MAX.to_f64());
    [
        (f16(), of_f16),
        (f16().masters(false), of_f16),
        (bf16(), of_bf16),
        (bf16().masters(false), of_bf16),
        (bf16().stochastic_rounding(7), of_bf16),
        (bf16().kahan(), of_bf16),
    ]
}

fn stored(numbers: &[f64], shape: &[usize], how: Decorate) -> (Child<Dense>, Param) {
    let net = Child::new(DenseSpec::new(shape[1], shape[0]).bias(false).build(&mut Rng::seed(1)).unwrap());
    let weight = net.cell().weight.clone();
    weight.set(&Tensor::from_f64(numbers, shape, DType::F32).unwrap()).unwrap();
    decorate(&net, how).unwrap();
    (net, weight)
}

fn grads(weight: &Param, numbers: &[f64]) -> Grads {
    let mut grads = Grads::default();
    grads.set(weight, Tensor::from_f64(numbers, &weight.shape(), DType::F32).unwrap());
    grads
}

fn numbers(param: &Param) -> (Vec<f64>, Option<Vec<f64>>) {
    (param.value().to_f64(), param.master().map(|master| master.to_f64()))
}

#[test]
fn weights_that_would_become_infinite_stay_and_others_update() {
    for held in [false, true] {
        for (how, most) in ways() {
            // Half the largest number is added to the largest, to 1, subtracted from the largest, and from the least.
            let (old, step) = ([most, 1.0, most, -most], most / 2.0);
            let (net, weight) = stored(&old, &[2, 2], how.clone());
            let tape = held.then(|| weight.tensor());
            let mut sgd = Sgd::new(net.params(), 1.0);
            let error = sgd.update(&grads(&weight, &[-step, -step, step, step])).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Value);
            let dtype = weight.dtype().long_name();
            let message = error.to_string();
            assert!(message.contains("would become infinite or NaN by the update"), "{message}");
            assert!(message.ends_with(&format!("- `weight`: 2 of its numbers, in {dtype}")), "{message}");
            assert_eq!(message.contains("or bfloat16"), dtype == "float16", "the advice fits the dtype: {message}");
            assert!(message.contains("lower the learning rate"), "{message}");
            // The key of a run, and the function.
            assert!(
                message.contains("(`exclude` of `storage` in a run, `Decorate::exclude_path` in code)"),
                "{message}"
            );
            let (value, master) = numbers(&weight);
            let nearest = |x: f64| Tensor::scalar(x, DType::F64).cast(weight.dtype()).to_f64()[0];
            let right = [most, nearest(1.0 + step), nearest(most - step), -most];
            // Stochastic rounding of a number between two gives one of them.
            let near = |(met, right): (&f64, &f64)| (met - right).abs() <= right.abs() * weight.dtype().epsilon();
            assert!(value.iter().zip(&right).all(near), "{how:?}: {value:?}, {right:?}");
            assert_eq!((value[0], value[3]), (right[0], right[3]), "{how:?}");
            if let Some(master) = master {
                assert_eq!((master[0], master[3]), (most, -most));
                assert_eq!(master[2], f64::from((most - step) as f32), "{how:?}");
            }
            drop(tape);
        }
    }
}

/// A master that is not a number of the low dtype keeps its digits.
#[test]
fn the_old_master_stays_exactly() {
    let (net, weight) = stored(&[65519.0, 0.1], &[1, 2], Decorate::new(DType::F16));
    let master = |weight: &Param| weight.master().unwrap().to_f64();
    assert_eq!(numbers(&weight).0[0], 65504.0);
    let mut sgd = Sgd::new(net.params(), 1.0);
    sgd.update(&grads(&weight, &[-1.0, -1.0])).unwrap_err();
    assert_eq!(master(&weight), [65519.0, f64::from(0.1f32 + 1.0)]);
    // The next step may go back.
    sgd.update(&grads(&weight, &[19.0, 0.0])).unwrap();
    assert_eq!(numbers(&weight).0[0], 65504.0);
    assert_eq!(master(&weight)[0], 65500.0);
}

/// With every optimizer, over more than one block of elements: nothing becomes infinite, and the error counts the
/// elements that would.
#[test]
fn every_optimizer_refuses_to_make_a_weight_infinite() {
    let shape = [96, 96];
    let len = shape.iter().product::<usize>();
    for (name, make) in ALL {
        for (how, most) in ways() {
            let old: Vec<f64> = (0..len).map(|i| if i % 1000 == 7 { most } else { 0.5 }).collect();
            let (net, weight) = stored(&old, &shape, how.clone());
            let gradient: Vec<f64> = (0..len).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
            let mut optimizer = make(net.params());
            optimizer.set_lr(most);
            let Err(error) = optimizer.update(&grads(&weight, &gradient)) else {
                panic!("{name}, {how:?}: {:?}", &numbers(&weight).0[..8]);
            };
            assert!(error.to_string().contains("- `weight`: "), "{name}: {error}");
            let (value, master) = numbers(&weight);
            assert!(value.iter().chain(master.iter().flatten()).all(|x| x.is_finite()), "{name}, {how:?}");
        }
    }
}

/// The square of a gradient may leave the range of f32, and would stop the weight for good.
#[test]
fn averages_that_would_become_infinite_stop_no_weight() {
    // 8-bit averages need so many elements.
    let shape = [64, 64];
    let len = 64 * 64;
    let with = |large: f64| (0..len).map(|i| if i == 5 { large } else { 1e-3 }).collect::<Vec<f64>>();
    for (name, make) in ALL {
        let (net, weight) = stored(&vec![1.0; len], &shape, Decorate::new(DType::F16).exclude_path("**").unwrap());
        let mut optimizer = make(net.params());
        let first = optimizer.update(&grads(&weight, &with(1e20)));
        let before = weight.value().to_f64();
        if let Err(error) = &first {
            assert!(error.to_string().ends_with("- `weight`: 1 of its numbers, in float32"), "{name}: {error}");
            assert!(error.to_string().contains("clip the gradients"), "{name}: {error}");
            assert_eq!(before[5], 1.0, "{name}");
        }
        assert!(before[6] != 1.0, "{name}: all others are updated");
        assert!(optimizer.state().tensors.iter().all(|(_, x)| x.to_f64().iter().all(|x| x.is_finite())), "{name}");
        for _ in 0..20 {
            optimizer.update(&grads(&weight, &with(1e-3))).unwrap();
        }
        assert!(first.is_ok() || weight.value().to_f64()[5] != 1.0, "{name}: the weight moves again");
    }
}

/// Numbers that are already infinite do not count.
#[test]
fn what_is_infinite_already_is_no_error() {
    for (how, _) in ways() {
        let (net, weight) = stored(&[f64::INFINITY, 1.0], &[1, 2], how);
        Sgd::new(net.params(), 0.5).update(&grads(&weight, &[1.0, 1.0])).unwrap();
        let value = numbers(&weight).0;
        assert_eq!(value, [f64::INFINITY, 0.5]);
    }
}

#[test]
fn overflowing_parameters_are_named_and_not_counted_as_lost() {
    let rng = &mut Rng::seed(1);
    let net = Child::new(sequential![Dense::new(2, 2, rng), Dense::new(2, 2, rng)]);
    for (_, param) in net.params().iter() {
        param.set(&Tensor::full(&param.shape(), 65504.0, DType::F32)).unwrap();
    }
    decorate(&net, Decorate::new(DType::F16).masters(false)).unwrap();
    let mut sgd = Sgd::new(net.params(), 1.0).count_lost_updates();
    let mut all = Grads::default();
    for (_, param) in net.params().iter() {
        all.set(param, Tensor::full(&param.shape(), -100.0, DType::F32));
    }
    let message = sgd.update(&all).unwrap_err().to_string();
    let lines = ["- `0.weight`: 4 of its numbers", "- `0.bias`: 2 of", "- `1.weight`: 4 of", "- `1.bias`: 2 of"];
    assert!(lines.iter().all(|line| message.contains(line)), "{message}");
    assert!(sgd.lost_updates().iter().all(|lost| (lost.updates, lost.lost) == (0, 0)), "{:?}", sgd.lost_updates());
    // A training step passes the error on, and the run may continue.
    let scale = &mut LossScale::none();
    let (_, weight) = net.params().into_iter().next().unwrap();
    let loss = weight.tensor().cast(DType::F32).mean_all().unwrap();
    sgd.set_lr(1e9);
    let error = scale.step(&mut sgd, &loss).unwrap_err().to_string();
    assert!(error.contains("would become infinite"), "{error}");
}

/// A wide parameter has a range as well.
#[test]
fn wide_numbers_stay_finite_as_well() {
    for (dtype, most) in [(DType::F32, f64::from(f32::MAX)), (DType::F64, f64::MAX)] {
        let weight = Param::new(Tensor::from_f64(&[most, 1.0, -most], &[3], dtype).unwrap());
        let mut sgd = Sgd::new([("w".to_string(), weight.clone())].into_iter().collect(), 1.0);
        let mut all = Grads::default();
        all.set(&weight, Tensor::from_f64(&[-most, -1.0, -most], &[3], dtype).unwrap());
        let message = sgd.update(&all).unwrap_err().to_string();
        let end = format!(
            "all others are updated. The precision is not the cause: {0} overflows. Lower the learning rate, clip the \
             gradients, or divide far inputs and targets by their size:\n- `w`: 1 of its numbers, in {0}",
            dtype.long_name()
        );
        assert!(message.ends_with(&end), "{message}");
        assert_eq!(weight.value().to_f64(), [most, 2.0, 0.0]);
    }
}
