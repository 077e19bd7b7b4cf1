//! Training steps: `cargo bench --bench steps [FILTER]` prints, for each network, the least and the median time of a step
//! (forward, backward, update) at O0 and at O1 and O2 in both 16-bit dtypes, taken in turns.
//!
//! `benches/peers/steps.py` runs torch's steps of the same networks in turns with these.

use std::{sync::LazyLock, time::Instant};

use precast::{LossScale, Sgd, prelude::*};

/// A residual block of two convolutions.
#[derive(Debug, Serialize, Deserialize)]
struct Block {
    conv1: Child<Conv2d>,
    norm1: Child<BatchNorm2d>,
    conv2: Child<Conv2d>,
    norm2: Child<BatchNorm2d>,
    down: Option<Child<Sequential>>,
}

#[typetag::serde]
impl Cell for Block {
    children!(Self { conv1, norm1, conv2, norm2, down });

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.norm1.call(&self.conv1.call(x)?)?.relu()?;
        let y = self.norm2.call(&self.conv2.call(&y)?)?;
        match &self.down {
            Some(down) => y.add(&down.call(x)?)?.relu(),
            None => y.add(x)?.relu(),
        }
    }
}

fn conv(from: usize, to: usize, kernel: usize, stride: usize, rng: &mut Rng) -> Result<Child<Conv2d>> {
    let padding = Padding::Explicit(vec![(kernel / 2, kernel / 2); 2]);
    Conv2dSpec::new(from, to, kernel).stride(stride).padding(padding).bias(false).build(rng).map(Child::new)
}

fn block(from: usize, to: usize, stride: usize, rng: &mut Rng) -> Result<Child> {
    let down = if stride == 1 && from == to {
        None
    } else {
        Some(Child::new(Sequential::new(vec![conv(from, to, 1, stride, rng)?.into(), BatchNorm2d::new(to).into()])))
    };
    Ok(Block {
        conv1: conv(from, to, 3, stride, rng)?,
        norm1: Child::new(BatchNorm2d::new(to)),
        conv2: conv(to, to, 3, 1, rng)?,
        norm2: Child::new(BatchNorm2d::new(to)),
        down,
    }
    .into())
}

fn resnet18(rng: &mut Rng) -> Result<Child> {
    let mut cells: Vec<Child> = vec![conv(3, 32, 3, 1, rng)?.into(), BatchNorm2d::new(32).into(), ReLU.into()];
    let mut from = 32;
    for (to, stride) in [(32, 1), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1)] {
        cells.push(block(from, to, stride, rng)?);
        from = to;
    }
    cells.push(AdaptiveAvgPool2d::new(1).into());
    cells.push(Flatten::default().into());
    cells.push(Dense::new(256, 10, rng).into());
    Ok(Sequential::new(cells).into())
}

fn lenet5(rng: &mut Rng) -> Result<Child> {
    let first = Conv2dSpec::new(1, 6, 5).padding(Padding::Explicit(vec![(2, 2); 2])).build(rng)?;
    Ok(Sequential::new(vec![
        first.into(),
        ReLU.into(),
        MaxPool2d::new(2).into(),
        Conv2d::new(6, 16, 5, rng).into(),
        ReLU.into(),
        MaxPool2d::new(2).into(),
        Flatten::default().into(),
        Dense::new(400, 120, rng).into(),
        ReLU.into(),
        Dense::new(120, 84, rng).into(),
        ReLU.into(),
        Dense::new(84, 10, rng).into(),
    ])
    .into())
}

fn mlp(rng: &mut Rng) -> Result<Child> {
    let layer = |from, to, rng: &mut Rng| -> Child { Dense::new(from, to, rng).into() };
    let cells = vec![layer(784, 512, rng), ReLU.into(), layer(512, 512, rng), ReLU.into(), layer(512, 10, rng)];
    Ok(Sequential::new(cells).into())
}

/// Seconds of this thread's processor time where the system tells (Linux), so that other programs do not count; else of
/// the clock. With several threads, set `PRECAST_CLOCK`.
fn used() -> f64 {
    static START: LazyLock<(Instant, bool)> =
        LazyLock::new(|| (Instant::now(), std::env::var_os("PRECAST_CLOCK").is_some()));
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok().filter(|_| !START.1);
    let nanoseconds = told.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| START.0.elapsed().as_secs_f64(), |ns| ns * 1e-9)
}

/// One network at one policy, ready to step.
struct Run {
    name: String,
    net: Child,
    optimizer: Sgd,
    scale: LossScale,
    times: Vec<f64>,
}

fn runs(make: impl Fn(&mut Rng) -> Result<Child>) -> Result<Vec<Run>> {
    ["o0", "o1", "o1-bf16", "o2", "o2-bf16"]
        .into_iter()
        .map(|name| {
            let mut net = make(&mut Rng::seed(1))?;
            let policy = Policy::named(name)?;
            policy.apply(&mut net)?;
            net.set_train(true);
            let optimizer = Sgd::new(net.params(), 0.01).momentum(0.9);
            let scale = LossScale::new(policy.loss_scale.clone())?;
            Ok(Run { name: name.to_string(), net, optimizer, scale, times: Vec::new() })
        })
        .collect()
}

/// How often each policy is measured.
const TURNS: usize = 10;

fn measure(network: &str, shape: &[usize], steps: usize, make: impl Fn(&mut Rng) -> Result<Child>) -> Result<()> {
    let mut runs = runs(make)?;
    let mut rng = Rng::seed(2);
    let x: Vec<f32> = (0..shape.iter().product()).map(|_| rng.normal(0.0, 1.0) as f32).collect();
    let x = Tensor::from_vec(x, shape)?;
    let y = Tensor::from_vec((0..shape[0] as i64).map(|i| i * 7 % 10).collect(), &shape[..1])?;
    // The first turn warms up. The system counts processor time in ticks, so a turn is many steps.
    for turn in 0..=TURNS {
        for run in &mut runs {
            let start = used();
            for _ in 0..steps {
                let loss = run.net.call(&x)?.cross_entropy(&y)?;
                let _ = run.scale.step(&mut run.optimizer, &loss)?;
            }
            if turn > 0 {
                run.times.push((used() - start) * 1e3 / steps as f64);
            }
        }
    }
    for run in &mut runs {
        run.times.sort_by(f64::total_cmp);
        println!("{network} {} min {:.3} median {:.3} ms", run.name, run.times[0], run.times[run.times.len() / 2]);
    }
    Ok(())
}

fn main() -> Result<()> {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with("--")).unwrap_or_default();
    let wanted = |name: &str| name.contains(filter.as_str());
    if wanted("lenet5") {
        measure("lenet5", &[32, 1, 28, 28], 60, lenet5)?;
    }
    if wanted("mlp") {
        measure("mlp", &[64, 784], 60, mlp)?;
    }
    if wanted("resnet18") {
        measure("resnet18", &[8, 3, 32, 32], 3, resnet18)?;
    }
    Ok(())
}
