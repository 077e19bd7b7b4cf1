//! A penalty on the gradients of a loss, in mixed precision with a loss scale: the example of torch's notes on AMP.
//!
//! `cargo run --release --example gradient_penalty`

use precast::{Param, prelude::*, twice_differentiable};
use precast_train::data;

/// Returns the Euclidean norm of all gradients of a loss, on the tape. They are computed from the scaled loss, so that
/// none underflows in f16, and divided by the scale afterwards.
fn norm_of_gradients(loss: &Tensor, scale: &LossScale, params: &[Param]) -> Result<Tensor> {
    let values: Vec<Tensor> = params.iter().map(Param::tensor).collect();
    let grads = scale.scale(loss)?.gradients_on_tape(&values.iter().collect::<Vec<_>>())?;
    let mut sum = Tensor::zeros(&[], DType::F32);
    for grad in grads.into_iter().flatten() {
        sum = sum.add(&grad.square()?.sum_all()?)?;
    }
    sum.sqrt()
}

fn main() -> Result<()> {
    let rng = &mut Rng::seed(1);
    let mut net = Child::new(sequential![Flatten::default(), Dense::new(64, 32, rng), Tanh, Dense::new(32, 10, rng)]);
    auto_mixed_precision(&mut net, Level::O2, DType::F16)?;
    net.set_train(true);

    let params: Vec<Param> = net.params().iter().map(|(_, param)| param.clone()).collect();
    let mut optimizer = Sgd::new(net.params(), 0.1);
    let mut scale = LossScale::dynamic();
    for (step, batch) in data::digits()?.batches(64)?.take(40).enumerate() {
        let (loss, penalty) = twice_differentiable(|| {
            let loss = net.call(&batch.x)?.cross_entropy(&batch.y)?.cast(DType::F32);
            let penalty = norm_of_gradients(&loss, &scale, &params)?;
            Ok::<_, Error>((loss, penalty))
        })?;
        // Scales the sum, differentiates through the loss and its gradients, unscales, checks and updates.
        let outcome = scale.step(&mut optimizer, &loss.add(&(&penalty * 0.1)?)?)?;
        if step % 10 == 0 {
            println!("loss {:.3}, norm of its gradients {:.3}, {outcome:?}", loss.item()?, penalty.item()?);
        }
    }
    Ok(())
}
