//! Networks as users of burn write them.
#![allow(dead_code)]

use burn::{
    module::Module,
    nn::{
        BatchNorm, BatchNormConfig, Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig, Relu,
        conv::{Conv2d, Conv2dConfig},
    },
    tensor::{DType, Device, Tensor},
};
use precast_burn::{Amp, Forward};

pub fn device() -> Device {
    Device::default().autodiff()
}

/// Numbers that look random, between -1 and 1, the same in each run.
fn numbers(count: usize) -> Vec<f32> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// A batch of 2 images of 1 x 4 x 4.
pub fn images(device: &Device) -> Tensor<4> {
    Tensor::<1>::from_floats(&numbers(32)[..], device).reshape([2, 1, 4, 4])
}

/// A batch of 4 rows of 8 numbers.
pub fn rows(device: &Device) -> Tensor<2> {
    Tensor::<1>::from_floats(&numbers(32)[..], device).reshape([4, 8])
}

/// A block of a transformer without its attention.
#[derive(Module, Debug)]
pub struct Block {
    pub norm: Amp<LayerNorm>,
    pub up: Linear,
    pub act: Gelu,
    pub down: Linear,
}

impl Block {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let h = self.act.forward(self.up.forward(self.norm.forward(x.clone())));
        x + self.down.forward(h)
    }
}

/// A convolution, a batch norm, two blocks and a head.
#[derive(Module, Debug)]
pub struct Tower {
    pub conv: Conv2d,
    pub norm: Amp<BatchNorm>,
    pub act: Relu,
    pub blocks: Vec<Block>,
    pub head: Option<Linear>,
}

impl Tower {
    pub fn new(device: &Device) -> Self {
        device.seed(7);
        let block = || Block {
            norm: LayerNormConfig::new(8).init(device).into(),
            up: LinearConfig::new(8, 16).init(device),
            act: Gelu::new(),
            down: LinearConfig::new(16, 8).init(device),
        };
        Tower {
            conv: Conv2dConfig::new([1, 2], [3, 3]).init(device),
            norm: BatchNormConfig::new(2).init(device).into(),
            act: Relu::new(),
            blocks: vec![block(), block()],
            head: Some(LinearConfig::new(8, 3).init(device)),
        }
    }

    /// Calls the network as it was written, outside of its wrapper.
    pub fn forward_plain(&self, x: Tensor<4>) -> Tensor<2> {
        let mut x = self.act.forward(self.norm.forward(self.conv.forward(x))).reshape([2, 8]);
        for block in &self.blocks {
            x = block.forward(x);
        }
        self.head.as_ref().unwrap().forward(x)
    }

    /// Returns the dtypes between the modules.
    pub fn with_dtypes(&self, x: Tensor<4>) -> Vec<DType> {
        let x = self.conv.forward(x);
        let mut dtypes = vec![x.dtype()];
        let x = self.act.forward(self.norm.forward(x)).reshape([2, 8]);
        dtypes.push(x.dtype());
        let x = self.blocks[0].forward(x);
        dtypes.push(x.dtype());
        dtypes.push(self.head.as_ref().unwrap().forward(x).dtype());
        dtypes
    }
}

impl Forward<Tensor<4>> for Tower {
    type Output = Tensor<2>;

    fn forward(&self, x: Tensor<4>) -> Tensor<2> {
        self.forward_plain(x)
    }
}

/// Two layers, each of which may run in a precision of its own.
#[derive(Module, Debug)]
pub struct Mlp {
    pub up: Amp<Linear>,
    pub act: Relu,
    pub down: Amp<Linear>,
}

impl Mlp {
    pub fn new(device: &Device) -> Self {
        device.seed(7);
        Mlp {
            up: LinearConfig::new(8, 16).init(device).into(),
            act: Relu::new(),
            down: LinearConfig::new(16, 4).init(device).into(),
        }
    }
}

impl Forward<Tensor<2>> for Mlp {
    type Output = Tensor<2>;

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.down.forward(self.act.forward(self.up.forward(x)))
    }
}

/// A network whose norm has no wrapper.
#[derive(Module, Debug)]
pub struct Bare {
    pub norm: LayerNorm,
    pub fc: Linear,
}

impl Bare {
    pub fn new(device: &Device) -> Self {
        Bare { norm: LayerNormConfig::new(8).init(device), fc: LinearConfig::new(8, 2).init(device) }
    }
}

impl Forward<Tensor<2>> for Bare {
    type Output = Tensor<2>;

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.fc.forward(self.norm.forward(x))
    }
}
