//! `precast plan`, `explain` and `diff`: what policies decide for a network, before anything is run.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use precast::{Policy, io::models::Model, report::plan_table};

use super::{
    Failure, Format, Result,
    inputs::{self, Predicting, Read, shown},
    print, print_json,
};

/// Show which cell of a network would run in which precision, and why
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  precast plan lenet5 --policy o2
  precast plan models/mlp.yaml --policy my-policy.yaml --format json
  precast plan mlp --policy o2 --predict --batch 64   with times and bytes of a training step

Cells marked with * are wrapped: what goes in is cast, and what comes out is cast back.")]
pub(super) struct PlanArgs {
    /// A model file, or the name of a built-in model
    model: PathBuf,
    /// A policy file, or the name of a built-in policy
    #[arg(short, long)]
    policy: PathBuf,
    /// Say what every cell is predicted to take, also where the policy does not prefer speed
    #[arg(long)]
    predict: bool,
    #[command(flatten)]
    predicting: Predicting,
    /// How to write it
    #[arg(long, default_value = "tree")]
    format: PlanFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PlanFormat {
    /// The tree of cells
    Tree,
    /// A row for each cell, with its whole path
    Table,
    /// One JSON document
    Json,
}

/// Tell why one cell of a network would run as it does, and what was overridden
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  precast explain lenet5_bn 1 --policy o2      the second cell: a batch normalisation
  precast explain lenet5_bn . --policy o2      the network itself")]
pub(super) struct ExplainArgs {
    /// A model file, or the name of a built-in model
    model: PathBuf,
    /// Path of the cell, as `precast plan` shows it: `encoder.layers.3.norm`; `.` is the network itself
    path: String,
    /// A policy file, or the name of a built-in policy
    #[arg(short, long)]
    policy: PathBuf,
    #[command(flatten)]
    predicting: Predicting,
    /// How to write it
    #[arg(long, default_value = "text")]
    format: Format,
}

/// Show which cells two policies treat differently
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  precast diff lenet5_bn --policy o2 --policy o3")]
pub(super) struct DiffArgs {
    /// A model file, or the name of a built-in model
    model: PathBuf,
    /// Two policies, each a file or the name of a built-in one: from, to
    #[arg(short, long, required = true)]
    policy: Vec<PathBuf>,
    #[command(flatten)]
    predicting: Predicting,
    /// How to write it
    #[arg(long, default_value = "text")]
    format: Format,
}

pub(super) fn plan(args: &PlanArgs) -> Result {
    let model = model(&args.model)?;
    let policy = inputs::policy(&args.policy)?;
    args.predicting.check(args.predict, &[&policy.value])?;
    let plan = args.predicting.plan(&model, &policy.value, args.predict)?;
    match args.format {
        PlanFormat::Json => print_json(&plan),
        PlanFormat::Tree => print(format_args!("{}{plan}", header(&model, &[&policy]))),
        PlanFormat::Table => {
            let table = plan_table(&plan);
            print(format_args!("{}{}\n{table}", header(&model, &[&policy]), plan.policy))
        }
    }
}

pub(super) fn explain(args: &ExplainArgs) -> Result {
    let model = model(&args.model)?;
    let policy = inputs::policy(&args.policy)?;
    args.predicting.check(false, &[&policy.value])?;
    let path = if args.path == "." { "" } else { &args.path };
    let explanation = args.predicting.plan(&model, &policy.value, false)?.explain(path).map_err(|error| {
        let (model, policy) = (shown(&args.model), shown(&args.policy));
        Failure::Usage(format!("{error}; `precast plan {model} --policy {policy}` shows every path"))
    })?;
    match args.format {
        Format::Json => print_json(&explanation),
        Format::Text => print(format_args!("{}{explanation}", header(&model, &[&policy]))),
    }
}

pub(super) fn diff(args: &DiffArgs) -> Result {
    let [from, to] = &args.policy[..] else {
        let met = args.policy.len();
        return Err(Failure::Usage(format!("two policies are compared, and --policy is there {met} times")));
    };
    let model = model(&args.model)?;
    let (from, to) = (inputs::policy(from)?, inputs::policy(to)?);
    args.predicting.check(false, &[&from.value, &to.value])?;
    let plan = |policy: &Read<Policy>| args.predicting.plan(&model, &policy.value, false);
    let diff = plan(&from)?.diff(&plan(&to)?);
    match args.format {
        Format::Json => print_json(&diff),
        Format::Text => print(format_args!("{}{diff}", header(&model, &[&from, &to]))),
    }
}

/// The weights do not matter to a plan. Predicted are steps of training.
fn model(argument: &Path) -> Result<Read<Model>> {
    let mut model = inputs::model(argument, 0)?;
    model.value.net.set_train(true);
    Ok(model)
}

/// What was read, a line each.
pub(super) fn header(model: &Read<Model>, policies: &[&Read<Policy>]) -> String {
    let policies: String = policies.iter().map(|policy| format!("policy  {policy}\n")).collect();
    format!("model   {model}\n{policies}")
}
