//! `cargo xtask mutants [FOLDER ...]`: cargo-mutants on the code that decides precision. It replaces bodies of functions,
//! operators and match arms, one at a time; the tests have to notice. What survives is listed in `target/mutants.out`.

use crate::shell::{Result, program, run as shell};

/// What it does, in a line.
pub const ABOUT: &str = "[FOLDER ...] [--shard K/N]: cargo-mutants on precision, rewrite, policy and scale";

/// The folders of `src` that decide precision, without the numerics.
const FOLDERS: &[&str] = &["precision", "rewrite", "policy", "scale"];

/// The tests of that code: recordings of other systems among them, but none of the kernels.
const TESTS: &[&str] = &[
    "autocast",
    "cost",
    "decorate",
    "features",
    "levels",
    "optim",
    "packs",
    "policy_files",
    "policy_schema",
    "properties",
    "scale",
    "training",
    "mindspore",
    "paddle",
    "torch",
];

pub fn run(words: &[String]) -> Result {
    let mut folders: Vec<&str> = vec![];
    let mut shard = None;
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--shard" => shard = Some(words.next().ok_or("--shard needs K/N, as in 0/4")?),
            folder if FOLDERS.contains(&folder) => folders.push(folder),
            other => return Err(format!("`{other}` is no folder of src; allowed: {}", FOLDERS.join(", "))),
        }
    }
    if folders.is_empty() {
        folders = FOLDERS.to_vec();
    }
    let version = program("cargo", &["mutants", "--version"], &[]).output();
    if !version.is_ok_and(|output| output.status.success()) {
        return Err("cargo-mutants is missing; install it with `cargo install --locked cargo-mutants`".into());
    }
    let files: Vec<String> = folders.iter().map(|folder| format!("src/{folder}/**")).collect();
    let mut arguments = vec!["mutants", "--output", "target", "--no-shuffle", "--minimum-test-timeout", "300"];
    files.iter().for_each(|file| arguments.extend(["--file", file]));
    if let Some(shard) = shard {
        arguments.extend(["--shard", shard]);
    }
    arguments.extend(["--", "--lib"]);
    TESTS.iter().for_each(|test| arguments.extend(["--test", test]));
    // Without optimisation, since building takes most of the time.
    let variables = [("CARGO_PROFILE_DEV_DEBUG", "0"), ("CARGO_INCREMENTAL", "1"), ("PROPTEST_CASES", "200")];
    shell("cargo", &arguments, &variables)
}
