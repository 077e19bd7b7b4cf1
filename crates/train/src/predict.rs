//! Predictions of a trained run for new examples.

use std::path::{Path, PathBuf};

use precast::{
    Child, DType, Plan, Tensor,
    error::{Error, Result},
    io::models::Model,
    no_grad,
    observe::{CellCall, Listener, listen},
    storage::{Decorated, SaveMode, weights},
};
use precast_base::printable;
use precast_graph::Graph;

use super::{
    RunFile,
    data::{Columns, Csv, Images, Source, Vocabulary},
    folder::Folder,
    load::best_weights,
    standardizations::Standardizations,
};
use crate::{
    data::{Dataset, batches::call},
    training::{Evaluation, FitOptions, Loss, Score, score::answers},
};

/// The network of a [`Run`](super::Run) with its best weights, wrapped by the run's policy, along with the settings for
/// reading examples as the run did.
#[derive(Debug)]
pub struct Predictor {
    net: Child,
    plan: Plan,
    storage: Option<Decorated>,
    file: RunFile,
    input: Option<Vec<usize>>,
    standardizations: Standardizations,
    /// Shape of an example as read by the run.
    data_shape: Vec<usize>,
}

/// Keeps the first output of the last call of a cell.
struct OutputOf {
    slot: Option<usize>,
    met: Option<Tensor>,
}

impl Listener for OutputOf {
    fn leave(&mut self, cell: &CellCall<'_>) {
        if Some(cell.slot) == self.slot {
            self.met = cell.outputs.and_then(|outputs| outputs.first().cloned());
        }
    }
}

/// Prediction for one example.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Prediction {
    /// The most probable class, with its name and its probability.
    Class {
        /// Index of the class.
        index: usize,
        /// Name of the class, or its index as text.
        name: String,
        /// Probability from 0 to 1.
        probability: f32,
        /// Probability of each class, in the order of their indices.
        probabilities: Vec<f32>,
    },
    /// The most probable class at each position, and the decoded text if there is a vocabulary.
    Sequence {
        /// Class at each position.
        indices: Vec<i64>,
        /// Decoded text.
        text: Option<String>,
    },
    /// Numbers, in the units of the data; probabilities for a run with the loss `bce_with_logits`.
    Numbers(Vec<f32>),
    /// No class, because the highest output is not finite, at one position of a sequence at least.
    NotFinite,
}

impl Prediction {
    /// Returns whether the outputs it was made of are finite.
    pub fn is_finite(&self) -> bool {
        match self {
            Prediction::Numbers(numbers) => numbers.iter().all(|number| number.is_finite()),
            Prediction::NotFinite => false,
            Prediction::Class { .. } | Prediction::Sequence { .. } => true,
        }
    }
}

impl Predictor {
    /// Reads the folder of a run; `model` is that of [`RunFile::read_model`] of the folder's run file, or the one built
    /// in code.
    ///
    /// # Errors
    /// [`ErrorKind::Run`](precast::ErrorKind::Run) when the folder has no run, no epoch is complete, a file that
    /// defines the network has changed, or an earlier version converted its images differently;
    /// [`ErrorKind::Weights`](precast::ErrorKind::Weights) when the weights are damaged; and the errors of reading its
    /// files.
    pub fn of_folder(folder: impl AsRef<Path>, model: Model) -> Result<Self> {
        let folder = folder.as_ref();
        let file = RunFile::of_folder(folder)?;
        let Model { mut net, input, .. } = model;
        let Some(best) = best_weights(folder)? else {
            return Err(Error::run("no epoch of the run was done, so it has no weights yet").in_file(folder.display()));
        };
        let policy = file.clone().as_now()?.read_policy()?;
        let about = Folder::about(folder)?;
        about.check_pixels(&file.data).map_err(|error| error.in_file(folder.display()))?;
        weights::check_of_run(&best)?;
        // The weights in the file are in their storage dtypes.
        let (plan, storage) = file.wrap(&mut net, &policy)?;
        let _ = weights::load(&net, &best)?;
        net.set_train(false);
        let standardizations = Folder::standardizations(folder)?;
        Ok(Predictor { net, plan, storage, file, input, standardizations, data_shape: about.data_shape })
    }

