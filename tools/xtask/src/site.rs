//! `cargo xtask site FOLDER`: the site of the project, in files that any server of files can serve. Nothing is uploaded.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use crate::{
    shell::{self, Result, in_file, python, root, target, works},
    toolchain,
};

/// One-line description.
pub const ABOUT: &str = "FOLDER: the site, with its first page, the guide and the playground";

const WASM: &str = "wasm32-unknown-unknown";
/// The pages from which all others are reached by links.
const FIRST: [&str; 2] = ["README.md", "CHANGELOG.md"];
/// The pages that are named in the list of pages after those of the guide; the rest follows.
const NAMED: [&str; 4] = ["docs/glossary.md", "docs/COMPARE.md", "docs/PERFORMANCE.md", "docs/packages.md"];

/// Settings of mkdocs, without the list of pages. Anchors are those of GitHub, and no font is loaded.
const SETTINGS: &str = r#"
site_name: precast
docs_dir: pages
use_directory_urls: false
theme:
  name: material
  font: false
  features: [navigation.indexes, navigation.top, search.highlight, content.code.copy]
  palette:
    - { media: "(prefers-color-scheme)", primary: black, toggle: { icon: material/brightness-auto, name: Light theme } }
    - { media: "(prefers-color-scheme: light)", scheme: default, primary: black, toggle: { icon: material/brightness-7, name: Dark theme } }
    - { media: "(prefers-color-scheme: dark)", scheme: slate, primary: black, toggle: { icon: material/brightness-4, name: Theme of the system } }
extra_css: [site.css]
extra: { generator: false }
plugins: [search]
validation: { links: { anchors: warn, unrecognized_links: warn } }
markdown_extensions:
  - tables
  - pymdownx.superfences
  - pymdownx.highlight
  - sane_lists
  - toc: { permalink: true, slugify: !!python/object/apply:pymdownx.slugs.slugify { kwds: { case: lower } } }
"#;

/// Commands in tables are not broken at their hyphens.
const STYLE: &str = "@media (min-width: 60em) { .md-typeset td code { white-space: nowrap } }\n";

/// Returns what this machine lacks for the site, with the command that installs it.
pub fn missing() -> Option<String> {
    let python = python();
    let lacks = !works(&python, &["-c", "import mkdocs, material"]);
    lacks
        .then(|| format!("{python} has no mkdocs with its theme: `{python} -m pip install mkdocs-material`"))
        .or_else(|| toolchain::missing_target(WASM))
}

pub fn run(words: &[String]) -> Result {
    let [folder] = words else { return Err(format!("usage: cargo xtask site {ABOUT}")) };
    let folder = root().join(folder);
    if folder.exists() {
        return Err(format!("{} exists; a site is written into a new folder", folder.display()));
    }
    match missing() {
        Some(missing) => Err(missing),
        None => write(&folder),
    }
}

/// Writes the site, and drives it in a browser.
pub fn test() -> Result {
    let [site, shots] = ["site", "site-pictures"].map(|name| target().join(name));
    write(&site)?;
    let lints = ["clippy", "--quiet", "--locked", "--target", WASM, "--manifest-path", "tools/playground/Cargo.toml"];
    shell::run("cargo", &[&lints[..], &["--", "-D", "warnings"]].concat(), &[])?;
    shell::run("cargo", &["build", "--quiet", "--locked", "--package", "precast-cli"], &[])?;
    let [site, shots, command] = [site, shots, target().join("debug/precast")].map(|path| path.display().to_string());
    shell::run(&python(), &["tools/playground/tests/browser.py", &site, &shots, &command], &[])
}

/// Returns what this machine lacks for the test.
pub fn missing_browser() -> Option<String> {
    let lacks =
        |what: &str| Some(format!("no {what}: `{} -m pip install playwright`, `apt-get install chromium`", python()));
    match (works(&python(), &["-c", "import playwright"]), works("chromium", &["--version"])) {
        (true, true) => missing(),
        (false, _) => lacks("playwright"),
        (_, false) => lacks("Chromium"),
    }
}

/// Writes the site into a folder, which is emptied.
fn write(folder: &Path) -> Result {
    let source = target().join("site-source");
    for emptied in [&source, folder] {
        if emptied.exists() {
            fs::remove_dir_all(emptied).map_err(|error| in_file(emptied, error))?;
        }
    }
    let pages = pages()?;
    for (name, text) in &pages {
        put(&source.join("pages").join(name), text)?;
    }
    put(&source.join("pages/site.css"), STYLE)?;
    playground(&source.join("pages/playground"))?;
    put(&source.join("mkdocs.yml"), format!("{SETTINGS}nav:\n{}", nav(&pages)))?;
    let [settings, to] = [source.join("mkdocs.yml"), folder.to_path_buf()].map(|path| path.display().to_string());
    // On the terminal, the theme advises against a later mkdocs.
    let quiet = [("NO_MKDOCS_2_WARNING", "1")];
    shell::run(&python(), &["-m", "mkdocs", "build", "--strict", "--quiet", "-f", &settings, "-d", &to], &quiet)
}

