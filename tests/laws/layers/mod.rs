//! Each cell compared with a closed form or a direct loop, and properties shared by all cells.

mod all;
mod attention;
mod columns;
mod fused;
mod kinds;
mod lora;
mod norms;
mod recurrent;
mod rotary;
mod slots;
mod transformer;
mod weighted;
mod without_parameters;

use precast::prelude::*;

/// Returns numbers between -1 and 1, different for each seed.
fn random(shape: &[usize], seed: u64) -> Tensor {
    let mut rng = Rng::seed(seed);
    let data: Vec<f32> = (0..shape.iter().product()).map(|_| rng.uniform(-1.0, 1.0) as f32).collect();
    Tensor::from_vec(data, shape).unwrap()
}

fn tensor(data: &[f64], shape: &[usize]) -> Tensor {
    Tensor::from_f64(data, shape, DType::F32).unwrap()
}

#[track_caller]
fn assert_close(y: &Tensor, expected: &[f64], tolerance: f64) {
    let y = y.to_f64();
    assert_eq!(y.len(), expected.len());
    for (i, (y, e)) in y.iter().zip(expected).enumerate() {
        assert!((y - e).abs() <= tolerance * e.abs().max(1.0), "element {i}: {y} against {e}");
    }
}

fn param(net: &Child, path: &str) -> Param {
    let named = net.named_params();
    named.iter().find(|(found, _)| found == path).unwrap_or_else(|| panic!("{path}: {named:?}")).1.clone()
}

fn values(net: &Child, path: &str) -> Vec<f64> {
    param(net, path).value().to_f64()
}

/// Returns every index of a shape, in row-major order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    (0..shape.iter().product())
        .map(|mut flat: usize| {
            let mut index: Vec<usize> = shape.iter().rev().map(|&n| (flat % n, flat /= n).0).collect();
            index.reverse();
            index
        })
        .collect()
}
