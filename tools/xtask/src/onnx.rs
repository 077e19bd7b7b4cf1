//! `cargo xtask onnx`: ONNX's own test suite, run through the library.

use crate::{
    onnx_cases, onnx_exports,
    shell::{self, Result},
};

/// One-line description.
pub const ABOUT: &str = "--python PATH: the test suite of the package onnx, imported and run; --cases FOLDER: hazards; --nodes: node tests between products; --exports: networks in onnxruntime";

const ALLOWED: &str = "allowed: --python PATH, and --suite FOLDER, --cases FOLDER, --nodes or --exports";

pub fn run(words: &[String]) -> Result {
    let mut python = None;
    let mut suite = None;
    let mut cases = None;
    let (mut exports, mut nodes) = (false, false);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let value = || rest.clone().next().cloned().ok_or_else(|| format!("{word} has no value; {ALLOWED}"));
        match word.as_str() {
            "--python" => python = Some(value()?),
            "--suite" => suite = Some(value()?),
            "--cases" => cases = Some(value()?),
            "--exports" | "--nodes" => {
                (exports, nodes) = (exports || word == "--exports", nodes || word == "--nodes");
                continue;
            }
            other => return Err(format!("met `{other}`; {ALLOWED}")),
        }
        rest.next();
    }
    if cases.is_some() || exports || nodes {
        let python = python.ok_or(format!("--python is missing: a Python that has onnx and onnxruntime; {ALLOWED}"))?;
        return match cases {
            Some(folder) => onnx_cases::run("tools/peers/onnx_cases.py", &[&folder], &python),
            None if nodes => onnx_cases::run("tools/peers/onnx_nodes.py", &[], &python),
            None => onnx_exports::run(&python),
        };
    }
    let folder = match (&suite, &python) {
        (Some(folder), _) => folder.clone(),
        (None, Some(python)) => {
            shell::check_python(python, "onnx, numpy")?;
            let folder = shell::root().join("target").join("onnx-suite").display().to_string();
            shell::run(python, &["-W", "ignore", "tools/peers/onnx_suite.py", &folder], &[])?;
            folder
        }
        (None, None) => return Err(format!("--python is missing: a Python that has onnx; {ALLOWED}")),
    };
    let arguments =
        ["test", "--release", "-p", "precast-graph", "--test", "onnx", "suite::", "--", "--ignored", "--nocapture"];
    shell::run("cargo", &arguments, &[("PRECAST_ONNX_SUITE", &folder)])
}
