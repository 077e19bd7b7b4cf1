//! The packages on other libraries: precast-burn, precast-candle and precast-rsmpi, and the benches with burn and candle.

use crate::{
    shell::{self, Result, works},
    toolchain,
};

fn manifest(host: &str) -> String {
    format!("{host}/Cargo.toml")
}

/// Returns what this machine lacks for the package in a folder.
pub fn missing(host: &str) -> Option<String> {
    let has_mpi = || works("mpicc", &["--version"]);
    if host.ends_with("rsmpi") && !has_mpi() {
        return Some("no mpicc: `apt-get install libopenmpi-dev libclang-dev`".into());
    }
    toolchain::too_old_for(&manifest(host))
}

/// Lints and tests the package in a folder.
pub fn run(host: &str) -> Result {
    let manifest = manifest(host);
    let cargo = |words: &[&str], variables: &[(&str, &str)]| {
        let package = [&words[..1], &["--locked", "--manifest-path", &manifest], &words[1..]].concat();
        shell::run("cargo", &package, variables)
    };
    shell::run("cargo", &["fmt", "--check", "--manifest-path", &manifest], &[])?;
    cargo(&["clippy", "--all-targets", "--", "-D", "warnings"], &[])?;
    cargo(&["doc", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])?;
    cargo(&["test"], &[("CARGO_INCREMENTAL", "0")])
}

/// Runs burn on any Vulkan driver, for which it compiles WGSL. Without a GPU, Mesa's lavapipe is one.
pub fn gpu() -> Result {
    let gpu = ["test", "--locked", "--features", "wgpu", "--test", "gpu", "--manifest-path", "hosts/burn/Cargo.toml"];
    shell::run("cargo", &gpu, &[]).map_err(|error| {
        format!("{error}; this needs a Vulkan driver: that of a GPU, or Mesa's lavapipe (mesa-vulkan-drivers)")
    })
}

/// Lints the benches beside other crates.
pub fn benches() -> Result {
    let steps = ["--locked", "--release", "--all-features", "--manifest-path", "tools/benches/Cargo.toml"];
    shell::run("cargo", &[&["clippy"], &steps[..], &["--", "-D", "warnings"]].concat(), &[])
}
