//! Words of torch, each with what takes its place.

use precast::prelude::*;

#[derive(Cell, Debug)]
struct Net {
    layers: Vec<Box<dyn Forward>>,
}

fn step(optimizer: &mut Sgd, x: Tensor, rng: &mut Rng) -> Result<()> {
    optimizer.zero_grad();
    optimizer.step()?;
    x.cuda();
    x.half();
    x.grad();
    x.to(DType::F16);
    x.view(&[2])?;
    x[0].relu()?;
    let conv = Conv2d::new(1, 8, 3, rng).padding(1);
    sequential![conv, ReLU::new()];
    Ok(())
}

fn main() {}