    /// Predicts for the examples of a file, read like the data of the run; any targets in it are ignored.
    ///
    /// # Errors
    /// As the reader of the data; [`ErrorKind::Data`](precast::ErrorKind::Data) when the examples are of another shape,
    /// and the errors of the network.
    pub fn predict(&self, file: impl AsRef<Path>) -> Result<Vec<Prediction>> {
        self.predict_all(self.read(file)?)
    }

    /// Reads the examples of a file like the data of the run, for [`predict_all`](Predictor::predict_all); any targets in it
    /// are ignored.
    ///
    /// # Errors
    /// As the reader of the data; [`ErrorKind::Data`](precast::ErrorKind::Data) when the examples are of another shape.
    pub fn read(&self, file: impl AsRef<Path>) -> Result<Dataset> {
        let file = file.as_ref();
        self.file.data.check_kind(file)?;
        let read = self.file.data.read_inputs_within(file, self.file.memory.0);
        let examples = read.map_err(|error| self.file.data.of_trained(error))?;
        self.check_shape(&examples).map_err(|error| error.in_file(file.display()))?;
        Ok(examples)
    }

    /// Returns notes on examples as read: those of their reader, on words of a table that no training example has, and, if the run standardizes its
    /// inputs, on numbers more than 20 deviations from the mean of the training examples.
    pub fn notes_on(&self, examples: &Dataset) -> Vec<String> {
        // Examples that cannot be encoded are refused by `predict_all`.
        let mut notes = examples.notes().to_vec();
        notes.extend(self.standardizations.notes_on(examples, self.file.memory.0).unwrap_or_default());
        notes
    }

    /// Scores the network on the examples of a file, with targets like those of the run.
    ///
    /// # Errors
    /// As [`Predictor::predict`] and [`Evaluation::of`]; [`ErrorKind::Data`](precast::ErrorKind::Data) when the file has no
    /// targets, or one that the loss is not defined for.
    pub fn score(&self, file: impl AsRef<Path>) -> Result<Score> {
        self.evaluate(file).map(|found| found.score())
    }

    /// Scores the network in detail on the examples of a file, with targets like those of the run.
    ///
    /// # Errors
    /// As [`Predictor::score`].
    pub fn evaluate(&self, file: impl AsRef<Path>) -> Result<Evaluation> {
        let file = file.as_ref();
        self.file.data.check_kind(file)?;
        let read = self.file.read_like(&self.file.data, file);
        let examples = read.map_err(|error| self.file.data.of_trained(error))?;
        self.check_shape(&examples).map_err(|error| error.in_file(file.display()))?;
        self.file.check_domain(&file.display().to_string(), &examples)?;
        let examples = self.standardizations.inputs_of(examples, self.input.as_deref(), self.file.memory.0)?;
        self.file.evaluate(&self.net, &examples, self.standardizations.targets.as_ref())
    }

    pub(crate) fn net(&self) -> &Child {
        &self.net
    }

    pub(crate) fn data(&self) -> &Source {
        &self.file.data
    }

    /// Returns the names of the classes, in the order of their indices; empty if they have none.
    pub fn class_names(&self) -> &[String] {
        self.file.class_names()
    }

    /// Returns the files of the images in the order of their [predictions](Predictor::predict); empty if the run's data is
    /// not images.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](precast::ErrorKind::Io) when a folder cannot be read.
    pub fn files(&self, path: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
        self.file.data.check_kind(path.as_ref())?;
        match &self.file.data {
            Source::Images(images) => Images { folder: path.as_ref().into(), ..images.clone() }.files(),
            _ => Ok(Vec::new()),
        }
    }

    /// Returns columns of a table to predict for as text, such as ids, in the order of their predictions: for each row, a
    /// cell of each column. They may be columns that the run ignores.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) for a column that the file does not have,
    /// [`ErrorKind::Unsupported`](precast::ErrorKind::Unsupported) for a run on other data than tables, and as
    /// [`Csv::read`].
    pub fn texts(&self, file: impl AsRef<Path>, columns: &Columns) -> Result<Vec<Vec<String>>> {
        self.file.data.check_kind(file.as_ref())?;
        match &self.file.data {
            Source::Csv(csv) => Csv { file: file.as_ref().into(), ..csv.clone() }.texts(columns),
            _ => Err(Error::unsupported("columns are kept of tables, and the data of the run is none")),
        }
    }

