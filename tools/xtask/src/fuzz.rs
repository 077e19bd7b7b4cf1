//! `cargo xtask fuzz [TARGET] [--seconds N]`: feeds mutated files to the file readers, target by target.

use std::fs;

use crate::{
    shell::{self, Result, works},
    toolchain,
};

/// Kinds of files: a target in `tools/fuzz/targets`, its own seeds in `tools/fuzz/seeds`, and the shipped files of its kind.
const TARGETS: &[(&str, &[&str])] = &[
    ("policy", &["policies", "tests/policies"]),
    ("model", &["models"]),
    ("weights", &[]),
    ("stored", &["tools/fuzz/seeds/weights"]),
    ("digits", &[]),
    ("csv", &[]),
    ("images", &[]),
    ("npy", &[]),
    ("speeds", &[]),
    ("onnx", &["crates/graph/tests/onnx/hazards/given", "docs/guide"]),
];

const SECONDS: u32 = 60;

/// One-line description.
pub const ABOUT: &str = "[TARGET] [--seconds N]: mutated files for every reader of files";

pub fn run(words: &[String]) -> Result {
    let (target, seconds) = read(words)?;
    for (name, shipped) in TARGETS.iter().filter(|(name, _)| target.is_none_or(|target| target == *name)) {
        // New inputs go into the first folder, which is not kept in the repository.
        let (corpus, seeds) = (format!("tools/fuzz/corpus/{name}"), format!("tools/fuzz/seeds/{name}"));
        fs::create_dir_all(shell::root().join(&corpus)).map_err(|error| format!("{corpus}: {error}"))?;
        let time = format!("-max_total_time={seconds}");
        let limits = ["--", &time, "-timeout=20", "-rss_limit_mb=3072", "-print_final_stats=1"];
        let arguments =
            ["+nightly", "fuzz", "run", "--fuzz-dir", "tools/fuzz", "--sanitizer", "none", name, &corpus, &seeds];
        shell::run("cargo", &[&arguments[..], shipped, &limits].concat(), &[])?;
    }
    Ok(())
}

/// Parses the target, if one is named, and the seconds for each.
fn read(words: &[String]) -> Result<(Option<&str>, u32)> {
    let (mut target, mut seconds) = (None, SECONDS);
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if word == "--seconds" {
            let number = words.next().unwrap_or("nothing");
            // libFuzzer takes 0 to mean forever.
            seconds = match number.parse() {
                Ok(seconds @ 1..) => seconds,
                _ => return Err(format!("--seconds takes a whole number from 1, met `{number}`")),
            };
        } else if target.is_none() && TARGETS.iter().any(|(name, _)| *name == word) {
            target = Some(word);
        } else {
            let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
            return Err(format!("met `{word}`; allowed: one target of {}, and --seconds N", names.join(", ")));
        }
    }
    Ok((target, seconds))
}

/// Returns a missing tool, with instructions to install it.
pub fn missing() -> Option<String> {
    toolchain::missing_component("rust-src", ("cargo", &["+nightly", "--version"])).or_else(|| {
        (!works("cargo", &["fuzz", "--version"])).then(|| "no cargo-fuzz: `cargo install cargo-fuzz`".into())
    })
}

/// Checks that the targets compile, without the C++ that runs them.
pub fn check() -> Result {
    let target = shell::target().display().to_string();
    let check = ["check", "--locked", "--target-dir", &target, "--manifest-path", "tools/fuzz/Cargo.toml"];
    shell::run("cargo", &check, &[("CUSTOM_LIBFUZZER_PATH", "./libnone.a")])
}