/// Builds the playground: the page of plans with a panel for its network and policies, and the library.
fn playground(folder: &Path) -> Result {
    let manifest = ["--locked", "--manifest-path", "tools/playground/Cargo.toml"];
    shell::run("cargo", &[&["build", "--release", "--target", WASM], &manifest[..]].concat(), &[])?;
    let built = playground_target().join(WASM).join("release/precast_playground.wasm");
    let [built, to] = [built, folder.to_path_buf()].map(|path| path.display().to_string());
    shell::run("cargo", &[&["run", "--package", "bind"], &manifest[..], &["--", &built, &to]].concat(), &[])?;
    let read = |name: &str| fs::read_to_string(root().join(name)).map_err(|error| format!("{name}: {error}"));
    let mut page = read("crates/explorer/src/page.html")?;
    // The policy of the page lets it load its own library, and send nothing anywhere else.
    for (from, to) in [
        ("script-src 'nonce-page'", "script-src 'self' 'nonce-page' 'wasm-unsafe-eval'; connect-src 'self'"),
        ("<title>precast plan</title>", "<title>Playground of precast</title>"),
        ("<header>", &format!("{}<header>", read("tools/playground/page/panel.html")?)),
        ("{{data}}", "null"),
        ("</body>", "<script type=\"module\" src=\"playground.js\"></script>\n</body>"),
    ] {
        if page.matches(from).count() != 1 {
            return Err(format!("crates/explorer/src/page.html has no place `{from}`, or more than one"));
        }
        page = page.replace(from, to);
    }
    put(&folder.join("index.html"), page)?;
    put(&folder.join("playground.js"), read("tools/playground/page/playground.js")?)
}

/// Returns the target folder of the playground, which is a workspace of its own.
fn playground_target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(_) => target(),
        None => root().join("tools/playground/target"),
    }
}

/// Returns the pages, and the files that they show, by their paths in the repository. All are reached by links.
fn pages() -> Result<BTreeMap<String, Vec<u8>>> {
    let (mut found, mut next) = (BTreeMap::new(), FIRST.map(String::from).to_vec());
    while let Some(name) = next.pop() {
        let path = root().join(&name);
        let bytes = fs::read(&path).map_err(|error| in_file(&path, error))?;
        let bytes = match String::from_utf8(bytes) {
            Ok(text) if name.ends_with(".md") => {
                next.extend(links(&name, &text).into_iter().filter(|link| !found.contains_key(link)));
                page(&name, &text).into_bytes()
            }
            Ok(text) => text.into_bytes(),
            Err(error) => error.into_bytes(),
        };
        found.insert(name, bytes);
    }
    Ok(found)
}

/// Returns the lines of a page, each with whether it is code, and Rust code.
fn lines(text: &str) -> impl Iterator<Item = (&str, bool, bool)> {
    let mut fence: Option<&str> = None;
    text.lines().map(move |line| {
        match (fence, line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => fence = Some(language),
            (Some(_), Some(_)) => fence = None,
            _ => {}
        }
        (line, fence.is_some(), fence.is_some_and(|language| language.starts_with("rust")))
    })
}

/// Returns the paths of the files that a page links to.
fn links(name: &str, text: &str) -> BTreeSet<String> {
    let above = Path::new(name).parent().unwrap_or(Path::new(""));
    let outside = lines(text).filter(|(_, is_code, _)| !is_code);
    let links =
        outside.flat_map(|(line, ..)| line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()));
    let mut found = BTreeSet::new();
    for link in links.filter(|link| !link.contains("://")) {
        let mut path = PathBuf::new();
        for part in above.join(link).components() {
            match part {
                Component::ParentDir => drop(path.pop()),
                part => path.push(part),
            }
        }
        if root().join(&path).is_file() {
            found.insert(path.to_string_lossy().replace('\\', "/"));
        }
    }
    found
}

/// Returns a page as mkdocs reads it: without the lines of examples that rustdoc hides, and the names of languages alone.
fn page(name: &str, text: &str) -> String {
    let is_hidden = |line: &str| line == "#" || line.starts_with("# ");
    let shown = lines(text).filter(|(line, _, is_rust)| !is_rust || !is_hidden(line.trim_start()));
    let mut page: String = shown.map(|(line, ..)| line.replacen("```rust,no_run", "```rust", 1) + "\n").collect();
    if name == FIRST[0] {
        let line = "[Plan a network of your own in the browser](playground/index.html), with nothing to install.\n\n";
        page = page.replacen("## Install", &format!("{line}## Install"), 1);
    }
    page
}

/// Returns the list of pages for mkdocs, with the parts of the guide as its first page has them.
fn nav(pages: &BTreeMap<String, Vec<u8>>) -> String {
    let mut nav = String::from(
        "- Overview: README.md\n- Playground: playground/index.html\n- Guide:\n  - docs/guide/README.md\n",
    );
    let guide = String::from_utf8_lossy(&pages["docs/guide/README.md"]);
    let mut listed: BTreeSet<&str> = NAMED.into_iter().chain([FIRST[0], "docs/guide/README.md"]).collect();
    for line in guide.lines() {
        let link = line.strip_prefix("| [").and_then(|rest| rest.split("](").nth(1)?.split(')').next());
        let link = link.and_then(|link| pages.get_key_value(&format!("docs/guide/{link}")));
        match (line.strip_prefix("## "), link) {
            (Some(part), _) => nav += &format!("  - {part}:\n"),
            (None, Some((page, _))) if listed.insert(page) => nav += &format!("    - {page}\n"),
            _ => {}
        }
    }
    NAMED.iter().for_each(|page| nav += &format!("- {page}\n"));
    nav += "- More:\n";
    let others = pages.keys().filter(|name| name.ends_with(".md") && !listed.contains(name.as_str()));
    others.for_each(|page| nav += &format!("  - {page}\n"));
    nav
}

fn put(path: &Path, contents: impl AsRef<[u8]>) -> Result {
    let above = path.parent().expect("a file in a folder");
    fs::create_dir_all(above).and_then(|()| fs::write(path, contents)).map_err(|error| in_file(path, error))
}
