//! `cargo xtask mutants [FOLDER ...]`: cargo-mutants on the code that decides precision. It replaces bodies of functions,
//! operators and match arms, one at a time; the tests have to notice. What survives is listed in `target/mutants/FOLDER`.
//! The tests next to a folder come first, for they catch most; what they miss is then tried by all that decide precision.

use std::{fs, path::Path};

use crate::{
    copy::Tree,
    shell::{Result, program},
};

/// What it does, in a line.
pub const ABOUT: &str = "[FOLDER ...] [--shard K/N]: cargo-mutants on precision, rewrite, policy and scale";

/// The folders of `src` that decide precision, without the numerics, and the targets next to them.
const FOLDERS: &[(&str, &[&str])] = &[
    ("precision", &["autocast", "custom_ops", "features", "levels", "torch", "paddle", "weight_grads"]),
    ("rewrite", &["levels", "decorate", "features", "mindspore", "packs"]),
    ("policy", &["policy_files", "policy_schema", "packs", "levels", "cost"]),
    ("scale", &["scale", "scalers", "training", "optim"]),
];

/// All tests of that code: recordings of other systems among them, but none of the kernels.
const TESTS: &[&str] = &[
    "autocast",
    "cost",
    "custom_ops",
    "decorate",
    "features",
    "levels",
    "mindspore",
    "optim",
    "packs",
    "paddle",
    "plans_hold",
    "policy_files",
    "policy_schema",
    "properties",
    "scale",
    "scalers",
    "tensorflow",
    "torch",
    "training",
    "weight_grads",
];

pub fn run(words: &[String]) -> Result {
    let mut folders: Vec<&(&str, &[&str])> = vec![];
    let mut shard = None;
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match FOLDERS.iter().find(|(folder, _)| *folder == word) {
            Some(folder) => folders.push(folder),
            None if word == "--shard" => shard = Some(words.next().ok_or("--shard needs K/N, as in 0/4")?),
            None => {
                let names: Vec<&str> = FOLDERS.iter().map(|(folder, _)| *folder).collect();
                return Err(format!("`{word}` is no folder of src; allowed: {}", names.join(", ")));
            }
        }
    }
    if folders.is_empty() {
        folders = FOLDERS.iter().collect();
    }
    let version = program("cargo", &["mutants", "--version"], &[]).output();
    if !version.is_ok_and(|output| output.status.success()) {
        return Err("cargo-mutants is missing; install it with `cargo install --locked cargo-mutants`".into());
    }
    let tree = Tree::copied("mutants", None)?;
    let mut missed = String::new();
    for (folder, near) in folders {
        let found = tree.path.with_file_name(folder);
        let mut chosen = vec![];
        chosen.extend(shard.iter().flat_map(|shard| ["--shard".to_string(), shard.to_string()]));
        let first = mutants(&tree, folder, &found, near, &chosen)?;
        if !first.is_empty() {
            let again: Vec<String> = first.lines().flat_map(|name| ["--re".into(), exactly(name)]).collect();
            missed += &mutants(&tree, folder, &found.join("again"), TESTS, &again)?;
        }
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("not noticed:\n{missed}")) }
}

/// Runs those mutants of a folder that are `chosen`, and returns the names of those that no test noticed.
fn mutants(tree: &Tree, folder: &str, found: &Path, targets: &[&str], chosen: &[String]) -> Result<String> {
    let [copy, build, output] = [&tree.path, &tree.build, found].map(|path| path.display().to_string());
    let files = format!("src/{folder}/**");
    let mut arguments = vec!["mutants", "--dir", &copy, "--in-place", "--output", &output, "--file", &files];
    arguments.extend(["--no-shuffle", "--minimum-test-timeout", "300", "--colors", "never"]);
    arguments.extend(chosen.iter().map(String::as_str));
    arguments.extend(["--", "--lib"]);
    targets.iter().for_each(|target| arguments.extend(["--test", target]));
    arguments.extend(["--", "--skip", "kernels::"]);
    // Without optimisation, since building takes most of the time.
    let variables = [
        ("CARGO_PROFILE_DEV_DEBUG", "0"),
        ("CARGO_INCREMENTAL", "1"),
        ("CARGO_TARGET_DIR", &build),
        ("PROPTEST_CASES", "100"),
    ];
    fs::create_dir_all(found).map_err(|error| format!("{output}: {error}"))?;
    let status = program("cargo", &arguments, &variables).status().map_err(|error| format!("cargo: {error}"))?;
    // Some were not noticed, or took too long: that is a result, too.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        return Err(format!("cargo mutants ended with {status}"));
    }
    let list = found.join("mutants.out/missed.txt");
    fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))
}

/// A regular expression for this text and no other.
fn exactly(text: &str) -> String {
    let escape = |c: char| r"\.+*?()|[]{}^$#&-~".contains(c).then_some('\\');
    format!("^{}$", text.chars().flat_map(|c| escape(c).into_iter().chain([c])).collect::<String>())
}
