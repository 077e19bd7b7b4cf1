// A language model over characters: an LSTM of two layers, in f16, with accumulation, clipping, warm-up and a schedule.
// The run is stopped in the middle and resumed from its checkpoint.
//
// cargo run --release --example char_lstm

use std::path::Path;

use precast::prelude::*;

const TEXT: &str = include_str!("../docs/guide/own-loop.md");
const WINDOW: usize = 32;
const BATCH: usize = 8;
const PARTS: usize = 2; // batches of one update
const UPDATES: usize = 24;

#[derive(Cell, Debug)]
#[cell(new)]
struct CharModel {
    embedding: Child<Embedding>,
    lstm: Child<LSTM>,
    head: Child<Dense>,
}

impl Forward for CharModel {
    /// Maps characters `[batch, time]` to logits `[batch * time, 128]`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.lstm.call(&self.embedding.call(x)?)?;
        self.head.call(&y.reshape(&[-1, 32])?)
    }
}

/// A model with its training state.
struct Run {
    net: Child<CharModel>,
    optimizer: Adam,
    scale: LossScale,
    updates: usize,
}

impl Run {
    fn new() -> Result<Run> {
        let rng = &mut Rng::seed(1);
        let lstm = LSTMSpec::new(16, 32).num_layers(2).build(rng)?;
        let mut net = Child::new(CharModel::new(Embedding::new(128, 16, rng), lstm, Dense::new(32, 128, rng)));
        auto_mixed_precision(&mut net, Level::O2, DType::F16)?;
        net.set_train(true);
        let optimizer = Adam::new(net.params(), 0.0);
        Ok(Run { net, optimizer, scale: LossScale::dynamic(), updates: 0 })
    }

    /// Trains up to the given number of updates, and returns the last loss.
    fn train_to(&mut self, updates: usize) -> Result<f64> {
        let mut last = f64::NAN;
        while self.updates < updates {
            self.optimizer.set_lr(0.01 * Schedule::Cosine.factor_after(4, self.updates, UPDATES));
            let mut sum = self.gradients(0)?.0;
            for part in 1..PARTS {
                let (scaled, loss) = self.gradients(part)?;
                sum.accumulate(scaled)?;
                last = loss;
            }
            let mut grads = sum.unscale(self.optimizer.params())?;
            grads.clip_norm(1.0)?;
            let _outcome = self.scale.apply(&mut self.optimizer, &grads)?;
            self.scale.update()?;
            self.updates += 1;
        }
        Ok(last)
    }

    /// Computes the scaled gradients of one batch, and its loss.
    fn gradients(&self, part: usize) -> Result<(precast::scale::ScaledGrads, f64)> {
        let text: Vec<i64> = TEXT.bytes().map(|byte| i64::from(byte.min(127))).collect();
        let starts =
            (0..BATCH).map(|i| ((self.updates * PARTS + part) * BATCH + i) * WINDOW % (text.len() - WINDOW - 1));
        let (x, y): (Vec<_>, Vec<_>) =
            starts.map(|start| (&text[start..start + WINDOW], &text[start + 1..start + WINDOW + 1])).unzip();
        let x = Tensor::from_vec(x.concat(), &[BATCH, WINDOW])?;
        let loss = self.net.call(&x)?.cross_entropy(&Tensor::from_vec(y.concat(), &[BATCH * WINDOW])?)?;
        let part = formula!(loss / PARTS)?;
        Ok((self.scale.scale(&part)?.backward()?, loss.item()?))
    }

    fn save(&self, file: &Path) -> Result<()> {
        let checkpoint = Checkpoint::of(&self.net, &[&self.optimizer], &self.scale);
        checkpoint.counting("updates", self.updates as u64).save(file)
    }

    fn resume(file: &Path) -> Result<Run> {
        let (mut run, checkpoint) = (Run::new()?, Checkpoint::load(file)?);
        checkpoint.restore(&mut run.net, &mut [&mut run.optimizer], &mut run.scale)?;
        run.updates = checkpoint.count("updates").unwrap_or_default() as usize;
        Ok(run)
    }
}

fn main() -> Result<()> {
    let file = std::env::temp_dir().join(format!("precast-char-lstm-{}.safetensors", std::process::id()));
    let whole = Run::new()?.train_to(UPDATES)?;
    let mut first = Run::new()?;
    println!("loss {:.3} after {} updates", first.train_to(UPDATES / 2)?, UPDATES / 2);
    first.save(&file)?;
    let second = Run::resume(&file)?.train_to(UPDATES)?;
    println!("loss {second:.3} after {UPDATES}; {whole:.3} without a stop");
    assert_eq!(whole, second);
    std::fs::remove_file(&file).ok();
    Ok(())
}
