use precast::prelude::*;

#[derive(Cell, Debug, Serialize, Deserialize)]
#[cell(saved)]
struct Head {
    fc: Child<Dense>,
    norm: Child<LayerNorm>,
}

impl Forward for Head {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.norm.call(&self.fc.call(x)?)
    }
}

fn main() {}
