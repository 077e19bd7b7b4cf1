//! `cargo xtask release FOLDER [--target TRIPLE ...]`: everything that a release uploads, in one folder. Nothing is uploaded.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    notices, package,
    shell::{self, Result, in_file, output, program, python, root, succeed, target, works},
    toolchain,
};

/// One-line description.
pub const ABOUT: &str = "FOLDER [--target TRIPLE ...]: archives of the command, wheels, packages, checksums";

/// Static programs, which run on any Linux.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"];

/// Largest program that is released, in bytes.
const LARGEST: u64 = 18 << 20;

/// The licence of the digits that are in the program.
const DIGITS: &str = "crates/train/data/LICENSE-scikit-learn";

/// The words that go with the program.
const README: &str = "\
precast: plans of mixed precision with a reason for each layer, training runs, and converted ONNX and safetensors files.

    ./precast plan lenet5_bn --policy o2    a first plan
    ./precast train mlp --epochs 2          a first comparison, on handwritten digits
    ./precast help                          all commands

To install it, copy `precast` to a folder of your PATH, `man/*.1` to ~/.local/share/man/man1, and the completions of your
shell to where it looks for them, such as `completions/precast.bash` to ~/.local/share/bash-completion/completions/precast.

Licensed under MIT or Apache-2.0, at your option. The digits have their own licence, LICENSE-scikit-learn.
NOTICES.txt has the licences of the packages that are linked into the program.
";

const SHELLS: [(&str, &str); 4] =
    [("bash", "precast.bash"), ("zsh", "_precast"), ("fish", "precast.fish"), ("powershell", "precast.ps1")];

pub fn run(words: &[String]) -> Result {
    let (folder, targets) = read(words)?;
    let folder = root().join(folder);
    if folder.exists() {
        return Err(format!("{} exists; a release is written into a new folder", folder.display()));
    }
    let python = python();
    if ![["maturin", "--version"], ["ziglang", "version"]]
        .iter()
        .all(|[module, asks]| works(&python, &["-m", module, asks]))
    {
        return Err(format!("{python} has no maturin with zig: `{python} -m pip install maturin ziglang`"));
    }
    let of_wheels = targets.iter().map(|target| target.replace("musl", "gnu"));
    let mut all = targets.iter().map(|target| target.to_string()).chain(of_wheels);
    if let Some(missing) = all.find_map(|target| toolchain::missing_target(&target)) {
        return Err(missing);
    }
    compare_with_last()?;
    if !output("cargo", &["metadata", "--no-deps", "--format-version", "1"])?.contains("\"repository\":\"") {
        println!(
            "LEFT OUT: `repository` is not set in Cargo.toml, so links of READMEs and cargo-binstall lead nowhere"
        );
    }
    let version = version()?;
    make(&folder)?;
    let pages = folder.join("pages");
    for (nth, triple) in targets.iter().enumerate() {
        let built = build(triple)?;
        let size = fs::metadata(&built).map_err(|error| in_file(&built, error))?.len();
        println!("{triple}: {:.1} MiB", size as f64 / f64::from(1 << 20));
        if size > LARGEST {
            return Err(format!("the program for {triple} has {size} bytes; {LARGEST} are allowed"));
        }
        // The first is that of this machine, which can be asked for its pages.
        if nth == 0 {
            ask_for_pages(&built, &pages)?;
        }
        let notices = pages.join("NOTICES.txt");
        fs::write(&notices, notices::text(triple)?).map_err(|error| in_file(&notices, error))?;
        archive(&folder, &format!("precast-{version}-{triple}"), &built, &pages)?;
        wheel(&python, triple, &folder)?;
    }
    fs::remove_dir_all(&pages).map_err(|error| in_file(&pages, error))?;
    for file in package::files()? {
        copy(&file, &folder)?;
    }
    copy(&root().join("CHANGELOG.md"), &folder)?;
    sums(&folder)
}

/// Builds the wheel for a target. It holds a library that Python loads, and so cannot be static as the program is: zig links
/// it to the oldest glibc that `manylinux2014` has.
fn wheel(python: &str, triple: &str, folder: &Path) -> Result {
    let (triple, out) = (triple.replace("musl", "gnu"), folder.display().to_string());
    let linux: &[&str] = if triple.contains("linux") { &["--zig", "--compatibility", "manylinux2014"] } else { &[] };
    let arguments = [&["-m", "maturin", "build", "--quiet", "--target", &triple, "--out", &out], linux].concat();
    // By default, zig is looked for in the `python3` of the path.
    let mut wheel = program(python, &arguments, &[("CARGO_ZIGBUILD_PYTHON_PATH", python)]);
    succeed("maturin", wheel.current_dir(root().join("hosts/python")).env("CARGO_TARGET_DIR", target()))
}

