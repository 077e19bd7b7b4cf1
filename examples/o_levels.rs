//! The same program at four levels; only `level:` in a YAML file changes.
//!
//! `cargo run --release --example o_levels`

use precast::{io::models, prelude::*};
use precast_train::{accuracy, data};

const POLICY: &str = "
version: 1
name: digits
level: O0
dtype: float16
";

fn main() -> Result<()> {
    let digits = data::digits()?.split(1500, 0)?;
    println!("level  test accuracy  bytes kept for backward  last loss  skipped steps");
    for level in ["O0", "O1", "O2", "O3"] {
        let file = POLICY.replace("O0", level);
        let policy = Policy::parse(&file, "digits.yaml")?;

        let mut net = models::load("models/lenet5_8x8.yaml", 1)?;
        policy.apply(&mut net)?;
        net.set_train(true);
        let mut optimizer = Sgd::new(net.params(), 0.02).momentum(0.9);
        let mut scale = policy.loss_scale()?;
        let (mut bytes, mut last, mut skipped) = (0, f64::NAN, Vec::new());
        for epoch in 0..40 {
            for batch in digits.train.shuffled_batches(32, 1, epoch)? {
                let loss = net.call(&batch.x)?.cross_entropy(&batch.y)?;
                (bytes, last) = (bytes.max(loss.tape_bytes()), loss.item()?);
                if let Outcome::Skipped { cause } = scale.step(&mut optimizer, loss)? {
                    skipped.push(cause.to_string());
                }
            }
        }

        net.set_train(false);
        let right = accuracy(&net, &digits.test, 100)?;
        println!("{level:5}  {:11.1} %  {bytes:23}  {last:9.3}  {:13}", 100.0 * right, skipped.len());
    }
    Ok(())
}
