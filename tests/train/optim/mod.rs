//! Optimizers: formulas, groups, state, and the effect of a parameter's storage on an update.

mod beside_f64;
mod eight_bit;
mod formulas;
mod groups;
mod overflow;
mod state;
mod storage;

use precast::{
    Adafactor, Adagrad, Adam, AdamW, DType, Grads, Lamb, Lion, Muon, Optimizer, Param, RmsProp, Sgd, Tensor,
    cell::Params,
};

/// Returns the gradient of a step, with both signs and various magnitudes.
fn gradient(step: usize) -> f64 {
    [0.5, -1.25, 3.0, 0.0625, -0.75, 2.0, -4.0, 0.3][step % 8]
}

fn grads_of(param: &Param, value: f64) -> Grads {
    let mut grads = Grads::default();
    grads.set(param, Tensor::full(&param.shape(), value, DType::F64).cast(param.value().dtype()));
    grads
}

/// Returns numbers of both signs below 1 in magnitude, which differ between seeds.
fn noise(shape: &[usize], seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let number = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f64 / 8388608.0 - 1.0
    };
    let numbers: Vec<f64> = (0..shape.iter().product()).map(number).collect();
    Tensor::from_f64(&numbers, shape, DType::F32).unwrap()
}

fn bits(x: &Tensor) -> Vec<u64> {
    x.to_f64().into_iter().map(f64::to_bits).collect()
}

type Make = fn(Params) -> Box<dyn Optimizer>;

/// Every optimizer, with the options that change its state.
const ALL: &[(&str, Make)] = &[
    ("sgd", |params| Box::new(Sgd::new(params, 0.01))),
    ("sgd with momentum", |params| Box::new(Sgd::new(params, 0.01).momentum(0.9).weight_decay(0.01))),
    ("adam", |params| Box::new(Adam::new(params, 0.01))),
    ("adam with amsgrad", |params| Box::new(AdamW::new(params, 0.01).amsgrad(true))),
    ("adam in 8 bits", |params| Box::new(Adam::new(params, 0.01).state_8bit(true))),
    ("adam with amsgrad in 8 bits", |params| Box::new(Adam::new(params, 0.01).amsgrad(true).state_8bit(true))),
    ("adagrad", |params| Box::new(Adagrad::new(params, 0.01).initial_sum(0.1))),
    ("rmsprop", |params| Box::new(RmsProp::new(params, 0.01))),
    ("rmsprop with all", |params| Box::new(RmsProp::new(params, 0.01).momentum(0.9).centered(true))),
    ("lion", |params| Box::new(Lion::new(params, 0.01).weight_decay(0.1))),
    ("lion in 8 bits", |params| Box::new(Lion::new(params, 0.01).state_8bit(true))),
    ("lamb", |params| Box::new(Lamb::new(params, 0.01).weight_decay(0.1))),
    ("adafactor", |params| Box::new(Adafactor::new(params, 0.01))),
    ("muon", |params| Box::new(Muon::new(params, 0.01))),
];
