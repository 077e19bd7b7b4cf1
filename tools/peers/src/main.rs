//! Comparison of every op, layer, optimizer, scaled training step and step over ranks of precast with torch.
//! `cargo xtask peers --python PATH`.

mod beside;
mod bounds;
mod data_parallel;
mod draw;
mod held;
mod layers;
mod ops;
mod peer;
mod report;
mod sweep;
mod training;
mod units;

use std::process::ExitCode;

const USAGE: &str = "cargo xtask peers --python PATH [--seed N] [--cases N] [--ops NAME,...] [--write]

  --python PATH   a Python that has torch and numpy
  --seed N        where random cases begin; 1
  --cases N       cases of each op in each dtype; 12
  --ops NAME,...  these ops only, and neither layers nor training
  --write         write tools/peers/REPORT.md and tools/peers/data";

/// Command-line options.
pub struct Options {
    pub python: String,
    pub seed: u64,
    pub cases: usize,
    pub ops: Vec<precast::Op>,
    pub write: bool,
}

impl Options {
    fn read(words: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options { python: String::new(), seed: 1, cases: 12, ops: Vec::new(), write: false };
        let mut words = words;
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value\n\n{USAGE}"));
            match word.as_str() {
                "--python" => options.python = value()?,
                "--seed" => options.seed = number(&word, &value()?)?,
                "--cases" => options.cases = number(&word, &value()?)? as usize,
                "--ops" => {
                    for name in value()?.split(',') {
                        options.ops.extend(precast::Op::named(name).map_err(|error| error.to_string())?);
                    }
                }
                "--write" => options.write = true,
                "--help" | "-h" => return Err(USAGE.into()),
                _ => return Err(format!("what is `{word}`?\n\n{USAGE}")),
            }
        }
        if options.python.is_empty() {
            return Err(format!("--python is missing\n\n{USAGE}"));
        }
        if options.write && !options.ops.is_empty() {
            return Err("--write writes the whole report: leave --ops out".into());
        }
        Ok(options)
    }
}

fn number(word: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{word} {text}: a whole number from 0 is allowed"))
}

fn main() -> ExitCode {
    match Options::read(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let swept = sweep::sweep(options)?;
    let mut failures = swept.failures();
    let mut tables = vec![("ops", swept.table())];
    let mut torch = swept.torch;
    if options.ops.is_empty() {
        let beside = beside::run(options)?;
        failures.extend(beside.failures);
        tables.extend(beside.tables);
        torch = format!("{torch}; {}", beside.about);
    }
    if options.write {
        report::write(options, &torch, &tables, failures.len()).map_err(|error| error.to_string())?;
    } else {
        tables.iter().for_each(|(name, table)| println!("{name}\n{table}"));
    }
    failures.iter().for_each(|failure| println!("FAILED {failure}"));
    match failures.len() {
        0 => Ok(()),
        n => Err(format!("{n} failures")),
    }
}
