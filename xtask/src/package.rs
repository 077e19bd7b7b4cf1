//! `cargo xtask package [--check]`: builds the crate as it would be published, unpacks it, and tests it there.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::shell::{self, Result, program};

/// What it does, in a line.
pub const ABOUT: &str = "[--check]: the crate as it would be published, unpacked and tested";

pub fn run(words: &[String]) -> Result {
    let only_check = match words {
        [] => false,
        [word] if word == "--check" => true,
        _ => return Err(format!("met `{}`; allowed: --check, or nothing", words.join(" "))),
    };
    // What is not committed is packaged as well: CI checks a change before it lands.
    shell::run(
        "cargo",
        &["package", "--quiet", "--locked", "--package", "precast", "--allow-dirty", "--no-verify"],
        &[],
    )?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| shell::root().join("target"), PathBuf::from);
    let folder = unpacked(&target)?;
    if only_check {
        cargo(&folder, &target, &["check", "--quiet", "--release", "--locked", "--all-features", "--all-targets"])
    } else {
        cargo(&folder, &target, &["test", "--release", "--locked", "--all-features"])
    }
}

/// Unpacks the newest crate file of precast into a folder of its own, and returns the folder of the package.
fn unpacked(target: &Path) -> Result<PathBuf> {
    let made = target.join("package");
    let name = newest(&made)?;
    let folder = made.join("unpacked");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(failed)?;
    }
    fs::create_dir_all(&folder).map_err(failed)?;
    let file = made.join(format!("{name}.crate")).display().to_string();
    shell::run("tar", &["xzf", &file, "-C", &folder.display().to_string()], &[])?;
    Ok(folder.join(name))
}

/// `precast-0.1.0`, of the file that was written last.
fn newest(folder: &Path) -> Result<String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let crates = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?.strip_suffix(".crate")?.to_string();
        let written = entry.metadata().and_then(|data| data.modified()).ok()?;
        name.starts_with("precast-").then_some((written, name))
    });
    let newest = crates.max().ok_or_else(|| format!("{} has no crate file", folder.display()))?;
    Ok(newest.1)
}

/// Runs cargo in the unpacked package, which shares the dependencies that were built here.
fn cargo(folder: &Path, target: &Path, arguments: &[&str]) -> Result {
    eprintln!("$ cargo {} (in {})", arguments.join(" "), folder.display());
    let mut command = program("cargo", arguments, &[]);
    let status = command.current_dir(folder).env("CARGO_TARGET_DIR", target).env_remove("PRECAST_GOLDENS").status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo ended with {status}")),
        Err(error) => Err(format!("cargo: {error}")),
    }
}
