//! Unscaling consumes the gradients, so it must own them.

use precast::{Grads, prelude::*};

fn step(scale: &LossScale, optimizer: &Sgd, loss: &Tensor) -> Result<Grads> {
    let scaled = scale.scale(loss)?.backward()?;
    scaled.unscale(optimizer.params())
}

fn main() {}
