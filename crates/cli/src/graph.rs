//! `precast graph`: the graph of a network, as recorded and as rewritten by a policy.

use std::path::{Path, PathBuf};

use precast::{
    DType, Level, Policy,
    catalogue::System,
    io::models::Model,
    plan::{Diff, Summary},
    policy::{GraphPolicy, Pack, PolicyFile},
};
use precast_base::printable;
use precast_graph::{self as graph, Graph, GraphLevel, NodeDecision, Rewritten};
use precast_train::{
    is_onnx,
    report::{graph_summary, graph_table_by},
};
use serde::Serialize;

use super::{
    Cli, Failure, Format, Result,
    inputs::{self, Predicting, Read, header},
    network::Network,
    onnx,
    outputs::{self, Force},
    plan_page, print, print_json,
    table::library_table,
};

/// Default number of examples in the traced batch.
const BATCH: u32 = 32;

/// Record one call of a network as a graph, rewrite it by a policy, print and draw it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  precast graph lenet5                                     the graph as it is
  precast graph lenet5 --policy graph --svg lenet5.svg     what a rewrite makes of it, and why, as a table and a drawing
  precast graph lenet5 --policy o1 --fewer-casts           a network wrapped by a plan, without casts that cancel
  precast graph model.onnx --policy onnx --svg model.svg   the nodes of an ONNX file, with its casts

A policy for graphs rewrites the graph. One with a level wraps the cells, and the graph is recorded with their casts.")]
pub(super) struct Args {
    /// A model file, the name of a built-in model, or an ONNX model
    model: PathBuf,
    /// A policy file, or the name of a built-in policy; without it, the graph is shown as recorded
    #[arg(short, long)]
    policy: Option<PathBuf>,
    /// Remove casts that cancel between neighbours; where a rounding is removed, results change
    #[arg(long)]
    fewer_casts: bool,
    /// Record a call in training instead of one in evaluation
    #[arg(long)]
    train: bool,
    /// Batch size of the recorded call
    #[arg(long, default_value_t = BATCH, value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    batch: u32,
    /// Write a drawing
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write a drawing for Graphviz
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,
    /// Write the graph as JSON, from which it can be read and run again
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
    /// Output format
    #[arg(long, default_value = "text")]
    format: Format,
}

pub(super) fn run(cli: &Cli, args: &Args) -> Result {
    let files = [("--svg", &args.svg), ("--dot", &args.dot), ("--json", &args.json)];
    let read = [("MODEL", Some(&*args.model)), ("--policy", args.policy.as_deref())];
    outputs::check_unread(&read, &files.map(|(name, file)| (name, file.as_deref())), args.force)?;
    for (name, file) in files {
        outputs::check_ending(name, file.as_deref(), &[name.trim_start_matches('-')])?;
    }
    let files: Vec<(&str, &Path)> = files.iter().filter_map(|(name, file)| Some((*name, file.as_deref()?))).collect();
    let policy = args.policy.as_deref().map(inputs::policy_file).transpose()?;
    if let Some(policy) = policy.as_ref().filter(|policy| is_onnx(&args.model) && policy.cells().is_none()) {
        return of_onnx(args, policy);
    }
    let mut model = inputs::model(cli, &args.model, 0)?;
    let mut made = Made::new(&mut model, policy.as_ref().map(|policy| &policy.value), args.batch, args.train)?;
    if args.fewer_casts {
        made.take_out_casts();
    }
    // All texts are produced before any is written.
    let texts = files.iter().map(|(name, _)| match *name {
        "--svg" => Ok(made.svg()),
        "--dot" => Ok(made.graph().to_dot()),
        _ => made.graph().to_json(),
    });
    let texts = texts.collect::<precast::Result<Vec<_>>>()?;
    made.print(args.format, &model, policy.as_ref())?;
    for ((_, file), text) in files.iter().zip(texts) {
        outputs::write(file, &text)?;
    }
    Ok(())
}

/// Shows and draws the nodes of an ONNX file under a policy for graphs.
fn of_onnx(args: &Args, policy: &Read<PolicyFile>) -> Result {
    let calls = [("--fewer-casts", args.fewer_casts), ("--train", args.train), ("--json", args.json.is_some())];
    if let Some((name, _)) = calls.iter().find(|(_, given)| *given) {
        return Err(Failure::Usage(format!(
            "{name} is for the graph of a call, and the policy is for the nodes of an ONNX file; without it, a call of the \
             imported network is recorded"
        )));
    }
    onnx::graph(&args.model, policy, (args.svg.as_deref(), args.dot.as_deref()), args.format)
}

