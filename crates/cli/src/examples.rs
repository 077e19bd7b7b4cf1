//! A network with its weights, and batches of examples for it: the subject of `tune` and `shadow`.

use std::path::{Path, PathBuf};

use precast::{Child, Policy, Tensor, storage::weights};
use precast_train::{
    Loss,
    data::{Batch, Dataset},
};
use precast_train::{
    Predictor, RunFile,
    data::{Npy, Source},
    history_of,
};

use super::{
    Cli, Failure, Result,
    inputs::{self, Read},
    network,
    run::model,
};

/// A network and its examples.
#[derive(Debug, clap::Args)]
#[group(id = "examples")]
pub(super) struct Args {
    /// The folder of a run, whose best weights and data are used; or a model
    pub model: PathBuf,
    /// The examples: `digits`, an `.npz` file, or data as a run file writes it; for a run, also a file like that of its
    /// data [default: its data]
    #[arg(short, long)]
    data: Option<String>,
    /// The weights of a model, as safetensors [default: initial weights]
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Number of examples in a batch
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    batch: u32,
}

/// A network in evaluation mode, and batches.
pub(super) struct Subject {
    pub net: Child,
    pub batches: Vec<Batch>,
    loss: Loss,
    /// The loss scale at the end of the run.
    pub scale: Option<f32>,
}

impl Args {
    /// Reads the network, and this number of batches in a random order. `needs` begins the error for too few examples.
    pub fn read(&self, cli: &Cli, batches: usize, needs: &str) -> Result<Subject> {
        let (mut net, data, loss) = match self.model.is_dir() {
            true => self.of_run(cli)?,
            false => self.of_model(cli)?,
        };
        net.set_train(false);
        let size = (self.batch as usize).min(data.len() / batches);
        if size == 0 {
            return Err(Failure::Usage(format!("{needs}; got {}", data.len())));
        }
        let loss = loss.unwrap_or_else(|| Loss::usual(data.targets()));
        let batches = data.try_shuffled_batches(size, 0, 0)?.take(batches).collect::<precast::Result<_>>()?;
        let steps = if self.model.is_dir() { history_of(&self.model)?.steps } else { Vec::new() };
        let scale = steps.last().map(|step| step.scale);
        Ok(Subject { net, batches, loss, scale })
    }

    /// Returns the files that are read, with their arguments.
    pub fn files(&self) -> [(&str, Option<&Path>); 3] {
        let data = self.data.as_deref().map(Path::new);
        [("MODEL", Some(&self.model)), ("--data", data), ("--weights", self.weights.as_deref())]
    }

    /// Reads the policy: the one given, otherwise that of the run.
    pub fn policy(&self, given: Option<&Path>) -> Result<Read<Policy>> {
        let run = if given.is_some() { None } else { network::run_file(&self.model)? };
        inputs::policy(&network::policy_of(given, run.as_ref())?)
    }

    fn of_run(&self, cli: &Cli) -> Result<(Child, Dataset, Option<Loss>)> {
        if self.weights.is_some() {
            return Err(Failure::Usage("--weights is for a model; a run has its own".into()));
        }
        let file = RunFile::of_folder(&self.model)?;
        let predictor = Predictor::of_folder(&self.model, model(cli, &file)?)?;
        let data = match &self.data {
            None => predictor.examples(None)?,
            Some(text) if is_data(text) => predictor.examples_of(data(text)?.read(Path::new(""))?)?,
            Some(file) => predictor.examples(Some(Path::new(file)))?,
        };
        Ok((predictor.into_net()?, data, file.loss()))
    }

    fn of_model(&self, cli: &Cli) -> Result<(Child, Dataset, Option<Loss>)> {
        let model = inputs::model(cli, &self.model, 0)?.value;
        if let Some(weights) = &self.weights {
            let _ = weights::load(&model.net, weights)?;
        }
        let source = match &self.data {
            None => return Err(Failure::Usage(format!("--data is missing: {DATA}"))),
            Some(text) => data(text)?,
        };
        let data = source.read(Path::new(""))?;
        let data = match &model.input {
            Some(shape) => data.fitted(shape)?,
            None => data,
        };
        Ok((model.net, data, None))
    }
}

/// The forms of data on the command line.
const DATA: &str =
    "`digits`, an `.npz` file, or data as a run file writes it: `{csv: {file: iris.csv, target: species}}`";

/// Returns whether a text describes data itself, rather than a file like that of a run.
fn is_data(text: &str) -> bool {
    text == "digits"
        || text.trim_start().starts_with('{')
        || Path::new(text).extension().is_some_and(|end| end == "npz")
}

/// Reads the description of data on the command line.
pub(super) fn data(text: &str) -> Result<Source> {
    if !is_data(text) {
        return Err(Failure::Usage(format!("--data: expected {DATA}, got `{}`", inputs::shown(Path::new(text)))));
    }
    if Path::new(text).extension().is_some_and(|end| end == "npz") {
        return Ok(Source::Npy(Npy::npz(text)));
    }
    Ok(RunFile::parse(&format!("data: {text}\nversion: 1\nmodel: mlp\npolicy: o0\n"), "--data")?.data)
}

impl Subject {
    /// Returns whether the outputs are the logits of classes.
    pub fn has_classes(&self) -> bool {
        matches!(self.loss, Loss::CrossEntropy { .. })
    }

    /// Returns the loss of the outputs for the batch with this number.
    pub fn loss(&self, y: &Tensor, at: usize) -> precast::Result<Tensor> {
        self.loss.of(y, &self.batches[at].y)
    }
}
