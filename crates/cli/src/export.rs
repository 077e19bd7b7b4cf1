//! `precast export`: the decisions of a plan for other libraries, the weights of a run, and networks as ONNX models.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use precast::{error::ErrorKind, plan::Exporter, storage::SaveMode};
use precast_base::files;
use precast_graph::{
    Graph,
    onnx::{self, ExportOptions},
};
use precast_train::is_onnx;

use super::{
    Cli, Failure, Result, graph,
    inputs::{self, Predicting, shown},
    network::Network,
    outputs::{self, Output},
    print, print_as_it_is,
    run::{is_run_file, predictor},
};

/// Write a network or a run as an ONNX model, the decisions of a plan for another library, or the weights of a run
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  precast export model.safetensors --policy o2-bf16 --to torch --output precision.py
  precast export bert-base/ --policy o2 --to keras
  precast export bert-base/ --policy o2-bf16 --to deepspeed
  precast export runs/o2 --weights compute --output weights.safetensors
  precast export runs/o2 --to onnx --output trained.onnx
  precast export lenet5 --policy o2 --to onnx --opset 17 --explicit --output lenet5.onnx

The file says at its head how it is used, and what it cannot say. The paths of the cells must be those of the library's modules,
as they are where the cells are inferred from weights that the library wrote.

--weights writes the best weights of a run: `master` has all that is known of each number, `compute` those of cells that run low
in the dtype in which they run, `both` the first, and the second under `@compute.` and the path where they differ.

--to onnx writes a call in evaluation: of a run with its best weights under its policy, of a model with new weights under
--policy, or in float32 without it. The inputs are as the network takes them, standardized where the run does so. --explicit
computes each low op in float32 and rounds its result by casts, which every runtime keeps to the bit.")]
pub(super) struct Args {
    /// A model file, the name of a built-in model, a safetensors file, or a Hugging Face folder; with --weights, the
    /// folder of a run
    model: PathBuf,
    /// A policy file, or the name of a built-in policy
    #[arg(short, long)]
    policy: Option<PathBuf>,
    /// The library: torch, keras, torchao, transformer-engine, qwix or deepspeed; or onnx, for a model
    #[arg(long, value_name = "LIBRARY")]
    to: Option<Target>,
    /// With --to onnx, the version of ONNX's operators [default: 20]
    #[arg(long, value_name = "VERSION", requires = "to", allow_negative_numbers = true)]
    opset: Option<i64>,
    /// With --to onnx, compute each low op in float32 and round its result by casts
    #[arg(long, requires = "to")]
    explicit: bool,
    /// The weights of a run: master, compute or both
    #[arg(long, value_name = "WHICH", conflicts_with_all = ["policy", "to"], requires = "file")]
    weights: Option<SaveMode>,
    #[command(flatten)]
    output: Output,
}

/// The target of an export.
#[derive(Clone, Copy, Debug)]
enum Target {
    Library(Exporter),
    Onnx,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "onnx" => Ok(Target::Onnx),
            text => text.parse().map(Target::Library).map_err(|e: precast::Error| format!("{e}, onnx")),
        }
    }
}