fn read(words: &[String]) -> Result<(&str, Vec<&str>)> {
    let usage = || format!("usage: cargo xtask release {ABOUT}");
    let (folder, rest) = words.split_first().ok_or_else(usage)?;
    let mut targets = Vec::new();
    for pair in rest.chunks(2) {
        match pair {
            [flag, target] if flag == "--target" => targets.push(target.as_str()),
            _ => return Err(usage()),
        }
    }
    Ok((folder, if targets.is_empty() { TARGETS.to_vec() } else { targets }))
}

/// Fails if the public interface differs from that of the last release, a tag, by more than the version allows.
fn compare_with_last() -> Result {
    let Ok(last) = output("git", &["describe", "--tags", "--abbrev=0"]) else {
        println!("LEFT OUT: a comparison of public interfaces, as no release is tagged");
        return Ok(());
    };
    shell::run("cargo", &["semver-checks", "--baseline-rev", last.trim()], &[])
}

/// Returns the version of the command.
fn version() -> Result<String> {
    let text = output("cargo", &["pkgid", "--package", "precast-cli"])?;
    text.trim().rsplit(['#', '@']).next().map(str::to_string).ok_or_else(|| format!("cargo pkgid printed {text}"))
}

/// Builds the command for a target. A linker of the target is not needed: Rust brings one that links static programs.
fn build(triple: &str) -> Result<PathBuf> {
    let arguments = ["build", "--locked", "--profile", "dist", "--package", "precast-cli", "--target", triple];
    shell::run("cargo", &arguments, &[(&linker(triple), "rust-lld")])?;
    Ok(target().join(triple).join("dist/precast"))
}

/// Returns the variable that names the linker of a target.
fn linker(triple: &str) -> String {
    format!("CARGO_TARGET_{}_LINKER", triple.replace('-', "_").to_uppercase())
}

/// Writes completions and manual pages, as the program prints them.
fn ask_for_pages(program: &Path, pages: &Path) -> Result {
    let program = program.display().to_string();
    let write = |name: &str, words: &[&str]| {
        let path = pages.join(name);
        fs::write(&path, output(&program, words)?).map_err(|error| in_file(&path, error))
    };
    make(&pages.join("completions"))?;
    make(&pages.join("man"))?;
    for (shell, file) in SHELLS {
        write(&format!("completions/{file}"), &["show", "completions", shell])?;
    }
    write("man/precast.1", &["show", "man"])?;
    let help = output(&program, &["help"])?;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    for name in commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        write(&format!("man/precast-{name}.1"), &["show", "man", name])?;
    }
    Ok(())
}

fn archive(folder: &Path, name: &str, program: &Path, pages: &Path) -> Result {
    let inside = folder.join(name);
    make(&inside)?;
    for file in ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", DIGITS] {
        copy(&root().join(file), &inside)?;
    }
    let readme = inside.join("README.txt");
    fs::write(&readme, README).map_err(|error| in_file(&readme, error))?;
    copy(program, &inside)?;
    let [from, to] = [pages, folder].map(|path| path.display().to_string());
    shell::run("cp", &["-r", &format!("{from}/."), &inside.display().to_string()], &[])?;
    // The same bytes for the same contents.
    let fixed = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=2026-01-01"];
    let file = format!("{to}/{name}.tar.gz");
    shell::run("tar", &[&fixed[..], &["-C", &to, "-czf", &file, name]].concat(), &[])?;
    fs::remove_dir_all(&inside).map_err(|error| in_file(&inside, error))
}

fn sums(folder: &Path) -> Result {
    let list = format!("cd {:?} && sha256sum -- * > SHA256SUMS && cat SHA256SUMS", folder.display().to_string());
    shell::run("bash", &["-c", &list], &[])
}

fn make(folder: &Path) -> Result {
    fs::create_dir_all(folder).map_err(|error| in_file(folder, error))
}

fn copy(file: &Path, to: &Path) -> Result {
    let name = file.file_name().expect("a file");
    fs::copy(file, to.join(name)).map(drop).map_err(|error| in_file(file, error))
}
