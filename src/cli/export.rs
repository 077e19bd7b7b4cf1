//! `precast export`: the decisions of a plan for other libraries.

use std::path::PathBuf;

use super::{
    Cli, Failure, Result,
    inputs::{self, Predicting, shown},
    network::Network,
    print, print_as_it_is,
};
use crate::{Level, io::files, rewrite::Exporter};

/// Write the decisions of a plan for torch, Keras, torchao or DeepSpeed
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  precast export model.safetensors --policy o2-bf16 --to torch --output precision.py
  precast export bert-base/ --policy o2 --to keras
  precast export bert-base/ --policy o2-bf16 --to deepspeed

The file says at its head how it is used, and what it cannot say. The paths of the cells must be those of the library's modules,
as they are where the cells are inferred from weights that the library wrote.")]
pub(super) struct Args {
    /// A model file, the name of a built-in model, a safetensors file, or a folder of Hugging Face
    model: PathBuf,
    /// A policy file, or the name of a built-in policy
    #[arg(short, long)]
    policy: PathBuf,
    /// The library: torch, keras, torchao or deepspeed
    #[arg(long, value_name = "LIBRARY")]
    to: Exporter,
    /// The file to write; without it, the text goes to standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long, requires = "output")]
    force: bool,
}

pub(super) fn run(cli: &Cli, args: &Args) -> Result {
    if let Some(file) = &args.output {
        inputs::check_new(file, args.force)?;
    }
    let network = Network::read(cli, &args.model)?;
    let policy = inputs::policy(&args.policy)?;
    if policy.value.level == Level::Graph {
        return Err(Failure::Usage(
            "level graph decides for ops of one graph, and other libraries name modules".into(),
        ));
    }
    let plan = network.plan(&Predicting::of_batch(32), &policy.value, false)?;
    let exported = plan.export(args.to);
    let Some(file) = &args.output else { return print_as_it_is(exported.text.trim_end()) };
    files::replace(file, exported.text.as_bytes()).map_err(Failure::work)?;
    let mut text = format!("{}written: {}", network.header(&[&policy], &plan), shown(file));
    if !exported.cannot_say.is_empty() {
        text += &format!("\n{} cannot say:", args.to);
        exported.cannot_say.iter().for_each(|line| text += &format!("\n- {line}"));
    }
    print(text)
}
