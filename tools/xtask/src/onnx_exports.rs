//! `cargo xtask onnx --exports`: networks as ONNX models, checked by onnx and run in onnxruntime.

use crate::shell::{self, Result};

/// Exports the networks of the test `exports_for_onnxruntime`, and every op of the table, and compares what onnxruntime
/// computes with what the graphs computed.
pub fn run(python: &str) -> Result {
    shell::check_python(python, "onnx, onnxruntime, numpy")?;
    let folder = shell::root().join("target").join("onnx-exports").display().to_string();
    for (target, test) in [("onnx", "exports_for_onnxruntime"), ("graph", "ops_for_onnxruntime")] {
        let arguments = ["test", "--release", "-p", "precast-graph", "--test", target, test, "--", "--ignored"];
        shell::run("cargo", &arguments, &[("PRECAST_ONNX_EXPORTED", &folder)])?;
    }
    shell::run(python, &["-W", "ignore", "tools/peers/onnx_exports.py", &folder], &[])
}
