//! Running averages in 8 bits.

use precast::{Grads, Param, cell::Params, optim::Group, prelude::*};

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

/// Groups choose for their parameters, and a checkpoint keeps both kinds.
#[test]
fn a_group_has_its_own_states() {
    let params = |paths: [&str; 2]| -> Params {
        paths.into_iter().map(|path| (path.to_string(), Param::new(Tensor::zeros(&[64, 64], DType::F32)))).collect()
    };
    let full = |group: Group| group.state_8bit(false);
    let all = params(["embed", "block"]);
    let mut optimizer = Adam::new(all.clone(), 0.1).state_8bit(true).group("embed", full).unwrap();
    let mut grads = Grads::default();
    all.iter().for_each(|(_, param)| grads.set(param, Tensor::ones(&[64, 64], DType::F32)));
    optimizer.update(&grads).unwrap();
    let bytes = |path: &str| -> usize {
        let state = optimizer.state();
        let of = state.tensors.iter().filter(|(name, _)| name.starts_with(path));
        of.map(|(_, tensor)| tensor.len() * tensor.dtype().bytes()).sum()
    };
    assert_eq!([bytes("embed"), bytes("block")], [2 * 4096 * 4, 2 * (4096 + 4 * 16)]);
    let mut other = Adam::new(params(["embed", "block"]), 0.1).group("block", |group| group.state_8bit(true)).unwrap();
    other.restore(optimizer.state()).unwrap();
    let mut none = Sgd::new(all, 0.1).group("embed", |group| group.state_8bit(true)).unwrap();
    let error = none.update(&grads).unwrap_err().to_string();
    assert!(error.contains("states in 8 bits, which this optimizer has not; allowed: Adam, AdamW and Lion"), "{error}");
}

/// Updates of one weight of a block of 8-bit state, whose neighbour has gradients of 1: relative to the learning rate.
struct Path {
    largest: f64,
    end: f64,
}

/// Trains 64 weights of the first block with the same gradients, by an optimizer with a state in f32 and in 8 bits.
fn paths(make: impl Fn(Params, bool) -> Box<dyn Optimizer>, steps: usize, grad: impl Fn(usize) -> f64) -> [Path; 2] {
    [false, true].map(|eight_bit| {
        let param = Param::new(Tensor::zeros(&[4096], DType::F32));
        let mut optimizer = make([("w".to_string(), param.clone())].into_iter().collect(), eight_bit);
        let (mut before, mut largest) = (vec![0.0; 65], 0f64);
        for step in 0..steps {
            let mut numbers = vec![0.0; 4096];
            numbers[0] = 1.0;
            numbers[1..65].fill(grad(step));
            let mut grads = Grads::default();
            grads.set(&param, Tensor::from_f64(&numbers, &[4096], DType::F32).unwrap());
            optimizer.update(&grads).unwrap();
            let after = param.value().slice(0, 0..65).unwrap().to_f64();
            largest = after.iter().zip(&before).skip(1).fold(largest, |most, (a, b)| most.max((a - b).abs()));
            before = after;
        }
        Path { largest, end: before[1..].iter().sum::<f64>() / 64.0 }
    })
}

/// Adam in f64 for one weight, by its formula.
fn adam_in_f64(steps: usize, grad: impl Fn(usize) -> f64, amsgrad: bool) -> Path {
    let (mut m, mut v, mut w, mut path) = (0.0, 0.0, 0f64, Path { largest: 0.0, end: 0.0 });
    for step in 0..steps {
        let g = grad(step);
        (m, v) = (0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g);
        w = if amsgrad { w.max(v) } else { v };
        let [first, second] = [0.9f64, 0.999].map(|beta| 1.0 - beta.powi(step as i32 + 1));
        let by = m / first / ((w / second).sqrt() + 1e-8);
        path = Path { largest: path.largest.max(by.abs()), end: path.end - by };
    }
    path
}

/// The gradient of a weight, by step.
pub(super) type Gradient = fn(usize) -> f64;

