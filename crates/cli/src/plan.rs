//! `precast plan`, `explain` and `diff`: plans of policies for a network, before it is trained.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use precast::{
    Plan, Policy,
    plan::{Diff, Explanation},
    policy::PolicyFile,
};
use precast_base::printable;
use precast_diagnose::Headroom;
use precast_explorer::Inferred;
use precast_train::{RunFile, headroom_of, is_onnx, report::plan_table_by};
use serde::Serialize;

use super::{
    Cli, Failure, Format, Result, graph,
    inputs::{self, Predicting, Read, shown, word},
    network::{self, Network},
    onnx::{self, RangeArgs},
    outputs::{self, Page},
    plan_page, print, print_json,
    run::say_line,
    summary,
    table::{library_table, plan_tree},
};

/// Show which cell of a network would run in which precision, and why
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  precast plan lenet5 --policy o2
  precast plan models/mlp.yaml --policy my-policy.yaml --format json
  precast plan mlp --policy o2 --predict --batch 64   with times and bytes of a training step
  precast plan lenet5 --policy o2 --summary           parameters, bytes, shapes and multiply-adds of every cell
  precast plan lenet5 --policy o2 --html lenet5.html  a page for a browser; with a second --policy, of both
  precast plan runs/o2                                a run, by the policy that it has now
  precast plan bert-base/ --policy o2                 cells inferred from the tensors of a folder of Hugging Face
  precast plan model.onnx --policy onnx               the nodes of an ONNX model
  precast plan model.onnx --policy o2                 the cells of the network that is imported from it

Cells marked with * are wrapped: their inputs and their outputs are cast.
A policy for graphs wraps no cells: what is shown is what `precast graph` shows.")]
pub(super) struct PlanArgs {
    /// A model file, the name of a built-in model, the folder of a run, a run file, a safetensors file, a Hugging Face
    /// folder, or an ONNX model
    model: PathBuf,
    /// A policy file, or the name of a built-in policy [default: that of the run]. `--html` takes two
    #[arg(short, long)]
    policy: Vec<PathBuf>,
    /// Also predict the time and the bytes of every cell, even if the policy does not prefer speed
    #[arg(long)]
    predict: bool,
    /// Show the sizes of every cell instead: parameters, bytes, and, where an example is known, shapes of outputs and
    /// multiply-adds for a batch of one example or of `--batch`. Without a policy, that of f32, `o0`
    #[arg(long, conflicts_with_all = ["predict", "html"])]
    summary: bool,
    #[command(flatten)]
    page: Page,
    #[command(flatten)]
    predicting: Predicting,
    #[command(flatten)]
    ranges: RangeArgs,
    /// Record a call in training instead of one in evaluation, for a policy for graphs
    #[arg(long)]
    train: bool,
    /// Output format
    #[arg(long, default_value = "tree")]
    format: PlanFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PlanFormat {
    /// The tree of cells
    Tree,
    /// A row for each cell, with its full path
    Table,
    /// One JSON document
    Json,
}

impl PlanFormat {
    /// Returns the format of what is not a tree.
    fn plain(&self) -> Format {
        if let PlanFormat::Json = self { Format::Json } else { Format::Text }
    }
}

/// Explain why one cell of a network would run as it does, and which rules were overridden
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  precast explain lenet5_bn 1 --policy o2      the second cell: a batch normalisation
  precast explain lenet5_bn . --policy o2      the network itself
  precast explain runs/o2 1                    with the range of its numbers in the run
  precast explain lenet5 relu_1 --policy graph a node, as `precast graph` names it, under a policy for graphs
  precast explain model.onnx /a/q/MatMul --policy onnx")]
pub(super) struct ExplainArgs {
    /// A model file, the name of a built-in model, the folder of a run, a run file, a safetensors file, a Hugging Face
    /// folder, or an ONNX model
    model: PathBuf,
    /// Path of the cell, as `precast plan` shows it: `encoder.layers.3.norm`; `.` is the network itself. With a policy
    /// for graphs, the name of a node
    path: String,
    /// A policy file, or the name of a built-in policy [default: that of the run]
    #[arg(short, long)]
    policy: Option<PathBuf>,
    #[command(flatten)]
    predicting: Predicting,
    #[command(flatten)]
    ranges: RangeArgs,
    /// Record a call in training instead of one in evaluation, for a policy for graphs
    #[arg(long)]
    train: bool,
    /// Output format
    #[arg(long, default_value = "text")]
    format: Format,
}

/// Show which cells two policies treat differently
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  precast diff lenet5_bn --policy o2 --policy o3

If one of the policies is for graphs, the nodes of two graphs are compared.")]
pub(super) struct DiffArgs {
    /// A model file, the name of a built-in model, the folder of a run, a run file, a safetensors file, a Hugging Face
    /// folder, or an ONNX model
    model: PathBuf,
    /// Two policies, each a file or the name of a built-in one: from, to. For a run, one is compared with its own
    #[arg(short, long, required = true)]
    policy: Vec<PathBuf>,
    #[command(flatten)]
    predicting: Predicting,
    /// Record a call in training instead of one in evaluation, for a policy for graphs
    #[arg(long)]
    train: bool,
    /// Output format
    #[arg(long, default_value = "text")]
    format: Format,
    #[command(flatten)]
    page: Page,
}

/// A plan of inferred cells.
#[derive(Serialize)]
struct InferredPlan<'a> {
    inferred: Inferred,
    #[serde(flatten)]
    plan: &'a Plan,
}

