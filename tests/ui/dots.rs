//! rustc offers `..` for a forgotten field. Here every field is named, and another form ends in one error.

use precast::prelude::*;

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    fc: Child<Dense>,
}

#[typetag::serde]
impl Cell for Head {
    children!(Self { fc, .. });
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.fc.call(x)
    }
}

fn main() {}
