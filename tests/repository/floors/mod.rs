//! The testable invariants of ARCHITECTURE.md: imports go downwards without cycles, `unsafe` occurs only in the
//! kernels, and YAML parsing and file writing each have a single place.

mod circles;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use precast::Op;

/// Modules by floor, as in the table of ARCHITECTURE.md.
const FLOORS: &[&[&str]] = &[
    &["precast_base", "precast_policy", "logging", "printable", "dtype", "kernels"],
    &["catalogue", "options"],
    &["precision", "tensor", "observe", "ops", "gradcheck"],
    &["cell", "layers", "cost", "io", "recording"],
    &["plan", "storage", "autocast"],
    &["scale", "optim", "checkpoint", "compat"],
    &["guide"],
];

/// The folders of code: of the library, of the packages below it, of those on top, and of the ranks.
const CODE: [&str; 8] = [
    "src",
    "crates/base/src",
    "crates/diagnose/src",
    "crates/graph/src",
    "policies/src",
    "train/src",
    "cli/src",
    "mpi/src",
];

fn sources() -> Vec<(PathBuf, String)> {
    sources_in(CODE[0])
}

fn sources_in(folder: &str) -> Vec<(PathBuf, String)> {
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
    go(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found);
    found
}

/// Returns the code of a source, with comments and literal contents blanked, so that every remaining brace is code.
fn code_of(source: &str) -> String {
    let text: Vec<char> = source.chars().collect();
    let starts = |at: usize, what: &str| what.chars().enumerate().all(|(i, c)| text.get(at + i) == Some(&c));
    let mut code = String::with_capacity(source.len());
    let mut at = 0;
    while at < text.len() {
        let end = match text[at] {
            '/' if starts(at, "//") => (at..text.len()).find(|&i| text[i] == '\n').unwrap_or(text.len()),
            '/' if starts(at, "/*") => {
                let mut depth = 0;
                let mut i = at;
                while i < text.len() {
                    match () {
                        () if starts(i, "/*") => (depth, i) = (depth + 1, i + 2),
                        () if starts(i, "*/") => (depth, i) = (depth - 1, i + 2),
                        () => i += 1,
                    }
                    if depth == 0 {
                        break;
                    }
                }
                i
            }
            '"' => {
                // The hashes of a raw string precede the quote, and an `r` precedes them.
                let before: String = code.chars().rev().take_while(|c| *c == '#').collect();
                let raw = code[..code.len() - before.len()].ends_with('r');
                let mut i = at + 1;
                while i < text.len() && !(text[i] == '"' && (!raw || starts(i + 1, &before))) {
                    i += if text[i] == '\\' && !raw { 2 } else { 1 };
                }
                i + 1
            }
            // A lifetime has no closing quote.
            '\'' if starts(at + 1, "\\") => (at + 3..text.len()).find(|&i| text[i] == '\'').unwrap_or(at) + 1,
            '\'' if text.get(at + 2) == Some(&'\'') => at + 3,
            c => {
                code.push(c);
                at += 1;
                continue;
            }
        };
        let end = end.min(text.len());
        code.extend(text[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    code
}

/// Returns the code without the items compiled only for tests.
fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some((before, after)) = rest.split_once("#[cfg(test)]") {
        kept += before;
        let mut depth = 0;
        let end = after.char_indices().find(|(_, c)| {
            depth += match c {
                '{' | '(' | '[' => 1,
                '}' | ')' | ']' => -1,
                _ => 0,
            };
            depth == 0 && matches!(c, '}' | ';')
        });
        rest = end.map_or("", |(at, _)| &after[at + 1..]);
    }
    kept + rest
}

#[test]
fn what_is_removed_is_tests_and_nothing_else() {
    let source = r##"
        use a; // } #[cfg(test)]
        #[cfg(test)]
        #[allow(dead_code)]
        mod tests { const X: &str = "}"; fn f<'a>(c: char) -> bool { c == '}' || c == '\'' /* } */ } }
        use b;
        #[cfg(test)]
        use c;
        const R: &str = r#"#[cfg(test)] " "#;
        fn d() {}
    "##;
    let kept = without_tests(&code_of(source));
    let words: Vec<&str> = kept.split_whitespace().collect();
    assert_eq!(words, ["use", "a;", "use", "b;", "const", "R:", "&str", "=", "r#", "#;", "fn", "d()", "{}"]);
    // The two files in which a test module does not come last.
    for (file, name) in [("gemm/loops.rs", "fn "), ("gemm/few_rows.rs", "fn ")] {
        let (_, source) = sources().into_iter().find(|(path, _)| path.ends_with(file)).unwrap();
        let code = code_of(&source);
        let cut = code.split("#[cfg(test)]").next().unwrap();
        assert!(without_tests(&code).matches(name).count() > cut.matches(name).count(), "{file}");
    }
}

fn module_of(path: &Path) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let inside = CODE.iter().find_map(|folder| path.strip_prefix(root.join(folder)).ok()).unwrap();
    let first = inside.components().next().unwrap().as_os_str().to_string_lossy().to_string();
    first.trim_end_matches(".rs").to_string()
}

