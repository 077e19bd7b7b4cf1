//! A cell marked as plain data would be seen by no plan, no optimizer and no weight file.

use precast::prelude::*;

#[derive(Cell, Debug, Serialize, Deserialize)]
#[cell(saved)]
struct Net {
    fc: Child<Dense>,
    head: Child<Dense>,
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.head.call(&self.fc.call(x)?)
    }
}

fn main() {}
