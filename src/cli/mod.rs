//! The command line: what is asked, and how it ends.

mod bench;
mod digits;
mod graph;
mod inputs;
mod levels;
mod ops;
mod plan;
mod progress;
mod results;
mod table;
mod train;

use std::{
    borrow::Cow,
    fmt::Display,
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand, ValueEnum};
use precast::{
    Error,
    report::{printable, printable_lines},
};
use serde::Serialize;

/// Mixed-precision training: decide the precision of every cell of a network before the run, say why, and train it.
#[derive(Debug, Parser)]
#[command(
    name = "precast",
    version,
    after_help = "\
Models and policies are YAML files, or the names of built-in ones:
  models    lenet5 lenet5_8x8 lenet5_bn mlp
  policies  o0 o1 o1-bf16 o2 o2-bf16 o3 o3-bf16 auto auto-bf16 graph graph-bf16

Examples:
  precast train                                      train LeNet-5 at every level and compare
  precast plan lenet5 --policy o2                    which cell will run in which precision, and why
  precast explain lenet5_bn 1 --policy o2            why one cell runs as it does
  precast diff lenet5_bn --policy o2 --policy o3     what another policy would change
  precast graph lenet5 --policy graph --svg out.svg  the graph of a call, rewritten by a policy, as a table and a drawing
  precast ops softmax                                what every pack of lists does with an op, and why
  precast bench                                      how fast this machine is, and how near its limits the kernels come

Exit status: 0 done; 1 the work failed (a training run that cannot go on, a disk that is full); 2 wrong use or bad input.
If standard output is closed early (precast train | head), the work and the exit status stay the same."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Train(train::Args),
    Plan(plan::PlanArgs),
    Explain(plan::ExplainArgs),
    Diff(plan::DiffArgs),
    Graph(graph::Args),
    Levels(levels::Args),
    Ops(ops::Args),
    Bench(bench::Args),
}

/// Output format of a result.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Format {
    /// Text for people
    Text,
    /// One JSON document
    Json,
}

/// Why a command failed.
#[derive(Debug)]
enum Failure {
    /// Wrong use, or bad input.
    Usage(String),
    /// The request was valid; doing it failed.
    Work(String),
    /// Standard output was closed by its reader: `precast ... | head`.
    Unread,
}

impl From<Error> for Failure {
    /// An error of the library before the work has begun is bad input.
    fn from(error: Error) -> Self {
        Failure::Usage(error.to_string())
    }
}

impl Failure {
    /// An error after the work has begun.
    fn work(error: impl Display) -> Self {
        Failure::Work(error.to_string())
    }
}

type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// Runs the command line and returns its exit status.
pub fn main() -> ExitCode {
    let command = Cli::parse().command;
    let (message, code) = match environment().and_then(|()| run(&command)) {
        Ok(()) | Err(Failure::Unread) => return ExitCode::SUCCESS,
        Err(Failure::Work(message)) => (message, 1),
        Err(Failure::Usage(message)) => (message, 2),
    };
    // If standard error is closed as well, only the exit status is left.
    let _ = writeln!(io::stderr(), "error: {}", printable_lines(&message));
    ExitCode::from(code)
}

fn run(command: &Command) -> Result {
    match command {
        Command::Train(args) => train::run(args),
        Command::Plan(args) => plan::plan(args),
        Command::Explain(args) => plan::explain(args),
        Command::Diff(args) => plan::diff(args),
        Command::Graph(args) => graph::run(args),
        Command::Levels(args) => levels::run(args),
        Command::Ops(args) => ops::run(args),
        Command::Bench(args) => bench::run(args),
    }
}

/// Refuses invalid values of `PRECAST_THREADS` and `PRECAST_VECTORS`. The library itself cannot report them: it ignores them,
/// and uses every core and the widest vectors.
fn environment() -> Result {
    let check = |name, allowed: fn(&str) -> bool, what| match std::env::var_os(name) {
        // A shell unsets a variable for one command by setting it empty.
        Some(text) if !text.is_empty() && !text.to_str().is_some_and(allowed) => {
            Err(Failure::Usage(format!("{name} is {text:?}; allowed is {what}")))
        }
        _ => Ok(()),
    };
    let number = |text: &str| text.parse::<usize>().is_ok();
    check("PRECAST_THREADS", number, "a number of threads, or 0 for one for each core")?;
    check("PRECAST_VECTORS", |text| ["1", "8", "16"].contains(&text), "1, 8 or 16, the most f32 in a vector")
}

/// Shows a status line on a terminal, in place of the one before.
fn say(text: &str) {
    if io::stderr().is_terminal() {
        let _ = write!(io::stderr(), "\r\x1b[2K{text}");
    }
}

/// Writes a text and a line end to standard output.
fn print(text: impl Display) -> Result {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Unread,
        _ => Failure::work(format_args!("standard output: {error}")),
    })
}

/// Writes a value as JSON to standard output, with control characters escaped, as in every other format.
fn print_json(value: &impl Serialize) -> Result {
    let json = serde_json::to_string_pretty(value).map_err(Failure::work)?;
    print(json_for_a_terminal(&json))
}

/// The same JSON with every control character but line ends written as `\uXXXX`. They occur in strings only.
fn json_for_a_terminal(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        match c == '\n' || matches!(printable(c.encode_utf8(&mut [0; 4])), Cow::Borrowed(_)) {
            true => shown.push(c),
            false => shown.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}"))),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use precast::{Policy, io::models::Model};

    use super::*;

    #[test]
    fn the_command_is_well_formed_and_its_help_names_what_is_built_in() {
        let mut command = Cli::command();
        command.clone().debug_assert();
        let help = command.render_help().to_string();
        let line = |names: Vec<&str>| names.join(" ");
        assert!(help.contains(&line(Model::names().collect())), "{help}");
        assert!(help.contains(&line(Policy::names().collect())), "{help}");
    }

    #[test]
    fn json_reaches_a_terminal_without_control_characters_and_means_the_same() {
        let value = vec!["one\ntwo", "\u{9b}2J\u{7f}", "a\u{202e}b", "größer ✓"];
        let json = json_for_a_terminal(&serde_json::to_string_pretty(&value).unwrap());
        assert!(json.contains(r"\u009b2J\u007f") && json.contains(r"\u202e") && json.contains("größer ✓"), "{json}");
        assert!(!json.chars().any(|c| c.is_control() && c != '\n'));
        assert_eq!(serde_json::from_str::<Vec<String>>(&json).unwrap(), value);
    }
}
