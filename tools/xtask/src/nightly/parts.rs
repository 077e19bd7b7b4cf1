//! The parts, and the folders whose changes call for them.

use std::fs;

use crate::{
    aarch64, deny, export, fuzz, hosts, miri, mpi, mutants, mutate, onnx, package, packs, patterns, peers, places,
    python as python_host, sanitizers,
    shell::{self, Result, check_python, python},
    site, toolchain,
};

/// A check with a name.
pub struct Part {
    pub name: &'static str,
    pub about: &'static str,
    /// Runs only when it is named: it takes hours, or a device.
    pub only_named: bool,
    /// Returns what this machine lacks for it.
    pub missing: fn() -> Option<String>,
    pub run: fn() -> Result,
}

const fn part(name: &'static str, about: &'static str, missing: fn() -> Option<String>, run: fn() -> Result) -> Part {
    Part { name, about, only_named: false, missing, run }
}

/// The fast ones first.
pub const PARTS: &[Part] = &[
    part("deny", "licences, sources and advisories of all dependencies, by `deny.toml`", deny::missing, deny::run),
    part(
        "oldest",
        "the oldest Rust that `Cargo.toml` promises compiles the library and the command",
        no_oldest,
        oldest,
    ),
    part("targets", "all packages compile for Windows, and the library for aarch64", no_targets, targets),
    part("fuzz-check", "the fuzz targets compile", || None, fuzz::check),
    part("messages", "mistakes that do not compile, and the messages of the compiler", || None, messages),
    part("examples", "all examples run", || None, examples),
    part("widths", "all tests with vectors of eight numbers and of one", || None, widths),
    part("places", places::ABOUT, || None, || places::run(&[])),
    part(
        "package",
        "the packages as they would be published: tested, installed, and added to a new crate",
        || None,
        || package::run(&[]),
    ),
    part(
        "planted",
        "100 faults planted in runs with dropout and shuffles, each replayed with one thread and two",
        || None,
        planted,
    ),
    part(
        "patterns",
        "the tests of all 2^32 f32 values: casts to 16 and 8 bits, elementary functions",
        || None,
        patterns::run,
    ),
    part(
        "aarch64",
        "unit tests of kernels on an emulated aarch64 machine, with vectors of four lanes",
        aarch64::missing,
        || aarch64::run(&words(&["--kernels"])),
    ),
    part("miri", "tests of threads, memory, casts, tensors and some ops under Miri", miri::missing, || miri::run(&[])),
    part("asan", "tests of kernels, tensors and ops under the address sanitizer", sanitizers::missing, || {
        sanitizers::run("address")
    }),
    part("tsan", "tests of kernels, tensors and ops under the thread sanitizer", sanitizers::missing, || {
        sanitizers::run("thread")
    }),
    part("fuzz", "mutated files for every reader of files, a minute each", fuzz::missing, || fuzz::run(&[])),
    part("burn", "lints and tests of `precast-burn`", || hosts::missing("hosts/burn"), || hosts::run("hosts/burn")),
    part(
        "candle",
        "lints and tests of `precast-candle`",
        || hosts::missing("hosts/candle"),
        || hosts::run("hosts/candle"),
    ),
    part("python", "lints of `precast-python`, and the tests of the Python package", python_host::missing, || {
        python_host::run(&words(&["--short"]))
    }),
    part(
        "wheel",
        "the Python package in a fresh environment with torch, its types and its command",
        python_host::missing_environment,
        || python_host::run(&[]),
    ),
    part("packs", packs::ABOUT, || None, || packs::run(&[])),
    part("rsmpi", "lints and tests of `precast-rsmpi`", || hosts::missing("hosts/rsmpi"), || hosts::run("hosts/rsmpi")),
    part("benches", "lints of the benches with burn and candle", || hosts::missing("tools/benches"), hosts::benches),
    part("ranks", "ranks under each launcher of MPI: their bits, words and exit codes", mpi::missing, ranks),
    part("mpi", "ranks that are killed, runs that others continue, and 200 runs with a fault", mpi::missing, || {
        mpi::run(&[])
    }),
    part(
        "onnx",
        "the test suite of the package onnx, imported and run",
        || lacks("onnx, numpy"),
        || onnx::run(&with_python(&[])),
    ),
    part(
        "onnxruntime",
        "converted and exported ONNX models and node tests, checked by onnx and onnxruntime",
        || lacks("onnx, onnxruntime, numpy"),
        onnxruntime,
    ),
    part(
        "peers",
        "ops, layers, training curves, scaled steps and ranks compared with torch",
        || lacks("torch, numpy"),
        || peers::run(&with_python(&[])),
    ),
    part(
        "export",
        "the output of `precast export` in torch, Keras, torchao, Qwix and DeepSpeed",
        || lacks("torch"),
        || export::run(&with_python(&[])),
    ),
    part(
        "readers",
        "generated data and weight files, read as pandas, NumPy, Pillow and safetensors read them",
        || lacks("numpy, pandas, PIL, safetensors"),
        readers,
    ),
    part(
        "site",
        "the site, its links, and the playground in a browser, with damaged files and times",
        site::missing_browser,
        site::test,
    ),
    Part {
        only_named: true,
        ..part(
            "gpu",
            "burn on wgpu with fusion, in f16; needs a Vulkan driver",
            || hosts::missing("hosts/burn"),
            hosts::gpu,
        )
    },
    Part { only_named: true, ..part("mutate", "the mistakes of `cargo xtask mutate`", || None, || mutate::run(&[])) },
    Part {
        only_named: true,
        ..part("mutants", "the mutants of `cargo xtask mutants`", mutants::missing, || mutants::run(&[]))
    },
];

