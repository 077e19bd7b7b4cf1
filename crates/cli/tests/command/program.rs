//! The command `precast`, as run by tests.

use std::{
    ffi::OsStr,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

pub use crate::common::folder::Folder;

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Creates the command, to be run in a folder.
pub fn command(folder: &Path, args: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_precast"));
    // Measurements of the machine are cached with the tests' files, not in the user's cache.
    command.args(args).current_dir(folder).env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

pub fn precast_in(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

/// Runs the command in the root of the repository.
pub fn precast(args: &[&str]) -> Output {
    precast_in(root(), args)
}

/// Returns standard error without the lines of epochs and those that name the files that were written.
pub fn messages(stderr: Vec<u8>) -> String {
    let stderr = String::from_utf8(stderr).unwrap();
    let is_progress =
        |line: &str| line.contains(": epoch ") && line.contains(", loss ") || line.starts_with("written: ");
    stderr.split_inclusive('\n').filter(|line| !is_progress(line)).collect()
}

/// Returns standard output of a run that must succeed with nothing but such lines on standard error.
pub fn text(output: Output) -> String {
    let stderr = messages(output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{}: {stderr}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

pub fn json(output: Output) -> Value {
    serde_json::from_str(&text(output)).unwrap()
}

/// Returns the JSON of a run in the root of the repository.
pub fn json_of(args: &[&str]) -> Value {
    json(precast(args))
}

/// Returns the message of a run that must end with this status and empty standard output.
pub fn error(code: i32, output: Output) -> String {
    let stderr = messages(output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.starts_with("error: "), "{stderr}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
    stderr
}

/// Returns two classes of points separated by a line, those with x + y above 10 and the others; perhaps with ids in front.
pub fn points(with_ids: bool) -> String {
    let row = |i| {
        let (x, y) = (f64::from(i % 10) + 0.5, f64::from(i / 10) + 0.25);
        let id = if with_ids { format!("\"p, {i}\",") } else { String::new() };
        format!("{id}{x},{y},{}\n", if x + y > 10.0 { "above" } else { "below" })
    };
    let header = if with_ids { "id,x,y,side\n" } else { "x,y,side\n" };
    [header.to_string()].into_iter().chain((0..100).map(row)).collect()
}

/// Returns a folder with `points.csv`, `net.yaml` and `run.yaml`.
pub fn folder_of_run(test: &str, points: &str, model: &str, run: &str) -> Folder {
    let folder = Folder::new(test);
    for (name, text) in [("points.csv", points), ("net.yaml", model), ("run.yaml", run)] {
        folder.write(name, text);
    }
    folder
}

/// Returns the cells of the rows of the first table in a text, without its head.
pub fn rows(text: &str) -> Vec<Vec<&str>> {
    let table = text.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    table.skip(2).map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}
