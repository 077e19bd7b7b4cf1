//! The tests that cover all 2^32 numbers of f32.

use crate::shell::{self, Result};

/// Tests that are ignored in an ordinary run.
const TESTS: [&str; 2] = ["every_f32_number_rounds_once", "errors_are_small_over_all_f32"];

/// That of the package for 8 bits.
const OF_LOWBIT: &str = "every_f32_number_has_the_recorded_code";

pub fn run() -> Result {
    let chosen = ["test", "--release", "--lib", "--test", "conformance", "--", "--ignored", "--nocapture"];
    shell::run("cargo", &[&chosen[..], &TESTS].concat(), &[])?;
    let chosen = ["test", "--release", "--package", "precast-lowbit", "--test", "values", "--", "--ignored", OF_LOWBIT];
    shell::run("cargo", &chosen, &[])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Cargo runs no test for an unknown name, and succeeds.
    #[test]
    fn the_tests_are_there() {
        let files = [
            "crates/kernels/src/elementwise/math.rs",
            "crates/lowbit/tests/values/conversions.rs",
            "tests/conformance/torch/rounding.rs",
        ];
        let sources = files.map(|file| fs::read_to_string(shell::root().join(file)).unwrap()).concat();
        for test in TESTS.into_iter().chain([OF_LOWBIT]) {
            assert!(sources.contains(&format!("fn {test}() {{")), "no test is called {test}");
        }
    }
}
