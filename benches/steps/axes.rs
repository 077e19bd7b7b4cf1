//! The sizes by which networks and their batches grow.

use precast::prelude::*;

use crate::nets::{Gpt, Task, mlp, resnet18, resnet18_on_pictures, with_noise};

/// A size by which a network or its batch grows.
pub struct Axis {
    pub name: &'static str,
    /// The network and what stays the same.
    pub network: &'static str,
    /// The size in words.
    pub unit: &'static str,
    pub sizes: &'static [usize],
    pub task: fn(usize) -> Result<Task>,
}

const BATCHES: &[usize] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const LENGTHS: &[usize] = &[64, 128, 256, 512, 1024, 2048, 4096];

/// The axes, in the order of the drawing.
pub const AXES: [Axis; 8] = [
    Axis {
        name: "batch-mlp",
        network: "MLP 784-512-512-10",
        unit: "rows",
        sizes: BATCHES,
        task: |rows| {
            let r = &mut Rng::seed(0);
            with_noise(mlp(&[784, 512, 512, 10], r), &[rows, 784], 10, false, r)
        },
    },
    Axis {
        name: "batch-resnet18",
        network: "ResNet-18 (width 32), 32 x 32",
        unit: "images",
        sizes: BATCHES,
        task: |images| {
            let r = &mut Rng::seed(0);
            with_noise(resnet18(32, r)?, &[images, 3, 32, 32], 10, false, r)
        },
    },
    Axis {
        name: "width-mlp",
        network: "MLP of 4 layers, 256 rows",
        unit: "width",
        sizes: &[64, 128, 256, 512, 1024, 2048],
        task: |width| {
            let r = &mut Rng::seed(0);
            with_noise(mlp(&[width, width, width, width, 10], r), &[256, width], 10, false, r)
        },
    },
    Axis {
        name: "width-gpt",
        network: "2 GPT blocks, 8 x 64 tokens",
        unit: "width",
        sizes: &[64, 128, 256, 512, 1024, 2048],
        task: |width| gpt(Gpt { vocabulary: 256, width, length: 64, heads: width / 32, layers: 2 }, 8),
    },
    Axis {
        name: "depth-gpt",
        network: "GPT, width 128, 8 x 64 tokens",
        unit: "blocks",
        sizes: &[2, 4, 8, 16, 32, 64],
        task: |layers| gpt(Gpt { vocabulary: 256, width: 128, length: 64, heads: 4, layers }, 8),
    },
    Axis {
        name: "sequence-gpt",
        network: "2 GPT blocks of width 128",
        unit: "tokens",
        sizes: LENGTHS,
        task: |length| gpt(Gpt { vocabulary: 256, width: 128, length, heads: 4, layers: 2 }, 1),
    },
    Axis {
        name: "sequence-lstm",
        network: "2 LSTM layers of 256, 4 rows",
        unit: "steps",
        sizes: LENGTHS,
        task: |length| {
            let r = &mut Rng::seed(0);
            with_noise(Child::of(OfAll::new(256, r)?), &[4, length, 256], 10, false, r)
        },
    },
    Axis {
        name: "images-resnet18",
        network: "ResNet-18, two pictures",
        unit: "pixels of a side",
        sizes: &[32, 64, 128, 256, 512],
        task: |side| {
            let r = &mut Rng::seed(0);
            with_noise(resnet18_on_pictures(r)?, &[2, 3, side, side], 1000, false, r)
        },
    },
];

/// Two layers of an LSTM, and a head on the mean of all outputs. The gradient of the last output alone would be subnormal
/// after some hundred steps back, and processors compute those slowly.
#[derive(Cell, Debug)]
struct OfAll {
    lstm: Child<LSTM>,
    head: Child<Dense>,
}

impl OfAll {
    fn new(hidden: usize, r: &mut Rng) -> Result<Self> {
        let lstm = LSTMSpec::new(hidden, hidden).num_layers(2).build(r)?;
        Ok(OfAll { lstm: Child::new(lstm), head: Child::new(Dense::new(hidden, 10, r)) })
    }
}

impl Forward for OfAll {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.head.call(&self.lstm.call(x)?.mean(&[1], false)?)
    }
}

fn gpt(sizes: Gpt, batch: usize) -> Result<Task> {
    let r = &mut Rng::seed(0);
    let (shape, classes) = ([batch, sizes.length], sizes.vocabulary);
    with_noise(sizes.build(r), &shape, classes, true, r)
}
