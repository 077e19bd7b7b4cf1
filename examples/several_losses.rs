// Two losses of one network with one loss scale: summed before the backward pass, or each with its own backward pass.
//
// cargo run --release --example several_losses

use precast::prelude::*;
use precast_train::data;

/// A network that classifies a digit and redraws it.
#[derive(Cell, Debug)]
struct ReadAndDraw {
    body: Child<Dense>,
    classes: Child<Dense>,
    pixels: Child<Dense>,
}

impl Forward for ReadAndDraw {
    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let features = self.body.call(&inputs[0])?.relu()?;
        Ok(vec![self.classes.call(&features)?, self.pixels.call(&features)?])
    }
}

fn main() -> Result<()> {
    let rng = &mut Rng::seed(1);
    let mut dense = |inputs, outputs| Child::new(Dense::new(inputs, outputs, rng));
    let mut net = Child::new(ReadAndDraw { body: dense(64, 32), classes: dense(32, 10), pixels: dense(32, 64) });
    let policy = Policy::new(Level::O2, DType::F16)?;
    policy.apply(&mut net)?;

    let mut optimizer = Sgd::new(net.params(), 0.1).momentum(0.9);
    let mut scale = policy.loss_scale()?;
    net.set_train(true);
    let mut last = (f64::INFINITY, f64::INFINITY);
    for (i, batch) in data::digits()?.shuffled_batches(32, 1, 0)?.enumerate() {
        let pixels = batch.x.flatten(1)?;
        let outputs = net.call_many(std::slice::from_ref(&pixels))?;
        let reading = outputs[0].cross_entropy(&batch.y)?;
        let drawing = outputs[1].mse_loss(&pixels, Reduction::Mean)?;
        last = (reading.item()?, drawing.item()?);
        let mut scaled = if i % 2 == 0 {
            scale.scale(&reading.add(&drawing)?)?.backward()?
        } else {
            let mut scaled = scale.scale(&reading)?.backward()?;
            scaled.accumulate(scale.scale(&drawing)?.backward()?)?;
            scaled
        };
        let grads = scaled.unscale(optimizer.params())?;
        if let Outcome::Skipped { cause } = scale.apply(&mut optimizer, &grads)? {
            println!("skipped: {cause}");
        }
        scale.update()?;
    }
    println!("reading {:.3}, drawing {:.3}, scale {}", last.0, last.1, scale.value());
    Ok(())
}
