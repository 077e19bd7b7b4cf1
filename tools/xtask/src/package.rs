//! `cargo xtask package [--check]`: packages precast and the packages around it as they would be published, puts them into a registry
//! in a folder, tests precast, its runs and its command as they are there, installs the command, and runs a program that adds precast.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::shell::{self, Result, in_file, program};

/// One-line description.
pub const ABOUT: &str =
    "[--check]: the packages as they would be published, tested, installed, and added to a new crate";

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
    let made = shell::target().join("package");
    let registry = registry(&made)?;
    let folder = emptied(made.join("unpacked"))?;
    for package in TESTED {
        let here = unpacked(&made, package, &folder)?;
        let what: &[&str] = if only_check { &["check", "--quiet", "--lib", "--bins"] } else { &["test", "--locked"] };
        cargo(&here, &shell::target(), &registry, what)?;
    }
    if only_check { Ok(()) } else { install(&made, &registry) }
}

/// Makes a registry of the packages, with all that they depend on, and returns the words by which cargo reads it in place of
/// crates.io: a folder of unpacked packages.
fn registry(made: &Path) -> Result<[String; 4]> {
    let folder = emptied(made.join("registry"))?;
    let shown = folder.display().to_string();
    shell::output("cargo", &["vendor", "--quiet", "--locked", "--versioned-dirs", &shown])?;
    for package in PACKAGES {
        let here = unpacked(made, package, &folder)?;
        check_included(&here)?;
        let file = made.join(format!("{}.crate", newest(made, package)?)).display().to_string();
        let sum = shell::output("sha256sum", &[&file])?;
        let sum = sum.split_whitespace().next().unwrap_or_default();
        let sums = here.join(".cargo-checksum.json");
        fs::write(&sums, format!("{{\"files\":{{}},\"package\":\"{sum}\"}}")).map_err(|error| in_file(&sums, error))?;
    }
    let [by, at] = ["crates-io.replace-with=\"folder\"".to_string(), format!("folder.directory={shown:?}")];
    Ok(["--config".into(), format!("source.{by}"), "--config".into(), format!("source.{at}")])
}

/// Installs the command from the registry and runs it, and runs the program of the README in a crate of its own, as on a machine
/// that has nothing else.
fn install(made: &Path, registry: &[String; 4]) -> Result {
    let folder = emptied(made.join("installed"))?;
    // Packages of a registry do not change for cargo, and these do.
    let target = emptied(made.join("target"))?;
    let root = folder.display().to_string();
    cargo(&folder, &target, registry, &["install", "--quiet", "--locked", "--debug", "--root", &root, "precast-cli"])?;
    shell::run(&format!("{root}/bin/precast"), &["plan", "lenet5", "--policy", "o2"], &[])?;
    cargo(&folder, &target, registry, &["new", "--quiet", "--vcs", "none", "first"])?;
    let first = folder.join("first");
    let program = first.join("src/main.rs");
    fs::copy(shell::root().join("examples/quickstart.rs"), &program).map_err(|error| in_file(&program, error))?;
    cargo(&first, &target, registry, &["add", "--quiet", "precast", "precast-train"])?;
    cargo(&first, &target, registry, &["run", "--quiet"])
}

/// Returns a folder, which it empties.
fn emptied(folder: PathBuf) -> Result<PathBuf> {
    let made = if folder.exists() { fs::remove_dir_all(&folder) } else { Ok(()) };
    made.and_then(|()| fs::create_dir_all(&folder)).map_err(|error| in_file(&folder, error))?;
    Ok(folder)
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

/// Runs cargo in a folder, with the packages of a registry alone.
fn cargo(folder: &Path, target: &Path, registry: &[String; 4], arguments: &[&str]) -> Result {
    eprintln!("$ cargo {} (in {})", arguments.join(" "), folder.display());
    let mut command = program("cargo", arguments, &[]);
    let command = command.args(registry).arg("--offline").current_dir(folder);
    shell::succeed("cargo", command.env("CARGO_TARGET_DIR", target).env_remove("PRECAST_GOLDENS"))
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
