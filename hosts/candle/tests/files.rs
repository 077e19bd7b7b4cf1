//! Weights in safetensors files.

mod common;

use std::{collections::HashMap, path::PathBuf};

use candle_core::{DType, Module, Tensor, safetensors};
use candle_nn::{VarBuilder, VarMap};
use common::{CPU, Net, all_bits, batch, floats, network};
use precast_candle::{ErrorKind, Network, Policy};

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("precast-candle-{}-{name}.safetensors", std::process::id()))
}

#[test]
fn masters_keep_all_bits_and_planned_weights_their_dtype() {
    let (mut net, vars) = network(1);
    net.apply(net.plan(&Policy::named("o2-bf16").unwrap()).unwrap()).unwrap();
    let (masters, planned) = (file("masters"), file("planned"));
    net.save(&masters).unwrap();
    net.save_planned(&planned).unwrap();

    let stored = safetensors::load(&planned, CPU).unwrap();
    for (name, dtype) in [("up.weight", DType::BF16), ("norm.bias", DType::F32), ("head.bias", DType::BF16)] {
        assert_eq!(stored[name].dtype(), dtype, "{name}");
    }
    let expected = floats(&net.build().unwrap().forward(&batch().0).unwrap());

    let (mut other, other_vars) = network(2);
    assert_ne!(all_bits(&other_vars), all_bits(&vars));
    assert!(other.load(&masters).unwrap().is_empty());
    assert_eq!(all_bits(&other_vars), all_bits(&vars));
    let model = other.build().unwrap();
    assert!(other.load(&planned).unwrap().is_empty());
    assert!(model.forward(&batch().0).is_err(), "it has the weights from before");
    assert!(other_vars.all_vars().iter().all(|var| var.dtype() == DType::F32));
    other.apply(other.plan(&Policy::named("o2-bf16").unwrap()).unwrap()).unwrap();
    assert_eq!(floats(&other.build().unwrap().forward(&batch().0).unwrap()), expected, "rounded once");

    // Without this crate.
    let plain = Net::new(VarBuilder::from_tensors(safetensors::load(&masters, CPU).unwrap(), DType::F32, CPU)).unwrap();
    net.undo();
    let exact = floats(&net.build().unwrap().forward(&batch().0).unwrap());
    assert_eq!(floats(&plain.forward(&batch().0).unwrap()), exact);
    std::fs::remove_file(masters).unwrap();
    std::fs::remove_file(planned).unwrap();
}

#[test]
fn all_that_does_not_fit_is_said_and_nothing_is_changed() {
    let (mut net, vars) = network(1);
    let path = file("wrong");
    let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype, CPU).unwrap();
    let tensors = [
        ("up.weight", zeros(&[8, 6], DType::F16)),
        ("up.bais", zeros(&[8], DType::F32)),
        ("norm.weight", zeros(&[9], DType::F32)),
        ("norm.bias", zeros(&[8], DType::U32)),
        ("head.weight", zeros(&[3, 8], DType::F32)),
        ("head.bias", zeros(&[3], DType::F32)),
    ];
    let mut tensors: HashMap<String, Tensor> = tensors.map(|(name, x)| (name.to_string(), x)).into();
    safetensors::save(&tensors, &path).unwrap();
    let before = all_bits(&vars);
    let error = net.load(&path).unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Weights));
    for words in [
        "wrong.safetensors: ",
        "`up.bias` is missing (did you mean `up.bais`?)",
        "`norm.weight` has the shape [9], and the network [8]",
        "`norm.bias` is u32, and in the network f32",
    ] {
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(all_bits(&vars), before);

    // More than the network has is returned.
    for (name, shape) in [("up.bias", 8), ("norm.weight", 8), ("norm.bias", 8)] {
        tensors.insert(name.to_string(), zeros(&[shape], DType::F32));
    }
    safetensors::save(&tensors, &path).unwrap();
    assert_eq!(net.load(&path).unwrap(), ["up.bais"]);
    assert!(vars.all_vars().iter().all(|var| floats(var).iter().all(|x| *x == 0.0)));
    std::fs::write(&path, "no tensors").unwrap();
    assert_eq!(net.load(&path).unwrap_err().kind(), Some(ErrorKind::Weights));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(net.load(&path).unwrap_err().kind(), Some(ErrorKind::Io));
    assert_eq!(net.save("/no/such/folder/x").unwrap_err().kind(), Some(ErrorKind::Io));
}

/// A file of weights in 16 bits begins a training in f32.
#[test]
fn files_in_16_bits_become_f32() {
    let mut net = Network::new(&VarMap::new(), CPU, |vb| precast_candle::linear(2, 1, vb.pp("fc"))).unwrap();
    let path = file("half");
    let tensors = [("fc.weight", vec![0.5f32, 3.0]), ("fc.bias", vec![1.0])];
    let tensors: HashMap<String, Tensor> = tensors
        .map(|(name, x)| {
            let shape: Vec<usize> = if name == "fc.bias" { vec![1] } else { vec![1, 2] };
            (name.to_string(), Tensor::from_vec(x, shape, CPU).unwrap().to_dtype(DType::F16).unwrap())
        })
        .into();
    safetensors::save(&tensors, &path).unwrap();
    net.load(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let model = net.build().unwrap();
    assert_eq!((model.inner().weight().dtype(), floats(model.inner().weight())), (DType::F32, vec![0.5, 3.0]));
}
