// A residual network with squeeze-and-excitation, wrapped by a YAML policy, and trained on digits in f16.
//
// cargo run --release --example resnet_se

use precast::prelude::*;
use precast_train::{FitOptions, data, fit};

const POLICY: &str = "
version: 1
level: O2
dtype: float16
rules:
  - {path: blocks.*.squeeze.1, run: float32, because: a gate of few channels is cheap}
  - {path: head, run: float32}
";

/// Two convolutions with a skip connection; `squeeze` weights the channels (Hu et al. 2018).
#[derive(Cell, Debug)]
struct Block {
    convs: [Child<Conv2d>; 2],
    norms: [Child<BatchNorm2d>; 2],
    squeeze: (Child<Dense>, Child<Dense>),
    down: Child<Conv2d>,
}

impl Block {
    fn new(from: usize, to: usize, rng: &mut Rng) -> Result<Block> {
        let mut conv =
            |from, kernel| Conv2dSpec::new(from, to, kernel).padding(kernel / 2).bias(false).build(rng).map(Child::new);
        let (convs, down) = ([conv(from, 3)?, conv(to, 3)?], conv(from, 1)?);
        let norms = [BatchNorm2d::new(to), BatchNorm2d::new(to)].map(Child::new);
        let squeeze = (Dense::new(to, to / 4, rng).into(), Dense::new(to / 4, to, rng).into());
        Ok(Block { convs, norms, squeeze, down })
    }
}

impl Forward for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.norms[0].call(&self.convs[0].call(x)?)?.relu()?;
        let y = self.norms[1].call(&self.convs[1].call(&y)?)?;
        let gate = self.squeeze.1.call(&self.squeeze.0.call(&y.mean(&[2, 3], false)?)?.relu()?)?.sigmoid()?;
        let gate = gate.reshape(&[y.shape()[0], y.shape()[1], 1, 1])?;
        formula!((y * gate + self.down.call(x)).relu())
    }
}

#[derive(Cell, Debug)]
#[cell(new)]
struct ResNet {
    blocks: Vec<Child<Block>>,
    head: Child<Dense>,
}

impl Forward for ResNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.blocks.iter().try_fold(x.clone(), |x, block| block.call(&x)?.max_pool2d(2, 2))?;
        self.head.call(&x.mean(&[2, 3], false)?)
    }
}

fn main() -> Result<()> {
    let rng = &mut Rng::seed(1);
    let blocks = vec![Block::new(1, 8, rng)?.into(), Block::new(8, 16, rng)?.into()];
    let mut net = Child::new(ResNet::new(blocks, Dense::new(16, 10, rng)));
    let policy = Policy::parse(POLICY, "resnet_se.yaml")?;
    println!("{}\n", policy.apply(&mut net)?.plan);

    let digits = data::digits()?.split(1500, 0)?;
    let options = FitOptions::default().epochs(2).loss_scale(policy.loss_scale);
    let history = fit(&mut net, &digits, &options, &mut |_| {})?;
    println!("{:.1} % of the test digits", 100.0 * history.accuracy().unwrap_or_default());
    Ok(())
}
