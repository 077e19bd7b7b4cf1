//! Plans and loss scales on a GPU by burn's wgpu with fusion, in f16. `cargo xtask nightly gpu` runs it; without a GPU, on
//! Mesa's lavapipe.
#![cfg(feature = "wgpu")]

mod networks;

use burn::{
    module::Module,
    optim::{AdamConfig, ModuleOptimizer},
    tensor::{DType, Device, DeviceKind, FloatDType, Tensor},
};
use networks::{Mlp, Tower, images, rows};
use precast_burn::{Amp, Forward, LossScale, Outcome, Policy};

fn gpu() -> Device {
    Device::wgpu(DeviceKind::DefaultDevice)
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().try_to_vec().unwrap()
}

/// The same weights on the CPU in f32 are the reference; the bound is that of the test on the CPU.
#[test]
fn f16_results_are_within_the_rounding_of_f16() {
    let cpu = Tower::new(&Device::flex());
    let full = numbers(cpu.forward_plain(images(&Device::flex())));
    let mut net = Amp::new(cpu.to_device(&gpu()));
    let _applied = Policy::named("o2").unwrap().apply(&mut net).unwrap();
    assert_eq!(net.inner().conv.weight.val().dtype(), DType::F16);
    let low = numbers(net.forward(images(&gpu())));
    let largest = full.iter().fold(0f32, |most, y| most.max(y.abs()));
    for (full, low) in full.iter().zip(&low) {
        assert!((full - low).abs() <= 24.0 * 2f32.powi(-11) * largest, "{full} {low}");
    }
}

#[test]
fn bf16_is_refused_before_the_run() {
    let mut net = Amp::new(Mlp::new(&gpu()));
    let error = Policy::named("o2-bf16").unwrap().apply(&mut net).unwrap_err().to_string();
    assert!(error.contains("does not support bfloat16; it has float16"), "{error}");
    assert_eq!(net.casts(), None);
}

/// Training that overflows, skips and converges; undo gives back the bits that the weights have in f32.
#[test]
fn training_in_f16_skips_and_converges() {
    let device = gpu().autodiff();
    let mut net = Amp::new(Mlp::new(&device));
    let policy = Policy::named("o2").unwrap();
    let applied = policy.apply(&mut net).unwrap();
    let mut scale = LossScale::new(&policy).unwrap();
    let mut optimizer: ModuleOptimizer = AdamConfig::new().init();
    let loss = |net: &Amp<Mlp>| (net.forward(rows(&device)) - 2.0).square().mean();
    let first = numbers(loss(&net))[0];
    let mut skipped = 0;
    for _ in 0..60 {
        let loss = loss(&net);
        let (next, outcome) = scale.step(&mut optimizer, 0.02, net, loss).unwrap();
        net = next;
        skipped += usize::from(outcome != Outcome::Stepped);
    }
    assert!(skipped < 10, "{skipped}");
    let last = numbers(loss(&net))[0];
    assert!(last < 0.1 * first, "{first} {last}");
    let plain = net.inner().clone();
    applied.undo(&mut net).unwrap();
    assert_eq!(net.inner().down.inner().weight.val().dtype(), DType::F32);
    assert_eq!(numbers(net.inner().down.inner().weight.val()), numbers(plain.down.inner().weight.base()));
}

/// burn alone: with fusion, a product of two dtypes reads the bits of one as the other's.
#[test]
fn a_product_of_two_dtypes_is_garbage_and_found() {
    use precast_burn::graph::Graph;
    let forward = |_: Mlp, device: &Device| {
        let x = Tensor::<2>::from_floats([[1.0, 0.0], [0.0, 1.0]], device);
        x.matmul(Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 4.0]], device).cast(FloatDType::F16))
    };
    let mlp = Mlp::new(&gpu());
    assert!(Graph::record(&mlp, forward).unwrap().check().is_err());
    let product = std::panic::catch_unwind(|| numbers(forward(Mlp::new(&gpu()), &gpu())));
    assert_ne!(product.ok(), Some(vec![1.0, 2.0, 3.0, 4.0]), "burn computes it right now: tell it in docs/burn.md");
}
