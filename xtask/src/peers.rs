//! `cargo xtask peers`: every op, layer and training step beside torch. The program is the package `peers`.

use crate::shell::{self, Result};

/// What it does, in a line.
pub const ABOUT: &str = "--python PATH: every op, layer and training step beside torch";

pub fn run(words: &[String]) -> Result {
    let mut arguments = vec!["run", "--quiet", "--release", "--package", "peers", "--"];
    arguments.extend(words.iter().map(String::as_str));
    shell::run("cargo", &arguments, &[])
}
