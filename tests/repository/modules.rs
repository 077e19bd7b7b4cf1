//! The files of tests: each is a module of a target, for one that no module names would not even be compiled.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Adds a file and the files of its modules.
fn add(file: PathBuf, found: &mut BTreeSet<PathBuf>) {
    let Ok(source) = fs::read_to_string(&file) else { return };
    let folder = file.parent().unwrap().to_path_buf();
    let inside = match file.file_stem().unwrap().to_str().unwrap() {
        "main" | "mod" => folder,
        name => folder.join(name),
    };
    if found.insert(file) {
        let modules = source.lines().filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod "));
        for name in modules.filter_map(|rest| rest.strip_suffix(';')) {
            add(inside.join(name).with_extension("rs"), found);
            add(inside.join(name).join("mod.rs"), found);
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn every_file_of_tests_is_a_module_of_a_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tests = root.join("tests");
    let packages =
        ["cli", "diagnose", "graph", "lowbit", "mpi", "train"].map(|name| root.join(format!("crates/{name}/tests")));
    let all: Vec<PathBuf> = [tests.clone()].into_iter().chain(packages).collect();
    let mut found = BTreeSet::new();
    for folder in all.iter().flat_map(|tests| fs::read_dir(tests).unwrap()) {
        add(folder.unwrap().path().join("main.rs"), &mut found);
    }
    // Each target includes this folder.
    add(tests.join("common/mod.rs"), &mut found);
    assert!(found.len() > 200, "{} files", found.len());
    // The compiler reads these by itself.
    let is_read = |file: &PathBuf| file.iter().any(|part| part == "ui");
    let rust = all.iter().flat_map(|tests| files(tests)).filter(|file| file.extension().is_some_and(|end| end == "rs"));
    let lost: Vec<PathBuf> = rust.filter(|file| !is_read(file) && !found.contains(file)).collect();
    assert!(lost.is_empty(), "no module names {lost:?}");
}
