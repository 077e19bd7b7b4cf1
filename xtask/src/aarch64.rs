//! The tests on an emulated aarch64 machine, whose vectors are those of NEON.

use std::process::Stdio;

use crate::{
    nightly::IF_PRESENT,
    shell::{self, Result, program},
};

pub const ABOUT: &str = "tests on aarch64, emulated by qemu: all, or those of kernels [--kernels] [--if-present]";

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
const RUNNER: &str = "qemu-aarch64 -L /usr/aarch64-linux-gnu";

const KERNELS: &str = "--kernels";

/// Starts its own program again, which only an emulator can run.
const SKIPPED: &str = "simd::tests::vectors_are_at_most_as_wide_as_the_environment_says";

pub fn run(words: &[String]) -> Result {
    let allowed = [KERNELS, IF_PRESENT];
    if let Some(unknown) = words.iter().find(|word| !allowed.contains(&word.as_str())) {
        return Err(format!("`{unknown}` is not understood; allowed: {}", allowed.join(", ")));
    }
    let said = |word| words.iter().any(|said| said == word);
    if let Some(missing) = missing() {
        let missing = format!("LEFT OUT: {missing}");
        if said(IF_PRESENT) {
            println!("{missing}");
            return Ok(());
        }
        return Err(format!("{missing}; allow it to be missing with {IF_PRESENT}"));
    }
    let variables = [
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER),
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", RUNNER),
        // Emulation is slow, and so is one more build.
        ("PROPTEST_CASES", "16"),
        ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
        ("CARGO_PROFILE_RELEASE_LTO", "off"),
        // Their overflow is checked by the same tests on other machines.
        ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "false"),
        ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "false"),
    ];
    let build = ["test", "--locked", "--release", "--target", TARGET];
    let tests = |chosen: &[&str]| shell::run("cargo", &[&build, chosen].concat(), &variables);
    match said(KERNELS) {
        true => tests(&["--no-default-features", "--lib", "kernels::", "--", "--skip", SKIPPED]),
        false => tests(&["--all-features", "--no-fail-fast", "--", "--skip", SKIPPED]),
    }
}

/// What this machine lacks, and how it is installed.
fn missing() -> Option<String> {
    let runs = |name, arguments: &[&str]| {
        let status = program(name, arguments, &[]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    if !runs(LINKER, &["--version"]) || !runs(EMULATOR, &["--version"]) {
        let packages = "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user";
        return Some(format!("there is no {LINKER} or no {EMULATOR} (Debian: apt-get install {packages})"));
    }
    let library = format!("test -d \"$(rustc --print sysroot)/lib/rustlib/{TARGET}/lib\"");
    (!runs("bash", &["-c", &library])).then(|| format!("rustup target add {TARGET} was not run"))
}
