//! `cargo xtask export`: the output of `precast export`, run by the libraries it is written for.

use crate::shell::{self, Result};

/// One-line description.
pub const ABOUT: &str = "--python PATH: what `precast export` writes, run by torch, Keras, torchao, Qwix and DeepSpeed";

pub fn run(words: &[String]) -> Result {
    let python = match words {
        [option, python] if option == "--python" => python,
        [] => return Err("--python is missing: a Python that has torch; allowed: --python PATH".into()),
        _ => return Err(format!("met `{}`; allowed: --python PATH", words.join(" "))),
    };
    shell::check_python(python, "torch")?;
    // The command run by the script.
    shell::run(python, &["tools/peers/exported.py", "cargo", "run", "--quiet", "--release", "--"], &[])
}
