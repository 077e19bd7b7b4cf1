//! Parameters in low-precision storage: storage dtypes, training, files, and exact undo.

mod files;
mod storage;
mod training;

use precast::{cell::AsCell, layers::Init, prelude::*, storage::Decorate};

use crate::common::folder::Folder;

/// Makes a network with layers that are stored low, norms that the pack keeps in f32 for one dtype or for both, and
/// buffers.
fn net(seed: u64) -> Child {
    let mut rng = Rng::seed(seed);
    Child::of(sequential![
        Conv2d::new(1, 4, 3, &mut rng),
        BatchNorm2d::new(4),
        ReLU,
        Conv2d::new(4, 2, 3, &mut rng),
        Flatten { start_axis: 1 },
        LayerNorm::new(&[8]),
        PReLU::new(1),
        Dense::new(8, 3, &mut rng),
    ])
}

/// Makes a batch for [`net`].
fn input(seed: u64) -> Tensor {
    Init::Uniform { bound: 1.0 }.sample(&[4, 1, 6, 6], &mut Rng::seed(seed)).unwrap()
}

/// Returns Paddle's lists of kinds kept in f32: batch norms, and for f16 layer and instance norms.
fn low(dtype: DType) -> Decorate {
    Decorate::new(dtype).pack("paddle-3.3").unwrap()
}

/// Returns dtype and bits of every parameter and buffer.
fn bits<C: ?Sized + AsCell>(net: &Child<C>) -> Vec<(String, DType, Vec<u64>)> {
    net.named_params().into_iter().map(|(path, param)| (path, param.dtype(), bits_of(&param.value()))).collect()
}

fn bits_of(x: &Tensor) -> Vec<u64> {
    x.to_f64().into_iter().map(f64::to_bits).collect()
}

fn param<C: ?Sized + AsCell>(net: &Child<C>, path: &str) -> Param {
    net.named_params().into_iter().find(|(p, _)| p == path).unwrap_or_else(|| panic!("no `{path}`")).1
}

/// Rounds to the nearest number of a low dtype, by the `half` crate.
fn rounded(x: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F16 => half::f16::from_f32(x as f32).to_f64(),
        DType::Bf16 => half::bf16::from_f32(x as f32).to_f64(),
        other => panic!("{other}"),
    }
}
