//! `cargo xtask api [--check]`: the public interface as text, one file for each package, so that a change of it shows in a diff.
//!
//! It is read from the pages of rustdoc, which expand macros, follow re-exports and leave out what is hidden.

use std::{collections::HashMap, fs};

use crate::shell::{self, Result};

pub const ABOUT: &str = "writes docs/public-api, the public interface of each package [--check: compares it]";

/// The packages whose interface is public, with the names of their crates.
const PACKAGES: [(&str, &str); 10] = [
    ("precast", "precast"),
    ("precast-base", "precast_base"),
    ("precast-diagnose", "precast_diagnose"),
    ("precast-explorer", "precast_explorer"),
    ("precast-graph", "precast_graph"),
    ("precast-policy", "precast_policy"),
    ("precast-train", "precast_train"),
    ("precast-cli", "precast_cli"),
    ("precast-lowbit", "precast_lowbit"),
    ("precast-mpi", "precast_mpi"),
];

pub fn run(words: &[String]) -> Result {
    shell::check_words(words, &["--check"])?;
    let check = !words.is_empty();
    let packages = PACKAGES.iter().flat_map(|(package, _)| ["--package", package]);
    // Programs see what these have in `precast`.
    let inside =
        ["precast-derive", "precast-kernels", "precast-tensor"].into_iter().flat_map(|name| ["--package", name]);
    let doc: Vec<&str> = ["doc", "--quiet", "--locked", "--no-deps"].into_iter().chain(inside).collect();
    let strict = ("RUSTDOCFLAGS", "-D warnings");
    shell::run("cargo", &doc.into_iter().chain(packages).collect::<Vec<_>>(), &[strict])?;
    let pages = shell::target().join("doc");
    for (package, name) in PACKAGES {
        let mut interface = Interface::default();
        let read = |page: &str| {
            let path = pages.join(page);
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        interface.module(name, &read)?;
        let text = format!("Written by `cargo xtask api`.\n\n{}", interface.items.join("\n"));
        let file = shell::root().join("docs/public-api").join(format!("{package}.txt"));
        let shown = file.display();
        if !check {
            fs::write(&file, text).map_err(|error| format!("{shown}: {error}"))?;
        } else if fs::read_to_string(&file).map_err(|error| format!("{shown}: {error}"))? != text {
            return Err(format!("{shown} is not current; run `cargo xtask api` and read the diff"));
        }
    }
    Ok(())
}

#[derive(Default)]
struct Interface {
    items: Vec<String>,
    /// Name and declaration of each item, with the path under which it was met first.
    met: HashMap<(String, String), String>,
}

impl Interface {
    /// Collects the items of a module, then those inside it. Pages that no module links to are of an earlier build.
    fn module(&mut self, folder: &str, read: &impl Fn(&str) -> Result<String>) -> Result {
        let index = read(&format!("{folder}/index.html"))?;
        let module = folder.replace('/', "::");
        let uses: Vec<String> =
            between(&index, "<code>pub use ", "</code>").map(|used| format!("pub use {}", text(used))).collect();
        if !uses.is_empty() {
            self.items.push(format!("mod {module}\n{}", lines(&uses)));
        }
        let links = between(&index, "<dt><a class=\"", ">").filter_map(|link| between(link, "href=\"", "\"").next());
        let (modules, pages): (Vec<&str>, Vec<&str>) = links.partition(|link| link.ends_with("/index.html"));
        for page in pages {
            let name = page.trim_end_matches(".html").split_once('.').map_or(page, |(_, name)| name);
            let path = format!("{module}::{name}");
            let declared = item(&path, &read(&format!("{folder}/{page}"))?)?;
            let shown = match self.met.get(&(name.into(), declared.clone())) {
                Some(first) => format!("    the same as {first}\n"),
                None => declared.clone(),
            };
            self.items.push(format!("{path}\n{shown}"));
            self.met.entry((name.into(), declared)).or_insert(path);
        }
        modules
            .into_iter()
            .try_for_each(|inner| self.module(&format!("{folder}/{}", inner.trim_end_matches("/index.html")), read))
    }
}

/// Returns the declaration of an item, and below it its public methods and the traits that it implements.
fn item(path: &str, html: &str) -> Result<String> {
    let declared = between(html, "<pre class=\"rust item-decl\">", "</pre>")
        .next()
        .or_else(|| between(html, "<pre class=\"rust macro\">", "</pre>").next())
        .ok_or_else(|| format!("the page of {path} has no declaration; did rustdoc change its pages?"))?;
    // Implementations for every type, and implementors of a trait, are not of this item.
    let own = [
        "<h2 id=\"synthetic-implementations\"",
        "<h2 id=\"blanket-implementations\"",
        "<h2 id=\"foreign-impls\"",
        "<h2 id=\"implementors\"",
    ];
    let end = own.iter().filter_map(|head| html.find(head)).min().unwrap_or(html.len());
    let headers = between(&html[..end], "class=\"code-header\">", "</h");
    let shown = headers
        .map(text)
        .filter(|line| line.starts_with("pub ") || line.starts_with("impl") || line.starts_with("unsafe impl"));
    // An inherent `impl` is only the head of its methods.
    let members: Vec<String> = shown
        .filter(|line| line.starts_with("pub ") || (line.contains(" for ") && !line.contains("StructuralPartialEq")))
        .collect();
    Ok(indented(declared) + &lines(&members))
}

/// Returns the lines of a declaration, indented.
fn indented(declared: &str) -> String {
    let mut shown = declared.to_string();
    while let Some((from, to)) =
        shown.find("<summary").and_then(|from| Some((from, from + shown[from..].find("</summary>")?)))
    {
        shown.replace_range(from..to, "");
    }
    let shown = shown.replace("<details", "\n<details");
    let plain = plain(&shown);
    plain.lines().filter(|line| !line.trim().is_empty()).map(|line| format!("    {}\n", line.trim_end())).collect()
}

fn lines(all: &[String]) -> String {
    all.iter().map(|line| format!("    {line}\n")).collect()
}

/// Returns the text of HTML on one line.
fn text(html: &str) -> String {
    plain(html).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the text of HTML, without tags and the marks of links.
fn plain(html: &str) -> String {
    let html = html.replace("<div", "\n<div").replace("</div>", "\n");
    let parts = html.split('<').enumerate().map(|(i, part)| if i == 0 { part } else { after(part, ">") });
    let text: String = parts.collect::<String>().replace('ⓘ', "");
    [("&nbsp;", " "), ("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&#x27;", "'"), ("&amp;", "&")]
        .into_iter()
        .fold(text, |text, (code, sign)| text.replace(code, sign))
}

fn after<'a>(text: &'a str, mark: &str) -> &'a str {
    text.split_once(mark).map_or("", |(_, rest)| rest)
}

