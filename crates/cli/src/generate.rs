//! `precast generate`: a text continued by a trained language model.

use std::path::PathBuf;

use precast_train::Generate;

use super::{Cli, Failure, Result, print_as_it_is, run::predictor};

/// Continue a text with the best weights of a run
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The run must be of a text. Each token is drawn by the probabilities that the network gives after the tokens before; the same seed
gives the same text.

Examples:
  precast generate runs/o2 --prompt 'Once upon'
  precast generate runs/o2 --prompt 'Once upon' --tokens 500 --temperature 0.7 --seed 3")]
pub(super) struct Args {
    /// The folder of a run
    run: PathBuf,
    /// The text to continue, which is printed first
    #[arg(long)]
    prompt: String,
    /// Number of tokens to write
    #[arg(long, default_value_t = Generate::default().tokens, allow_negative_numbers = true)]
    tokens: usize,
    /// Divisor of the logits: below 1, likely tokens become likelier; 0 takes the likeliest
    #[arg(long, default_value_t = Generate::default().temperature, allow_negative_numbers = true)]
    temperature: f64,
    /// Seed of the draws
    #[arg(long, default_value_t = Generate::default().seed)]
    seed: u64,
}

pub(super) fn run(cli: &Cli, args: &Args) -> Result {
    let mut options = Generate::default();
    (options.tokens, options.temperature, options.seed) = (args.tokens, args.temperature, args.seed);
    let text = predictor(cli, &args.run)?.generate(&args.prompt, &options).map_err(Failure::work)?;
    print_as_it_is(format!("{}{text}", args.prompt))
}
