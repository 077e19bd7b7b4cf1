//! Import cycles between files: a file must not import itself, directly or through others.
//!
//! A file imports another if a path in its code, in a `use` or elsewhere, leads to an item of the other. `mod name;`
//! alone imports nothing, nor does a `pub use` of an item that the file itself does not use: a path to a re-exported item
//! leads to the file that defines it. A child that uses an item of its parent module, which itself uses the child, is a
//! cycle like any other; the shared item belongs in a separate file.

use std::collections::{BTreeMap, BTreeSet};

/// Path of a module from the root of the crate: `kernels::gemm::pack`. The root has no names.
pub type Module = Vec<String>;

/// A path in the code of a file.
#[derive(Clone, Debug)]
struct Path {
    names: Vec<String>,
    /// Number of enclosing modules in the same file.
    inline: usize,
    /// The name that a `use` gives to the item, and whether the `use` is public. `None` for other paths.
    brings: Option<(String, bool)>,
}

/// The modules of a crate, each with its paths.
struct Modules {
    paths: BTreeMap<Module, Vec<Path>>,
    /// The items that modules import or re-export, by module and name.
    brought: BTreeMap<(Module, String), Vec<String>>,
}

/// Returns the cycles among modules, each as a chain `a -> b -> a`. Sources are without comments, literals and tests.
/// Imports for which `may` holds are left out.
pub fn circles(sources: &[(Module, String)], may: impl Fn(&[String], &[String]) -> bool) -> Vec<String> {
    let mut graph = imports(sources);
    graph.iter_mut().for_each(|(from, to)| to.retain(|to| !may(from, to)));
    let mut found = Vec::new();
    let mut finished = BTreeSet::new();
    for module in graph.keys() {
        search(&graph, module, &mut Vec::new(), &mut finished, &mut found);
    }
    found
}

/// Counts the imports.
pub fn count(sources: &[(Module, String)]) -> usize {
    imports(sources).values().map(BTreeSet::len).sum()
}

/// Searches depth-first; `chain` is the path to `module`.
fn search<'a>(
    graph: &'a BTreeMap<Module, BTreeSet<Module>>,
    module: &'a Module,
    chain: &mut Vec<&'a Module>,
    finished: &mut BTreeSet<&'a Module>,
    found: &mut Vec<String>,
) {
    if let Some(start) = chain.iter().position(|other| *other == module) {
        let names: Vec<String> = chain[start..].iter().chain([&module]).map(|module| module.join("::")).collect();
        found.push(names.join(" -> "));
    } else if !finished.contains(module) {
        chain.push(module);
        for next in graph.get(module).into_iter().flatten() {
            search(graph, next, chain, finished, found);
        }
        chain.pop();
        finished.insert(module);
    }
}

/// Returns the modules whose items each module uses.
fn imports(sources: &[(Module, String)]) -> BTreeMap<Module, BTreeSet<Module>> {
    let paths = sources.iter().map(|(module, code)| (module.clone(), paths(code))).collect();
    let mut modules = Modules { paths, brought: BTreeMap::new() };
    for (module, paths) in &modules.paths {
        for path in paths {
            if let (Some((name, _)), Some(from)) = (&path.brings, modules.absolute(path, module)) {
                modules.brought.insert((module.clone(), name.clone()), from);
            }
        }
    }
    let of = |(module, code): &(Module, String)| {
        let tokens = tokens(code);
        let used = |path: &Path| match &path.brings {
            Some((name, true)) => tokens.iter().filter(|token| *token == name).count() > 1,
            _ => true,
        };
        let paths = modules.paths[module].iter().filter(|path| used(path));
        let found = paths.filter_map(|path| modules.defines(modules.absolute(path, module)?, 0));
        (module.clone(), found.filter(|found| found != module).collect())
    };
    sources.iter().map(of).collect()
}

impl Modules {
    /// Returns a path from the root, or `None` for one that leads out of the crate.
    fn absolute(&self, path: &Path, here: &[String]) -> Option<Vec<String>> {
        let names = &path.names[..];
        let local = |name: &String| {
            let child = [here, std::slice::from_ref(name)].concat();
            self.paths.contains_key(&child) || self.brought.contains_key(&(here.to_vec(), name.clone()))
        };
        match names[0].as_str() {
            "crate" => Some(names[1..].to_vec()),
            "self" => Some([here, &names[1..]].concat()),
            "super" => {
                // Out of modules written in this file, and then out of this one.
                let up = names.iter().take_while(|name| *name == "super").count();
                let out = up.checked_sub(path.inline)?;
                Some([&here[..here.len().saturating_sub(out)], &names[up..]].concat())
            }
            _ if local(&names[0]) => Some([here, names].concat()),
            _ => None,
        }
    }

