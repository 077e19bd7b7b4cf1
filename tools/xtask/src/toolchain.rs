//! Toolchains, targets and versions of Rust that a check needs.

use std::fs;

use crate::shell::{self, output, works};

/// Returns the command that installs Miri, or another component of the nightly toolchain, if `probe` fails.
pub fn missing_component(component: &str, probe: (&str, &[&str])) -> Option<String> {
    let (name, arguments) = probe;
    (!works(name, arguments))
        .then(|| format!("no nightly toolchain with {component}: `rustup toolchain install nightly -c {component}`"))
}

/// Returns the command that installs the standard library of a target, if it is not installed.
pub fn missing_target(target: &str) -> Option<String> {
    let library = format!("test -d \"$(rustc --print sysroot)/lib/rustlib/{target}/lib\"");
    (!works("bash", &["-c", &library])).then(|| format!("no standard library: `rustup target add {target}`"))
}

/// Returns the oldest Rust that a manifest promises.
pub fn oldest(manifest: &str) -> String {
    let text = fs::read_to_string(shell::root().join(manifest)).unwrap_or_default();
    let version = text.lines().find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'));
    version.unwrap_or("1.0").to_string()
}

/// Returns why this Rust cannot build a package.
pub fn too_old_for(manifest: &str) -> Option<String> {
    let minor = |version: &str| version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    let met = output("rustc", &["--version"]).ok()?;
    let needed = oldest(manifest);
    (minor(&met) < minor(&needed)).then(|| format!("needs Rust {needed}; this is {}", met.trim()))
}
