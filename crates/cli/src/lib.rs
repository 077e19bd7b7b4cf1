//! The command `precast`, and the same command in a program of your own, with your networks.
//!
//! Model files name kinds of cells. A program that links cells marked `#[cell(saved)]` reads files that name them, so
//! its own command is one line:
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     precast_cli::main()
//! }
//! ```
//!
//! [`Cli`] adds networks built in code.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![forbid(unsafe_code)]
mod bench;
mod cells;
mod color;
mod convert;
mod digits;
mod examples;
mod export;
mod generate;
mod graph;
mod init;
mod inputs;
mod lead;
mod levels;
mod lint;
mod network;
mod onnx;
mod onnx_run;
mod ops;
mod outputs;
mod over_ranks;
mod plan;
mod plan_page;
mod predict;
mod progress;
mod remedy;
mod replay;
mod results;
mod run;
mod shadow;
mod shell;
mod show;
mod summary;
mod table;
mod train;
mod train_args;
mod tune;
mod words;

use std::{
    borrow::Cow,
    ffi::OsString,
    fmt::{self, Display},
    io::{self, IsTerminal, Write},
    path::Path,
    process::ExitCode,
};

use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use precast::{Error, io::models::Model, layers::Rng, policy::PolicyFile};
use precast_base::{names::did_you_mean, printable, printable_lines};
use precast_mpi as ranks;
use serde::Serialize;

/// Mixed-precision training: decide the precision of every cell of a network before the run, say why, and train it.
#[derive(Debug, Parser)]
#[command(
    name = "precast",
    version,
    after_help = "\
Models and policies are YAML files, or the names of built-in ones:
  models    {models}
  policies  {policies}
`--policy -` reads a policy from standard input.

Examples:
  precast train                                      train LeNet-5 at every level and compare
  precast train run.yaml                             train as a run file says, into a folder that can be resumed
  precast plan lenet5 --policy o2                    which cell will run in which precision, and why
  precast explain lenet5_bn 1 --policy o2            why one cell runs as it does
  precast diff lenet5_bn --policy o2 --policy o3     what another policy would change
  precast lint lenet5 --policy o2                    numbers, ops and parameters that 16 bits endanger
  precast graph lenet5 --policy graph --svg out.svg  the graph of a call, rewritten by a policy, as a table and a drawing
  precast plan model.safetensors --policy o2         the same for weights of another tool, whose cells are inferred
  precast convert bert/ bert-f16/ --policy o2        weights of another tool, stored in the dtypes of a policy
  precast run model.onnx --inputs x.npz              an ONNX model on inputs, beside a converted one if you like
  precast tune runs/o2 --policy o2 --budget 1e-5     the cells that can be lowered within a budget of error
  precast shadow runs/o2 --policy o2                 the error that each cell of a lowered network causes
  precast export bert/ --policy o2 --to torch        the same decisions for torch, or another library
  precast show ops softmax                           what every pack of lists does with an op, and why
  precast show cells Conv2d                          the options of a kind of cell, as a model file writes them
  precast init lenet5_bn --output my-policy.yaml     a policy to begin with, for one network
  precast show bench                                 how fast this machine is, and how near its limits the kernels come

Exit status: 0 done; 1 the work failed (a training run that cannot go on, a disk that is full); 2 wrong use or bad input.
If standard output is closed early (precast train | head), the work and the exit status stay the same."
)]
struct Line {
    #[command(subcommand)]
    command: Command,
    /// Colours; auto uses them on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, default_value = "auto", value_name = "WHEN")]
    color: ColorChoice,
}

#[derive(Debug, Subcommand)]
enum Command {
    Train(train_args::Args),
    Predict(predict::Args),
    Generate(generate::Args),
    Run(onnx_run::Args),
    Replay(replay::Args),
    Tune(tune::Args),
    Shadow(shadow::Args),
    Plan(plan::PlanArgs),
    Explain(plan::ExplainArgs),
    Diff(plan::DiffArgs),
    Graph(graph::Args),
    Convert(convert::Args),
    Export(export::Args),
    Lint(lint::Args),
    Init(init::Args),
    Show(show::Args),
}

