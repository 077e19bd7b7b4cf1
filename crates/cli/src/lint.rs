//! `precast lint`: the precision hazards of a network, before it is trained.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use precast::ErrorKind;
use precast_base::{printable_lines, quoted};
use precast_diagnose::lint::{Finding, Rule, Severity};
use precast_explorer::Note;
use precast_train::History;
use precast_train::{RunFile, history_of};
use serde::Serialize;

use super::{
    Cli, Failure, Format, Result,
    examples::data,
    inputs::{self, Read},
    network::policy_of,
    outputs::Page,
    plan_page::{Notes, write_noted},
    print, print_json,
    run::{is_run_file, model, say_line, under},
};

/// List the numbers, ops and parameters of a network that its precision endangers
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The first batch runs forward and backward in float32, and a number that does not fit the dtype of its place under the policy is a
finding: its cell, its op, the number, the limit, and what to write. Nothing is trained. The exit status is 1 if there are errors.

A model is linted on the digits that come with the command; for your own data, give a run file, or the folder of a run, whose
best weights are read.

Examples:
  precast lint lenet5 --policy o2
  precast lint run.yaml --policy o3          with the data, the loss and the optimizer of the run
  precast lint runs/o2                       with the weights that the run has so far
  precast lint lenet5 --policy o2 --html a.html
  precast lint model.yaml --policy o2 --data '{csv: {file: iris.csv, target: species}}'")]
pub(super) struct Args {
    /// A model file or the name of a built-in model, a run file, or the folder of a run
    model: PathBuf,
    /// A policy file, or the name of a built-in policy [default: that of the run]
    #[arg(short, long)]
    policy: Option<PathBuf>,
    /// The data of a model: `digits`, an `.npz` file, or data as a run file writes it [default: digits]
    #[arg(short, long)]
    data: Option<String>,
    /// Output format
    #[arg(long, default_value = "text")]
    format: Format,
    /// List shapes that matter on GPUs only, too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    page: Page,
}

/// The findings, as JSON.
#[derive(Serialize)]
struct Found<'a> {
    model: String,
    policy: &'a str,
    findings: &'a [Finding],
}

pub(super) fn run(cli: &Cli, args: &Args) -> Result {
    args.page.check(&[("MODEL", Some(&args.model)), ("--policy", args.policy.as_deref())])?;
    let (file, needs_data) = run_file(cli, args)?;
    let findings =
        file.lint(model(cli, &file)?).map_err(|error| match needs_data && error.kind() == ErrorKind::Data {
            true => Failure::Usage(format!("{error}; that is the data of the shipped digits: --data names others")),
            false => error.into(),
        })?;
    let count = |severity: Severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let errors = count(Severity::Error);
    let hidden = |finding: &Finding| finding.rule == Rule::ShapeOf8 && !args.all;
    match args.format {
        Format::Json => {
            print_json(&Found { model: inputs::shown(&args.model), policy: &file.policy, findings: &findings })?;
        }
        Format::Text => {
            let mut text = String::new();
            for finding in findings.iter().filter(|finding| !hidden(finding)) {
                writeln!(text, "{}", printable_lines(&finding.to_string())).expect("writing to a string");
            }
            let (warnings, informations) = (count(Severity::Warning), count(Severity::Information));
            let (errors, warnings) = (counted(errors, "error"), counted(warnings, "warning"));
            let more = if findings.iter().any(hidden) { " (with --all, the shapes that matter on GPUs)" } else { "" };
            print(format_args!("{text}{errors}, {warnings}, {informations} for information{more}"))?;
        }
    }
    if let Some(page) = &args.page.html {
        let mut notes = Notes::new();
        for finding in findings.iter().filter(|finding| !hidden(finding)) {
            let note = Note { mark: finding.severity.to_string(), text: finding.to_string() };
            notes.entry(finding.cell.clone()).or_default().push(note);
        }
        let model = Read::of_file(model(cli, &file)?, &args.model);
        write_noted(page, &model, inputs::shown(&file.policy_path()), &file.read_policy()?, notes)?;
    }
    let broke = |history: &History| {
        history.stalled().is_some() || history.epochs.last().is_some_and(|epoch| !epoch.loss.is_finite())
    };
    if args.model.is_dir() && errors > 0 && history_of(&args.model).is_ok_and(|history| broke(&history)) {
        let (program, run) = (&cli.program, inputs::word(&args.model));
        say_line(&format!(
            "the run broke, so its weights may be to blame: `{program} replay {run}` lists the steps, and the cure of one \
             says whether the precision is the cause"
        ));
    }
    match errors {
        0 => Ok(()),
        1 => Err(Failure::Work("the lint found an error".into())),
        _ => Err(Failure::Work(format!("the lint found {errors} errors"))),
    }
}

/// Formats a number of things.
fn counted(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// Reads the policy of the command line, so that an error names it.
fn check_policy(policy: &Path) -> Result {
    match inputs::policy_file(policy)? {
        read if read.cells().is_none() => Err(Failure::Usage(format!(
            "{read} is a policy for graphs, which has no cells to lint; expected one with a level: O0 to O3 or auto"
        ))),
        _ => Ok(()),
    }
}

/// Returns the run that is linted, for a model one on the given data, and whether its data was not named.
fn run_file(cli: &Cli, args: &Args) -> Result<(RunFile, bool)> {
    let of_run = args.model.join("run.yaml").is_file() || is_run_file(&args.model);
    if !of_run {
        let _ = inputs::model(cli, &args.model, 0)?;
        let policy = &policy_of(args.policy.as_deref(), None)?;
        check_policy(policy)?;
        let [model, policy] = [&args.model, policy].map(|path| quoted(&path.to_string_lossy()));
        let text = format!("data: digits\nversion: 1\nmodel: {model}\npolicy: {policy}\n");
        let mut file = RunFile::parse(&text, "--data")?;
        if let Some(text) = &args.data {
            file.data = data(text)?;
        }
        return Ok((file, args.data.is_none()));
    }
    if args.data.is_some() {
        return Err(Failure::Usage("--data is for a model; a run names its data".into()));
    }
    let file =
        if args.model.is_dir() { RunFile::of_folder(&args.model)?.as_now()? } else { RunFile::load(&args.model)? };
    let file = match &args.policy {
        None => file,
        Some(policy) => {
            check_policy(policy)?;
            under(file, policy)
        }
    };
    Ok((file, false))
}
