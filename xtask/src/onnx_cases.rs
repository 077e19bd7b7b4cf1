//! `cargo xtask onnx --cases FOLDER`: hazard models, each converted by the command and checked by onnx and onnxruntime.

use std::path::Path;

use crate::shell::{self, Result};

/// Converts and checks the cases of a folder with a Python that has onnx, onnxruntime and numpy.
pub fn run(folder: &str, python: &str) -> Result {
    if !Path::new(folder).is_dir() {
        return Err(format!("--cases: `{folder}` is no folder"));
    }
    shell::check_python(python, "onnx, onnxruntime, numpy")?;
    shell::run("cargo", &["build", "--quiet", "--release", "--package", "precast-cli"], &[])?;
    let program = shell::target().join("release").join(format!("precast{}", std::env::consts::EXE_SUFFIX));
    shell::run(python, &["peers/onnx_cases.py", folder, &program.display().to_string()], &[])
}
