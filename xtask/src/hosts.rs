//! The packages on other libraries: precast-burn, precast-candle and precast-rsmpi.

use std::process::Stdio;

use crate::shell::{self, Result, program};

pub const ABOUT: &str = "lints and tests of precast-burn, precast-candle and precast-rsmpi, lints of the benches beside burn [--gpu: burn on wgpu, in f16]";

const GPU: &str = "--gpu";

pub fn run(words: &[String]) -> Result {
    if let Some(other) = words.iter().find(|word| *word != GPU) {
        return Err(format!("`{other}` is not an option; options: {GPU}"));
    }
    if !words.is_empty() {
        // burn compiles WGSL for any Vulkan driver. Without a GPU, Mesa's lavapipe is one: mesa-vulkan-drivers and libvulkan1.
        let gpu = ["test", "--locked", "--features", "wgpu", "--test", "gpu", "--manifest-path", "burn/Cargo.toml"];
        return shell::run("cargo", &gpu, &[]).map_err(|error| {
            format!("{error}; this needs a Vulkan driver: that of a GPU, or Mesa's lavapipe (mesa-vulkan-drivers)")
        });
    }
    let mpicc = program("mpicc", &["--version"], &[]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let has_mpi = mpicc.is_ok_and(|status| status.success());
    if !has_mpi {
        println!("LEFT OUT: precast-rsmpi needs mpicc and libclang: `apt-get install libopenmpi-dev libclang-dev`");
    }
    let of_mpi = has_mpi.then_some("rsmpi/Cargo.toml");
    for manifest in ["burn/Cargo.toml", "candle/Cargo.toml"].into_iter().chain(of_mpi) {
        let cargo = |words: &[&str], variables: &[(&str, &str)]| {
            shell::run(
                "cargo",
                &[&words[..1], &["--locked", "--manifest-path", manifest], &words[1..]].concat(),
                variables,
            )
        };
        shell::run("cargo", &["fmt", "--check", "--manifest-path", manifest], &[])?;
        cargo(&["clippy", "--all-targets", "--", "-D", "warnings"], &[])?;
        cargo(&["doc", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])?;
        cargo(&["test"], &[])?;
    }
    // Training steps beside burn, which `.ci/run` leaves out: building burn takes minutes.
    let steps = ["--locked", "--release", "--all-features", "--manifest-path", "benches/crates/Cargo.toml"];
    shell::run("cargo", &[&["clippy"], &steps[..], &["--", "-D", "warnings"]].concat(), &[])
}
