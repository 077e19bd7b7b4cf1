//! Tensors for tests.

use precast::prelude::*;

/// Returns normally distributed f32 numbers.
pub fn random(shape: &[usize], seed: u64) -> Tensor {
    let mut rng = Rng::seed(seed);
    let count = shape.iter().product();
    Tensor::from_f64(&(0..count).map(|_| rng.normal(0.0, 1.0)).collect::<Vec<_>>(), shape, DType::F32).unwrap()
}

pub fn bits(x: &Tensor) -> Vec<u64> {
    x.to_f64().into_iter().map(f64::to_bits).collect()
}

#[track_caller]
pub fn assert_same(a: &Tensor, b: &Tensor, what: &str) {
    assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()), "{what}");
    assert!(bits(a) == bits(b), "{what}: {a:?} against {b:?}");
}
