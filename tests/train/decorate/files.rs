//! Weight files of networks stored in low precision.

use std::{fs, path::Path};

use precast::{
    prelude::*,
    storage::{
        Decorate, decorate,
        weights::{self, LoadOptions},
    },
};
use safetensors::{Dtype, SafeTensors};

use super::{Folder, bits, bits_of, low, net, param, rounded};

fn dtypes(file: &Path) -> Vec<(String, Dtype)> {
    let bytes = fs::read(file).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    file.iter().map(|(name, view)| (name.to_string(), view.dtype())).collect()
}

fn cast() -> LoadOptions {
    LoadOptions::new().cast(true)
}

/// Trains a network stored in low precision, and returns it with the bits of its full values.
fn trained(how: Decorate) -> (Child, Vec<(String, DType, Vec<u64>)>) {
    let net = net(1);
    let full = bits(&net);
    decorate(&net, how).unwrap();
    (net, full)
}

#[test]
fn a_file_loses_nothing_unless_asked_to() {
    for (name, how) in [("plain", low(DType::Bf16)), ("f32", low(DType::Bf16).save_dtype(DType::F32))] {
        let folder = Folder::new(name);
        let file = &folder.at("net.safetensors");
        let (trained, full) = trained(how);
        weights::save(&trained, file).unwrap();
        assert!(dtypes(file).iter().all(|(_, dtype)| *dtype == Dtype::F32));
        // Into an f32 network, and into one stored low with masters, without a cast: nothing is lost to rounding.
        let (fresh, other) = (net(2), net(3));
        weights::load(&fresh, file).unwrap();
        assert_eq!(bits(&fresh), full);
        let decorated = decorate(&other, low(DType::F16)).unwrap();
        weights::load(&other, file).unwrap();
        assert_ne!(bits(&other), full);
        decorated.undo().unwrap();
        assert_eq!(bits(&other), full);
    }
}

#[test]
fn saved_low_a_file_is_half_as_large_and_says_what_it_lost() {
    let folder = Folder::new("low");
    let file = &folder.at("net.safetensors");
    let (a, full) = trained(low(DType::F16).save_dtype(DType::F16));
    weights::save(&a, file).unwrap();
    // Including the kept norms.
    assert!(dtypes(file).iter().all(|(_, dtype)| *dtype == Dtype::F16));
    let b = net(2);
    let message = weights::load(&b, file).unwrap_err().to_string();
    assert!(message.contains("is float16; the network's is float32; `LoadOptions::cast`"), "{message}");
    decorate(&b, low(DType::F16)).unwrap();
    weights::load_with(&b, file, &cast()).unwrap();
    for (path, _, numbers) in full {
        let expected: Vec<f64> = numbers.into_iter().map(|x| rounded(f64::from_bits(x), DType::F16)).collect();
        let loaded = param(&b, &path);
        assert_eq!(loaded.value().to_f64(), expected, "{path}");
        // The file has only the low numbers, so they become the masters.
        assert!(loaded.master().is_none_or(|master| master.to_f64() == expected));
    }
}

#[test]
fn a_run_goes_on_from_a_file_as_if_it_had_not_been_stopped() {
    let folder = Folder::new("resume");
    let file = &folder.at("net.safetensors");
    let stored = || {
        let net = net(1);
        decorate(&net, low(DType::Bf16)).unwrap();
        net
    };
    // Steps of a quarter of a unit in the last place, which accumulate only in the masters.
    let steps = |net: &Child, count| {
        let mut optimizer = Sgd::new(net.params(), DType::Bf16.epsilon() / 4.0);
        for _ in 0..count {
            let mut grads = precast::Grads::default();
            net.params().iter().for_each(|(_, param)| grads.set(param, Tensor::ones(&param.shape(), DType::F32)));
            optimizer.update(&grads).unwrap();
        }
    };
    let (whole, first, second) = (stored(), stored(), stored());
    steps(&whole, 6);
    steps(&first, 3);
    weights::save(&first, file).unwrap();
    weights::load(&second, file).unwrap();
    steps(&second, 3);
    assert_eq!(bits(&second), bits(&whole));
    let masters = |net: &Child| -> Vec<_> {
        net.params().iter().map(|(_, param)| param.master().map(|master| bits_of(&master))).collect()
    };
    assert_eq!(masters(&second), masters(&whole));
}