/// Returns the crate's own modules named in `crate::a::b`, `crate::{a, b::c}`, with items re-exported by lib.rs
/// resolved by `exports`.
fn imports(code: &str, exports: &BTreeMap<String, String>) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        // `$crate::` occurs in macros that expand in other modules and in other crates.
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
        for name in names.iter().filter(|name| !name.trim().is_empty()) {
            let first: String = name.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            found.push(exports.get(&first).cloned().unwrap_or(first));
        }
    }
    found
}

/// Maps items to modules, from the `pub use` lines of lib.rs, and macros to modules, for those at the root of the
/// crate.
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
    for (path, source) in sources() {
        for exported in source.split("#[macro_export]").skip(1) {
            let name = exported.split("macro_rules! ").nth(1).expect("a macro").split_whitespace().next().unwrap();
            exports.insert(name.to_string(), module_of(&path));
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
        // Unit tests may import anything.
        for import in imports(&without_tests(&code_of(&source)), &exports) {
            seen += 1;
            match floor(&import) {
                Some(there) if there > here => wrong.push(format!("{} imports {import}", path.display())),
                Some(_) => {}
                None => wrong.push(format!("{} imports {import}, which stands on no floor", path.display())),
            }
        }
    }
    assert!(seen > 100, "the reader of imports found only {seen}");
    assert!(wrong.is_empty(), "imports that run upwards:\n{}", wrong.join("\n"));
}

/// Returns the modules of the files of a folder of code, and their code.
fn modules_in(folder: &str) -> Vec<(circles::Module, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let module = |(path, source): (PathBuf, String)| {
        let inside = path.strip_prefix(&root).unwrap().with_extension("");
        let names = inside.iter().map(|name| name.to_string_lossy().to_string());
        (names.filter(|name| name != "mod" && name != "lib").collect(), without_tests(&code_of(&source)))
    };
    sources_in(folder).into_iter().filter(|(path, _)| !path.ends_with("tests.rs")).map(module).collect()
}

#[test]
fn files_import_each_other_in_no_circle() {
    for folder in CODE {
        let modules = modules_in(folder);
        assert!(circles::count(&modules) > modules.len(), "the reader of imports found too few");
        let found = circles::circles(&modules, |from, to| {
            let recursive =
                |module: &[String]| [("src", "tensor"), ("policies/src", "catalogue")].contains(&(folder, &*module[0]));
            match (from.first(), to.first()) {
                (None, _) | (_, None) => true,
                // No exceptions: a kernel is read from the bottom to the top.
                (Some(name), _) if name == "kernels" => false,
                // A tensor has a place on the tape, whose nodes have passes, parameters and tensors: one recursive type. So is an
                // op, which may be custom or of another system, each with the ops that have its names.
                _ if recursive(from) && recursive(to) => true,
                // A module and the files in its folder are one thing, which the module presents.
                _ => from.starts_with(to) || to.starts_with(from),
            }
        });
        assert!(found.is_empty(), "{folder}:\n{}", found.join("\n"));
    }
}

/// Clippy (`[lints.clippy]` in Cargo.toml) requires the documentation of unsafe functions and the soundness comment of
/// each block.
#[test]
fn unsafe_stands_in_kernels_only() {
    // The module of the ranks that calls MPI has the other.
    let ranks = sources_in("mpi/src").into_iter().filter(|(path, _)| module_of(path) != "mpi");
    let library = sources().into_iter().filter(|(path, _)| module_of(path) != "kernels");
    for (path, source) in library.chain(ranks) {
        let code = code_of(&source);
        let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
        assert!(!words.into_iter().any(|word| word == "unsafe"), "{} has unsafe code", path.display());
    }
}

#[test]
fn yaml_is_parsed_in_one_place() {
    for (path, source) in CODE.into_iter().flat_map(sources_in) {
        if code_of(&source).contains("granit_parser") {
            assert!(path.parent().unwrap().ends_with("document"), "{} parses YAML", path.display());
        }
    }
}

/// A file written in place is truncated after a crash or on a full disk.
/// The macros that print end the program when nobody reads the stream: a training run would be lost.
#[test]
fn nothing_is_printed_by_macros() {
    for (path, source) in CODE.into_iter().flat_map(sources_in) {
        let code = without_tests(&code_of(&source));
        for word in ["print!", "println!"] {
            let is_macro = |before: &str| !before.ends_with(|c: char| c.is_alphanumeric() && c != 'e' || c == '_');
            let met = code.match_indices(word).any(|(at, _)| is_macro(&code[..at]));
            assert!(!met, "{}: {word}", path.display());
        }
    }
}

#[test]
fn files_are_written_in_one_place() {
    for (path, source) in CODE.into_iter().flat_map(sources_in) {
        let code = without_tests(&code_of(&source));
        for word in ["fs::write", "fs::copy", "fs::rename", "File::create", "File::options", "OpenOptions"] {
            // The lock of a run, and its metrics, which grow line by line.
            let grows = path.ends_with("train/src/folder.rs") && word == "File::options";
            let here = ["files.rs", "files/tests.rs"].map(|file| format!("crates/base/src/{file}"));
            let here = here.iter().any(|file| path.ends_with(file)) || grows;
            assert!(here || !code.contains(word), "{}: {word}", path.display());
        }
    }
}

/// Returns the ops named in the code of `folder`: as `Op::Relu`, or in a macro row, as `relu Relu () |x| ...`.
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