/// Gradients with their names and the number of steps.
pub(super) const GRADIENTS: [(&str, usize, Gradient); 12] = [
    ("ends after ten steps", 60, |step| if step < 10 { 1e-4 } else { 0.0 }),
    ("ended long ago", 2000, |step| if step < 10 { 1e-4 } else { 0.0 }),
    ("ends when both averages are there", 2000, |step| if step < 500 { 1e-6 } else { 0.0 }),
    ("1e-4 of its neighbour's", 2000, |_| 1e-4),
    ("1e-6 of its neighbour's", 2000, |_| -1e-6),
    ("falls to a hundredth", 6000, |step| if step < 10 { 1.0 } else { 0.01 }),
    ("grows a hundredfold", 2000, |step| if step < 1000 { 1e-5 } else { 1e-3 }),
    ("alternates", 2000, |step| if step % 2 == 0 { 1.3e-3 } else { -0.7e-3 }),
    ("comes every hundredth step", 2000, |step| if step % 100 == 0 { 1e-5 } else { 0.0 }),
    ("comes every fifth step", 2000, |step| if step % 5 == 0 { 1e-3 } else { 1e-5 }),
    ("vanishes slowly", 2000, |step| 0.99f64.powi(step as i32)),
    ("vanishes fast", 2000, |step| 0.7f64.powi(step as i32)),
];

#[test]
fn a_weight_with_small_gradients_moves_as_with_a_state_in_f32() {
    for (name, steps, grad) in GRADIENTS {
        for amsgrad in [false, true] {
            let [wide, narrow] = paths(
                |params, eight_bit| Box::new(Adam::new(params, 1e-3).amsgrad(amsgrad).state_8bit(eight_bit)),
                steps,
                grad,
            );
            let right = adam_in_f64(steps, grad, amsgrad);
            assert!((wide.end / 1e-3 - right.end).abs() < 1e-3 * (1.0 + right.end.abs()), "{name}: {}", wide.end);
            let [largest, end] = [narrow.largest, narrow.end].map(|x| x / 1e-3);
            println!("{name}, {amsgrad}: {largest:.3} {:.3}; {end:.1} {:.1}", right.largest, right.end);
            assert!(largest < 1.5 * right.largest, "{name}: steps of {largest}, not {}", right.largest);
            // Choices in turn may favour one side of gradients in turn.
            assert!((end - right.end).abs() < 1.0 + 0.3 * right.end.abs(), "{name}: {end}, not {}", right.end);
        }
    }
}

#[test]
fn an_average_of_lion_fades() {
    // Its signs follow a small gradient of the other sign once the average of the large one has faded, as in f32.
    let grad = |step: usize| if step < 100 { 1.0 } else { -1e-3 };
    let lion =
        |params, eight_bit| -> Box<dyn Optimizer> { Box::new(precast::Lion::new(params, 1e-3).state_8bit(eight_bit)) };
    let [wide, narrow] = paths(lion, 2000, grad);
    assert!((wide.end - narrow.end).abs() < 0.25 * wide.end.abs(), "{} {}", wide.end, narrow.end);
}

/// A state as saved with the codes of bitsandbytes.
#[test]
fn a_state_of_earlier_codes_is_read() {
    let param = Param::new(Tensor::zeros(&[4096], DType::F32));
    let mut adam = Adam::new([("w".to_string(), param.clone())].into_iter().collect(), 1e-3).state_8bit(true);
    let mut grads = Grads::default();
    grads.set(&param, Tensor::ones(&[4096], DType::F32));
    adam.update(&grads).unwrap();
    let mut state = adam.state();
    for (name, tensor) in &mut state.tensors {
        // The largest of each block; numbers in the middle of the map, by its definition; and those next to the largest.
        let old = match name.as_str() {
            "w/mean.codes" => [255, 128 + 63 + 10, 127, 255, 255, 255, 255, 0],
            "w/square.codes" => [255, 127, 0, 255, 255, 255, 255, 254],
            _ => continue,
        };
        *tensor = Tensor::from_vec(vec![i64::from_le_bytes(old); 512], &[512]).unwrap();
    }
    adam.restore(state).unwrap();
    let mut still = Grads::default();
    still.set(&param, Tensor::zeros(&[4096], DType::F32));
    let before = param.value().to_f64();
    adam.update(&still).unwrap();
    // m = 0.9 * 0.1 and v = 0.999 * 0.001 before the codes.
    let moved = |m: f64, v: f64| 1e-3 * (0.09 * m / 0.19) / (0.000999 * v / 0.001999).sqrt();
    let by: Vec<f64> = before.iter().zip(param.value().to_f64()).take(8).map(|(a, b)| a - b).collect();
    let right = [moved(1.0, 1.0), moved(0.24766, 0.10352), 0.0, moved(1.0, 1.0)];
    for (by, right) in by.iter().zip(right).chain([(&by[7], moved(-0.99297, 0.99648))]) {
        assert!((by - right).abs() <= 0.05 * right.abs(), "{by} {right}");
    }
}
