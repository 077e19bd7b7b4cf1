//! Checks that need a nightly toolchain with some component.

use std::process::Stdio;

use crate::shell::{Result, program};

/// Option that allows a tool to be missing: the command then prints that nothing was checked, and succeeds.
pub const IF_PRESENT: &str = "--if-present";

/// Returns whether a component of the nightly toolchain is installed. `probe` is a program that succeeds only with it.
///
/// # Errors
/// If it is not installed and the arguments lack `--if-present`, or if an argument is not among the `allowed`.
pub fn has(component: &str, probe: (&str, &[&str]), words: &[String], allowed: &[&str]) -> Result<bool> {
    if let Some(unknown) = words.iter().find(|word| !allowed.contains(&word.as_str())) {
        return Err(format!("`{unknown}` is not understood; allowed: {}", allowed.join(", ")));
    }
    let (name, arguments) = probe;
    let status = program(name, arguments, &[]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if status.is_ok_and(|status| status.success()) {
        return Ok(true);
    }
    let install = format!(
        "nothing was checked: no nightly toolchain with {component} is here; install it with \
         `rustup toolchain install nightly --component {component}`"
    );
    if words.iter().any(|word| word == IF_PRESENT) {
        println!("LEFT OUT: {install}");
        return Ok(false);
    }
    Err(format!("{install}, or allow it to be missing with {IF_PRESENT}"))
}
