//! The command `precast` with a cell that goes wrong on one rank, for `cargo xtask mpi`.

use std::{
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering},
};

use precast::prelude::*;
use precast_cli::Cli;
use precast_mpi::launched_as;
use serde::{Deserialize, Serialize};

/// Returns its input, and panics or returns an error in one call in training on one rank, counted from 0.
///
/// In files: `{kind: Planted, panics: true, rank: 1, call: 5}`.
#[derive(Cell, Debug, Serialize, Deserialize)]
#[cell(saved)]
struct Planted {
    panics: bool,
    rank: usize,
    call: usize,
    #[serde(skip)]
    calls: AtomicUsize,
    #[serde(skip)]
    training: bool,
}

impl Forward for Planted {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let is_due = self.training
            && launched_as() == Some(self.rank)
            && self.calls.fetch_add(1, Ordering::Relaxed) == self.call;
        match (is_due, self.panics) {
            (false, _) => Ok(x.clone()),
            (true, true) => panic!("planted"),
            (true, false) => Err(Error::value("planted")),
        }
    }

    fn on_train(&mut self, training: bool) {
        self.training = training;
    }
}

fn main() -> ExitCode {
    Cli::new().main()
}
