//! Marking a field as plain data hides neither a slot nor a parameter.

use precast::prelude::*;

#[derive(Cell, Debug)]
struct Net {
    #[cell(data)]
    fc: Child<Dense>,
    #[cell(data)]
    head: Dense,
    #[cell(data)]
    scale: Option<Param>,
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.clone())
    }
}

fn main() {}
