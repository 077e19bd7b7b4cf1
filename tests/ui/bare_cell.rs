use precast::prelude::*;

#[derive(Cell, Debug, Serialize, Deserialize)]
#[cell(saved)]
struct Head {
    fc: Dense,
}

impl Forward for Head {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.fc.forward(x)
    }
}

fn main() {}
