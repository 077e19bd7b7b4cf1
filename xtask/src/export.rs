//! `cargo xtask export`: what `precast export` writes, run by the libraries for which it is written.

use crate::shell::{self, Result};

/// What it does, in a line.
pub const ABOUT: &str = "--python PATH: what `precast export` writes, run by torch, Keras, torchao and DeepSpeed";

pub fn run(words: &[String]) -> Result {
    let python = match words {
        [option, python] if option == "--python" => python,
        [] => return Err("--python is missing: a Python that has torch; allowed: --python PATH".into()),
        _ => return Err(format!("met `{}`; allowed: --python PATH", words.join(" "))),
    };
    shell::check_python(python, "torch")?;
    // The command that the script runs.
    shell::run(python, &["peers/exported.py", "cargo", "run", "--quiet", "--release", "--"], &[])
}