    /// Writes the weights as masters, in the dtypes in which the cells run, or both; see [`Plan::save_weights`].
    ///
    /// # Errors
    /// As [`Plan::save_weights`].
    pub fn save_weights(&self, path: impl AsRef<Path>, mode: SaveMode) -> Result<()> {
        self.plan.save_weights(&self.net, path, mode)
    }

    /// Records a call of the network on some of the run's examples, in evaluation. Its inputs are as the network takes
    /// them, after any standardization.
    ///
    /// # Errors
    /// As the reader of the data, and those of [`Graph::trace`].
    pub fn graph(&self, examples: usize) -> Result<Graph> {
        let all = self.examples(None)?;
        let Some(x) = all.try_batches_of_inputs(examples)?.next().transpose()? else {
            return Err(Error::data("the data of the run has no example to record a call on"));
        };
        Graph::trace(&self.net, &x)
    }

    /// Reads examples with targets as the network takes them, from a file like that of the run's data, or from the data of
    /// the run itself.
    ///
    /// # Errors
    /// As [`Predictor::score`].
    pub fn examples(&self, file: Option<&Path>) -> Result<Dataset> {
        let examples = match file {
            Some(file) => {
                let read = self.file.read_like(&self.file.data, file);
                read.map_err(|error| self.file.data.of_trained(error))?
            }
            None => self.file.read_all_of(&self.file.folder, self.input.as_deref())?,
        };
        self.examples_of(examples)
    }

    /// Returns examples with targets as the network takes them, given these as read.
    ///
    /// # Errors
    /// As [`Predictor::score`].
    pub fn examples_of(&self, examples: Dataset) -> Result<Dataset> {
        self.check_shape(&examples)?;
        let examples = self.standardizations.inputs_of(examples, self.input.as_deref(), self.file.memory.0)?;
        match &self.standardizations.targets {
            Some(by) => examples.targets_standardized(by),
            None => Ok(examples),
        }
    }

    /// Returns the network, wrapped by the run's policy, with its parameters in f32: those stored low are widened.
    ///
    /// # Errors
    /// As [`Decorated::undo`].
    pub fn into_net(self) -> Result<Child> {
        self.storage.map_or(Ok(()), |storage| storage.undo())?;
        Ok(self.net)
    }

    fn check_shape(&self, examples: &Dataset) -> Result<()> {
        let (met, trained) = (examples.shape(), &self.data_shape);
        if met == trained {
            return Ok(());
        }
        let cure = match &self.file.data {
            Source::Images(_) if met.first() == trained.first() => {
                format!("; a run with `resize: {:?}` in its data takes images of any size", &trained[1..])
            }
            _ => String::new(),
        };
        Err(Error::data(format!("examples of shape {met:?}, and the run was trained with {trained:?}{cure}")))
    }

    /// Predicts for examples as read by the run, before standardization.
    ///
    /// # Errors
    /// As [`Predictor::predict`].
    pub fn predict_all(&self, examples: Dataset) -> Result<Vec<Prediction>> {
        let examples = self.standardizations.inputs_of(examples, self.input.as_deref(), self.file.memory.0)?;
        let (mut predictions, vocabulary) = (Vec::new(), self.file.data.vocabulary());
        let FitOptions { loss, batch, .. } = &self.file.options;
        for inputs in examples.try_batches_of_inputs(*batch)? {
            let inputs = inputs?;
            let outputs = no_grad(|| call(&self.net, &inputs))?.cast(DType::F32);
            self.put(&outputs, loss.as_ref(), vocabulary.as_ref(), &mut predictions)?;
        }
        Ok(predictions)
    }

