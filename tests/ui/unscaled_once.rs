//! Unscaling takes gradients out, so it needs them as its own.

use precast::{Grads, prelude::*};

fn step(scale: &LossScale, optimizer: &Sgd, loss: &Tensor) -> Result<Grads> {
    let scaled = scale.scale(loss)?.backward()?;
    scaled.unscale(optimizer.params())
}

fn main() {}
