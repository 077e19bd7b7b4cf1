//! A tensor in a cell is trained or saved as a `Param`; a constant is marked.

use precast::prelude::*;

#[derive(Cell, Debug)]
struct Net {
    fc: Child<Dense>,
    scale: Tensor,
    several: Vec<Option<Tensor>>,
    #[cell(data)]
    table: Tensor,
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.fc.call(x)
    }
}

fn main() {}
