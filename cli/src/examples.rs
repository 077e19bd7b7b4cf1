//! A network with its weights, and batches of examples for it: the subject of `tune` and `shadow`.

use std::path::{Path, PathBuf};

use precast::{
    Child, Tensor,
    data::{Batch, Dataset},
    storage::weights,
    train::Loss,
};
use precast_train::{
    Predictor, RunFile,
    data::{Npy, Source},
};

use super::{Cli, Failure, Result, inputs, run::model};

/// A network and its examples.
#[derive(Debug, clap::Args)]
#[group(id = "examples")]
pub(super) struct Args {
    /// The folder of a run, whose best weights and data are used; or a model
    pub model: PathBuf,
    /// The examples: for a run, a file like that of its data [default: its data]; for a model, `digits` or an `.npz`
    /// file
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
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
        let batches = data.shuffled_batches(size, 0, 0)?.take(batches).collect();
        Ok(Subject { net, batches, loss })
    }

    fn of_run(&self, cli: &Cli) -> Result<(Child, Dataset, Option<Loss>)> {
        if self.weights.is_some() {
            return Err(Failure::Usage("--weights is for a model; a run has its own".into()));
        }
        let file = RunFile::of_folder(&self.model)?;
        let predictor = Predictor::of_folder(&self.model, model(cli, &file)?)?;
        let data = predictor.examples(self.data.as_deref())?;
        Ok((predictor.into_net(), data, file.options.loss))
    }

    fn of_model(&self, cli: &Cli) -> Result<(Child, Dataset, Option<Loss>)> {
        let model = inputs::model(cli, &self.model, 0)?.value;
        if let Some(weights) = &self.weights {
            let _ = weights::load(&model.net, weights)?;
        }
        let source = match self.data.as_deref() {
            None => return Err(Failure::Usage("--data is missing: `digits`, or an `.npz` file with examples".into())),
            Some(file) if file == Path::new("digits") => Source::Digits,
            Some(file) if file.extension().is_some_and(|end| end == "npz") => Source::Npy(Npy::npz(file)),
            Some(file) => {
                let file = inputs::shown(file);
                return Err(Failure::Usage(format!(
                    "--data: expected `digits` or an `.npz` file, got `{file}`; other files are read for a run, which says how"
                )));
            }
        };
        let data = source.read(Path::new(""))?;
        let data = match &model.input {
            Some(shape) => data.fitted(shape)?,
            None => data,
        };
        Ok((model.net, data, None))
    }
}

impl Subject {
    /// Returns the loss of the outputs for the batch with this number.
    pub fn loss(&self, y: &Tensor, at: usize) -> precast::Result<Tensor> {
        self.loss.of(y, &self.batches[at].y)
    }
}
