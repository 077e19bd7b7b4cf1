// Nested regions, and weights stored in bf16 with f32 masters, which are undone exactly.
//
// cargo run --release --example regions_and_storage

use precast::prelude::*;

fn main() -> Result<()> {
    let rng = &mut Rng::seed(1);
    let net = Child::new(sequential![Dense::new(16, 32, rng), LayerNorm::new(&[32]), Tanh, Dense::new(32, 4, rng)]);
    let x = Tensor::randn(&[8, 16], rng)?;
    let region = Autocast::new("torch-2.15-cpu")?;

    let logits = autocast(&region, || net.call(&x))?;
    let probabilities = autocast(&region, || {
        // Softmax of logits in f32, inside the bf16 region.
        autocast(Autocast::new("torch-2.15-cpu")?.enabled(false), || logits.cast(DType::F32).softmax(-1))
    })?;
    println!("logits {}, probabilities {}", logits.dtype(), probabilities.dtype());

    let before = net.params().iter().map(|(_, param)| param.value().to_f64()).collect::<Vec<_>>();
    let decorated = decorate(&net, Decorate::new(DType::Bf16).exclude_kind("LayerNorm"))?;
    println!("{decorated}");
    let mut optimizer = Sgd::new(net.params(), 1e-4); // smaller than a step of bf16: the masters keep it
    let loss = autocast(&region, || net.call(&x)?.cast(DType::F32).powf(2.0)?.mean_all())?;
    println!("{:?}", LossScale::none().step(&mut optimizer, &loss)?);
    decorated.undo()?;
    let after = net.params().iter().map(|(_, param)| param.value().to_f64()).collect::<Vec<_>>();
    assert_ne!(before, after, "the update is in the f32 weights");
    Ok(())
}
