//! Gradients that are still scaled cannot be read, clipped or applied: they are off by the factor of the loss scale.

use precast::prelude::*;

fn step(scale: &mut LossScale, optimizer: &mut Sgd, weight: &Param, loss: &Tensor) -> Result<()> {
    let mut scaled = scale.scale(loss)?.backward()?;
    scaled.clip_norm(1.0)?;
    scaled.clip_value(1.0)?;
    scaled.norm();
    scaled.get(weight);
    optimizer.update(&scaled)?;
    scale.apply(optimizer, &scaled)?;
    scale.update()
}

fn main() {}