/// Output format of a result.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Format {
    /// Text for people
    Text,
    /// One JSON document
    Json,
}

/// The cause of a failed command.
#[derive(Debug)]
enum Failure {
    /// Wrong use, or bad input.
    Usage(String),
    /// The request was valid; doing it failed.
    Work(String),
    /// The reader closed standard output: `precast ... | head`.
    Unread,
    /// One whose words were said, with its exit status.
    Said(u8),
}

impl From<Error> for Failure {
    /// Treats a library error before the work has begun as bad input.
    fn from(error: Error) -> Self {
        Failure::Usage(error.to_string())
    }
}

impl Failure {
    /// Creates the failure for an error after the work has begun.
    fn work(error: impl Display) -> Self {
        Failure::Work(error.to_string())
    }

    fn words(&self) -> &str {
        match self {
            Failure::Usage(words) | Failure::Work(words) => words,
            Failure::Unread => "standard output is closed",
            Failure::Said(_) => "said before",
        }
    }

    /// Writes the words to standard error, unless they were said, and returns the exit status.
    fn say(&self) -> u8 {
        let (words, code) = match self {
            Failure::Work(words) => (words, 1),
            Failure::Usage(words) => (words, 2),
            Failure::Unread => return 0,
            Failure::Said(code) => return *code,
        };
        // If standard error is also closed, only the exit status remains.
        let _ = writeln!(io::stderr(), "{} {}", color::error_word(), printable_lines(words));
        code
    }
}

type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// Runs the command line of this process and returns its exit status; see [`Cli`] for networks built in code.
pub fn main() -> ExitCode {
    Cli::new().main()
}

/// A function that builds a network of the program's own.
type Build = Box<dyn Fn(&mut Rng) -> precast::Result<Model>>;

/// The command `precast` with networks that a program builds in code, in addition to those of files.
///
/// ```no_run
/// use precast::{io::models::Model, prelude::*};
/// use precast_cli::Cli;
///
/// fn main() -> std::process::ExitCode {
///     let tiny = |rng: &mut Rng| {
///         let net = sequential![Dense::new(64, 32, rng), ReLU, Dense::new(32, 10, rng)];
///         Ok(Model::new(net).input([64]))
///     };
///     Cli::new().model("tiny", tiny).main() // `my-program plan tiny --policy o2`
/// }
/// ```
pub struct Cli {
    program: String,
    models: Vec<(String, Build)>,
}

impl fmt::Debug for Cli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let models: Vec<&str> = self.models.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Cli").field("program", &self.program).field("models", &models).finish()
    }
}

impl Default for Cli {
    fn default() -> Self {
        Cli::new()
    }
}

impl Cli {
    /// Creates the command, under the name with which this process was started.
    pub fn new() -> Self {
        let started_as = std::env::args_os().next();
        let name = started_as.as_deref().and_then(|name| Path::new(name).file_stem());
        Cli::with_name(&name.map_or("precast".into(), |name| printable(&name.to_string_lossy()).into_owned()))
    }

    /// Creates the command under a name, as its help and its errors show it: for a process that was started by another
    /// program, such as an interpreter.
    pub fn with_name(program: &str) -> Self {
        Cli { program: program.into(), models: Vec::new() }
    }

    /// Adds a network under a name, which every command accepts in place of a model file. The weights are drawn from
    /// the generator. Commands that call the network need its input shape.
    ///
    /// A file of that name takes precedence over the network, and the network over a built-in model.
    #[must_use]
    pub fn model(
        mut self,
        name: impl Into<String>,
        build: impl Fn(&mut Rng) -> precast::Result<Model> + 'static,
    ) -> Self {
        self.models.push((name.into(), Box::new(build)));
        self
    }

