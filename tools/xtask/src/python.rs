//! `cargo xtask python [--short]`: the Python package, in a fresh environment with torch, or in short form by the Python at hand.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::shell::{self, Result, check_python, check_words, in_file, python, root, target};

/// One-line description.
pub const ABOUT: &str =
    "[--short]: the wheel in a fresh environment with torch; --short: its tests by the Python at hand";

const MANIFEST: &str = "hosts/python/Cargo.toml";

/// Packages that the tests, and the checks of types and of style, need.
const PACKAGES: [&str; 10] =
    ["diffusers", "maturin>=1.9,<2", "mypy", "numpy", "peft", "pytest", "ruff", "torch", "torchao", "transformers"];

/// Returns what this machine lacks for the short form.
pub fn missing() -> Option<String> {
    check_python(&python(), "pytest").err()
}

/// Returns what this machine lacks for the fresh environment.
pub fn missing_environment() -> Option<String> {
    check_python(&python(), "venv, ensurepip").err()
}

pub fn run(words: &[String]) -> Result {
    check_words(words, &["--short"])?;
    if words.is_empty() { fresh() } else { short() }
}

fn cargo(words: &[&str]) -> Result {
    shell::run("cargo", &[&words[..1], &["--locked", "--manifest-path", MANIFEST], &words[1..]].concat(), &[])
}

fn lints() -> Result {
    shell::run("cargo", &["fmt", "--check", "--manifest-path", MANIFEST], &[])?;
    cargo(&["clippy", "--no-default-features", "--", "-D", "warnings"])
}

/// Lints the engine, and tests the package next to an engine without the command. Tests that need a package that the Python
/// lacks, such as torch, are skipped.
fn short() -> Result {
    lints()?;
    cargo(&["build", "--no-default-features"])?;
    let folder = target().join("python");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| in_file(&folder, error))?;
    }
    let package = folder.join("precast");
    copy_sources(&root().join("hosts/python/precast"), &package)?;
    let (built, name) = engine();
    let built = target().join("debug").join(built);
    fs::copy(&built, package.join(name)).map_err(|error| in_file(&built, error))?;
    let path = folder.display().to_string();
    shell::run(
        &python(),
        &["-m", "pytest", "-q", "-rs", "hosts/python/tests"],
        &[("PYTHONPATH", &path), ("PYTHONDONTWRITEBYTECODE", "1")],
    )
}

/// Returns the name of the built engine, and that under which Python finds it.
fn engine() -> (&'static str, &'static str) {
    if cfg!(windows) {
        ("_engine.dll", "_engine.pyd")
    } else if cfg!(target_os = "macos") {
        ("lib_engine.dylib", "_engine.abi3.so")
    } else {
        ("lib_engine.so", "_engine.abi3.so")
    }
}

fn copy_sources(from: &Path, to: &Path) -> Result {
    fs::create_dir_all(to).map_err(|error| in_file(to, error))?;
    for entry in fs::read_dir(from).map_err(|error| in_file(from, error))?.flatten() {
        let is_source = |path: &Path| path.extension().is_some_and(|end| end == "py" || end == "pyi" || end == "typed");
        if is_source(&entry.path()) {
            fs::copy(entry.path(), to.join(entry.file_name())).map_err(|error| in_file(&entry.path(), error))?;
        }
    }
    Ok(())
}

/// Builds the wheel, installs it with torch into a fresh environment, and tests, types and runs it there.
fn fresh() -> Result {
    lints()?;
    let environment = target().join("python-environment");
    let (folder, wheels) = (environment.display().to_string(), environment.join("wheels").display().to_string());
    shell::run(&python(), &["-m", "venv", "--clear", &folder], &[])?;
    let bin = environment.join(if cfg!(windows) { "Scripts" } else { "bin" });
    let there = |name: &str| bin.join(name).display().to_string();
    shell::run(&there("python"), &[&["-m", "pip", "install", "--quiet"], &PACKAGES[..]].concat(), &[])?;
    let built = ["build", "--quiet", "--profile", "dev", "--locked", "--manifest-path", MANIFEST, "--out", &wheels];
    shell::run(&there("maturin"), &built, &[("CARGO_TARGET_DIR", &target().display().to_string())])?;
    let install = ["-m", "pip", "install", "--quiet", "--no-index", "--find-links", &wheels, "precast"];
    shell::run(&there("python"), &install, &[])?;
    shell::run(&there("precast"), &["--version"], &[])?;
    for words in [&["check"][..], &["format", "--check"]] {
        shell::run(&there("ruff"), &[words, &["hosts/python"]].concat(), &[])?;
    }
    let config = PathBuf::from("hosts/python/pyproject.toml").display().to_string();
    shell::run(&there("mypy"), &["--strict", "--config-file", &config, "hosts/python/precast"], &[])?;
    shell::run(&there("python"), &["-m", "pytest", "-q", "-rs", "hosts/python/tests"], &[])
}
