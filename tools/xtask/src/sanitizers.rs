//! The library's tests under the address and thread sanitizers.

use crate::{
    shell::{self, Result},
    toolchain,
};

/// The standard library is compiled with the sanitizer too. An explicit target keeps build scripts free of it.
const BUILD: &[&str] = &["+nightly", "test", "-Zbuild-std", "--target", "x86_64-unknown-linux-gnu"];

pub fn missing() -> Option<String> {
    // The standard library is compiled from its sources.
    let probe = ["-c", "test -d \"$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library/std\""];
    toolchain::missing_component("rust-src", ("bash", &probe))
}

/// Runs tests under the sanitizer of a name: `address`, `thread`.
pub fn run(sanitizer: &str) -> Result {
    // A separate target folder preserves other builds.
    let target = shell::target();
    let target = target.join(sanitizer).display().to_string();
    let variables = [
        ("RUSTFLAGS", &*format!("-Zsanitizer={sanitizer}")),
        ("CARGO_TARGET_DIR", &*target),
        // Debug assertions and overflow checks stay on.
        ("CARGO_PROFILE_DEV_OPT_LEVEL", "1"),
    ];
    let tests = |chosen: &[&str]| shell::run("cargo", &[BUILD, chosen].concat(), &variables);
    tests(&["--package", "precast-kernels", "--package", "precast-tensor", "--lib"])?;
    tests(&["--test", "laws", "--", "ops::"])?;
    tests(&["--test", "same_bits"])
}
