//! Running averages in 8 bits.

use precast::{Grads, Param, cell::Params, prelude::*};

use super::noise;

const SHAPE: [usize; 2] = [70, 65];

/// Runs a hundred noisy steps down a bowl, and returns the distance of the final weights from those of an f32 state,
/// relative to the distance travelled.
fn apart(make: impl Fn(Params, bool) -> Box<dyn Optimizer>) -> f64 {
    let (start, towards) = (noise(&SHAPE, 1), noise(&SHAPE, 2));
    let run = |eight_bit| {
        let param = Param::new(start.clone());
        let mut optimizer = make([("w".to_string(), param.clone())].into_iter().collect(), eight_bit);
        for step in 0..100 {
            let mut grads = Grads::default();
            let noise = noise(&SHAPE, 10 + step).mul(&Tensor::scalar(0.1, DType::F32)).unwrap();
            grads.set(&param, param.value().sub(&towards).unwrap().add(&noise).unwrap());
            optimizer.update(&grads).unwrap();
        }
        param.value().to_f64()
    };
    let norm = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
    let (wide, narrow) = (run(false), run(true));
    let error = norm(&wide, &narrow) / norm(&wide, &start.to_f64());
    println!("relative error after 100 steps: {error:.4}");
    error
}

#[test]
fn a_hundred_steps_are_near_those_of_an_f32_state() {
    let adam = |params, eight_bit| -> Box<dyn Optimizer> {
        let adam = Adam::new(params, 0.01);
        Box::new(if eight_bit { adam.state_8bit(true) } else { adam })
    };
    let lion = |params, eight_bit| -> Box<dyn Optimizer> {
        let lion = precast::Lion::new(params, 0.005);
        Box::new(if eight_bit { lion.state_8bit(true) } else { lion })
    };
    // The sign of a small average changes before its magnitude matters to Adam.
    for (error, bound) in [(apart(adam), 0.06), (apart(lion), 0.15)] {
        assert!(error > 0.0 && error < bound, "{error}");
    }
}

#[test]
fn a_state_in_8_bits_has_a_quarter_of_the_bytes() {
    let bytes = |eight_bit: bool, shape: &[usize]| {
        let param = Param::new(noise(shape, 1));
        let params: Params = [("w".to_string(), param.clone())].into_iter().collect();
        let mut adam = Adam::new(params, 0.1);
        if eight_bit {
            adam = adam.state_8bit(true);
        }
        let mut grads = Grads::default();
        grads.set(&param, noise(shape, 2));
        adam.update(&grads).unwrap();
        adam.state().tensors.iter().map(|(_, tensor)| tensor.len() * tensor.dtype().bytes()).sum::<usize>()
    };
    // One byte per number, and four per 256.
    assert_eq!(bytes(false, &[64, 64]), 2 * 4096 * 4);
    assert_eq!(bytes(true, &[64, 64]), 2 * (4096 + 4 * 16));
    assert_eq!(bytes(true, &[63, 65]), 2 * 4095 * 4, "fewer than 4096 stay f32");
}
