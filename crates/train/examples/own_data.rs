//! Training on your own table: a network learns the period of a pendulum from a CSV file, and predicts those of another
//! file.
//!
//! `cargo run --release --example own_data`

use std::{f64::consts::PI, fs, io};

use precast::{
    optim::{AdamOptions, Method},
    prelude::*,
};
use precast_train::data::Csv;
use precast_train::{
    FitOptions,
    data::{Split, Standardization},
    fit,
};

/// Returns 400 measurements: length in metres, mass in kilograms, which does not matter, and period in seconds, to a
/// hundredth.
fn measurements() -> String {
    let rng = &mut Rng::seed(1);
    let mut table = "number,length,mass,period\n".to_string();
    for number in 1..=400 {
        let (length, mass) = (rng.uniform(0.1, 2.0), rng.uniform(0.5, 1.5));
        let period = 2.0 * PI * (length / 9.81).sqrt() + rng.normal(0.0, 0.005);
        table += &format!("{number},{length:.3},{mass:.3},{period:.2}\n");
    }
    table
}

fn written(name: &str, text: &str) -> io::Result<std::path::PathBuf> {
    let path = std::env::temp_dir().join(format!("precast-{}-{name}", std::process::id()));
    fs::write(&path, text)?;
    Ok(path)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = written("pendulum.csv", &measurements())?;
    let csv = Csv::new(&file).target("period").ignore("number");
    let data = csv.read()?;
    println!("{data:?}, inputs {:?}", data.input_names());

    // Mean and deviation are those of the training examples, and are kept with the network.
    let split = data.split(320, 0)?;
    let by = Standardization::of(&split.train)?;
    let split = Split { train: split.train.standardized(&by)?, test: split.test.standardized(&by)? };

    let rng = &mut Rng::seed(2);
    let mut net = Child::new(sequential![Dense::new(2, 32, rng), Tanh, Dense::new(32, 1, rng)]);
    let policy = Policy::new("O2", DType::Bf16)?;
    policy.apply(&mut net)?;
    let options = FitOptions::default().epochs(60).lr(0.01).method(Method::Adam(AdamOptions::default()));
    let history = fit(&mut net, &split, &options, &mut |_| {})?;
    let score = history.score().expect("an epoch was finished");
    println!("{}: {score}", score.name());

    // The columns may be in any order, and the target may be missing.
    let new = written("new.csv", "mass,length\n1.0,0.5\n1.0,1.0\n1.0,1.5\n")?;
    let csv = Csv { file: new.clone(), ..csv.found(&data) };
    for x in csv.read_inputs()?.standardized(&by)?.input_batches(32)? {
        println!("periods of 0.5, 1 and 1.5 m: {:.2?} s, by the formula [1.42, 2.01, 2.46] s", net.call(&x)?.to_f64());
    }
    fs::remove_file(file)?;
    fs::remove_file(new)?;
    Ok(())
}
