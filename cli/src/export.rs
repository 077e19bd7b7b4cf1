//! `precast export`: the decisions of a plan for other libraries, and the weights of a run.

use std::path::{Path, PathBuf};

use precast::{plan::Exporter, storage::SaveMode};
use precast_policy::files;
use precast_train::{Predictor, RunFile};

use super::{
    Cli, Failure, Result,
    inputs::{self, Predicting, shown},
    network::Network,
    outputs::Output,
    print, print_as_it_is,
    run::model,
};

/// Write the decisions of a plan for torch, Keras, torchao or DeepSpeed, or the weights of a run
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  precast export model.safetensors --policy o2-bf16 --to torch --output precision.py
  precast export bert-base/ --policy o2 --to keras
  precast export bert-base/ --policy o2-bf16 --to deepspeed
  precast export runs/o2 --weights compute --output weights.safetensors

The file says at its head how it is used, and what it cannot say. The paths of the cells must be those of the library's modules,
as they are where the cells are inferred from weights that the library wrote.

--weights writes the best weights of a run: `master` has all that is known of each number, `compute` those of cells that run low
in the dtype in which they run, `both` the first, and the second under `@compute.` and the path where they differ.")]
pub(super) struct Args {
    /// A model file, the name of a built-in model, a safetensors file, or a Hugging Face folder; with --weights, the
    /// folder of a run
    model: PathBuf,
    /// A policy file, or the name of a built-in policy
    #[arg(short, long, required_unless_present = "weights")]
    policy: Option<PathBuf>,
    /// The library: torch, keras, torchao or deepspeed
    #[arg(long, value_name = "LIBRARY", required_unless_present = "weights")]
    to: Option<Exporter>,
    /// The weights of a run: master, compute or both
    #[arg(long, value_name = "WHICH", conflicts_with_all = ["policy", "to"], requires = "file")]
    weights: Option<SaveMode>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(cli: &Cli, args: &Args) -> Result {
    args.output.check()?;
    let (policy, to) = match args {
        Args { weights: Some(mode), output: Output { file: Some(file), .. }, .. } => {
            return weights(cli, &args.model, *mode, file);
        }
        Args { policy: Some(policy), to: Some(to), .. } => (policy, *to),
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
    let file = RunFile::of_folder(folder)?;
    Predictor::of_folder(folder, model(cli, &file)?)?.save_weights(to, mode)?;
    print(format_args!("written: {}", shown(to)))
}