/// An explanation with the record of a run.
#[derive(Serialize)]
struct Explained<'a> {
    #[serde(flatten)]
    explanation: &'a Explanation,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headroom: Vec<Headroom>,
}

pub(super) fn plan(cli: &Cli, args: &PlanArgs) -> Result {
    check_page(args)?;
    let run = network::run_file(&args.model)?;
    let full = PathBuf::from("o0");
    let given = args.policy.first().or((args.summary && run.is_none()).then_some(&full));
    let first = policy_of(&args.model, given.map(|given| &**given), run.as_ref())?;
    let others = args.policy.iter().skip(1);
    let files: Vec<Read<PolicyFile>> =
        [&first].into_iter().chain(others).map(|file| inputs::policy_file(file)).collect::<Result<_>>()?;
    let file = &files[0];
    if args.summary && file.cells().is_none() {
        return Err(Failure::Usage(
            "--summary is of cells, and the policy is for the nodes of a graph; one with a level, such as `o2`, has cells"
                .into(),
        ));
    }
    check_alike(args.page.html.is_some(), &files)?;
    if is_onnx(&args.model) && file.cells().is_none() {
        refuse_call(args.predict, &args.predicting, args.train)?;
        let format = args.format.plain();
        if let Some(page) = &args.page.html {
            onnx::page(&args.model, &files, &args.ranges, page)?;
        }
        return match &files[..] {
            [from, to] => onnx::diff(&args.model, from, to, format),
            _ => onnx::plan(&args.model, file, &args.ranges, format),
        };
    }
    args.ranges.refuse()?;
    let mut network = Network::of(cli, &args.model, run.as_ref())?;
    let has_batch = (args.summary || args.page.html.is_some()) && args.predicting.given() != Some("--speeds");
    let values: Vec<&PolicyFile> = files.iter().map(|file| &file.value).collect();
    args.predicting.check(args.predict || has_batch, &values)?;
    let Some(policy) = file.cells() else {
        if args.predict {
            return Err(Failure::Usage("--predict is for policies that wrap cells, not for those for graphs".into()));
        }
        let format = args.format.plain();
        network.callable()?;
        if let Some(page) = &args.page.html {
            graph::page(cli, &args.model, &files, args.train, page)?;
        }
        return match &files[..] {
            [from, to] => graph::diff(cli, &args.model, from, to, args.train, format),
            _ => graph::plan(network.callable()?, file, args.train, format),
        };
    };
    refuse_train(args.train)?;
    if args.summary {
        let format = args.format.plain();
        return summary::run(&mut network, &policy, &args.predicting, format);
    }
    let policies: Vec<Read<Policy>> = files.iter().filter_map(Read::cells).collect();
    let planned = |policy: &Read<Policy>| network.plan(&args.predicting, &policy.value, args.predict);
    let plans = policies.iter().map(planned).collect::<Result<Vec<_>>>()?;
    for policy in &policies {
        network.idle_rules(&policy.value)?.iter().for_each(|idle| say_line(idle));
    }
    let mut networks = vec![network];
    let page = match &args.page.html {
        Some(file) => {
            if plans.len() > 1 {
                networks.push(Network::of(cli, &args.model, run.as_ref())?);
            }
            let headroom = headroom(run.as_ref(), &args.model)?;
            Some((file, plan_page::page(&mut networks, &policies, &plans, &args.predicting, &headroom)?))
        }
        None => None,
    };
    let network = &networks[0];
    let plan = &plans[0];
    match (args.format, &plans[1..]) {
        (format, [other]) => print_diff(network, &policies, &plan.diff(other), other, format.plain()),
        (PlanFormat::Json, _) => match network.inferred(plan) {
            None => print_json(plan),
            Some(inferred) => print_json(&InferredPlan { inferred, plan }),
        },
        (PlanFormat::Tree, _) => print(format_args!("{}{}", network.header(&[&policy], plan), plan_tree(plan))),
        (PlanFormat::Table, _) => {
            let table = plan_table_by(plan, library_table);
            print(format_args!("{}{}\n{table}", network.header(&[&policy], plan), plan.policy))
        }
    }?;
    page.map_or(Ok(()), |(file, page)| outputs::write(file, &page))
}

