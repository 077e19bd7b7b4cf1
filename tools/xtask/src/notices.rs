//! The licences of the packages that are linked into the program.

use std::{collections::BTreeMap, env, fmt::Write as _, fs, path::PathBuf};

use crate::shell::{Result, in_file, output};

/// Returns the packages that the command for a target links, with their licences, and the text of each licence once.
pub fn text(triple: &str) -> Result<String> {
    let words = ["tree", "--locked", "--package", "precast-cli", "--edges", "normal", "--target", triple];
    let format = ["--prefix", "none", "--no-dedupe", "--format", "{p}|{l}|{r}"];
    let tree = output("cargo", &[&words[..], &format].concat())?;
    let mut lines: Vec<&str> = tree.lines().filter(|line| !line.starts_with("precast")).collect();
    lines.sort_unstable();
    lines.dedup();
    let mut notices = "The program contains the Rust standard library (MIT or Apache-2.0, https://github.com/rust-lang/rust), and\n\n".to_string();
    // Packages of each text, the file of which is the key.
    let mut texts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for line in lines {
        let [package, licence, repository] = line.split('|').collect::<Vec<_>>()[..] else {
            return Err(format!("cargo tree printed {line}"));
        };
        let package = package.trim_end_matches(" (proc-macro)");
        let (name, version) = package.split_once(" v").ok_or_else(|| format!("cargo tree printed {package}"))?;
        let found = texts_of(&format!("{name}-{version}"))?;
        if licence.is_empty() || found.is_empty() {
            println!("LEFT OUT: the licence of {package}, `{licence}`, has no text in its package");
        }
        writeln!(notices, "- {name} {version} ({licence}), {repository}").expect("a string takes all");
        found.into_iter().for_each(|text| texts.entry(text).or_default().push(name));
    }
    for (text, packages) in texts {
        write!(notices, "\n{}\n{}\n\n{}\n", "=".repeat(80), packages.join(", "), text.trim_end())
            .expect("a string takes all");
    }
    Ok(notices)
}

/// Returns the texts of the licences, copyrights and notices of a package that cargo has unpacked.
fn texts_of(package: &str) -> Result<Vec<String>> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo"))).ok_or("no home folder")?;
    let sources = home.join("registry/src");
    let registries = fs::read_dir(&sources).map_err(|error| in_file(&sources, error))?.flatten();
    let folders = registries.map(|registry| registry.path().join(package)).filter(|folder| folder.is_dir());
    let mut files: Vec<PathBuf> = folders.flat_map(fs::read_dir).flatten().flatten().map(|file| file.path()).collect();
    let is_notice = |file: &PathBuf| {
        let name = file.file_name().map(|name| name.to_string_lossy().to_uppercase()).unwrap_or_default();
        file.is_file()
            && ["LICEN", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"].iter().any(|start| name.starts_with(start))
    };
    files.retain(is_notice);
    files.sort();
    files.into_iter().map(|file| fs::read_to_string(&file).map_err(|error| in_file(&file, error))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_that_is_linked_has_its_licence() {
        let notices = text("x86_64-unknown-linux-musl").unwrap();
        for part in ["\n- half ", "\n- ndarray ", "Permission is hereby granted, free of charge", "Apache License"] {
            assert!(notices.contains(part), "{part:?} is missing");
        }
        assert!(!notices.contains("()"), "a package has no licence");
    }
}
