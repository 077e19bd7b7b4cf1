//! The one place that writes files.

use std::{fs, path::Path};

/// The folders of code.
const CODE: [&str; 12] = [
    "crates/cli/src",
    "crates/base/src",
    "crates/diagnose/src",
    "crates/explorer/src",
    "crates/graph/src",
    "crates/kernels/src",
    "crates/lowbit/src",
    "crates/tensor/src",
    "crates/mpi/src",
    "policies/src",
    "src",
    "crates/train/src",
];

fn files(folder: &Path, look: &mut impl FnMut(&Path, &str)) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true => files(&path, look),
            false => look(&path, &fs::read_to_string(&path).unwrap_or_default()),
        }
    }
}

/// A file written in place is truncated after a crash or on a full disk.
#[test]
fn files_are_written_in_one_place() {
    let mut seen = 0;
    for folder in CODE {
        files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut |path, source| {
            // Unit tests come last in their file, or have one of their own.
            let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let is_tests = path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests");
            let writes =
                |word: &&str| code.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(*word));
            let words = ["fs::write", "fs::copy", "fs::rename", "File::create", "File::options", "OpenOptions"];
            let found: Vec<&str> = words.into_iter().filter(writes).collect();
            if path.ends_with("crates/base/src/files.rs") {
                seen += found.len();
                return;
            }
            // The lock of a run, and its metrics, which grow line by line.
            let grows = path.ends_with("crates/train/src/folder.rs") && found == ["File::options"];
            assert!(is_tests || grows || found.is_empty(), "{}: {found:?}", path.display());
        });
    }
    assert!(seen > 2, "the reader found {seen} kinds of writing in the place that writes");
}
