//! Two networks trained with the operands of their products in 8 and 4 bits, by four recipes: a convolutional network on
//! digits, and a model of characters.
//!
//! cargo run --release --example low_bits

use precast::prelude::*;
use precast_train::{accuracy, data};

const TEXT: &str = include_str!("../docs/guide/own-loop.md");
const BATCH: usize = 16;
const LENGTH: usize = 32;
const WIDTH: usize = 64;

/// Quantizes the operands of all products but those of the ends of the network, whose shapes are small.
fn policy(operands: &str, ends: &[&str]) -> Result<Policy> {
    let mut text = String::from("version: 1\nlevel: O2\ndtype: bfloat16\nrules:\n");
    let rules = ends.iter().map(|end| (*end, "none")).chain([("**", operands)]);
    for (path, operands) in rules {
        text += &format!("  - {{ path: \"{path}\", operands: {operands} }}\n");
    }
    Policy::parse(&text, "low-bits.yaml")
}

/// Returns the accuracy on digits that were held back.
fn digits(operands: &str) -> Result<f64> {
    let digits = data::digits()?.split(1500, 0)?;
    let rng = &mut Rng::seed(1);
    let mut net = Child::of(sequential![
        flatten: Flatten::default(),
        first: Dense::new(64, 128, rng),
        relu: ReLU,
        middle: Dense::new(128, 128, rng),
        relu2: ReLU,
        last: Dense::new(128, 10, rng),
    ]);
    policy(operands, &["first", "last"])?.apply(&mut net)?;
    net.set_train(true);
    let mut optimizer = Sgd::new(net.params(), 0.05).momentum(0.9);
    for epoch in 0..8 {
        for batch in digits.train.shuffled_batches(32, 1, epoch)? {
            let loss = net.call(&batch.x)?.cross_entropy(&batch.y)?;
            optimizer.update(&loss.backward()?)?;
        }
    }
    net.set_train(false);
    accuracy(&net, &digits.test, 100)
}

#[derive(Cell, Debug)]
#[cell(new)]
struct Characters {
    embedding: Child<Embedding>,
    blocks: Child<TransformerEncoder>,
    head: Child<Dense>,
}

impl Forward for Characters {
    /// Maps characters `[batch, time]` to logits `[batch * time, 128]`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.blocks.call(&self.embedding.call(x)?)?;
        self.head.call(&y.reshape(&[-1, WIDTH as isize])?)
    }
}

/// Returns the mean loss of the last updates of a model of characters.
fn characters(operands: &str) -> Result<f64> {
    let rng = &mut Rng::seed(1);
    let layer = TransformerEncoderLayerSpec::new(WIDTH, 4).dim_feedforward(128).norm_first(true).causal(true);
    let mut net = Child::new(Characters::new(
        Embedding::new(128, WIDTH, rng),
        TransformerEncoderSpec::new(layer.rotary(RotaryEmbedding::default()), 2).norm(true).build(rng)?,
        Dense::new(WIDTH, 128, rng),
    ));
    policy(operands, &["head"])?.apply(&mut net)?;
    net.set_train(true);
    let text: Vec<i64> = TEXT.bytes().map(|byte| i64::from(byte.min(127))).collect();
    let mut optimizer = AdamW::new(net.params(), 0.003);
    let mut last = Vec::new();
    for _ in 0..100 {
        let starts: Vec<usize> =
            (0..BATCH).map(|_| rng.integer(0, (text.len() - LENGTH - 1) as i64) as usize).collect();
        let window = |shift: usize| starts.iter().flat_map(|&at| text[at + shift..][..LENGTH].to_vec()).collect();
        let (x, y): (Vec<i64>, Vec<i64>) = (window(0), window(1));
        let logits = net.call(&Tensor::from_vec(x, &[BATCH, LENGTH])?)?;
        let loss = logits.cross_entropy(&Tensor::from_vec(y, &[BATCH * LENGTH])?)?;
        last.push(loss.item()?);
        optimizer.update(&loss.backward()?)?;
    }
    let last = &last[90..];
    Ok(last.iter().sum::<f64>() / last.len() as f64)
}

fn main() -> Result<()> {
    println!("operands         digits, test accuracy   characters, loss");
    for operands in ["none", "tensorwise", "rowwise", "mxfp8", "nvfp4"] {
        let name = if operands == "none" { "none (bfloat16)" } else { operands };
        println!("{name:16} {:19.1} %   {:16.3}", 100.0 * digits(operands)?, characters(operands)?);
    }
    Ok(())
}