    /// Runs the command line of this process and returns its exit status.
    pub fn main(&self) -> ExitCode {
        self.run(std::env::args_os().skip(1))
    }

    /// Runs a command line, without the name of the program: `["plan", "tiny", "--policy", "o2"]`.
    pub fn run(&self, args: impl IntoIterator<Item = impl Into<OsString>>) -> ExitCode {
        ExitCode::from(self.status(args))
    }

    /// Runs a command line, as [`run`](Cli::run) does, and returns its exit status as a number: 0, 1 or 2.
    pub fn status(&self, args: impl IntoIterator<Item = impl Into<OsString>>) -> u8 {
        let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
        let mut command = self.command().color(color::asked_for(&args));
        let line = command
            .try_get_matches_from_mut([OsString::from(&self.program)].into_iter().chain(args.iter().cloned()))
            .and_then(|matches| Line::from_arg_matches(&matches));
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                let error = words::with_tip(error, &command, &args);
                // Of several processes, one speaks. If standard error is closed, only the exit status remains.
                if ranks::launched_as().is_none_or(|rank| rank == 0) {
                    let printed = error.print().and_then(|()| io::stdout().flush());
                    if let (Err(failed), false) = (printed, error.use_stderr()) {
                        return not_printed(&failed).say();
                    }
                }
                return u8::try_from(error.exit_code()).unwrap_or(2);
            }
        };
        color::choose(line.color);
        match environment().and_then(|()| self.check()).and_then(|()| self.execute(&line.command)) {
            Ok(()) => 0,
            Err(failure) => failure.say(),
        }
    }

    fn execute(&self, command: &Command) -> Result {
        if let (Some(size @ 2..), false) = (ranks::launched(), matches!(command, Command::Train(_))) {
            let words =
                format!("the launcher has started {size} processes, and `train` alone divides its work; leave it out");
            return Err(if ranks::launched_as() > Some(0) { Failure::Said(2) } else { Failure::Usage(words) });
        }
        match command {
            Command::Train(args) => train::run(self, args),
            Command::Predict(args) => predict::run(self, args),
            Command::Generate(args) => generate::run(self, args),
            Command::Run(args) => onnx_run::run(args),
            Command::Tune(args) => tune::run(self, args),
            Command::Shadow(args) => shadow::run(self, args),
            Command::Plan(args) => plan::plan(self, args),
            Command::Explain(args) => plan::explain(self, args),
            Command::Diff(args) => plan::diff(self, args),
            Command::Graph(args) => graph::run(self, args),
            Command::Convert(args) => convert::run(args),
            Command::Export(args) => export::run(self, args),
            Command::Lint(args) => lint::run(self, args),
            Command::Init(args) => init::run(self, args),
            Command::Replay(args) => replay::run(self, args),
            Command::Show(args) => show::run(self, args),
        }
    }

    /// Returns the names under which a command finds a model: the program's own, then the built-in ones.
    fn model_names(&self) -> Vec<&str> {
        self.models.iter().map(|(name, _)| name.as_str()).chain(Model::names().map(|name| -> &str { name })).collect()
    }

    /// Refuses two models of one name, since one could not be reached.
    fn check(&self) -> Result {
        let mut names = self.models.iter().map(|(name, _)| name);
        while let Some(name) = names.next() {
            if names.clone().any(|other| other == name) {
                return Err(Failure::Usage(format!("this program has two models called `{name}`")));
            }
        }
        Ok(())
    }

    /// Returns whether the program itself has a model of this name.
    fn builds(&self, name: &str) -> bool {
        self.models.iter().any(|(own, _)| own == name)
    }

    /// Returns the program's own model of a name, otherwise the built-in one.
    fn named(&self, name: &str, seed: u64) -> precast::Result<Model> {
        if let Some((_, build)) = self.models.iter().find(|(own, _)| own == name) {
            return build(&mut Rng::seed(seed)).map_err(|error| error.context(format_args!("model {name}")));
        }
        Model::named(name, seed).map_err(|error| match self.model_names() {
            all if all.contains(&name) => error,
            all => {
                let near = did_you_mean(name, all.iter().copied());
                Error::model(format!("no model is called `{name}`{near}; allowed: {}", all.join(", ")))
            }
        })
    }

    /// Returns the command line under the name of this program, with all models in its help.
    fn command(&self) -> clap::Command {
        let models = self.model_names();
        let policies: Vec<&str> = PolicyFile::names().collect();
        let say = |text: &dyn Display| {
            let text = text.to_string().replace("{models}", &models.join(" "));
            let text = text.replace("{policies}", &policies.join(" ")).replace("{program}", &self.program);
            // `precast-out` is kept, and so is the library in "come with precast".
            [" ", "`", "("].iter().fold(text, |text, before| {
                text.replace(&format!("{before}precast "), &format!("{before}{} ", self.program))
            })
        };
        let version = match self.program.as_str() {
            "precast" => env!("CARGO_PKG_VERSION").to_string(),
            _ => format!("with precast {}", env!("CARGO_PKG_VERSION")),
        };
        let command = Line::command().name(self.program.clone()).bin_name(self.program.clone()).version(version);
        renamed(command, &say).mut_subcommands(|command| renamed(command, &say))
    }
}

