//! `cargo xtask package [--check]`: packages precast and the packages around it as they would be published, unpacks them, and tests
//! precast, its runs and its command there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::shell::{self, Result, program};

/// One-line description.
pub const ABOUT: &str = "[--check]: the packages as they would be published, unpacked and tested";

/// The packages that are published, each after those that it depends on.
const PACKAGES: [&str; 12] = [
    "precast-base",
    "precast-lowbit",
    "precast-policy",
    "precast-derive",
    "precast-mpi",
    "precast-kernels",
    "precast-tensor",
    "precast",
    "precast-diagnose",
    "precast-graph",
    "precast-train",
    "precast-cli",
];
/// Those whose code runs.
const TESTED: [&str; 5] = ["precast-mpi", "precast", "precast-graph", "precast-train", "precast-cli"];

/// Packages all, and returns the files.
pub fn files() -> Result<Vec<PathBuf>> {
    pack()?;
    let made = shell::target().join("package");
    PACKAGES.iter().map(|package| Ok(made.join(format!("{}.crate", newest(&made, package)?)))).collect()
}

/// Writes the packages, with what is not committed: CI checks a change before it lands.
fn pack() -> Result {
    let all: Vec<&str> = PACKAGES.iter().flat_map(|package| ["--package", package]).collect();
    let package = ["package", "--quiet", "--locked", "--allow-dirty", "--no-verify"];
    shell::run("cargo", &[&package[..], &all].concat(), &[])
}

pub fn run(words: &[String]) -> Result {
    shell::check_words(words, &["--check"])?;
    let only_check = !words.is_empty();
    pack()?;
    let target = shell::target();
    let made = target.join("package");
    let folder = made.join("unpacked");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(failed)?;
    }
    fs::create_dir_all(&folder).map_err(failed)?;
    // The packages that one depends on are these, whatever the registry has. So the lock file cannot be the packaged one; offline,
    // all other versions stay.
    let mut patches: Vec<String> = Vec::new();
    for package in PACKAGES {
        let here = unpacked(&made, package, &folder)?;
        if TESTED.contains(&package) {
            let what: &[&str] = if only_check { &["check", "--quiet", "--lib", "--bins"] } else { &["test"] };
            let patches = patches.iter().flat_map(|patch| ["--config", patch]);
            let how = ["--offline"].into_iter().chain(patches);
            cargo(&here, &target, &what.iter().copied().chain(how).collect::<Vec<_>>())?;
        }
        patches.push(format!("patch.crates-io.{package}.path={:?}", here.display().to_string()));
    }
    Ok(())
}

/// Unpacks the newest crate file of a package into a folder, and returns the folder of the package.
fn unpacked(made: &Path, package: &str, folder: &Path) -> Result<PathBuf> {
    let name = newest(made, package)?;
    let file = made.join(format!("{name}.crate")).display().to_string();
    shell::run("tar", &["xzmf", &file, "-C", &folder.display().to_string()], &[])?;
    Ok(folder.join(name))
}

/// Returns the name of the newest crate file, such as `precast-0.1.0`.
fn newest(folder: &Path, package: &str) -> Result<String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let crates = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?.strip_suffix(".crate")?.to_string();
        let written = entry.metadata().and_then(|data| data.modified()).ok()?;
        let version = name.strip_prefix(package)?.strip_prefix('-')?;
        version.starts_with(|c: char| c.is_ascii_digit()).then_some((written, name))
    });
    let newest = crates.max().ok_or_else(|| format!("{} has no crate file", folder.display()))?;
    Ok(newest.1)
}

/// Runs cargo in the unpacked package, sharing the dependencies built here.
fn cargo(folder: &Path, target: &Path, arguments: &[&str]) -> Result {
    eprintln!("$ cargo {} (in {})", arguments.join(" "), folder.display());
    let mut command = program("cargo", arguments, &[]);
    let command = command.current_dir(folder).env("CARGO_TARGET_DIR", target).env_remove("PRECAST_GOLDENS");
    shell::succeed("cargo", command)
}
