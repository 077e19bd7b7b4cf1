//! The network of `digits.rs`, trained by burn's `Learner` in f16 by the policy in `digits.yaml`.
//!
//! cargo run --release --features learner --example learner

use std::sync::{Arc, Mutex};

use burn::{
    data::{
        dataloader::{DataLoaderBuilder, batcher::Batcher},
        dataset::InMemDataset,
    },
    nn::loss::CrossEntropyLossConfig,
    optim::{AdamConfig, ModuleOptimizer},
    prelude::*,
    train::{ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep, metric},
};
use digits::{Net, tensors};
use precast_burn::{Amp, LossScale, Policy, Result};
use precast_train::data::{Dataset, Split};

#[allow(dead_code, reason = "its own loop")]
mod digits;

/// The model that a `Learner` trains: the network, and the loss scale of its steps.
#[derive(Module, Debug)]
struct Model {
    net: Amp<Net>, // the plan is applied to this field
    #[module(skip)]
    scale: Arc<Mutex<LossScale>>,
}

type Item = (Tensor<4>, Tensor<1, Int>);

impl Model {
    fn classify(&self, (x, y): Item) -> ClassificationOutput {
        let output = self.net.forward(x);
        let loss = CrossEntropyLossConfig::new().init(&output.device()).forward(output.clone(), y.clone());
        ClassificationOutput::new(loss, output, y)
    }
}

impl TrainStep for Model {
    type Input = Item;
    type Output = ClassificationOutput;

    fn step(&self, item: Item) -> TrainOutput<ClassificationOutput> {
        let item = self.classify(item);
        let mut scale = self.scale.lock().unwrap();
        // No gradients for a step that is skipped: with them the optimizer changes nothing.
        let (grads, outcome) = scale.gradients(item.loss.clone(), self).expect("the loss is one number, on the tape");
        if !outcome.is_step() {
            println!("{outcome}");
        }
        TrainOutput { grads, item }
    }
}

impl InferenceStep for Model {
    type Input = Item;
    type Output = ClassificationOutput;

    fn step(&self, item: Item) -> ClassificationOutput {
        self.classify(item)
    }
}

/// Makes batches of the digits of a data set, by their positions in it.
#[derive(Clone)]
struct Digits(Arc<Dataset>);

impl Batcher<usize, Item> for Digits {
    fn batch(&self, items: Vec<usize>, device: &Device) -> Item {
        let batch = self.0.select(&items).and_then(|digits| Ok(digits.batches(items.len())?.next()));
        tensors(&batch.unwrap().expect("a batch has items"), device)
    }
}

fn main() -> Result<()> {
    let device = Device::default().autodiff();
    device.seed(1);
    let policy = Policy::parse(include_str!("digits.yaml"), "digits.yaml")?;
    let mut net = Amp::new(Net::new(&device));
    print!("{}", policy.apply(&mut net)?);
    let model = Model { net, scale: Arc::new(Mutex::new(LossScale::new(&policy)?)) };

    let Split { train, test, .. } = precast_train::data::digits()?.split(1500, 0)?;
    let loader = |data: Dataset, batch: usize, device: &Device| {
        let positions = InMemDataset::new((0..data.len()).collect());
        let loader = DataLoaderBuilder::new(Digits(Arc::new(data))).batch_size(batch).set_device(device.clone());
        loader.shuffle(1).build(positions)
    };
    let (train, test) = (loader(train, 50, &device), loader(test, 99, &device.clone().inner()));
    let optimizer: ModuleOptimizer = AdamConfig::new().init();
    let folder = std::env::temp_dir().join("precast-burn-learner");
    let trained = SupervisedTraining::new(&folder, train, test)
        .metric_train_numeric(metric::AccuracyMetric::new())
        .metric_valid_numeric(metric::AccuracyMetric::new())
        .num_epochs(6)
        .summary()
        .launch(Learner::new(model, optimizer, 3e-3));
    println!("loss scale {}", trained.model.scale.lock().unwrap().value());
    Ok(())
}
