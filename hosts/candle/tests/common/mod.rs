//! Parts of several tests: a small network, initial values, and bits.
#![allow(dead_code, reason = "each test uses a part")]

#[path = "../../examples/random/mod.rs"]
pub mod random;

use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::{VarBuilder, VarMap, loss::cross_entropy};
use precast_candle::{LayerNorm, Linear, Network, Policy, layer_norm, linear};

pub const CPU: &Device = &Device::Cpu;

/// A dense layer, a norm and a head.
pub struct Net {
    pub up: Linear,
    pub norm: LayerNorm,
    pub head: Linear,
}

impl Net {
    pub fn new(vb: VarBuilder) -> Result<Self> {
        Ok(Net {
            up: linear(6, 8, vb.pp("up"))?,
            norm: layer_norm(8, 1e-5, vb.pp("norm"))?,
            head: linear(8, 3, vb.pp("head"))?,
        })
    }
}

impl Module for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.head.forward(&self.norm.forward(&self.up.forward(x)?)?.relu()?)
    }
}

/// Returns the network with initial values from a seed, and its variables.
pub fn network(seed: u64) -> (Network<Net>, VarMap) {
    let vars = VarMap::new();
    let net = Network::new(&vars, CPU, |vb| Net::new(vb)).unwrap();
    random::seeded(&vars, seed).unwrap();
    (net, vars)
}

pub fn policy(text: &str) -> Policy {
    Policy::parse(text, "my.yaml").unwrap()
}

/// Numbers from -1 to 1.
pub fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut random = random::Random(seed);
    (0..count).map(|_| (2.0 * random.next() - 1.0) as f32).collect()
}

pub fn tensor(shape: &[usize], seed: u64) -> Tensor {
    Tensor::from_vec(numbers(shape.iter().product(), seed), shape, CPU).unwrap()
}

/// Twelve examples with classes.
pub fn batch() -> (Tensor, Tensor) {
    (tensor(&[12, 6], 7), Tensor::from_vec((0..12).map(|i| i % 3).collect::<Vec<u32>>(), 12, CPU).unwrap())
}

pub fn loss(model: &impl Module) -> Tensor {
    let (x, y) = batch();
    cross_entropy(&model.forward(&x).unwrap(), &y).unwrap()
}

pub fn floats(x: &Tensor) -> Vec<f32> {
    x.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

pub fn bits(x: &Tensor) -> Vec<u32> {
    assert_eq!(x.dtype(), DType::F32);
    floats(x).iter().map(|x| x.to_bits()).collect()
}

/// Returns the bits of all variables, by name.
pub fn all_bits(vars: &VarMap) -> Vec<(String, Vec<u32>)> {
    let vars = vars.data().lock().unwrap();
    let mut all: Vec<_> = vars.iter().map(|(name, var)| (name.clone(), bits(var))).collect();
    all.sort();
    all
}
