//! Rows of a tensor: f64 numbers, and rows whose length is not known.

use precast::prelude::*;

fn main() {
    let number: f64 = 0.5;
    let _ = Tensor::from([number, 1.0]);
    let _: Tensor = vec![number].into_iter().collect();
    let _: Tensor = vec![vec![1.0, 2.0]].into_iter().collect();
    let _ = Tensor::from(vec![vec![1.0, 2.0]]);
    let _ = Tensor::from(&[1.0, 2.0]);
    let _ = Tensor::unzip([(number, 1)]);
    let _ = Tensor::from([1u8, 2]);
    let _ = Tensor::from_vec(vec![1u8, 2], &[2]);
    let _ = Tensor::ones(&[2], DType::F32).gt(1usize);
}