/// The graph of a model under a policy.
pub(super) enum Made {
    /// As recorded: of the network as it is, or with the adapters of a plan.
    Traced(Graph),
    /// Rewritten by a policy for graphs, with the number of casts of the same network at level O1.
    Rewritten(Rewritten, usize),
}

/// The output of `--format json`.
#[derive(Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Under>,
    ops: usize,
    low: usize,
    casts: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    casts_at_o1: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    only_batch: Option<String>,
    nodes: Vec<NodeDecision>,
}

/// The policy of a graph.
#[derive(Serialize)]
#[serde(untagged)]
enum Under {
    Cells(Summary),
    Graph { name: Option<String>, pack: Option<String>, graph: GraphLevel, dtype: DType },
}

impl From<&PolicyFile> for Under {
    fn from(policy: &PolicyFile) -> Self {
        match policy {
            PolicyFile::Cells(policy) => Under::Cells(policy.into()),
            PolicyFile::Graph(policy) => {
                let (name, pack) = (policy.name.clone(), policy.pack.clone());
                Under::Graph { name, pack, graph: policy.level, dtype: policy.dtype }
            }
        }
    }
}

/// The output of `precast diff --format json`.
#[derive(Serialize)]
struct DiffReport<'a> {
    #[serde(flatten)]
    diff: &'a Diff<NodeDecision>,
    casts: (usize, usize),
}

/// Refuses a policy with the ops of ONNX files: those of a network have other names.
pub(super) fn check_ops(policy: &GraphPolicy) -> Result {
    let pack = policy.pack.as_deref().map(Pack::named).transpose()?;
    match pack.filter(|pack| pack.system == Some(System::Onnx)) {
        Some(pack) => Err(Failure::Usage(format!(
            "the policy has the ops of ONNX files ({}), and this is a network of cells; `graph` or `graph-bf16` decides about \
             the nodes of its graph, and a policy with a level, such as `o2`, about its cells",
            pack.name
        ))),
        None => Ok(()),
    }
}

impl Made {
    pub fn new(model: &mut Read<Model>, policy: Option<&PolicyFile>, batch: u32, train: bool) -> Result<Self> {
        let x = model.value.sample(&inputs::batch_shape(model, batch, "a graph")?);
        model.value.net.set_train(train);
        let policy = match policy {
            Some(PolicyFile::Graph(policy)) => {
                check_ops(policy)?;
                policy
            }
            Some(PolicyFile::Cells(policy)) => {
                model.value.net.set_train(true);
                let plan = Predicting::of_batch(batch).plan(model, policy, false)?;
                model.value.net.set_train(train);
                let _applied = plan.apply(&mut model.value.net)?;
                return Ok(Made::Traced(Graph::trace(&model.value.net, &x)?));
            }
            None => return Ok(Made::Traced(Graph::trace(&model.value.net, &x)?)),
        };
        let net = &mut model.value.net;
        // It refuses networks that cannot be rewritten, such as cells with a `to_float`, and leaves the network in
        // evaluation.
        graph::rewrite(net, &x, policy)?;
        net.set_train(train);
        let rewritten = Graph::trace(net, &x)?.rewrite(policy)?;
        let _applied = Policy::new(Level::O1, policy.dtype)?.apply(net)?;
        Ok(Made::Rewritten(rewritten, Graph::trace(net, &x)?.casts()))
    }

    pub fn graph(&self) -> &Graph {
        match self {
            Made::Traced(graph) => graph,
            Made::Rewritten(rewritten, _) => &rewritten.graph,
        }
    }

    fn decisions(&self) -> Vec<NodeDecision> {
        match self {
            Made::Traced(graph) => graph.decisions(),
            Made::Rewritten(rewritten, _) => rewritten.decisions(),
        }
    }

    fn take_out_casts(&mut self) {
        let graph = match self {
            Made::Traced(graph) => graph,
            Made::Rewritten(rewritten, _) => &mut rewritten.graph,
        };
        *graph = graph.with_fewer_casts();
    }

    fn svg(&self) -> String {
        match self {
            Made::Traced(graph) => graph.to_svg(),
            Made::Rewritten(rewritten, _) => rewritten.to_svg(),
        }
    }

