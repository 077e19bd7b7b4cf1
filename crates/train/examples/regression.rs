//! Regression: a network learns the share of each of 64 parts in an input, by the mean squared error, at three levels.
//!
//! `cargo run --release --example regression`

use precast::{no_grad, prelude::*};
use precast_train::report::{TrainingRun, runs_table};
use precast_train::{FitOptions, History, data::Dataset, fit};

/// Returns 1024 inputs of 64 numbers from 0 to 1. The targets are shares: the softmax of a linear map that the network
/// has to find.
fn data() -> Result<Dataset> {
    let rng = &mut Rng::seed(1);
    let inputs: Vec<f32> = (0..1024 * 64).map(|_| rng.uniform(0.0, 1.0) as f32).collect();
    let map: Vec<f32> = (0..64 * 64).map(|_| rng.normal(0.0, 0.5) as f32).collect();
    let x = Tensor::from_vec(inputs.clone(), &[1024, 64])?;
    let shares = no_grad(|| x.matmul(&Tensor::from_vec(map, &[64, 64])?)?.softmax(1))?;
    Dataset::regression(inputs, &[64], shares.to_vec()?, &[64])
}

fn main() -> Result<()> {
    let data = data()?.split(896, 0)?;
    let mut runs: Vec<(&str, History)> = vec![];
    for level in ["O0", "O1", "O2"] {
        let rng = &mut Rng::seed(2);
        let layers = sequential![Dense::new(64, 64, rng), ReLU, Dense::new(64, 64, rng), Softmax::default()];
        let mut net = Child::new(layers);
        let policy = Policy::new(level, DType::F16)?;
        policy.apply(&mut net)?;
        // The mean is over 64 shares, so its gradients are small, and the learning rate is large.
        let options = FitOptions::default().epochs(30).lr(10.0).loss_scale(policy.loss_scale.clone());
        runs.push((level, fit(&mut net, &data, &options, &mut |_| {})?));
    }
    let runs: Vec<TrainingRun> = runs.iter().map(|(name, history)| TrainingRun { name, history }).collect();
    println!("{}", runs_table(&runs));
    Ok(())
}
