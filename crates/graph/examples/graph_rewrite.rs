//! TensorFlow's example of `enable_mixed_precision_graph_rewrite`: two dense layers, ReLU and softmax, SGD and the mean
//! squared error on numeric targets.
//!
//! `cargo run --release --package precast-graph --example graph_rewrite`

use precast::{Outcome, no_grad, prelude::*};
use precast_graph::tensorflow::enable_mixed_precision_graph_rewrite;

fn main() -> Result<()> {
    let rng = &mut Rng::seed(1);
    // 1024 inputs of 64 numbers, with the shares that a hidden linear map assigns to them.
    let inputs: Vec<f32> = (0..1024 * 64).map(|_| rng.uniform(0.0, 1.0) as f32).collect();
    let map: Vec<f32> = (0..64 * 64).map(|_| rng.normal(0.0, 0.5) as f32).collect();
    let x = Tensor::from_vec(inputs, &[1024, 64])?;
    let y = no_grad(|| x.matmul(&Tensor::from_vec(map, &[64, 64])?)?.softmax(1))?;

    let mut net = Child::new(sequential![Dense::new(64, 64, rng), ReLU, Dense::new(64, 64, rng), Softmax::default()]);
    net.set_train(true);
    let mut optimizer = enable_mixed_precision_graph_rewrite(Sgd::new(net.params(), 10.0), "dynamic")?;

    for epoch in 0..30 {
        for first in (0..1024).step_by(64) {
            let batch = [x.slice(0, first..first + 64)?, y.slice(0, first..first + 64)?];
            let outcome =
                optimizer.step(&net, &batch, |net, of| net.call(&of[0])?.mse_loss(&of[1], Reduction::Mean))?;
            if let Outcome::Skipped { cause } = outcome {
                println!("skipped: {cause}");
            }
        }
        if epoch % 10 == 9 {
            let error = no_grad(|| net.call(&x)?.mse_loss(&y, Reduction::Mean))?.item()?;
            println!("epoch {:2}: mean squared error {error:.3e}", epoch + 1);
        }
    }
    let steps = optimizer.global_step();
    println!("{steps} steps at loss scale {}, with this graph:", optimizer.loss_scale().value());
    for graph in optimizer.graphs() {
        print!("{graph}");
    }
    Ok(())
}