/// Returns a command with its texts replaced by `say`.
fn renamed(command: clap::Command, say: &dyn Fn(&dyn Display) -> String) -> clap::Command {
    let after = command.get_after_help().map(|text| say(text));
    let command = command.mut_args(|arg| match arg.get_help().map(|text| say(text)) {
        Some(help) => arg.help(help),
        None => arg,
    });
    match after {
        Some(after) => command.after_help(after),
        None => command,
    }
}

/// Refuses invalid values of `PRECAST_THREADS`, `PRECAST_VECTORS` and `PRECAST_AMX`. The library itself cannot report
/// them: it ignores them, and uses every core, the widest vectors and no AMX.
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
    check("PRECAST_VECTORS", |text| ["1", "4", "8", "16"].contains(&text), "1, 4, 8 or 16, the most f32 in a vector")?;
    check(
        "PRECAST_AMX",
        |text| ["0", "1"].contains(&text),
        "1, which multiplies bf16 by AMX if the processor has it, or 0",
    )
}

/// Shows a status line on a terminal, replacing the previous one.
fn say(text: &str) {
    if io::stderr().is_terminal() {
        let _ = write!(io::stderr(), "\r\x1b[2K{text}");
    }
}

/// Writes text for people and a line end to standard output, with colours where they are wanted.
fn print(text: impl Display) -> Result {
    print_as_it_is(color::painted(&text.to_string()))
}

/// Writes text and a line end to standard output.
fn print_as_it_is(text: impl Display) -> Result {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| not_printed(&error))
}

/// Returns the failure for a text that cannot be written to standard output.
fn not_printed(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Unread,
        _ => Failure::work(format_args!("standard output: {error}")),
    }
}

/// Writes a value as JSON to standard output, with control characters escaped, as in every other format.
fn print_json(value: &impl Serialize) -> Result {
    let json = serde_json::to_string_pretty(value).map_err(Failure::work)?;
    print_as_it_is(json_for_a_terminal(&json))
}

/// Returns the same JSON with every control character but line ends written as `\uXXXX`. They occur in strings only.
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
    use super::*;

    #[test]
    fn the_command_is_well_formed_and_its_help_names_what_is_built_in() {
        let mut command = Cli::new().model("own", |_| Ok(Model::new(precast::layers::ReLU))).command();
        command.clone().debug_assert();
        let help = command.render_help().to_string();
        assert!(help.contains("models    own lenet5"), "{help}");
        let line = |names: Vec<&str>| names.join(" ");
        assert!(help.contains(&line(Model::names().collect())), "{help}");
        assert!(help.contains(&line(PolicyFile::names().collect())), "{help}");
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