pub(super) fn run(cli: &Cli, args: &Args) -> Result {
    args.output.check(&[("MODEL", Some(&args.model)), ("--policy", args.policy.as_deref())])?;
    if let (Some(Target::Library(to)), true) = (args.to, args.opset.is_some() || args.explicit) {
        return Err(Failure::Usage(format!("--opset and --explicit are for --to onnx, and not for --to {to}")));
    }
    let (file, written): (_, &[&str]) = match args {
        Args { weights: Some(_), output, .. } => (output.file.as_deref(), &["safetensors"]),
        Args { to: Some(Target::Onnx), output, .. } => (output.file.as_deref(), &["onnx"]),
        Args { to: Some(Target::Library(_)), output, .. } => (output.file.as_deref(), &["py", "json"]),
        Args { to: None, .. } => (None, &[]),
    };
    outputs::check_ending("--output", file, written)?;
    let (policy, to) = match args {
        Args { weights: Some(mode), output: Output { file: Some(file), .. }, .. } => {
            return weights(cli, &args.model, *mode, file);
        }
        Args { to: Some(Target::Onnx), output: Output { file: Some(file), .. }, .. } => {
            return model_of(cli, args, file);
        }
        Args { to: Some(Target::Onnx), .. } => {
            return Err(Failure::Usage("--to onnx writes a file; --output names it".into()));
        }
        Args { policy: Some(policy), to: Some(Target::Library(to)), .. } => (policy, *to),
        Args { model, to: None, .. } if model.join("run.yaml").is_file() => {
            let words = "of a run, --weights compute (or master, both) writes the weights, --to onnx the network, and --to torch \
                         with --policy the precisions";
            return Err(Failure::Usage(words.into()));
        }
        _ => return Err(Failure::Usage("--policy and --to say what is exported, or --weights and --output".into())),
    };
    let network = Network::read(cli, &args.model)?;
    let policy = inputs::policy(policy)?;
    let plan = network.plan(&Predicting::of_batch(32), &policy.value.in_the_end(), false)?;
    let exported = plan.export_without(to, &policy.value.rules);
    let Some(file) = &args.output.file else { return print_as_it_is(exported.text.trim_end()) };
    files::replace(file, exported.text.as_bytes()).map_err(Failure::work)?;
    let mut text = format!("{}written: {}", network.header(&[&policy], &plan), shown(file));
    if !exported.cannot_say.is_empty() {
        text += &format!("\n{to} cannot say:");
        exported.cannot_say.iter().for_each(|line| text += &format!("\n- {line}"));
    }
    print(text)
}

/// Writes the best weights of a run.
fn weights(cli: &Cli, folder: &Path, mode: SaveMode, to: &Path) -> Result {
    predictor(cli, folder)?.save_weights(to, mode).map_err(Failure::work)?;
    print(format_args!("written: {}", shown(to)))
}

/// Batch size of the recorded call; a second one shows what depends on it.
const BATCH: u32 = 2;

/// Writes a network, or a run with its best weights, as an ONNX model.
fn model_of(cli: &Cli, args: &Args, to: &Path) -> Result {
    let mut options = ExportOptions::new().explicit(args.explicit);
    if let Some(opset) = args.opset {
        options = options.opset(opset);
    }
    if args.model.is_dir() && args.model.join("run.yaml").is_file() {
        if args.policy.is_some() {
            return Err(Failure::Usage("a run is exported under its own policy, without --policy".into()));
        }
        let graph = predictor(cli, &args.model)?.graph(BATCH as usize)?;
        return written(&graph, to, &options, &format!("run     {}\n", shown(&args.model)));
    }
    if is_run_file(&args.model) {
        let words = "is a run file, which has no weights; export the folder of its run, or its model with --policy";
        return Err(Failure::Usage(format!("`{}` {words}", shown(&args.model))));
    }
    if is_onnx(&args.model) {
        let words = "is an ONNX model already; `convert` writes it in the precision of a policy";
        return Err(Failure::Usage(format!("`{}` {words}", shown(&args.model))));
    }
    let mut network = Network::read(cli, &args.model)?;
    let network = network.callable_for("an ONNX model is of a call")?;
    let policy = args.policy.as_deref().map(inputs::policy_file).transpose()?;
    let made = graph::Made::new(network, policy.as_ref().map(|policy| &policy.value), BATCH, false)?;
    let policies: Vec<_> = policy.iter().collect();
    written(made.graph(), to, &options, &inputs::header(network, &policies))
}

fn written(graph: &Graph, to: &Path, options: &ExportOptions, header: &str) -> Result {
    onnx::export(graph, to, options).map_err(|error| match error.kind() {
        ErrorKind::Io => Failure::work(error),
        _ => error.into(),
    })?;
    let ops = graph.nodes().iter().filter(|node| node.is_op() && !node.is_cast());
    let low = ops.clone().filter(|node| node.outputs[0].dtype.is_low()).count();
    let only = graph.only_batch().map_or(String::new(), |why| format!("\nonly the traced batch size: {why}"));
    let words =
        format!("{header}{} ops, {low} low, {} casts{only}\nwritten: {}", ops.count(), graph.casts(), shown(to));
    print(words)
}
