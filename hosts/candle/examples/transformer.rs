//! A causal transformer block with RMS norms, rotary embeddings and softmax, none of which cuts gradients. It learns to
//! repeat what it saw four positions before: `cargo run --release --example transformer`.

mod random;

use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::{AdamW, Embedding, VarBuilder, VarMap, embedding, loss::cross_entropy};
use precast_candle::{
    Amp, Linear, Network, Outcome, Policy, RmsNorm, ScaleMachine, linear_no_bias, rms_norm, rope, softmax,
};

const WORDS: usize = 8;
const SIZE: usize = 32;
const HEADS: usize = 2;
const LENGTH: usize = 16;
const BACK: usize = 4;

struct Attention {
    qkv: Linear,
    out: Linear,
    cos: Tensor,
    sin: Tensor,
}

impl Attention {
    fn new(vb: VarBuilder) -> Result<Self> {
        let half = SIZE / HEADS / 2;
        let angles: Vec<f32> =
            (0..LENGTH * half).map(|i| (i / half) as f32 / 100f32.powf((i % half) as f32 / half as f32)).collect();
        let angles = Tensor::from_vec(angles, (LENGTH, half), vb.device())?;
        Ok(Attention {
            qkv: linear_no_bias(SIZE, 3 * SIZE, vb.pp("qkv"))?,
            out: linear_no_bias(SIZE, SIZE, vb.pp("out"))?,
            cos: angles.cos()?,
            sin: angles.sin()?,
        })
    }
}

impl Module for Attention {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let qkv = self.qkv.forward(x)?.reshape((batch, length, 3, HEADS, SIZE / HEADS))?;
        let part = |i: usize| qkv.narrow(2, i, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
        let (q, k, v) = (rope(&part(0)?, &self.cos, &self.sin)?, rope(&part(1)?, &self.cos, &self.sin)?, part(2)?);
        let scores = (q.matmul(&k.t()?.contiguous()?)? / ((SIZE / HEADS) as f64).sqrt())?;
        let future: Vec<f32> =
            (0..length * length).map(|i| if i % length > i / length { f32::NEG_INFINITY } else { 0.0 }).collect();
        let mask = Tensor::from_vec(future, (length, length), x.device())?.to_dtype(scores.dtype())?;
        let y = softmax(&scores.broadcast_add(&mask)?, D::Minus1)?.matmul(&v)?;
        self.out.forward(&y.transpose(1, 2)?.reshape((batch, length, SIZE))?)
    }
}

struct Net {
    words: Embedding,
    norm1: RmsNorm,
    attention: Amp<Attention>,
    norm2: RmsNorm,
    up: Linear,
    down: Linear,
    head: Linear,
}

impl Net {
    fn new(vb: VarBuilder) -> Result<Self> {
        Ok(Net {
            words: embedding(WORDS, SIZE, vb.pp("embed"))?,
            norm1: rms_norm(SIZE, 1e-6, vb.pp("norm1"))?,
            attention: Amp::new(vb.pp("attention"), Attention::new)?,
            norm2: rms_norm(SIZE, 1e-6, vb.pp("norm2"))?,
            up: linear_no_bias(SIZE, 4 * SIZE, vb.pp("up"))?,
            down: linear_no_bias(4 * SIZE, SIZE, vb.pp("down"))?,
            head: linear_no_bias(SIZE, WORDS, vb.pp("head"))?,
        })
    }
}

impl Module for Net {
    fn forward(&self, words: &Tensor) -> Result<Tensor> {
        let x = self.words.forward(words)?;
        let x = (&x + self.attention.forward(&self.norm1.forward(&x)?)?)?;
        let x = (&x + self.down.forward(&self.up.forward(&self.norm2.forward(&x)?)?.silu()?)?)?;
        self.head.forward(&x)
    }
}

fn main() -> precast_candle::Result<()> {
    let (device, vars) = (Device::Cpu, VarMap::new());
    let policy = Policy::named("o2-bf16")?;
    let mut net = Network::new(&vars, &device, Net::new)?;
    let plan = net.plan(&policy)?;
    println!("{plan}");
    net.apply(plan)?;

    random::seeded(&vars, 1)?;
    let mut adamw = AdamW::new_lr(net.vars(), 3e-3)?;
    let mut scale = ScaleMachine::new(policy.loss_scale.clone())?;
    let mut random = random::Random(1);
    for step in 0..300 {
        let words: Vec<u32> = (0..32 * LENGTH).map(|_| (random.next() * WORDS as f64) as u32).collect();
        let words = Tensor::from_vec(words, (32, LENGTH), &device)?;
        let logits = net.build()?.forward(&words)?.narrow(1, BACK, LENGTH - BACK)?.flatten(0, 1)?;
        let targets = words.narrow(1, 0, LENGTH - BACK)?.flatten_all()?;
        let loss = cross_entropy(&logits, &targets)?;
        if let Outcome::Skipped { cause } = net.step(&mut scale, &mut adamw, &loss)? {
            println!("skipped: {cause}");
        }
        if step % 50 == 49 {
            let right = logits.argmax(1)?.eq(&targets)?.to_dtype(DType::F32)?.mean_all()?.to_scalar::<f32>()?;
            println!("step {}: loss {:.3}, {:.0} % right", step + 1, loss.to_scalar::<f32>()?, 100.0 * right);
        }
    }
    Ok(())
}
