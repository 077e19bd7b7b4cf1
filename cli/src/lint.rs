//! `precast lint`: the precision hazards of a network, before it is trained.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use precast::lint::{Finding, Severity};
use precast_policy::printable_lines;
use precast_train::RunFile;
use serde::Serialize;

use super::{
    Cli, Failure, Format, Result, inputs, print, print_json,
    run::{is_run_file, model},
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
  precast lint model.yaml --policy o2 --data '{csv: {file: iris.csv, target: species}}'")]
pub(super) struct Args {
    /// A model file or the name of a built-in model, a run file, or the folder of a run
    model: PathBuf,
    /// A policy file, or the name of a built-in policy [default: that of the run]
    #[arg(short, long)]
    policy: Option<PathBuf>,
    /// The data of a model, as a run file writes it [default: digits]
    #[arg(short, long)]
    data: Option<String>,
    /// Output format
    #[arg(long, default_value = "text")]
    format: Format,
}

/// The findings, as JSON.
#[derive(Serialize)]
struct Found<'a> {
    model: String,
    policy: &'a str,
    findings: &'a [Finding],
}

pub(super) fn run(cli: &Cli, args: &Args) -> Result {
    let file = run_file(args)?;
    let findings = file.lint(model(cli, &file)?)?;
    let count = |severity: Severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let errors = count(Severity::Error);
    match args.format {
        Format::Json => {
            print_json(&Found { model: inputs::shown(&args.model), policy: &file.policy, findings: &findings })?;
        }
        Format::Text => {
            let mut text = String::new();
            for finding in &findings {
                writeln!(text, "{}", printable_lines(&finding.to_string())).expect("writing to a string");
            }
            let (warnings, informations) = (count(Severity::Warning), count(Severity::Information));
            print(format_args!("{text}{errors} errors, {warnings} warnings, {informations} for information"))?;
        }
    }
    match errors {
        0 => Ok(()),
        1 => Err(Failure::Work("the lint found an error".into())),
        _ => Err(Failure::Work(format!("the lint found {errors} errors"))),
    }
}

/// Returns the run that is linted: for a model, one on the given data.
fn run_file(args: &Args) -> Result<RunFile> {
    let of_run = args.model.is_dir() || is_run_file(&args.model);
    if !of_run {
        let Some(policy) = &args.policy else {
            return Err(Failure::Usage("--policy is needed for a model; a run has one".into()));
        };
        let quoted = |path: &Path| format!("'{}'", path.to_string_lossy().replace('\'', "''"));
        let data = args.data.as_deref().unwrap_or("digits");
        let text = format!("version: 1\nmodel: {}\npolicy: {}\ndata: {data}\n", quoted(&args.model), quoted(policy));
        return Ok(RunFile::parse(&text, "--data")?);
    }
    if args.data.is_some() {
        return Err(Failure::Usage("--data is for a model; a run names its data".into()));
    }
    let file = if args.model.is_dir() { RunFile::of_folder(&args.model)? } else { RunFile::load(&args.model)? };
    Ok(match &args.policy {
        None => file,
        // A policy on the command line is relative to the current folder.
        Some(policy) => {
            let policy = std::path::absolute(policy).ok().filter(|path| path.is_file()).unwrap_or(policy.clone());
            let mut file = file;
            file.policy = policy.to_string_lossy().into_owned();
            file
        }
    })
}
