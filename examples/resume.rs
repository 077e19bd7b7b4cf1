// A run that is stopped and resumed from its state is bitwise identical to one that was not stopped.
//
// cargo run --release --example resume

use precast::prelude::*;
use precast_train::{data, data::Batch};

fn net() -> Result<Child> {
    let rng = &mut Rng::seed(1);
    let (body, head) = (Dense::new(64, 32, rng), Dense::new(32, 10, rng));
    let mut net = sequential![Flatten::default(), body, ReLU, Dropout::new(0.1, rng), head].into();
    auto_mixed_precision(&mut net, Level::O2, DType::F16)?;
    net.set_train(true);
    Ok(net)
}

fn train(net: &Child, optimizer: &mut Adam, scale: &mut LossScale, batches: &[Batch]) -> Result<()> {
    for batch in batches {
        let _outcome = scale.step(optimizer, &net.call(&batch.x)?.cross_entropy(&batch.y)?)?;
    }
    Ok(())
}

fn bits(net: &Child) -> Vec<Vec<f64>> {
    net.params().iter().map(|(_, param)| param.value().to_f64()).collect()
}

fn main() -> Result<()> {
    let batches: Vec<Batch> = data::digits()?.shuffled_batches(32, 1, 0)?.take(30).collect();
    let whole = net()?;
    let (mut optimizer, mut scale) = (Adam::new(whole.params(), 1e-3), LossScale::dynamic());
    train(&whole, &mut optimizer, &mut scale, &batches)?;

    let first = net()?;
    let (mut optimizer, mut scale) = (Adam::new(first.params(), 1e-3), LossScale::dynamic());
    train(&first, &mut optimizer, &mut scale, &batches[..17])?;
    let file = std::env::temp_dir().join(format!("precast-resume-{}.safetensors", std::process::id()));
    Checkpoint::of(&first, &[&optimizer], &scale).counting("batch", 17).save(&file)?;

    let mut second = net()?;
    let (mut optimizer, mut scale) = (Adam::new(second.params(), 1e-3), LossScale::dynamic());
    let checkpoint = Checkpoint::load(&file)?;
    checkpoint.restore(&mut second, &mut [&mut optimizer], &mut scale)?; // or an error that lists what does not fit
    let done = checkpoint.count("batch").unwrap_or_default() as usize;
    train(&second, &mut optimizer, &mut scale, &batches[done..])?;
    std::fs::remove_file(&file).ok();
    assert_eq!(bits(&whole), bits(&second));
    println!("30 steps, and 17 and 13: the same bits, at loss scale {}", scale.value());
    Ok(())
}