    fn print(&self, format: Format, model: &Read<Model>, policy: Option<&Read<PolicyFile>>) -> Result {
        let nodes = self.decisions();
        let casts_at_o1 = match self {
            Made::Rewritten(_, casts) => Some(*casts),
            Made::Traced(_) => None,
        };
        let only_batch = self.graph().only_batch();
        match format {
            Format::Json => {
                let ops = nodes.iter().filter(|node| node.computes());
                print_json(&Report {
                    policy: policy.map(|policy| Under::from(&policy.value)),
                    ops: ops.clone().count(),
                    low: ops.filter(|node| node.dtype.is_low()).count(),
                    casts: self.graph().casts(),
                    casts_at_o1,
                    only_batch: only_batch.map(String::from),
                    nodes,
                })
            }
            Format::Text => {
                let policies: Vec<&Read<PolicyFile>> = policy.into_iter().collect();
                let under = policy.map_or(String::new(), |policy| format!("{}\n", policy.value));
                let o1 = casts_at_o1.map_or(String::new(), |casts| format!(", at O1 {casts}"));
                let only = only_batch.map_or(String::new(), |why| format!("\nonly the traced batch size: {why}"));
                let (header, table, summary) =
                    (header(model, &policies), graph_table_by(&nodes, library_table), graph_summary(&nodes));
                print(format_args!("{header}{under}{table}\n{summary}{o1}{}", printable(&only)))
            }
        }
    }
}

/// Prints the output of `precast plan` for a policy for graphs.
pub(super) fn plan(model: &mut Read<Model>, policy: &Read<PolicyFile>, train: bool, format: Format) -> Result {
    Made::new(model, Some(&policy.value), BATCH, train)?.print(format, model, Some(policy))
}

/// Writes the page of the nodes under policies for graphs.
pub(super) fn page(cli: &Cli, argument: &Path, files: &[Read<PolicyFile>], train: bool, page: &Path) -> Result {
    let (mut policies, mut nodes) = (Vec::new(), Vec::new());
    for file in files {
        nodes.push(decisions(cli, argument, file, train)?);
        policies.extend(file.value.clone().graph().ok());
    }
    plan_page::write_nodes(page, Network::read(cli, argument)?.to_string(), files, &policies, &nodes)
}

/// Returns the decisions of a policy about the nodes of a network of its own, whose cells it may wrap.
fn decisions(cli: &Cli, argument: &Path, policy: &Read<PolicyFile>, train: bool) -> Result<Vec<NodeDecision>> {
    let mut network = Network::read(cli, argument)?;
    Ok(Made::new(network.callable()?, Some(&policy.value), BATCH, train)?.decisions())
}

/// Prints the output of `precast explain` for a node.
pub(super) fn explain(
    cli: &Cli,
    model: &mut Read<Model>,
    name: &str,
    policy: &Read<PolicyFile>,
    train: bool,
    format: Format,
) -> Result {
    let made = Made::new(model, Some(&policy.value), BATCH, train)?;
    let place = made.graph().node(name).map_err(|error| {
        let (model, policy) = (model.word(), policy.word());
        let program = &cli.program;
        Failure::Usage(format!("{error}; `{program} graph {model} --policy {policy}` shows every node"))
    })?;
    let decision = made.decisions().swap_remove(place);
    match format {
        Format::Json => print_json(&decision),
        Format::Text => {
            let NodeDecision { node, op, cell, dtype, because, .. } = &decision;
            let mut text = format!("{}{} ({op})", header(model, &[policy]), printable(node));
            text += &format!("\n  under    {}", policy.value);
            if !cell.is_empty() {
                text += &format!("\n  cell     {}", printable(cell));
            }
            text += &format!("\n  dtype    {dtype}");
            if let Some(because) = because {
                text += &format!("\n  because  {because}");
            }
            print(text)
        }
    }
}

/// Prints the nodes that run in another dtype under another policy.
pub(super) fn diff(
    cli: &Cli,
    argument: &Path,
    from: &Read<PolicyFile>,
    to: &Read<PolicyFile>,
    train: bool,
    format: Format,
) -> Result {
    let (before, after) = (decisions(cli, argument, from, train)?, decisions(cli, argument, to, train)?);
    let diff = Diff::between((&from.value.to_string(), &before), (&to.value.to_string(), &after));
    let [first, second] = [before, after].map(|nodes| nodes.iter().filter(|node| node.is_cast()).count());
    match format {
        Format::Json => print_json(&DiffReport { diff: &diff, casts: (first, second) }),
        Format::Text => {
            let header = header(Network::read(cli, argument)?.callable()?, &[from, to]);
            print(format_args!("{header}{diff}; casts: {first}, then {second}"))
        }
    }
}