    /// Returns what a cell of the network gives for examples as read by the run, before standardization: for each example, the
    /// numbers of its first output, in the precision in which it runs. They are features for another model, or for a search.
    ///
    /// # Errors
    /// As [`Predictor::predict`]; [`ErrorKind::Path`](precast::ErrorKind::Path) when there is no cell at the path, with the
    /// nearest one, [`ErrorKind::Value`](precast::ErrorKind::Value) when it is not called, or gives no row for each example.
    pub fn features(&self, path: &str, examples: Dataset) -> Result<Vec<Vec<f32>>> {
        self.net.part(path)?;
        let mut slot = None;
        self.net.walk(&mut |entry| {
            if *entry.path == *path {
                slot = Some(entry.slot.id);
            }
        });
        let examples = self.standardizations.inputs_of(examples, self.input.as_deref(), self.file.memory.0)?;
        let mut features = Vec::new();
        for inputs in examples.try_batches_of_inputs(self.file.options.batch)? {
            let inputs = inputs?;
            let count = inputs.first().and_then(|x| x.shape().first().copied()).unwrap_or(0);
            let (called, met) = listen(OutputOf { slot, met: None }, || no_grad(|| call(&self.net, &inputs)));
            called?;
            let wrong = |words: String| Error::value(format!("cell `{}`: {words}", printable(path)));
            let x = met.met.ok_or_else(|| wrong("it is not called on these examples".into()))?;
            if x.shape().first() != Some(&count) || !x.dtype().is_float() {
                let met = format!("its output is {} {:?}", x.dtype(), x.shape());
                return Err(wrong(format!("{met}; expected numbers for each of {count} examples")));
            }
            let numbers = x.cast(DType::F32).to_vec::<f32>()?;
            features.extend(numbers.chunks((numbers.len() / count.max(1)).max(1)).map(<[f32]>::to_vec));
        }
        Ok(features)
    }

    /// Appends the predictions of a batch.
    fn put(
        &self,
        outputs: &Tensor,
        loss: Option<&Loss>,
        vocabulary: Option<&Vocabulary>,
        predictions: &mut Vec<Prediction>,
    ) -> Result<()> {
        let numbers = |x: &Tensor| -> Result<Vec<Vec<f32>>> {
            let each = x.len() / x.shape().first().copied().unwrap_or(1).max(1);
            Ok(x.to_vec::<f32>()?.chunks(each.max(1)).map(<[f32]>::to_vec).collect())
        };
        match (loss, outputs.rank()) {
            (Some(Loss::CrossEntropy { .. }), 2) => {
                let names = self.file.class_names();
                let probabilities = numbers(&outputs.softmax(1)?)?;
                for (of_example, answer) in probabilities.into_iter().zip(answers(outputs, 1)?) {
                    let class = answer.and_then(|class| usize::try_from(class).ok()).map(|index| {
                        let name = names.get(index).cloned().unwrap_or_else(|| index.to_string());
                        let probability = of_example[index];
                        Prediction::Class { index, name, probability, probabilities: of_example }
                    });
                    predictions.push(class.unwrap_or(Prediction::NotFinite));
                }
            }
            (Some(Loss::CrossEntropy { .. }), rank) if rank > 2 => {
                let answers = answers(outputs, -1)?;
                let each = answers.len() / outputs.shape()[0].max(1);
                for places in answers.chunks(each.max(1)) {
                    let sequence = places.iter().copied().collect::<Option<Vec<i64>>>().map(|indices| {
                        let text = vocabulary.and_then(|vocabulary| vocabulary.decode(&indices).ok());
                        Prediction::Sequence { indices, text }
                    });
                    predictions.push(sequence.unwrap_or(Prediction::NotFinite));
                }
            }
            (Some(Loss::BceWithLogits {}), _) => {
                predictions.extend(numbers(&outputs.sigmoid()?)?.into_iter().map(Prediction::Numbers));
            }
            _ => {
                for mut of_example in numbers(outputs)? {
                    if let Some(by) = &self.standardizations.targets {
                        let mut wide: Vec<f64> = of_example.iter().copied().map(f64::from).collect();
                        by.undo(&mut wide, &outputs.shape()[1..])?;
                        of_example = wide.into_iter().map(|x| x as f32).collect();
                    }
                    predictions.push(Prediction::Numbers(of_example));
                }
            }
        }
        Ok(())
    }
}
