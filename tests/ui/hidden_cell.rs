//! A cell marked as plain data would be seen by no plan, no optimizer and no weight file.

use precast::prelude::*;

#[derive(Debug, Serialize, Deserialize)]
struct Net {
    fc: Child<Dense>,
    head: Child<Dense>,
}

#[typetag::serde]
impl Cell for Net {
    children!(Self { fc, head: _ });
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.head.call(&self.fc.call(x)?)
    }
}

fn main() {}
