// Two networks, two losses, two optimizers, one loss scale. Each optimizer steps or is skipped by its own gradients;
// one `update` at the end counts both votes.
//
// cargo run --release --example several_optimizers

use precast::prelude::*;
use precast_train::data;

fn main() -> Result<()> {
    let rng = &mut Rng::seed(1);
    let policy = Policy::new(Level::O2, DType::F16)?;
    let mut encoder = Child::new(sequential![Flatten::default(), Dense::new(64, 16, rng), Tanh]);
    let mut decoder = Child::new(Dense::new(16, 64, rng));
    policy.apply(&mut encoder)?;
    policy.apply(&mut decoder)?;
    encoder.set_train(true);
    decoder.set_train(true);

    let mut of_encoder = Sgd::new(encoder.params(), 0.05).momentum(0.9);
    let mut of_decoder = Adam::new(decoder.params(), 0.002);
    let mut scale = policy.loss_scale()?;
    let (mut steps, mut last) = ([0, 0], f64::INFINITY);
    for batch in data::digits()?.shuffled_batches(32, 1, 0)? {
        let pixels = batch.x.flatten(1)?;
        let code = encoder.call(&batch.x)?;
        let drawing = decoder.call(&code)?.mse_loss(&pixels, Reduction::Mean)?;
        let small = formula!(1e-3 * code.square().mean_all())?;
        last = drawing.item()?;

        let mut scaled = scale.scale(&drawing)?.backward()?;
        scaled.accumulate(scale.scale(&small)?.backward()?)?;
        let grads = scaled.unscale(of_encoder.params())?; // each optimizer takes out its own
        steps[0] += usize::from(scale.apply(&mut of_encoder, &grads)? == Outcome::Stepped);
        let grads = scaled.unscale(of_decoder.params())?;
        steps[1] += usize::from(scale.apply(&mut of_decoder, &grads)? == Outcome::Stepped);
        scale.update()?; // once, after all optimizers
    }
    println!("steps of the encoder {}, of the decoder {}; loss {last:.4}, scale {}", steps[0], steps[1], scale.value());
    Ok(())
}
