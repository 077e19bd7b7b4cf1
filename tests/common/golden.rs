//! Recorded behaviour of other systems.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
};

/// Returns the root of the repository.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().find(|dir| dir.join("tests/goldens").is_dir()).unwrap_or(package).to_path_buf()
}

/// Reads a recorded JSON file of `tests/goldens`, or of the folder named by `PRECAST_GOLDENS`, which holds other cases.
/// `None` if that folder lacks the file but has others, and in the published package, which has no recordings.
/// Otherwise a missing file fails.
pub fn golden(file: &str) -> Option<serde_json::Value> {
    let root = root();
    let elsewhere = env::var_os("PRECAST_GOLDENS").map(PathBuf::from);
    let path = elsewhere.clone().unwrap_or_else(|| root.join("tests/goldens")).join(file);
    // Cargo writes this file into every package.
    let is_published = || root.join("Cargo.toml.orig").exists();
    if let Some(folder) = &elsewhere {
        let here = folder.join(file).exists() || has_recordings(folder);
        let folder = folder.display();
        assert!(
            here,
            "PRECAST_GOLDENS: `{folder}` is not a folder with recordings, which has {file} or others of tests/goldens"
        );
    }
    match fs::read_to_string(&path) {
        Ok(text) => Some(serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))),
        Err(_) if elsewhere.is_some() || is_published() => {
            say_left_out(&path.display().to_string());
            None
        }
        Err(e) => panic!("{}: {e}", path.display()),
    }
}

/// Reads a file of `tests/goldens-extra`, which `PRECAST_GOLDENS` does not affect. `None` in the published package.
pub fn recorded_beside(file: &str) -> Option<serde_json::Value> {
    let root = root();
    let path = root.join("tests/goldens-extra").join(file);
    match fs::read_to_string(&path) {
        Ok(text) => Some(serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))),
        Err(_) if root.join("Cargo.toml.orig").exists() => None,
        Err(e) => panic!("{}: {e}", path.display()),
    }
}

/// Reports a case missing from the folder named by `PRECAST_GOLDENS`. Our own recordings must have it.
#[track_caller]
pub fn left_out(case: &str) {
    assert!(env::var_os("PRECAST_GOLDENS").is_some(), "not in tests/goldens: {case}");
    say_left_out(case);
}

/// Writes directly to the stream, which the harness does not capture.
fn say_left_out(what: &str) {
    let _ = writeln!(std::io::stdout(), "left out, for it is not here: {what}");
}

/// Returns whether a folder has any of the files in `tests/goldens`, so that others may be left out. A missing folder
/// has none.
fn has_recordings(folder: &Path) -> bool {
    fn files(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
    }
    let ours = root().join("tests/goldens");
    let names = files(&ours).into_iter().filter_map(|path| path.strip_prefix(&ours).ok().map(Path::to_path_buf));
    names.into_iter().any(|name| name.extension().is_some_and(|last| last == "json") && folder.join(name).is_file())
}
