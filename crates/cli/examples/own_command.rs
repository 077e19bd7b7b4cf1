// The command `precast` in a program of your own: it knows a network built here, and reads model files that name its
// cells. Without arguments it prints a plan.
//
// cargo run --release --example own_command -- explain gated 1.gate --policy o2

use std::process::ExitCode;

use precast::{io::models::Model, prelude::*};
use precast_cli::Cli;
use serde::{Deserialize, Serialize};

/// Half of the features open or close the other half.
///
/// In files: `{kind: Gate, value: {..}, gate: {..}}`.
#[derive(Cell, Debug, Serialize, Deserialize)]
#[cell(saved)]
struct Gate {
    value: Child,
    gate: Child,
}

impl Forward for Gate {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.value.call(x)?.mul(&self.gate.call(x)?.sigmoid()?)
    }
}

fn gated(rng: &mut Rng) -> Result<Model> {
    let gate = Gate { value: Dense::new(64, 32, rng).into(), gate: Dense::new(64, 32, rng).into() };
    let net = sequential![LayerNorm::new(&[64]), gate, Dense::new(32, 10, rng)];
    Ok(Model::new(net).input([64]))
}

fn main() -> ExitCode {
    let cli = Cli::new().model("gated", gated);
    match std::env::args_os().len() {
        1 => cli.run(["plan", "gated", "--policy", "o2"]),
        _ => cli.main(),
    }
}
