//! rustc offers `..` for a forgotten field. Here every field is named, and another form ends in one error.

use precast::prelude::*;

#[derive(Cell, Debug, Serialize, Deserialize)]
#[cell(saved)]
struct Head {
    fc: Child<Dense>,
}

impl Forward for Head {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.fc.call(x)
    }
}

fn main() {}
