use precast::prelude::*;

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    fc: Child<Dense>,
    norm: Child<LayerNorm>,
}

#[typetag::serde]
impl Cell for Head {
    children!(Self { fc });

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.norm.call(&self.fc.call(x)?)
    }
}

fn main() {}
