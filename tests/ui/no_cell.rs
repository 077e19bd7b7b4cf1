//! A slot holds a cell.

use precast::prelude::*;

#[derive(Cell, Debug)]
struct Net {
    width: Child<usize>,
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.clone())
    }
}

fn main() {}