/// Beginnings of paths, and the parts that a change there calls for.
pub const FOLDERS: &[(&str, &[&str])] = &[
    ("Cargo.lock", &["deny", "oldest"]),
    ("crates/derive", &["messages"]),
    ("crates/explorer", &["site"]),
    ("crates/graph/src/onnx", &["onnx", "onnxruntime"]),
    ("crates/graph/tests/onnx", &["onnxruntime"]),
    ("crates/graph/tests/ui", &["messages"]),
    ("crates/kernels", &["widths", "patterns", "aarch64", "miri", "asan", "tsan"]),
    ("crates/lowbit", &["patterns"]),
    ("crates/mpi", &["ranks", "rsmpi"]),
    ("crates/tensor/src/ops", &["widths", "peers"]),
    ("crates/tensor/src/tensor", &["miri", "asan", "tsan"]),
    ("crates/train/src/readers", &["readers"]),
    ("crates/train/src/training/data_parallel", &["ranks"]),
    ("docs/burn.md", &["burn"]),
    ("docs/candle.md", &["candle"]),
    ("docs/guide/torch.md", &["python"]),
    ("examples", &["examples"]),
    ("hosts/burn", &["burn"]),
    ("hosts/candle", &["candle"]),
    ("hosts/python", &["python"]),
    ("hosts/rsmpi", &["rsmpi"]),
    ("policies/src/host.rs", &["burn", "candle"]),
    ("src/storage/stored", &["site"]),
    ("src/storage/weights", &["readers"]),
    ("tests/ui", &["messages"]),
    ("tools/benches", &["benches"]),
    ("tools/fuzz", &["fuzz-check", "fuzz"]),
    ("tools/playground", &["site"]),
];

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

fn lacks(modules: &str) -> Option<String> {
    check_python(&python(), modules).err()
}

fn with_python(more: &[&str]) -> Vec<String> {
    words(&[&["--python", &python()], more].concat())
}

/// Runs cargo in the build of `.ci/run`.
fn cargo(arguments: &[&str], more: &[(&str, &str)]) -> Result {
    shell::run("cargo", &[&arguments[..1], &["--locked"], &arguments[1..]].concat(), more)
}

fn no_oldest() -> Option<String> {
    let oldest = toolchain::oldest("Cargo.toml");
    (!shell::works("cargo", &[&format!("+{oldest}"), "--version"]))
        .then(|| format!("`rustup toolchain install {oldest}`"))
}

fn oldest() -> Result {
    let oldest = format!("+{}", toolchain::oldest("Cargo.toml"));
    shell::run("cargo", &[&oldest, "check", "--locked", "--lib", "--bins"], &[])
}

const WINDOWS: &str = "x86_64-pc-windows-msvc";
const AARCH64: &str = "aarch64-unknown-linux-gnu";

fn no_targets() -> Option<String> {
    [WINDOWS, AARCH64].into_iter().find_map(toolchain::missing_target)
}

fn targets() -> Result {
    let check = |target: &str, chosen: &[&str]| {
        shell::run("cargo", &[&["check", "--locked", "--target", target, "--lib"], chosen].concat(), &[])
    };
    check(WINDOWS, &["--bins"])?;
    check(WINDOWS, &["--package", "precast-mpi"])?;
    // Nothing else depends on the processor.
    check(AARCH64, &["--package", "precast"])
}

fn examples() -> Result {
    for folder in ["examples", "crates/graph/examples", "crates/train/examples", "crates/cli/examples"] {
        let folder = shell::root().join(folder);
        let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".rs")?.into()))
            .collect();
        names.sort();
        for name in names {
            cargo(&["run", "--quiet", "--example", &name], &[])?;
        }
    }
    cargo(&["run", "--quiet", "--package", "precast-mpi", "--example", "sum"], &[])
}

fn messages() -> Result {
    cargo(&["test", "--test", "compile", "--", "--ignored"], &[])
}

fn widths() -> Result {
    ["8", "1"].iter().try_for_each(|width| cargo(&["test"], &[("PRECAST_VECTORS", width)]))
}

fn planted() -> Result {
    cargo(&["test", "--package", "precast-train", "--test", "runs", "planted", "--", "--ignored", "--nocapture"], &[])
}

fn ranks() -> Result {
    cargo(&["test", "--package", "precast-mpi", "--test", "launched"], &[])?;
    mpi::run(&words(&["--only", "bits"]))
}

fn readers() -> Result {
    let folder = shell::target().join("readers");
    let folder = folder.to_str().ok_or("the target folder has no name in UTF-8")?;
    shell::run(&python(), &["tools/peers/readers.py", folder, "1"], &[])?;
    let test = ["test", "--package", "precast-train", "--test", "runs", "python", "--", "--ignored", "--nocapture"];
    cargo(&test, &[("PRECAST_READERS", folder)])?;
    shell::run(&python(), &["tools/peers/readers.py", folder], &[])
}

fn onnxruntime() -> Result {
    for folder in ["given", "kindred"] {
        onnx::run(&with_python(&["--cases", &format!("crates/graph/tests/onnx/hazards/{folder}")]))?;
    }
    onnx::run(&with_python(&["--nodes"]))?;
    onnx::run(&with_python(&["--exports"]))
}
