//! The library's tests under Miri, which finds undefined behaviour in `unsafe` code and data races between threads.

use crate::{
    nightly::{self, IF_PRESENT},
    shell::{self, Result},
};

pub const ABOUT: &str =
    "tests under Miri: of memory, threads, casts, tensors, or of floors 0 to 2 [--all] [--if-present]";

/// Unit tests, and tests of `tests/ops`, of the code that handles pointers and threads. They take a few minutes.
const UNITS: &[&str] = &["kernels::threads", "kernels::memory", "kernels::cast"];
const OPS: &[&str] = &["elementwise::operators", "index_and_resample::what_is_put", "reduce::known_values"];

/// Floors 0 to 2 of ARCHITECTURE.md, the fast ones first, and all ops. They take hours.
const ALL_UNITS: &[&str] = &[
    "error::",
    "io::files::",
    "dtype::",
    "catalogue::",
    "precision::",
    "observe::",
    "gradcheck::",
    "ops::",
    "tensor::",
    "kernels::",
];
const ALL_OPS: &[&str] = &[];

pub fn run(words: &[String]) -> Result {
    if !nightly::has("miri,rust-src", ("cargo", &["+nightly", "miri", "--version"]), words, &["--all", IF_PRESENT])? {
        return Ok(());
    }
    let all = words.iter().any(|word| word == "--all");
    let (units, ops) = if all { (ALL_UNITS, ALL_OPS) } else { (UNITS, OPS) };
    test(&["--lib"], units)?;
    test(&["--test", "ops"], ops)
}

fn test(target: &[&str], filters: &[&str]) -> Result {
    // By default some of libm's functions are assembly, which Miri cannot run.
    let command = ["+nightly", "miri", "test", "--features", "libm/force-soft-floats"];
    let arguments = [&command, target, &["--"], filters].concat();
    // Tests read files and the environment, so isolation is off. With three CPUs, helper threads also wait by spinning. They
    // live as long as the process, which Miri would report as a leak. By default Miri makes float functions inexact on purpose.
    let flags = "-Zmiri-disable-isolation -Zmiri-num-cpus=3 -Zmiri-ignore-leaks \
                 -Zmiri-deterministic-floats";
    shell::run("cargo", &arguments, &[("MIRIFLAGS", flags), ("PRECAST_VECTORS", "1"), ("PROPTEST_CASES", "4")])
}