#[test]
fn the_master_is_rounded_once_to_the_dtype_of_the_file() {
    // Between two f16 numbers, a little above the middle; in bf16 it becomes the lower one, which loses the f16 digits.
    let number = 1.0 + 2f64.powi(-11) + 2f64.powi(-20);
    for (saved, expected) in
        [(DType::F16, 1.0 + 2f64.powi(-10)), (DType::Bf16, 1.0), (DType::F32, number), (DType::F64, number)]
    {
        let folder = Folder::new(saved.name());
        let file = &folder.at("net.safetensors");
        let net = Child::of(sequential![Dense::new(1, 1, &mut Rng::seed(1)), BatchNorm1d::new(1)]);
        param(&net, "0.bias").set(&Tensor::full(&[1], number, DType::F32)).unwrap();
        param(&net, "1.running_mean").set(&Tensor::full(&[1], number, DType::F32)).unwrap();
        let decorated = decorate(&net, low(DType::Bf16).save_dtype(saved)).unwrap();
        weights::save(&net, file).unwrap();
        // Every parameter, including those stored in f32.
        let name = format!("{saved}").to_uppercase();
        assert!(dtypes(file).iter().all(|(_, dtype)| dtype.to_string() == name), "{:?}", dtypes(file));
        let read = Child::of(sequential![Dense::new(1, 1, &mut Rng::seed(2)), BatchNorm1d::new(1)]);
        weights::load_with(&read, file, &cast()).unwrap();
        for path in ["0.bias", "1.running_mean"] {
            assert_eq!(param(&read, path).value().item().unwrap(), expected, "{path} {saved}");
        }
        // It does not change the current values, and undoing forgets the dtype of the file.
        decorated.undo().unwrap();
        weights::save(&net, file).unwrap();
        assert!(dtypes(file).iter().all(|(_, dtype)| *dtype == Dtype::F32));
        assert_eq!(param(&net, "0.bias").value().item().unwrap(), number);
    }
}

#[test]
fn without_masters_low_numbers_are_saved_and_casts_requested() {
    let folder = Folder::new("without");
    let file = &folder.at("net.safetensors");
    let (a, b) = (net(1), net(2));
    let before = param(&a, "0.weight").value().to_f64();
    let how = || low(DType::Bf16).masters(false).save_dtype(DType::F32);
    decorate(&a, how()).unwrap();
    weights::save(&a, file).unwrap();
    decorate(&b, how()).unwrap();
    let untouched = bits(&b);
    let message = weights::load(&b, file).unwrap_err().to_string();
    assert!(message.contains("is float32; the network's is bfloat16; `LoadOptions::cast`"), "{message}");
    assert_eq!(bits(&b), untouched);
    weights::load_with(&b, file, &cast()).unwrap();
    assert_eq!(bits(&a), bits(&b));
    let expected: Vec<f64> = before.into_iter().map(|x| rounded(x, DType::Bf16)).collect();
    assert_eq!(param(&b, "0.weight").value().to_f64(), expected);
}

#[test]
fn a_cast_into_a_master_keeps_its_bits() {
    let folder = Folder::new("cast");
    let file = &folder.at("net.safetensors");
    let (a, b) = (net(1), net(2));
    weights::save(&a, file).unwrap();
    decorate(&b, Decorate::new(DType::F16)).unwrap();
    weights::load_with(&b, file, &cast()).unwrap();
    assert_eq!(bits_of(&param(&b, "0.weight").master().unwrap()), bits_of(&param(&a, "0.weight").value()));
}
