//! Plans and errors show cells.

use precast::prelude::*;

#[derive(Cell)]
struct Head {
    fc: Child<Dense>,
}

impl Forward for Head {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.clone())
    }
}

fn main() {}
