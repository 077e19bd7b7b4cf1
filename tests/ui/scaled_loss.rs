//! A scaled loss is not a loss: it would be scaled twice.

use precast::prelude::*;

fn step(scale: &mut LossScale, optimizer: &mut Sgd, loss: &Tensor) -> Result<()> {
    let scaled = scale.scale(loss)?;
    scaled.add(loss)?;
    scale.scale(&scaled)?;
    scale.step(optimizer, &scaled)?;
    optimizer.update(&scaled.backward()?)
}

fn main() {}