/// Checks the file of `--html`, and that only it has two policies.
fn check_page(args: &PlanArgs) -> Result {
    match args.policy.len() {
        0 | 1 => {}
        2 if args.page.html.is_some() => {}
        times => {
            return Err(Failure::Usage(format!(
                "plan shows one policy, the page of --html also two; --policy was given {times} times; `diff` compares two"
            )));
        }
    }
    args.page.check(&read_by(&args.model, &args.policy))
}

/// Returns the files that are read, with their arguments.
fn read_by<'a>(model: &'a Path, policies: &'a [PathBuf]) -> Vec<(&'static str, Option<&'a Path>)> {
    let policies = policies.iter().map(|policy| ("--policy", Some(&**policy)));
    [("MODEL", Some(model))].into_iter().chain(policies).collect()
}

/// Refuses a page of a policy for cells and one for graphs.
fn check_alike(is_page: bool, files: &[Read<PolicyFile>]) -> Result {
    let of_cells = files.iter().filter(|file| file.cells().is_some()).count();
    match is_page && of_cells > 0 && of_cells < files.len() {
        true => Err(Failure::Usage(
            "--html compares the decisions of two policies about the same cells, or about the same nodes, and one of these is for \
             cells, the other for the nodes of a graph"
                .into(),
        )),
        false => Ok(()),
    }
}

/// Returns the policy that is given, otherwise that of the run.
fn policy_of(model: &Path, given: Option<&Path>, run: Option<&RunFile>) -> Result<PathBuf> {
    match given {
        None if is_onnx(model) => {
            let words = "an ONNX model needs a policy: `--policy onnx` or `onnx-bf16` for the nodes of the file, one with a \
                         level, such as `o2`, for the cells of the imported network, or a file";
            Err(Failure::Usage(words.into()))
        }
        given => network::policy_of(given, run),
    }
}

/// Refuses options about a call, which the nodes of an ONNX file do not need.
fn refuse_call(predict: bool, predicting: &Predicting, train: bool) -> Result {
    let given = [("--predict", predict), ("--train", train)].into_iter().find(|(_, given)| *given);
    match given.map(|(name, _)| name).or(predicting.given()) {
        Some(name) => Err(Failure::Usage(format!(
            "{name} is about a call, and the policy is for the nodes of an ONNX file; one with a level, such as `o2`, plans \
             the imported network"
        ))),
        None => Ok(()),
    }
}

pub(super) fn explain(cli: &Cli, args: &ExplainArgs) -> Result {
    let run = network::run_file(&args.model)?;
    let file = inputs::policy_file(&policy_of(&args.model, args.policy.as_deref(), run.as_ref())?)?;
    if is_onnx(&args.model) && file.cells().is_none() {
        refuse_call(false, &args.predicting, args.train)?;
        return onnx::explain(cli, &args.model, &args.path, &file, &args.ranges, args.format);
    }
    args.ranges.refuse()?;
    let mut network = Network::of(cli, &args.model, run.as_ref())?;
    args.predicting.check(false, &[&file.value])?;
    let Some(policy) = file.cells() else {
        return graph::explain(cli, network.callable()?, &args.path, &file, args.train, args.format);
    };
    refuse_train(args.train)?;
    let path = if args.path == "." { "" } else { &args.path };
    let plan = network.plan(&args.predicting, &policy.value, false)?;
    let explanation = plan.explain(path).map_err(|error| {
        let model = word(&args.model);
        let policy = args.policy.as_deref().map_or(String::new(), |policy| format!(" --policy {}", word(policy)));
        let program = &cli.program;
        let found = of_the_kind(&plan, path).map_or(error.to_string(), |paths| {
            format!(
                "no cell at `{}`; {paths}; a node of a graph is explained under a policy for graphs",
                shown(Path::new(path))
            )
        });
        Failure::Usage(format!("{found}; `{program} plan {model}{policy}` shows every path"))
    })?;
    let headroom: Vec<Headroom> =
        headroom(run.as_ref(), &args.model)?.into_iter().filter(|of| of.cell == path).collect();
    let explanation = explanation.with_numbers(&headroom);
    match args.format {
        Format::Json => print_json(&Explained { explanation: &explanation, headroom }),
        Format::Text => print(format_args!("{}{explanation}", network.header(&[&policy], &plan))),
    }
}