/// Returns each part of a text between two marks.
fn between<'a>(text: &'a str, from: &'a str, to: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(from).skip(1).map(move |rest| rest.split(to).next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &str = r#"<dt id="reexport.B"><code>pub use b::<a href="">B</a>;</code></dt><dt><code>pub use c::*;</code></dt>
        <dl class="item-table"><dt><a class="mod" href="inner/index.html" title="">inner</a></dt>
        <dt><a class="struct" href="struct.A.html" title="">A</a></dt></dl>"#;
    const A: &str = r##"<pre class="rust item-decl"><code><div class="code-attribute">#[non_exhaustive]</div>pub struct A&lt;T&gt; {
    pub n: <a href="">usize</a>,
}</code></pre><h3 class="code-header">impl A</h3><h4 class="code-header">pub fn f(&amp;self)<div class="where">where T: B</div></h4>
        <h3 class="code-header">impl Clone for A</h3><h4 class="code-header">fn clone(&amp;self)</h4>
        <h2 id="blanket-implementations"></h2><h3 class="code-header">impl Any for T</h3>"##;

    fn read(page: &str) -> Result<String> {
        Ok(match page {
            "x/index.html" => INDEX,
            "x/inner/index.html" => r#"<dt><a class="struct" href="struct.A.html">A</a></dt>"#,
            _ => A,
        }
        .into())
    }

    #[test]
    fn interface_has_declarations_methods_traits_and_paths() {
        let mut interface = Interface::default();
        interface.module("x", &read).unwrap();
        let expected = "mod x
    pub use b::B;
    pub use c::*;

x::A
    #[non_exhaustive]
    pub struct A<T> {
        pub n: usize,
    }
    pub fn f(&self) where T: B
    impl Clone for A

x::inner::A
    the same as x::A
";
        assert_eq!(interface.items.join("\n"), expected);
    }

    #[test]
    fn page_without_declaration_is_an_error() {
        assert!(item("x::A", "<p>").unwrap_err().contains("x::A"));
    }
}
