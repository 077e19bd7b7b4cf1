//! The invariants of ARCHITECTURE.md that a test can hold: imports run downwards, no `unsafe` outside the kernels, YAML is
//! parsed in two places only.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use precast::Op;

/// Modules by floor, as the table in ARCHITECTURE.md has them.
const FLOORS: &[&[&str]] = &[
    &["error", "dtype", "files", "kernels", "printable"],
    &["op", "precision", "observe"],
    &["tensor", "ops", "check"],
    &["cell", "cells", "host", "models", "weights"],
    &["policy"],
    &["rewrite", "autocast", "run"],
    &["scale", "optim", "train"],
    &["report", "cli", "main"],
];

fn sources() -> Vec<(PathBuf, String)> {
    fn go(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                go(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push((path.clone(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut found = Vec::new();
    go(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    found
}

fn module_of(path: &Path) -> String {
    let inside = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    let first = inside.components().next().unwrap().as_os_str().to_string_lossy().to_string();
    first.trim_end_matches(".rs").to_string()
}

/// The crate's own modules named in `crate::a::b`, `crate::{a, b::c}`, with items that lib.rs re-exports resolved by `exports`.
fn imports(source: &str, exports: &BTreeMap<String, String>) -> Vec<String> {
    let mut found = Vec::new();
    let code: Vec<&str> = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    for (at, _) in code.match_indices("crate::") {
        // `$crate::` stands in macros that expand in other modules and in other crates.
        if code[..at].ends_with('$') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        let names: Vec<String> = if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 1;
            let mut name = String::new();
            let mut names = Vec::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => {}
                }
                if depth == 0 || (depth == 1 && c == ',') {
                    names.push(std::mem::take(&mut name));
                    if depth == 0 {
                        break;
                    }
                } else {
                    name.push(c);
                }
            }
            names
        } else {
            vec![rest.to_string()]
        };
        for name in names {
            let first: String = name.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            found.push(exports.get(&first).cloned().unwrap_or(first));
        }
    }
    found
}

/// Item -> module, from the `pub use` lines of lib.rs.
fn exports() -> BTreeMap<String, String> {
    let lib = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let mut exports = BTreeMap::new();
    for line in lib.split(';').map(str::trim) {
        let Some(path) = line.rsplit("pub use ").next().filter(|_| line.contains("pub use ")) else { continue };
        let Some((module, items)) = path.split_once("::") else { continue };
        for item in items.trim_matches(['{', '}']).split(',').filter(|item| !item.trim().is_empty()) {
            let item = item.trim().rsplit(" as ").next().unwrap_or_default();
            exports.insert(item.trim_matches(['{', '}']).to_string(), module.trim().to_string());
        }
    }
    exports
}

#[test]
fn imports_run_downwards() {
    let floor = |module: &str| FLOORS.iter().position(|floor| floor.contains(&module));
    let exports = exports();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (path, source) in sources() {
        let module = module_of(&path);
        if module == "lib" || module == "prelude" {
            continue;
        }
        let here = floor(&module).unwrap_or_else(|| panic!("{} stands on no floor", path.display()));
        // Tests under a file may look anywhere.
        let code = source.split("#[cfg(test)]").next().unwrap();
        for import in imports(code, &exports) {
            seen += 1;
            match floor(&import) {
                Some(there) if there > here => wrong.push(format!("{} imports {import}", path.display())),
                _ => {}
            }
        }
    }
    assert!(seen > 100, "the reader of imports found only {seen}");
    assert!(wrong.is_empty(), "imports that run upwards:\n{}", wrong.join("\n"));
}

#[test]
fn unsafe_stands_in_kernels_only_and_each_has_its_reason() {
    for (path, source) in sources() {
        for (number, line) in source.lines().enumerate() {
            let code = line.split("//").next().unwrap();
            if code.contains("unsafe ") && !code.contains("unsafe_code") {
                let place = format!("{}:{}", path.display(), number + 1);
                assert_eq!(module_of(&path), "kernels", "{place} has unsafe code");
                let before: Vec<&str> = source.lines().take(number).collect();
                let reason = before.iter().rev().take(4).any(|line| line.contains("SAFETY:"));
                assert!(reason, "{place}: an unsafe block without `// SAFETY:`");
            }
        }
    }
}

#[test]
fn yaml_is_parsed_in_two_places() {
    for (path, source) in sources() {
        let module = module_of(&path);
        let code = source.split("#[cfg(test)]").next().unwrap();
        if code.contains("serde_yaml::from_") {
            assert!(["policy", "models"].contains(&module.as_str()), "{} parses YAML", path.display());
        }
    }
}

/// Ops that the sources of `folder` name in code: as `Op::Relu`, or in the row of a macro, as `relu Relu () |x| ...`.
fn ops_named_in(folder: &str) -> BTreeSet<&'static str> {
    let names: BTreeSet<&'static str> = Op::ALL.iter().map(|op| op.name()).collect();
    let mut found = BTreeSet::new();
    for (_, source) in sources().into_iter().filter(|(path, _)| module_of(path) == folder) {
        let mut in_rows = false;
        for line in source.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let invokes = line.split_once("! {").is_some_and(|(name, rest)| {
                rest.is_empty() && !name.is_empty() && name.chars().all(|c| c.is_lowercase() || c == '_')
            });
            in_rows = (in_rows || invokes) && !line.starts_with('}');
            let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
            for pair in words.windows(2) {
                let method = in_rows && pair[0].starts_with(char::is_lowercase);
                let after_op = line.contains(&format!("Op::{}", pair[1]));
                found.extend(names.get(pair[1]).filter(|_| method || after_op));
            }
        }
    }
    found
}

#[test]
fn the_catalogue_knows_which_ops_have_a_kernel() {
    // Casts are done by the tensor itself.
    let dispatched = &ops_named_in("ops") | &ops_named_in("tensor");
    let with_kernel: BTreeSet<&str> = Op::ALL.iter().filter(|op| op.has_kernel()).map(|op| op.name()).collect();
    assert_eq!(dispatched, with_kernel);
}