/// Returns the ranges of the numbers of a run, if the model is its folder.
fn headroom(run: Option<&RunFile>, model: &Path) -> Result<Vec<Headroom>> {
    match run {
        Some(_) if model.is_dir() => Ok(headroom_of(model)?),
        _ => Ok(Vec::new()),
    }
}

/// Returns the paths of the cells of a kind, for requests such as `relu_1`, as nodes of graphs are named, or `ReLU`.
fn of_the_kind(plan: &Plan, asked: &str) -> Option<String> {
    let plain = |name: &str| name.replace('_', "").to_lowercase();
    let name = asked.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_');
    let is_asked = |kind: &str| plain(kind) == plain(asked) || plain(kind) == plain(name);
    let found: Vec<_> = plan.decisions.iter().filter(|decision| is_asked(&decision.kind)).collect();
    let kind = &found.first()?.kind;
    let paths: Vec<String> = found.iter().map(|decision| format!("`{}`", printable(&decision.path))).collect();
    Some(format!("cells of the kind {} are at {}", printable(kind), paths.join(", ")))
}

pub(super) fn diff(cli: &Cli, args: &DiffArgs) -> Result {
    let run = network::run_file(&args.model)?;
    let (from, to) = match (&args.policy[..], &run) {
        ([from, to], _) => (from.clone(), to),
        ([to], Some(run)) => (network::policy_of(None, Some(run))?, to),
        (given, run) => {
            let more = if run.is_some() { "; one alone is compared with that of the run" } else { "" };
            let met = match given.len() {
                1 => "once".to_string(),
                times => format!("{times} times"),
            };
            return Err(Failure::Usage(format!("diff compares two policies{more}; --policy was given {met}")));
        }
    };
    args.page.check(&read_by(&args.model, &args.policy))?;
    let (from, to) = (inputs::policy_file(&from)?, inputs::policy_file(to)?);
    let files = [from, to];
    check_alike(args.page.html.is_some(), &files)?;
    let [from, to] = &files;
    if is_onnx(&args.model) && (from.cells().is_none() || to.cells().is_none()) {
        refuse_call(false, &args.predicting, args.train)?;
        if let Some(page) = &args.page.html {
            onnx::page(&args.model, &files, &RangeArgs::default(), page)?;
        }
        return onnx::diff(&args.model, from, to, args.format);
    }
    let mut network = Network::of(cli, &args.model, run.as_ref())?;
    args.predicting.check(false, &[&from.value, &to.value])?;
    let (Some(before), Some(after)) = (from.cells(), to.cells()) else {
        network.callable()?;
        if let Some(page) = &args.page.html {
            graph::page(cli, &args.model, &files, args.train, page)?;
        }
        return graph::diff(cli, &args.model, from, to, args.train, args.format);
    };
    refuse_train(args.train)?;
    let plan = |policy: &Read<Policy>| network.plan(&args.predicting, &policy.value, false);
    let policies = [before, after];
    let plans = [plan(&policies[0])?, plan(&policies[1])?];
    let mut networks = vec![network];
    let page = match &args.page.html {
        Some(file) => {
            networks.push(Network::of(cli, &args.model, run.as_ref())?);
            let headroom = headroom(run.as_ref(), &args.model)?;
            Some((file, plan_page::page(&mut networks, &policies, &plans, &args.predicting, &headroom)?))
        }
        None => None,
    };
    print_diff(&networks[0], &policies, &plans[0].diff(&plans[1]), &plans[1], args.format)?;
    page.map_or(Ok(()), |(file, page)| outputs::write(file, &page))
}

/// Prints the differences between the plans of two policies.
fn print_diff(network: &Network, policies: &[Read<Policy>], diff: &Diff, after: &Plan, format: Format) -> Result {
    match format {
        Format::Json => print_json(diff),
        Format::Text => {
            let policies: Vec<&Read<Policy>> = policies.iter().collect();
            print(format_args!("{}{diff}", network.header(&policies, after)))
        }
    }
}

/// Refuses `--train`: a plan of cells is the same in training and in evaluation.
fn refuse_train(train: bool) -> Result {
    match train {
        true => Err(Failure::Usage("--train is for a policy for graphs: it records a call in training".into())),
        false => Ok(()),
    }
}
