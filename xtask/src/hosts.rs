//! The packages on other libraries: precast-burn and precast-candle.

use crate::shell::{self, Result};

pub const ABOUT: &str = "lints and tests of precast-burn and precast-candle [--gpu: burn on wgpu, in f16]";

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
    for manifest in ["burn/Cargo.toml", "candle/Cargo.toml"] {
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
    Ok(())
}
