//! COMPARE.md: the last column of every table names existing tests, and every file it names exists.

use std::{
    fs,
    path::{Path, PathBuf},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Iterates over the texts between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the Rust source at a path: of a file, or of the files of a folder.
fn source(path: &str) -> String {
    let path = root().join(path);
    let files: Vec<PathBuf> = match path.is_dir() {
        true => fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect(),
        false => vec![path],
    };
    files.iter().map(|file| fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))).collect()
}

/// Returns whether a source has a test of this name that is not ignored: a function with the attribute above it.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let begins = format!("fn {name}(");
    lines.iter().enumerate().any(|(i, line)| {
        line.starts_with(&begins) && {
            let above = || lines[..i].iter().rev().take_while(|above| above.starts_with("#["));
            // Ignored tests count if a part of the nightly command runs them.
            let runs = |above: &str| !above.starts_with("#[ignore") || above.contains("cargo xtask nightly");
            above().any(|above| *above == "#[test]") && above().all(|above| runs(above))
        }
    })
}

/// One row of a table whose last column is called `test`.
struct Row<'a> {
    line: usize,
    /// Text of the test column.
    test: &'a str,
    /// Place of the tests, given in the text above the table.
    place: Option<&'a str>,
}

/// Returns all such rows. `... are in `PATH`` gives the place of the tests of the tables below, up to the next heading.
fn rows(compare: &str) -> Vec<Row<'_>> {
    let (mut rows, mut place, mut is_table, mut said) = (vec![], None, false, "");
    for (i, line) in compare.lines().enumerate() {
        if line.starts_with('#') {
            (place, is_table) = (None, false);
        }
        if !line.starts_with('|') {
            is_table = false;
            // The path may be on the next line.
            let path = match line.rsplit_once(" are in ") {
                Some((_, path)) => quoted(path).next(),
                None if said.ends_with(" are in") => quoted(line).next(),
                None => None,
            };
            place = path.or(place);
            said = line;
            continue;
        }
        let last = line.trim_matches('|').rsplit('|').next().unwrap_or_default().trim();
        match last {
            "test" => is_table = true,
            "---" => {}
            test if is_table => rows.push(Row { line: i + 1, test, place }),
            _ => {}
        }
    }
    rows
}

#[test]
fn every_row_names_tests_that_exist() {
    let compare = fs::read_to_string(root().join("docs/COMPARE.md")).unwrap();
    let rows = rows(&compare);
    assert!(rows.len() > 170, "{} rows were found", rows.len());
    let mut wrong = vec![];
    for Row { line, test, place } in rows {
        // Rows about forms that cannot be written, or about absent features, need no test.
        if matches!(test, "by its type" | "-") {
            continue;
        }
        if let Some(command) = test.strip_prefix("`cargo xtask ").and_then(|rest| rest.strip_suffix('`')) {
            let main = fs::read_to_string(root().join("tools/xtask/src/main.rs")).unwrap();
            if !main.contains(&format!("Command {{ name: \"{command}\",")) {
                wrong.push(format!("line {line}: there is no command {test}"));
            }
            continue;
        }
        let (names, place) = match test.split_once(" in ") {
            Some((names, path)) => (names, quoted(path).next()),
            None => (test, place),
        };
        let Some(place) = place else {
            wrong.push(format!("line {line} says of no file that `{test}` is there"));
            continue;
        };
        let source = source(place);
        if quoted(names).next().is_none() {
            wrong.push(format!("line {line} names no test: {test}"));
        }
        for name in quoted(names).filter(|name| !has_test(&source, name)) {
            wrong.push(format!("line {line}: {place} has no test `{name}`"));
        }
    }
    assert!(wrong.is_empty(), "COMPARE.md\n{}", wrong.join("\n"));
}

#[test]
fn every_file_that_compare_names_exists() {
    let compare = fs::read_to_string(root().join("docs/COMPARE.md")).unwrap();
    // The last section names files of other crates.
    let ours = compare.split("\n## Beside other Rust crates").next().unwrap();
    let paths = ours.lines().flat_map(quoted).filter(|name| name.starts_with("tests/") || name.starts_with("src/"));
    let missing: Vec<&str> = paths.filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "COMPARE.md names files that are not there: {missing:?}");
}

#[test]
fn tables_of_compare_can_be_read() {
    let compare = fs::read_to_string(root().join("docs/COMPARE.md")).unwrap();
    let long = |cell: &&str| cell.trim().chars().count() > 100;
    // The last cell names tests, whose names may be long.
    let cells = compare.lines().filter(|line| line.starts_with('|')).flat_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        cells[..cells.len() - 1].to_vec()
    });
    let long: Vec<&str> = cells.filter(long).collect();
    assert!(long.is_empty(), "cells of more than 100 characters: {long:#?}");
}
