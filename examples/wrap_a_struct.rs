//! A user-defined network, a struct with a skip connection, is planned, wrapped, trained and unwrapped again.
//!
//! `cargo run --release --example wrap_a_struct`

use precast::{
    policy::{Rule, RunAs},
    prelude::*,
};
use precast_train::{accuracy, data};

/// Two convolutions with a skip connection. Precision is not mentioned here.
#[derive(Cell, Debug)]
struct Residual {
    conv1: Child<Conv2d>,
    bn1: Child<BatchNorm2d>,
    conv2: Child<Conv2d>,
    bn2: Child<BatchNorm2d>,
    down: Option<Child<Conv2d>>,
}

impl Residual {
    fn new(from: usize, to: usize, rng: &mut Rng) -> Result<Self> {
        let conv = |from, kernel, rng: &mut Rng| {
            Conv2dSpec::new(from, to, kernel).padding(Padding::Same).bias(false).build(rng).map(Child::new)
        };
        Ok(Residual {
            conv1: conv(from, 3, rng)?,
            bn1: BatchNorm2d::new(to).into(),
            conv2: conv(to, 3, rng)?,
            bn2: BatchNorm2d::new(to).into(),
            down: if from == to { None } else { Some(conv(from, 1, rng)?) },
        })
    }
}

impl Forward for Residual {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.bn1.call(&self.conv1.call(x)?)?.relu()?;
        let y = self.bn2.call(&self.conv2.call(&y)?)?;
        let skip = match &self.down {
            Some(down) => down.call(x)?,
            None => x.clone(),
        };
        y.add(&skip)?.relu()
    }
}

#[derive(Cell, Debug)]
#[cell(new)]
struct SmallResNet {
    blocks: Vec<Child<Residual>>,
    head: Child<Dense>,
    classes: usize,
}

impl Forward for SmallResNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for block in &self.blocks {
            x = block.call(&x)?.max_pool2d(2, 2)?;
        }
        self.head.call(&x.mean(&[2, 3], false)?)
    }
}

fn main() -> Result<()> {
    let rng = &mut Rng::seed(1);
    let blocks = vec![Residual::new(1, 8, rng)?.into(), Residual::new(8, 16, rng)?.into()];
    let mut net = Child::new(SmallResNet::new(blocks, Dense::new(16, 10, rng), 10));

    // The default keeps BatchNorm in f32. These rules lower all norms of the second block but the last.
    let policy = Policy::new(Level::O2, DType::Bf16)?
        .rule(Rule::path("blocks.1.bn2", RunAs::Full)?.because("its statistics feed the head"))?
        .rule(Rule::path("blocks.1.*", RunAs::Low)?.because("a try: how bad is a bf16 BatchNorm?"))?;
    let plan = policy.plan(&net)?;
    println!("{plan}\n");
    println!("{}\n", plan.explain("blocks.1.bn2")?);
    let applied = plan.apply(&mut net)?;

    let digits = data::digits()?.split(1500, 0)?;
    println!("before training  {:5.1} %", 100.0 * accuracy(&net, &digits.test, 100)?);

    net.set_train(true);
    let mut optimizer = Sgd::new(net.params(), 0.05).momentum(0.9);
    let mut scale = LossScale::none(); // bf16 has the range of f32
    for batch in digits.train.shuffled_batches(32, 1, 0)? {
        let loss = net.call(&batch.x)?.cross_entropy(&batch.y)?;
        if let Outcome::Skipped { cause } = scale.step(&mut optimizer, loss)? {
            eprintln!("skipped: {cause}");
        }
    }
    net.set_train(false);
    println!("after one epoch  {:5.1} %", 100.0 * accuracy(&net, &digits.test, 100)?);

    // Undo is exact: the network is as it was written, with its trained f32 weights.
    applied.undo(&mut net)?;
    println!("the same in f32  {:5.1} %", 100.0 * accuracy(&net, &digits.test, 100)?);
    assert!(net.params().iter().all(|(_, param)| param.value().dtype() == DType::F32));
    Ok(())
}
