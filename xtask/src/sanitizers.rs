//! The library's tests under the address and thread sanitizers.

use crate::{
    nightly::{self, IF_PRESENT},
    shell::{self, Result},
};

pub const ASAN: &str = "tests under the address sanitizer: reads and writes outside of memory, leaks [--if-present]";
pub const TSAN: &str = "tests under the thread sanitizer: races between threads [--if-present]";

pub fn asan(words: &[String]) -> Result {
    sanitize("address", words)
}

pub fn tsan(words: &[String]) -> Result {
    sanitize("thread", words)
}

/// The standard library is compiled with the sanitizer too. An explicit target keeps build scripts free of it.
const BUILD: &[&str] = &["+nightly", "test", "-Zbuild-std", "--target", "x86_64-unknown-linux-gnu"];

fn sanitize(sanitizer: &str, words: &[String]) -> Result {
    // The standard library is compiled from its sources.
    let probe = ("bash", &["-c", "test -d \"$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library/std\""][..]);
    if !nightly::has("rust-src", probe, words, &[IF_PRESENT])? {
        return Ok(());
    }
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
    tests(&["--lib", "kernels::"])?;
    tests(&["--lib", "tensor::"])?;
    tests(&["--test", "laws", "--", "ops::"])?;
    tests(&["--test", "same_bits"])
}
