//! The library's tests under Miri, which finds undefined behaviour in `unsafe` code and data races between threads.

use crate::{
    shell::{self, Result, check_words},
    toolchain,
};

pub const ABOUT: &str = "tests under Miri: of memory, threads, casts, tensors, or all of kernels and tensors [--all]";

/// Unit tests, and tests of `tests/laws/ops`, of the code that handles pointers and threads. They take a few minutes.
const UNITS: &[&str] = &["threads::", "memory::", "cast::", "tensor::"];
const OPS: &[&str] =
    &["ops::elementwise::operators", "ops::index_and_resample::what_is_put", "ops::reduce::known_values"];

/// Floors 0 to 2 of ARCHITECTURE.md, the fast ones first, the writing of files, and all ops. They take hours.
const ALL_OPS: &[&str] = &["ops::"];

pub fn missing() -> Option<String> {
    toolchain::missing_component("miri,rust-src", ("cargo", &["+nightly", "miri", "--version"]))
}

pub fn run(words: &[String]) -> Result {
    check_words(words, &["--all"])?;
    let (units, ops) = if words.is_empty() { (UNITS, OPS) } else { (&[][..], ALL_OPS) };
    test(&["--package", "precast-kernels", "--package", "precast-tensor", "--lib"], units)?;
    // The filters are parts of names, and `layer_ops::` has `ops::` in it.
    test(&["--test", "laws"], &[ops, &["--skip", "layer_ops::"]].concat())
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

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// A filter that matches no test would check nothing, and succeed.
    #[test]
    fn every_filter_chooses_tests() {
        let folders = [&["crates/kernels/src", "crates/tensor/src"][..], &["tests/laws"]];
        for (folders, filters) in folders.into_iter().zip([UNITS.to_vec(), [OPS, ALL_OPS].concat()]) {
            let names = folders.iter().flat_map(|folder| tests_in(&shell::root().join(folder), ""));
            let names: Vec<String> = names.collect();
            for filter in filters {
                assert!(names.iter().any(|name| name.starts_with(filter)), "{filter} chooses no test in {folders:?}");
            }
        }
    }

    /// Returns the tests of a module and of its submodules, as `module::name`.
    fn tests_in(folder: &Path, module: &str) -> Vec<String> {
        let mut found = vec![];
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_stem().unwrap().to_string_lossy();
            let inside = if name == "mod" { module.to_string() } else { format!("{module}{name}::") };
            if path.is_dir() {
                found.extend(tests_in(&path, &inside));
            } else {
                let source = fs::read_to_string(&path).unwrap();
                let after = source.split("#[test]").skip(1).filter_map(|item| item.split_once("fn "));
                found.extend(after.map(|(_, rest)| inside.clone() + rest.split('(').next().unwrap()));
            }
        }
        found
    }
}
