//! The packages that each package depends on, and their features.

use std::{collections::BTreeSet, process::Command};

/// Returns the lines of `cargo tree`: `name version features` for each package, or what another `--format` says.
fn tree(arguments: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["tree", "--locked", "--offline", "--prefix", "none", "--format", "{p} {f}"])
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.trim_end_matches(" (*)").trim_end().to_string()).collect()
}

fn name(line: &str) -> &str {
    line.split(' ').next().unwrap()
}

#[test]
fn low_packages_depend_on_little() {
    for (package, allowed) in [
        ("precast-base", &["granit-parser", "half", "serde", "serde-saphyr", "strsim"][..]),
        ("precast-policy", &["precast-base", "precast-lowbit", "serde", "tracing"]),
        ("precast-lowbit", &["precast-base"]),
        (
            "precast-kernels",
            &["half", "libm", "matrixmultiply", "ndarray", "num-traits", "precast-base", "precast-lowbit", "serde"],
        ),
        ("precast-mpi", &["libloading"]),
    ] {
        let met = tree(&format!("--package {package} --edges normal --depth 1"));
        let met = met.iter().map(|line| name(line)).filter(|name| *name != package);
        assert_eq!(met.collect::<Vec<_>>(), allowed, "{package}");
    }
}

/// Packages of readers, charts and the command, and of the system.
#[test]
fn the_library_depends_on_no_package_of_those_on_top() {
    let denied = "clap clap_builder comfy-table csv getrandom indicatif libc plotters png precast-diagnose precast-explorer precast-graph precast-mpi precast-train signal-hook tempfile zip";
    let met = tree("--package precast --edges normal,build");
    let wrong: Vec<_> = met.iter().filter(|line| denied.split(' ').any(|denied| denied == name(line))).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    // A test of the library waits for none of these.
    let met = tree("--package precast --edges normal,build,dev");
    let wrong: Vec<_> = met
        .iter()
        .filter(|line| {
            matches!(name(line), "clap" | "png" | "zip" | "precast-diagnose" | "precast-graph" | "precast-train")
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn no_package_needs_a_c_compiler() {
    let met = tree("--workspace --edges normal,build,dev");
    let c = ["bindgen", "cc", "cmake", "pkg-config", "vcpkg"];
    let wrong: Vec<_> = met.iter().filter(|line| c.contains(&name(line))).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// The packages on top, and tests, switch on no feature of what the library depends on. Otherwise cargo would build the
/// library again for each of them.
#[test]
fn one_build_of_a_package_serves_all() {
    let tests = tree("--edges normal,build,dev");
    let workspace = tree("--workspace --edges normal,build,dev");
    let differ: Vec<_> = tests.difference(&workspace).collect();
    assert!(differ.is_empty(), "other packages of the workspace switch on further features than {differ:?}");
    for package in ["precast", "precast-train", "precast-cli"] {
        let alone = tree(&format!("--package {package} --edges normal,build"));
        assert!(alone.len() > 50, "{package}: {alone:?}");
        let differ: Vec<_> = alone.difference(&tests).collect();
        assert!(differ.is_empty(), "{package} alone has other features than the tests: {differ:?}");
    }
}

/// A build of this workspace updates no lock of a package apart, where `--locked` then fails.
#[test]
fn locks_of_packages_apart_are_current() {
    let output = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["metadata", "--locked", "--offline", "--no-deps", "--format-version", "1"])
        .output()
        .unwrap();
    let workspace: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |package: &str| {
        let is_it = |about: &&serde_json::Value| about["name"] == package;
        let about = workspace["packages"].as_array().unwrap().iter().find(is_it)?;
        let needs = about["dependencies"].as_array().unwrap().iter().filter(|needs| needs["kind"] != "dev");
        Some(needs.map(|needs| needs["name"].as_str().unwrap()).collect::<BTreeSet<&str>>())
    };
    for folder in
        ["hosts/burn", "hosts/candle", "hosts/python", "hosts/rsmpi", "tools/benches", "tools/fuzz", "tools/playground"]
    {
        let file = format!("{}/{folder}/Cargo.lock", env!("CARGO_MANIFEST_DIR"));
        let lock = std::fs::read_to_string(&file).unwrap();
        let mut seen = 0;
        for package in lock.split("[[package]]\n") {
            // A package without a source has its name, its version and the packages that it depends on.
            let words: Vec<&str> = package.split('"').skip(1).step_by(2).map(name).collect();
            let [package, _, locked @ ..] = &words[..] else { continue };
            let Some(needed) = of(package) else { continue };
            assert_eq!(locked.iter().copied().collect::<BTreeSet<&str>>(), needed, "{package} in {file}");
            seen += 1;
        }
        assert!(seen > 0, "{file} has no package of this workspace");
    }
}

/// Only these can have `unsafe` code, each block with its reason, which clippy requires.
#[test]
fn other_packages_than_kernels_and_mpi_forbid_unsafe_code() {
    let forbids = |folder: &&str| {
        let file = format!("{}/{folder}/src/lib.rs", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&file).unwrap().contains("\n#![forbid(unsafe_code)]\n")
    };
    let folders = [
        ".",
        "crates/base",
        "crates/cli",
        "crates/derive",
        "crates/diagnose",
        "crates/explorer",
        "crates/graph",
        "crates/kernels",
        "crates/lowbit",
        "crates/mpi",
        "crates/tensor",
        "crates/train",
        "policies",
    ];
    let others: Vec<&str> = folders.into_iter().filter(|folder| !forbids(folder)).collect();
    assert_eq!(others, ["crates/kernels", "crates/mpi"]);
}
