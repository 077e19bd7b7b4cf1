//! The tests that cover all 2^32 numbers of f32.

use crate::shell::{self, Result};

/// Tests that are ignored in an ordinary run.
const TESTS: [&str; 2] = ["every_f32_number_rounds_once", "errors_are_small_over_all_f32"];

pub fn run() -> Result {
    let chosen = ["test", "--release", "--lib", "--test", "conformance", "--", "--ignored", "--nocapture"];
    shell::run("cargo", &[&chosen[..], &TESTS].concat(), &[])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Cargo runs no test for an unknown name, and succeeds.
    #[test]
    fn the_tests_are_there() {
        let files = ["crates/kernels/src/elementwise/math.rs", "tests/conformance/torch/rounding.rs"];
        let sources = files.map(|file| fs::read_to_string(shell::root().join(file)).unwrap()).concat();
        for test in TESTS {
            assert!(sources.contains(&format!("fn {test}() {{")), "no test is called {test}");
        }
    }
}
