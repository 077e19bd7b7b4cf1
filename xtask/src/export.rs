//! `cargo xtask export`: what `precast export` writes, run by the libraries for which it is written.

use crate::shell::{self, Result};

/// What it does, in a line.
pub const ABOUT: &str = "--python PATH: what `precast export` writes, run by torch, Keras, torchao and DeepSpeed";

pub fn run(words: &[String]) -> Result {
    let [option, python] = words else { return Err(format!("met {words:?}; allowed: --python PATH")) };
    if option != "--python" {
        return Err(format!("met `{option}`; allowed: --python PATH"));
    }
    // The command that the script runs.
    shell::run(python, &["peers/exported.py", "cargo", "run", "--quiet", "--release", "--"], &[])
}
