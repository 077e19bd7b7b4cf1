// A torch transformer encoder, loaded from its state dict, reproduces torch's numbers; then it runs in bf16. The two
// files were made by torch 2.15: `torch.nn.TransformerEncoder` with random weights, and a call of it.
//
// cargo run --release --example torch_encoder

use precast::{
    policy::{Rule, RunAs},
    prelude::*,
    storage::weights::{self, LoadOptions},
};

fn main() -> Result<()> {
    let layer = TransformerEncoderLayerSpec::new(8, 2).dim_feedforward(12).norm_first(true);
    let mut encoder = Child::new(TransformerEncoderSpec::new(layer, 2).norm(true).build(&mut Rng::seed(1))?);
    let loaded = weights::load_with(&encoder, "docs/guide/torch-encoder.safetensors", &LoadOptions::torch())?;
    println!("{loaded}");

    let call = weights::read("docs/guide/torch-encoder-call.safetensors")?;
    let error = |y: &Tensor| y.sub(&call["y"])?.abs()?.max(&[0, 1, 2], false)?.item();
    let largest = error(&encoder.call(&call["x"])?)?;
    println!("in f32, torch's outputs differ by {largest:.1e} at most");
    assert!(largest < 2e-6);

    let policy = Policy::named("o2-bf16")?.rule(Rule::path("layers.*.self_attn", RunAs::Full)?.because("few heads"))?;
    println!("\n{}\n", policy.apply(&mut encoder)?.plan);
    println!("in bf16, by {:.1e}", error(&encoder.call(&call["x"])?)?);
    Ok(())
}