    /// Returns the module that defines the item at a path from the root.
    fn defines(&self, path: Vec<String>, depth: usize) -> Option<Module> {
        let mut base = Module::new();
        for (at, name) in path.iter().enumerate() {
            let next = [&base[..], std::slice::from_ref(name)].concat();
            if self.paths.contains_key(&next) {
                base = next;
                continue;
            }
            return match self.brought.get(&(base.clone(), name.clone())) {
                // A path that begins with a name of itself ends the search.
                Some(from) if depth < 16 => self.defines([&from[..], &path[at + 1..]].concat(), depth + 1),
                _ => self.paths.contains_key(&base).then_some(base),
            };
        }
        self.paths.contains_key(&base).then_some(base)
    }
}

/// Returns all paths of two names or more, those of a `use` with braces one by one.
fn paths(code: &str) -> Vec<Path> {
    let mut tokens = tokens(code).into_iter().peekable();
    let mut found: Vec<Path> = Vec::new();
    // For each open brace: the path before it if it belongs to a `use`, and whether it belongs to a module.
    let mut braces: Vec<(Option<Vec<String>>, bool)> = Vec::new();
    let mut path: Vec<String> = Vec::new();
    let mut before = String::new();
    // Whether the statement began with `pub`, and, inside of a `use`, whether that is public.
    let (mut public, mut using) = (false, None);
    while let Some(token) = tokens.next() {
        let inline = braces.iter().filter(|(_, module)| *module).count();
        let prefix = braces.last().and_then(|(prefix, _)| prefix.clone()).unwrap_or_default();
        let brings = |names: &[String]| {
            let name = names.iter().rev().find(|name| *name != "self").cloned().unwrap_or_default();
            using.map(|public| (name, public))
        };
        match token.as_str() {
            "::" => {}
            "pub" => public = true,
            "use" => using = Some(public),
            ";" => (public, using) = (false, None),
            "as" => {
                // The path before is that of the item.
                let name = tokens.next();
                if let (Some(Path { brings: Some((brought, _)), .. }), Some(name)) = (found.last_mut(), name) {
                    *brought = name;
                }
            }
            "{" => {
                let of_use = (before == "::").then(|| [prefix, std::mem::take(&mut path)].concat());
                public &= of_use.is_some();
                braces.push((of_use, before == "mod"));
            }
            "}" => drop(braces.pop()),
            name if name.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                // `$crate` is a path at the place where the macro is used.
                if before != "$" {
                    path.push(name.to_string());
                }
                if tokens.peek().is_none_or(|next| next != "::") {
                    let names = [prefix, std::mem::take(&mut path)].concat();
                    if names.len() > 1 {
                        let brings = brings(&names);
                        let names =
                            if names[names.len() - 1] == "self" { names[..names.len() - 1].to_vec() } else { names };
                        found.push(Path { names, inline, brings });
                    }
                }
            }
            // `a::*` and `a::f::<T>`.
            _ if before == "::" && !path.is_empty() => {
                let names = [prefix, std::mem::take(&mut path), vec![token.clone()]].concat();
                found.push(Path { names, inline, brings: brings(std::slice::from_ref(&token)) });
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
        let split =
            |name: &str| name.split("::").filter(|name| !name.is_empty()).map(str::to_string).collect::<Module>();
        circles(&sources.iter().map(|(name, code)| (split(name), code.to_string())).collect::<Vec<_>>(), |_, _| false)
    };
    assert_eq!(find(&[("a", "use crate::b::{c, d};"), ("b", "fn f() { crate::a::g() }")]), ["a -> b -> a"]);
    let three = [("a", "mod b; mod c; mod d;"), ("a::b", "use super::{c::{X}, Y};"), ("a::c", "use super::d;")];
    assert_eq!(find(&[&three[..], &[("a::d", "use crate::a::b::Z;")]].concat()), ["a::b -> a::c -> a::d -> a::b"]);
    assert!(find(&[&three[..], &[("a::d", "mod e { use super::super::x; use super::f; }")]].concat()).is_empty());
    assert_eq!(find(&[("a", "use crate::b::*;"), ("b", "crate::a::f::<u8>();")]), ["a -> b -> a"]);
    // A path to a re-exported item leads to the file that defines it, and a `pub use` alone imports nothing.
    let face = ("a", "mod b; mod c; pub use b::B; pub(crate) use c::C as D;");
    assert!(find(&[face, ("a::b", "use super::D;"), ("a::c", "struct C;")]).is_empty());
    assert_eq!(find(&[face, ("a::b", "use super::D;"), ("a::c", "use crate::a::B;")]), ["a::b -> a::c -> a::b"]);
    assert_eq!(
        find(&[("", "mod a; pub use a::A;"), ("a", "mod b; use b::B;"), ("a::b", "use crate::A;")]),
        ["a -> a::b -> a"]
    );
    // A parent and its child that use each other.
    let parent = ("a", "mod b; use b::f; pub const X: u32 = 1;");
    assert_eq!(find(&[parent, ("a::b", "pub fn f() -> u32 { super::X }")]), ["a -> a::b -> a"]);
    assert!(find(&[parent, ("a::b", "mod e { const X: u32 = super::X; }")]).is_empty());
    assert!(
        find(&[("a", "mod b; macro_rules! m { () => { $crate::a::b::f() } }"), ("a::b", "use super::X;")]).is_empty()
    );
}
