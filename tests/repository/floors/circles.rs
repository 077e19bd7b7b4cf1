//! Import cycles between files: a file must not import itself, directly or through others.
//!
//! A file imports another if a path in its code, in a `use` or elsewhere, leads to an item of the other. `mod name;`
//! alone imports nothing. A child that uses an item of its parent module, which itself uses the child, is a cycle like
//! any other; the shared item belongs in a separate file.

use std::collections::{BTreeMap, BTreeSet};

/// Path of a module from the root of the crate: `kernels::gemm::pack`.
pub type Module = Vec<String>;

/// Returns the cycles among modules, each as a chain `a -> b -> a`. Sources are without comments, literals and tests.
pub fn circles(sources: &[(Module, String)]) -> Vec<String> {
    let modules: BTreeSet<&[String]> = sources.iter().map(|(module, _)| &module[..]).collect();
    let graph: BTreeMap<&[String], BTreeSet<&[String]>> =
        sources.iter().map(|(module, code)| (&module[..], imports(code, module, &modules))).collect();
    let mut found = Vec::new();
    let mut finished = BTreeSet::new();
    for module in graph.keys() {
        search(&graph, module, &mut Vec::new(), &mut finished, &mut found);
    }
    found
}

/// Counts the imports.
pub fn count(sources: &[(Module, String)]) -> usize {
    let modules: BTreeSet<&[String]> = sources.iter().map(|(module, _)| &module[..]).collect();
    sources.iter().map(|(module, code)| imports(code, module, &modules).len()).sum()
}

/// Searches depth-first; `chain` is the path to `module`.
fn search<'a>(
    graph: &BTreeMap<&'a [String], BTreeSet<&'a [String]>>,
    module: &'a [String],
    chain: &mut Vec<&'a [String]>,
    finished: &mut BTreeSet<&'a [String]>,
    found: &mut Vec<String>,
) {
    if let Some(start) = chain.iter().position(|other| *other == module) {
        let names: Vec<String> = chain[start..].iter().chain([&module]).map(|module| module.join("::")).collect();
        found.push(names.join(" -> "));
    } else if !finished.contains(module) {
        chain.push(module);
        for next in &graph[module] {
            search(graph, next, chain, finished, found);
        }
        chain.pop();
        finished.insert(module);
    }
}

/// Returns the modules with separate files to which the paths in a module's code lead.
fn imports<'a>(code: &str, here: &[String], modules: &BTreeSet<&'a [String]>) -> BTreeSet<&'a [String]> {
    let mut found = BTreeSet::new();
    for (path, inline) in paths(code) {
        let mut rest = &path[..];
        let mut base: Module = match rest[0].as_str() {
            "crate" => Vec::new(),
            "self" => here.to_vec(),
            "super" => {
                // Out of modules written in this file, and then out of this one.
                let up = rest.iter().take_while(|name| *name == "super").count();
                rest = &rest[up - 1..];
                match up.checked_sub(inline) {
                    Some(up) => here[..here.len().saturating_sub(up)].to_vec(),
                    None => continue,
                }
            }
            child if modules.contains(&[here, &[child.to_string()]].concat()[..]) => [here, &rest[..1]].concat(),
            _ => continue,
        };
        for name in &rest[1..] {
            base.push(name.clone());
            if !modules.contains(&base[..]) {
                base.pop();
                break;
            }
        }
        if base != here {
            found.extend(modules.get(&base[..]).copied());
        }
    }
    found
}

/// Returns all paths of two names or more, those of a `use` with braces one by one, each with the number of enclosing
/// modules in the same file.
fn paths(code: &str) -> Vec<(Vec<String>, usize)> {
    let mut tokens = tokens(code).into_iter().peekable();
    let mut found = Vec::new();
    // For each open brace: the path before it if it belongs to a `use`, and whether it belongs to a module.
    let mut braces: Vec<(Option<Vec<String>>, bool)> = Vec::new();
    let mut path: Vec<String> = Vec::new();
    let mut before = String::new();
    while let Some(token) = tokens.next() {
        let inline = braces.iter().filter(|(_, module)| *module).count();
        let prefix = braces.last().and_then(|(prefix, _)| prefix.clone()).unwrap_or_default();
        match token.as_str() {
            "::" => {}
            "{" => {
                let of_use = (before == "::").then(|| [prefix, std::mem::take(&mut path)].concat());
                braces.push((of_use, before == "mod"));
            }
            "}" => drop(braces.pop()),
            name if name.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                // `$crate` is a path at the place where the macro is used.
                if before != "$" {
                    path.push(name.to_string());
                }
                if tokens.peek().is_none_or(|next| next != "::") {
                    let whole = [prefix, std::mem::take(&mut path)].concat();
                    if whole.len() > 1 {
                        found.push((whole, inline));
                    }
                }
            }
            // `a::*` and `a::f::<T>`.
            _ if before == "::" && !path.is_empty() => {
                found.push(([prefix, std::mem::take(&mut path), vec![token.clone()]].concat(), inline));
            }
            _ => path.clear(),
        }
        // `mod name {` is remembered up to its brace.
        if before != "mod" || token == "{" || token == ";" {
            before = token;
        }
    }
    found
}

/// Splits code into names, `::`, and single characters.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut last = ' ';
    for c in code.chars() {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        match tokens.last_mut() {
            Some(token) if word(c) && word(last) => token.push(c),
            Some(token) if c == ':' && last == ':' && token == ":" => token.push(c),
            _ if c.is_whitespace() => {}
            _ => tokens.push(c.to_string()),
        }
        last = c;
    }
    tokens
}

#[test]
fn circles_are_found_and_nothing_else() {
    let find = |sources: &[(&str, &str)]| {
        let split = |name: &str| name.split("::").map(str::to_string).collect::<Module>();
        circles(&sources.iter().map(|(name, code)| (split(name), code.to_string())).collect::<Vec<_>>())
    };
    assert_eq!(find(&[("a", "use crate::b::{c, d};"), ("b", "fn f() { crate::a::g() }")]), ["a -> b -> a"]);
    let three = [("a", "mod b; mod c; mod d;"), ("a::b", "use super::{c::{X}, Y};"), ("a::c", "use super::d;")];
    assert_eq!(find(&[&three[..], &[("a::d", "use crate::a::b::Z;")]].concat()), ["a::b -> a::c -> a::d -> a::b"]);
    assert!(find(&[&three[..], &[("a::d", "mod e { use super::super::x; use super::f; }")]].concat()).is_empty());
    assert_eq!(find(&[("a", "use crate::b::*;"), ("b", "crate::a::f::<u8>();")]), ["a -> b -> a"]);
    // A parent and its child that use each other.
    let parent = ("a", "mod b; pub use b::f; pub const X: u32 = 1;");
    assert_eq!(find(&[parent, ("a::b", "pub fn f() -> u32 { super::X }")]), ["a -> a::b -> a"]);
    assert!(find(&[parent, ("a::b", "mod e { const X: u32 = super::X; }")]).is_empty());
    assert!(
        find(&[("a", "mod b; macro_rules! m { () => { $crate::a::b::f() } }"), ("a::b", "use super::X;")]).is_empty()
    );
}
