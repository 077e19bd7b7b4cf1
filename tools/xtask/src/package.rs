//! `cargo xtask package [--check]`: packages precast and the packages around it as they would be published, unpacks them, and tests
//! precast, its runs and its command there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::shell::{self, Result, in_file, program};

/// One-line description.
pub const ABOUT: &str = "[--check]: the packages as they would be published, unpacked and tested";

/// The packages that are published, each after those that it depends on.
const PACKAGES: [&str; 13] = [
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
    "precast-explorer",
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
    let failed = |error: std::io::Error| in_file(&folder, error);
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(failed)?;
    }
    fs::create_dir_all(&folder).map_err(failed)?;
    // The packages that one depends on are these, whatever the registry has. So the lock file cannot be the packaged one; offline,
    // all other versions stay.
    let mut patches: Vec<String> = Vec::new();
    for package in PACKAGES {
        let here = unpacked(&made, package, &folder)?;
        check_included(&here)?;
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

/// Checks that a package has the files that its sources include, those of tests among them, which `--check` does not compile.
fn check_included(folder: &Path) -> Result {
    for entry in fs::read_dir(folder).map_err(|error| in_file(folder, error))?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            check_included(&path)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            let source = fs::read_to_string(&path).map_err(|error| in_file(&path, error))?;
            if let Some(lost) = included(&source).find(|file| !folder.join(file).exists()) {
                return Err(in_file(&path, format!("the package has no `{lost}`")));
            }
        }
    }
    Ok(())
}

/// Iterates over the paths of files that a source includes, relative to its folder.
fn included(source: &str) -> impl Iterator<Item = &str> {
    let words = ["include!(", "include_str!(", "include_bytes!(", "#[path ="];
    let after = words.into_iter().flat_map(|word| source.split(word).skip(1));
    after.filter_map(|rest| Some(rest.trim_start().strip_prefix('"')?.split_once('"')?.0))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn included_files_are_found() {
        let source = "#[path = \"../a.rs\"]\nmod a;\nconst B: &str = include_str!(\n    \"b/c.txt\"\n);\ninclude!(concat!(\"d\"));\n";
        assert_eq!(included(source).collect::<Vec<_>>(), ["b/c.txt", "../a.rs"]);
    }

    #[test]
    fn a_package_has_what_its_sources_include() {
        let folder = std::env::temp_dir().join(format!("precast-xtask-package-{}", std::process::id()));
        fs::create_dir_all(folder.join("tests")).unwrap();
        fs::write(folder.join("tests/a.rs"), "#[path = \"../b.rs\"]\nmod b;\n").unwrap();
        let without = check_included(&folder);
        fs::write(folder.join("b.rs"), "").unwrap();
        let with = check_included(&folder);
        fs::remove_dir_all(&folder).unwrap();
        let path = folder.join("tests/a.rs");
        assert_eq!((without, with), (Err(format!("{}: the package has no `../b.rs`", path.display())), Ok(())));
    }
}
