//! Recorded behaviour of other systems.

use std::{env, fs, path::PathBuf};

/// A recorded JSON file of `tests/goldens`, or of the folder that `PRECAST_GOLDENS` names, which holds other cases. `None`
/// where that folder lacks the file, and in the published package, which has no recordings. Anywhere else a file that is
/// not there fails.
pub fn golden(file: &str) -> Option<serde_json::Value> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let elsewhere = env::var_os("PRECAST_GOLDENS").map(PathBuf::from);
    let path = elsewhere.clone().unwrap_or_else(|| root.join("tests/goldens")).join(file);
    // Cargo writes this file into every package.
    let is_published = || root.join("Cargo.toml.orig").exists();
    match fs::read_to_string(&path) {
        Ok(text) => Some(serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))),
        Err(_) if elsewhere.is_some() || is_published() => {
            println!("left out: {} is not here", path.display());
            None
        }
        Err(e) => panic!("{}: {e}", path.display()),
    }
}
