//! Networks trained with the operands of their products in 8 and 4 bits, by four recipes, and with activations kept in 8 bits, in
//! three forms: on digits, on characters and on a table.
//!
//! cargo run --release --example low_bits

use precast::prelude::*;
use precast_train::{
    accuracy,
    data::{self, Csv, Dataset, Empty, Encoding, Standardization},
};

const TEXT: &str = include_str!("../docs/guide/own-loop.md");
const PENGUINS: &[u8] = include_bytes!("penguins/penguins.csv");
const BATCH: usize = 16;
const LENGTH: usize = 32;
const WIDTH: usize = 64;

/// Quantizes operands, or keeps activations, in all cells but the ends of the network.
fn policy(key: &str, value: &str, ends: &[&str]) -> Result<Policy> {
    let mut text = String::from("version: 1\nlevel: O2\ndtype: bfloat16\nrules:\n");
    let rules = ends.iter().map(|end| (*end, "none")).chain([("**", value)]);
    for (path, value) in rules {
        text += &format!("  - {{ path: \"{path}\", {key}: {value} }}\n");
    }
    Policy::parse(&text, "low-bits.yaml")
}

/// Trains with batches of a data set, and returns the bytes that a step keeps and the mean loss of the last epoch.
fn train(net: &mut Child, optimizer: &mut dyn Optimizer, data: &Dataset, epochs: u64) -> Result<(usize, f64)> {
    let (mut bytes, mut last) = (0, Vec::new());
    net.set_train(true);
    for epoch in 0..epochs {
        last.clear();
        for batch in data.shuffled_batches(32, 1, epoch)? {
            let logits = net.call(&batch.x)?;
            bytes = logits.tape_bytes().max(bytes);
            let loss = logits.cross_entropy(&batch.y)?;
            last.push(loss.item()?);
            optimizer.update(&loss.backward()?)?;
        }
    }
    net.set_train(false);
    Ok((bytes, mean(&last)))
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

/// Returns the kept bytes, the loss of training, and the accuracy on digits that were held back.
fn digits(key: &str, value: &str, ends: &[&str]) -> Result<(usize, f64, f64)> {
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
    policy(key, value, ends)?.apply(&mut net)?;
    let mut optimizer = Sgd::new(net.params(), 0.05).momentum(0.9);
    let (bytes, loss) = train(&mut net, &mut optimizer, &digits.train, 8)?;
    Ok((bytes, loss, accuracy(&net, &digits.test, 100)?))
}

/// Returns the kept bytes and the loss of training on a table of penguins.
fn penguins(key: &str, value: &str) -> Result<(usize, f64)> {
    let csv = Csv::new("penguins.csv").target("species").one_hot(["island", "sex"]).ignore("year");
    let table = csv.missing(["NA"]).empty(Empty::Median).parse(PENGUINS)?;
    let table = table.encoded(&Encoding::of(&table)?)?;
    let table = table.standardized(&Standardization::of(&table)?)?;
    let rng = &mut Rng::seed(1);
    let layers =
        sequential![Dense::new(table.shape()[0], 64, rng), ReLU, Dense::new(64, 64, rng), ReLU, Dense::new(64, 3, rng)];
    let mut net = Child::of(layers);
    policy(key, value, &[])?.apply(&mut net)?;
    let mut optimizer = Adam::new(net.params(), 0.001);
    train(&mut net, &mut optimizer, &table, 10)
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

/// Returns the kept bytes, and the mean loss of the last updates of a model of characters.
fn characters(key: &str, value: &str, ends: &[&str]) -> Result<(usize, f64)> {
    let rng = &mut Rng::seed(1);
    let layer = TransformerEncoderLayerSpec::new(WIDTH, 4).dim_feedforward(128).norm_first(true).causal(true);
    let mut net = Child::new(Characters::new(
        Embedding::new(128, WIDTH, rng),
        TransformerEncoderSpec::new(layer.rotary(RotaryEmbedding::default()), 2).norm(true).build(rng)?,
        Dense::new(WIDTH, 128, rng),
    ));
    policy(key, value, ends)?.apply(&mut net)?;
    net.set_train(true);
    let text: Vec<i64> = TEXT.bytes().map(|byte| i64::from(byte.min(127))).collect();
    let mut optimizer = AdamW::new(net.params(), 0.003);
    let (mut bytes, mut last) = (0, Vec::new());
    for _ in 0..100 {
        let starts: Vec<usize> =
            (0..BATCH).map(|_| rng.integer(0, (text.len() - LENGTH - 1) as i64) as usize).collect();
        let window = |shift: usize| starts.iter().flat_map(|&at| text[at + shift..][..LENGTH].to_vec()).collect();
        let (x, y): (Vec<i64>, Vec<i64>) = (window(0), window(1));
        let logits = net.call(&Tensor::from_vec(x, &[BATCH, LENGTH])?)?;
        bytes = logits.tape_bytes().max(bytes);
        let loss = logits.cross_entropy(&Tensor::from_vec(y, &[BATCH * LENGTH])?)?;
        last.push(loss.item()?);
        optimizer.update(&loss.backward()?)?;
    }
    Ok((bytes, mean(&last[90..])))
}

fn main() -> Result<()> {
    println!("operands         digits, test accuracy   characters, loss");
    for operands in ["none", "tensorwise", "rowwise", "mxfp8", "nvfp4"] {
        let name = if operands == "none" { "none (bfloat16)" } else { operands };
        let (_, _, accuracy) = digits("operands", operands, &["first", "last"])?;
        let (_, loss) = characters("operands", operands, &["head"])?;
        println!("{name:16} {:19.1} %   {loss:16.3}", 100.0 * accuracy);
    }
    println!("\nkept              digits: bytes, loss   characters: bytes, loss   penguins: bytes, loss");
    let mut whole = None;
    for kept in ["none", "int8-rows", "e4m3-rows", "e5m2-rows"] {
        let name = if kept == "none" { "none (bfloat16)" } else { kept };
        let (of_digits, loss, _) = digits("kept", kept, &[])?;
        let found = [(of_digits, loss), characters("kept", kept, &[])?, penguins("kept", kept)?];
        let whole = whole.get_or_insert(found);
        let [a, b, c] = [0, 1, 2].map(|i| format!("{:.3}, {:.5}", found[i].0 as f64 / whole[i].0 as f64, found[i].1));
        println!("{name:16} {a:>21} {b:>25} {c:>23}");
    }
    Ok(())
}
