//! Running of other programs from the root of the repository.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// The result of a named command; the error says why it failed.
pub type Result<T = ()> = std::result::Result<T, String>;

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_path_buf()
}

/// Returns the folder of what cargo builds.
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Creates a command that runs in the root, with environment variables:
/// `program("cargo", &["test"], &[("RUSTFLAGS", "...")])`.
pub fn program(name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root()).args(arguments).envs(variables.iter().copied());
    // Cargo sets these for the toolchain that runs this; they would override `cargo +nightly`.
    ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"].iter().for_each(|variable| {
        command.env_remove(variable);
    });
    command
}

/// Checks that a program is a Python with the given modules.
pub fn check_python(python: &str, modules: &str) -> Result {
    let asked = program(python, &["-c", &format!("import {modules}")], &[]).output();
    match asked.map_err(|error| format!("--python {python}: {error}"))? {
        output if output.status.success() => Ok(()),
        output => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let last = said.lines().last().unwrap_or("it says nothing");
            Err(format!("--python {python} cannot import {modules}: {last}"))
        }
    }
}

/// Runs a program with its output shown, and fails if it fails.
pub fn run(name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Result {
    let variables_shown = variables.iter().map(|(name, value)| format!("{name}={value}"));
    let shown: Vec<String> =
        variables_shown.chain([name.into()]).chain(arguments.iter().map(|a| a.to_string())).collect();
    eprintln!("$ {}", shown.join(" "));
    let status = program(name, arguments, variables).status().map_err(|error| format!("{name}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name} ended with {status}")) }
}
