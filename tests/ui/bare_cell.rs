use precast::prelude::*;

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    fc: Dense,
}

#[typetag::serde]
impl Cell for Head {
    children!(Self { fc });

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.fc.forward(x)
    }
}

fn main() {}
