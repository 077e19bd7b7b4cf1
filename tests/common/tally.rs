//! How the cases of one recorded file came out.
#![allow(dead_code, reason = "no target uses all of it")]

use std::{collections::BTreeMap, io::Write};

/// Counts of one file.
pub struct Tally {
    system: &'static str,
    file: &'static str,
    agree: usize,
    on_purpose: BTreeMap<&'static str, usize>,
    outside: usize,
    failures: Vec<String>,
}

impl Tally {
    pub fn new(system: &'static str, file: &'static str) -> Self {
        Tally { system, file, agree: 0, on_purpose: BTreeMap::new(), outside: 0, failures: vec![] }
    }

    pub fn agree(&mut self) {
        self.agree += 1;
    }

    /// A difference that stands in COMPARE.md, by its name there.
    pub fn on_purpose(&mut self, difference: &'static str) {
        *self.on_purpose.entry(difference).or_default() += 1;
    }

    /// Understood, and of something that this library does not do.
    pub fn outside(&mut self, cases: usize) {
        self.outside += cases;
    }

    pub fn fail(&mut self, why: String) {
        self.failures.push(why);
    }

    /// Prints the line of the file; panics when a case failed.
    pub fn close(self) {
        let differ: usize = self.on_purpose.values().sum();
        for (difference, cases) in self.on_purpose {
            println!("  {cases:4} {difference}");
        }
        let outside = if self.outside == 0 { String::new() } else { format!(", {} outside", self.outside) };
        // Straight to the stream, which the harness does not catch: the line shows in every run.
        let _ = writeln!(
            std::io::stdout(),
            "goldens {} {}: {} agree, {differ} differ on purpose, {} fail{outside}",
            self.system,
            self.file,
            self.agree,
            self.failures.len()
        );
        assert!(self.failures.is_empty(), "{}", self.failures.join("\n"));
    }
}
