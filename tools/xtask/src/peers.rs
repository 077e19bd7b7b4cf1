//! `cargo xtask peers`: every op, layer and training step compared with torch. The program is the package `peers`.

use crate::shell::{self, Result};

/// One-line description.
pub const ABOUT: &str = "--python PATH: every op, layer and training step beside torch";

const USAGE: &str = "allowed: --python PATH, --seed N, --cases N, --ops NAME,... and --write";

pub fn run(words: &[String]) -> Result {
    // The build takes minutes, so errors in the arguments are reported first.
    let mut python = None;
    let mut left = words.iter().map(String::as_str);
    while let Some(word) = left.next() {
        match word {
            "--write" => {}
            "--python" | "--seed" | "--cases" | "--ops" => {
                let value = left.next().ok_or(format!("{word} needs a value; {USAGE}"))?;
                python = if word == "--python" { Some(value) } else { python };
            }
            _ => return Err(format!("met `{word}`; {USAGE}")),
        }
    }
    let python = python.ok_or(format!("--python is missing: a Python that has torch and numpy; {USAGE}"))?;
    shell::check_python(python, "torch, numpy")?;
    let mut arguments = vec!["run", "--quiet", "--release", "--package", "peers", "--"];
    arguments.extend(words.iter().map(String::as_str));
    shell::run("cargo", &arguments, &[])
}
