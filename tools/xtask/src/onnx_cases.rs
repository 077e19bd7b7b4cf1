//! `cargo xtask onnx --cases FOLDER` and `--nodes`: models converted by the command and checked by onnx and onnxruntime.

use std::path::Path;

use crate::shell::{self, Result};

/// Runs a script of Python, which has onnx, onnxruntime and numpy, with folders of cases and the command.
pub fn run(script: &str, folders: &[&str], python: &str) -> Result {
    if let Some(folder) = folders.iter().find(|folder| !Path::new(folder).is_dir()) {
        return Err(format!("--cases: `{folder}` is not a folder"));
    }
    shell::check_python(python, "onnx, onnxruntime, numpy")?;
    shell::run("cargo", &["build", "--quiet", "--release", "--package", "precast-cli"], &[])?;
    let program = shell::target().join("release").join(format!("precast{}", std::env::consts::EXE_SUFFIX));
    let program = program.display().to_string();
    shell::run(python, &[&[script], folders, &[&program[..]]].concat(), &[])
}
