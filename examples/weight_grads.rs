// Products in bf16 with weight gradients in f32, by a rule.
//
// cargo run --release --example weight_grads

use precast::prelude::*;
use precast_train::data;

fn main() -> Result<()> {
    let rng = &mut Rng::seed(1);
    let mut net = Child::new(sequential![Flatten::default(), Dense::new(64, 64, rng), ReLU, Dense::new(64, 10, rng)]);
    let text = "
version: 1
level: O1
dtype: bfloat16
rules:
  - kind: Dense
    run: { forward: low, weight_grad: float32 }
    because: gradients are summed over many batches
";
    let policy = Policy::parse(text, "weight_grads.yaml")?;
    println!("{}", policy.plan(&net)?);
    policy.apply(&mut net)?;

    let batch = data::digits()?.batches(64)?.next().expect("there are digits");
    let grads = net.call(&batch.x)?.cross_entropy(&batch.y)?.backward()?;
    for (path, param) in net.params().iter() {
        let grad = grads.get(param).expect("the loss depends on it");
        let rounded = grad.cast(DType::Bf16).to_f64().into_iter().zip(grad.to_f64()).filter(|(low, wide)| low == wide);
        println!("{path}: {} of {} gradients are bf16 numbers", rounded.count(), grad.len());
    }
    Ok(())
}
