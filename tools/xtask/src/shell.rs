//! Running of other programs from the root of the repository.

use std::{
    env,
    fmt::Display,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The result of a named command; the error says why it failed.
pub type Result<T = ()> = std::result::Result<T, String>;

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("xtask is in `tools`").to_path_buf()
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

/// Returns whether a program is here and succeeds. Its output is not shown.
pub fn works(name: &str, arguments: &[&str]) -> bool {
    let status = program(name, arguments, &[]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Returns what a program prints.
pub fn output(name: &str, arguments: &[&str]) -> Result<String> {
    let output = program(name, arguments, &[]).output().map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Checks that each word is one of these.
pub fn check_words(words: &[String], allowed: &[&str]) -> Result {
    match words.iter().find(|word| !allowed.contains(&word.as_str())) {
        None => Ok(()),
        Some(unknown) if allowed.is_empty() => Err(format!("met `{unknown}`; no word is allowed")),
        Some(unknown) => Err(format!("met `{unknown}`; allowed: {}", allowed.join(", "))),
    }
}

/// Checks that a program is a Python with the given modules.
pub fn check_python(python: &str, modules: &str) -> Result {
    let met = output(python, &["-c", &format!("import {modules}")]);
    met.map(drop)
        .map_err(|said| format!("{python} cannot import {modules}: {}", said.lines().last().unwrap_or_default()))
}

/// Returns the Python of named commands: that of `PRECAST_PYTHON`, or `python3`.
pub fn python() -> String {
    env::var("PRECAST_PYTHON").unwrap_or_else(|_| "python3".into())
}

/// Names a file in an error.
pub fn in_file(path: &Path, error: impl Display) -> String {
    format!("{}: {error}", path.display())
}

/// Runs a command, named in its error, and fails if it fails.
pub fn succeed(name: &str, command: &mut Command) -> Result {
    let status = command.status().map_err(|error| format!("{name}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name} ended with {status}")) }
}

/// Runs a program with its output shown, and fails if it fails.
pub fn run(name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Result {
    let variables_shown = variables.iter().map(|(name, value)| format!("{name}={value}"));
    let shown: Vec<String> =
        variables_shown.chain([name.into()]).chain(arguments.iter().map(|a| a.to_string())).collect();
    eprintln!("$ {}", shown.join(" "));
    succeed(name, &mut program(name, arguments, variables))
}
