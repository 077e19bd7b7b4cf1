//! The library as a package with few dev-dependencies. Cargo builds all of a package's dev-dependencies for any of its
//! tests: for another machine, or under Miri, that takes longer than the tests.

use std::{fs, path::Path};

use crate::shell::{self, Result};

/// Sections of the library's manifest that the package has.
const KEPT: &[&str] = &["package", "dependencies", "profile.release"];

/// Writes the package to a folder of this name under `target`, with the library's sources in place, and with these of its
/// dev-dependencies and of the targets in `tests`. Returns the path of its manifest.
///
/// The lock file is the repository's, from which cargo removes the other packages: do not pass `--locked`.
pub fn manifest(name: &str, dev_dependencies: &[&str], tests: &[&str]) -> Result<String> {
    let root = shell::root();
    let read = |name: &str| fs::read_to_string(root.join(name)).map_err(|error| format!("{name}: {error}"));
    let text = package(&read("Cargo.toml")?, &root, dev_dependencies, tests);
    let folder = shell::target().join("alone").join(name);
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<_, String>(path.display().to_string())
    };
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    write("Cargo.lock", &read("Cargo.lock")?)?;
    write("Cargo.toml", &text)
}

/// Returns the manifest.
fn package(library: &str, root: &Path, dev_dependencies: &[&str], tests: &[&str]) -> String {
    let mut text = String::new();
    let mut section = "";
    for line in library.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
        }
        let name = line.split(" = ").next().unwrap_or_default();
        if KEPT.contains(&section)
            || section == "dev-dependencies" && (line.starts_with('[') || dev_dependencies.contains(&name))
        {
            text += &line.replace("path = \"", &format!("path = \"{}/", root.display()));
            text.push('\n');
        }
    }
    let mut target = |header: &str, name: &str, path: &str| {
        text += &format!("\n[{header}]\nname = {name:?}\npath = {:?}\n", root.join(path));
    };
    target("lib", "precast", "src/lib.rs");
    for test in tests {
        target("[test]", test, &format!("tests/{test}/main.rs"));
    }
    // The repository lints itself. This package belongs to no workspace.
    text += "\n[lints.rust]\nunexpected_cfgs = \"allow\"\n\n[workspace]\n";
    text.replace("[package]\n", &format!("[package]\nbuild = {:?}\n", root.join("build.rs")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_dev_dependencies_are_kept() {
        let library = "[workspace]\nmembers = []\n\n[package]\nname = \"precast\"\n\n[dependencies]\nhalf = \"2\"\n\
                       own = { path = \"own\" }\n\n[dev-dependencies]\na = \"1\"\nb = { path = \"b\" }\n\n[lints]\nworkspace = true\n";
        let expected = "[package]\nbuild = \"/repository/build.rs\"\nname = \"precast\"\n\n[dependencies]\nhalf = \"2\"\n\
                        own = { path = \"/repository/own\" }\n\n[dev-dependencies]\na = \"1\"\n\n[lib]\nname = \"precast\"\n\
                        path = \"/repository/src/lib.rs\"\n\n[[test]]\nname = \"laws\"\npath = \"/repository/tests/laws/main.rs\"\n\n\
                        [lints.rust]\nunexpected_cfgs = \"allow\"\n\n[workspace]\n";
        assert_eq!(package(library, Path::new("/repository"), &["a"], &["laws"]), expected);
    }
}
