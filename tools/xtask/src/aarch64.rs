//! The tests on an emulated aarch64 machine with NEON vectors.

use std::{fs, path::Path};

use crate::{
    shell::{self, Result, check_words, works},
    toolchain,
};

pub const ABOUT: &str = "tests on aarch64, emulated by qemu: all, or those of kernels [--kernels]";

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
const RUNNER: &str = "qemu-aarch64 -L /usr/aarch64-linux-gnu";

const KERNELS: &str = "--kernels";

/// Targets in tests/ that start a separate program, which only the emulator could run.
const START_PROGRAMS: &[&str] = &["allocations", "command", "compile", "repository", "same_bits"];
/// Other tests that do so: a unit test, and modules of other targets.
const SKIPPED: &[&str] = &["simd::tests::vectors_are_at_most_as_wide_as_the_environment_says", "underflow::"];
/// Tests of kernels that multiply pairs or tiles of bf16, for which NEON has no instruction: their software twins take
/// qemu minutes.
const ONLY_IN_ALL: [&str; 3] = [
    "pairs_have_the_bits_of_single_terms",
    "products_of_pairs_have_the_bits_of_the_other_kernels",
    "tiles_take_the_order_of_the_instruction",
];

pub fn run(words: &[String]) -> Result {
    check_words(words, &[KERNELS])?;
    let variables = [
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER),
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", RUNNER),
        // Emulation is slow, and so is one more build.
        ("PROPTEST_CASES", "16"),
        ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
        ("CARGO_PROFILE_RELEASE_LTO", "off"),
        // Overflow is checked by the same tests on other machines.
        ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "false"),
        ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "false"),
    ];
    let tests = |chosen: &[&str]| {
        shell::run("cargo", &[&["test", "--release", "--target", TARGET], chosen].concat(), &variables)
    };
    match !words.is_empty() {
        true => {
            println!("LEFT OUT, since they take minutes: {}", ONLY_IN_ALL.join(", "));
            let skipped = [SKIPPED[0]].into_iter().chain(ONLY_IN_ALL).flat_map(|test| ["--skip", test]);
            let build = ["--package", "precast-kernels", "--lib", "--"];
            let words: Vec<&str> = build.into_iter().chain(skipped).collect();
            tests(&words)
        }
        false => {
            let targets = targets()?;
            let chosen = targets.iter().flat_map(|target| ["--test", target]);
            let chosen: Vec<&str> = ["--locked", "--no-fail-fast", "--lib"].into_iter().chain(chosen).collect();
            println!("LEFT OUT, since they start programs: {}", START_PROGRAMS.join(", "));
            let skipped: Vec<&str> = SKIPPED.iter().flat_map(|test| ["--skip", test]).collect();
            tests(&[&chosen[..], &["--"], &skipped].concat())
        }
    }
}

/// Returns the targets in tests/ that start no program.
fn targets() -> Result<Vec<String>> {
    let folder = shell::root().join("tests");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let is_target = |path: &Path| path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").exists();
    let paths = entries.flatten().map(|entry| entry.path()).filter(|path| is_target(path));
    let names = paths.filter_map(|path| Some(path.file_stem()?.to_str()?.to_string()));
    let mut names: Vec<String> = names.filter(|name| !START_PROGRAMS.contains(&name.as_str())).collect();
    names.sort();
    Ok(names)
}

/// Returns a missing prerequisite of this machine, with instructions to install it.
pub fn missing() -> Option<String> {
    if !works(LINKER, &["--version"]) || !works(EMULATOR, &["--version"]) {
        return Some(format!(
            "no {LINKER} or {EMULATOR}: `apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user`"
        ));
    }
    toolchain::missing_target(TARGET)
}
