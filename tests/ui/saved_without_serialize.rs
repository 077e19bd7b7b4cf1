//! Types named in files must be serializable.

use precast::prelude::*;

#[derive(Cell, Debug)]
#[cell(saved)]
struct Head {
    classes: usize,
}

impl Forward for Head {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.clone())
    }
}

fn main() {}
