//! Forms that other systems refuse at run time, or misinterpret.

use precast::{policy::DynamicScale, prelude::*, scale::all_finite};

fn step(scale: &mut LossScale, optimizer: &mut Sgd, loss: &Tensor) -> Result<()> {
    // Gradients of a loss that was not scaled.
    loss.backward()?.unscale(optimizer.params())?;
    // No loss, and a list of them.
    scale.scale(1.0)?;
    scale.scale(&[loss, loss])?;
    // A closure.
    scale.step(optimizer, || loss)?;
    // A scale that is a whole number, a tensor, a word or a bool.
    scale.set_scale(8)?;
    scale.set_scale(loss)?;
    LossScale::fixed("1")?;
    LossScale::fixed(true)?;
    // A factor and a window that are not whole numbers.
    DynamicScale::mindspore(1024.0, 2.0, 10);
    DynamicScale::mindspore(1024.0, 2, 1.5);
    // A tensor in place of gradients.
    all_finite(loss, optimizer.params());
    Ok(())
}

fn main() {}
