//! What the network of a run says of new examples.

use std::path::Path;

use super::{
    FitOptions, Loss, RunFile,
    data::{Dataset, Standardization, Vocabulary},
    folder::Folder,
};
use crate::{
    Child, DType, Tensor,
    error::{Error, Result},
    io::{models::Model, weights},
    no_grad,
};

/// The network of a [`Run`](super::Run) with its best weights, wrapped by the run's policy, and what is needed to read examples
/// as the run read them.
#[derive(Debug)]
pub struct Predictor {
    net: Child,
    file: RunFile,
    input: Option<Vec<usize>>,
    standardization: Option<Standardization>,
    /// Shape of an example as the run read it.
    data_shape: Vec<usize>,
}

/// What a network says of an example.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Prediction {
    /// The most probable class, its name where it has one, and its probability.
    Class {
        /// Its index.
        index: usize,
        /// Its name; else its index as text.
        name: String,
        /// From 0 to 1.
        probability: f32,
    },
    /// The most probable class at each place, and what they spell where there is a vocabulary.
    Sequence {
        /// The classes.
        indices: Vec<i64>,
        /// As text.
        text: Option<String>,
    },
    /// Numbers; of a run with the loss `bce_with_logits` probabilities.
    Numbers(Vec<f32>),
}

impl Predictor {
    /// Reads the folder of a run; `model` is that of [`RunFile::read_model`] of the folder's run file, or the one that was built
    /// in code.
    ///
    /// # Errors
    /// [`ErrorKind::Run`](crate::ErrorKind::Run) when there is no run in the folder, or no epoch of it was done; what reading
    /// its files reports.
    pub fn of_folder(folder: impl AsRef<Path>, model: Model) -> Result<Self> {
        let folder = folder.as_ref();
        let file = RunFile::of_folder(folder)?;
        let Model { mut net, input, .. } = model;
        let best = Folder::best(folder);
        if !best.is_file() {
            return Err(Error::run("no epoch of the run was done, so it has no weights yet").context(folder.display()));
        }
        let _ = weights::load(&net, &best)?;
        let _ = file.read_policy()?.plan(&net)?.apply(&mut net)?;
        net.set_train(false);
        let (standardization, data_shape) = (Folder::standardization(folder)?, Folder::about(folder)?.data_shape);
        Ok(Predictor { net, file, input, standardization, data_shape })
    }

    /// Predicts for the examples of a file, which is read as the data of the run was; targets in it are not looked at.
    ///
    /// # Errors
    /// As the reader of the data; [`ErrorKind::Data`](crate::ErrorKind::Data) when the examples are of another shape, and what
    /// the network reports.
    pub fn predict(&self, file: impl AsRef<Path>) -> Result<Vec<Prediction>> {
        let (file, examples) = (file.as_ref(), self.file.data.read_inputs(file.as_ref())?);
        if examples.shape() != self.data_shape {
            let (met, trained) = (examples.shape(), &self.data_shape);
            let words = format!("examples of shape {met:?}, and the run was trained with {trained:?}");
            return Err(Error::data(words).context(file.display()));
        }
        self.predict_all(examples)
    }

    /// Predicts for examples as the run read them, before they are standardized.
    ///
    /// # Errors
    /// As [`Predictor::predict`].
    pub fn predict_all(&self, examples: Dataset) -> Result<Vec<Prediction>> {
        let examples = match &self.standardization {
            Some(standardization) => examples.standardized(standardization)?,
            None => examples,
        };
        let examples = match &self.input {
            Some(shape) => examples.fitted(shape)?,
            None => examples,
        };
        let (mut predictions, vocabulary) = (Vec::new(), self.file.data.vocabulary());
        let FitOptions { loss, batch, .. } = &self.file.options;
        for x in examples.input_batches(*batch)? {
            let outputs = no_grad(|| self.net.call(&x))?.cast(DType::F32);
            self.put(&outputs, loss.as_ref(), vocabulary.as_ref(), &mut predictions)?;
        }
        Ok(predictions)
    }

    /// The predictions of a batch.
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
                let names = self.file.data.class_names();
                for of_example in numbers(&outputs.softmax(1)?)? {
                    // Of several the first, as the accuracy takes it.
                    let best = (0..of_example.len()).rev().max_by(|&a, &b| of_example[a].total_cmp(&of_example[b]));
                    let best = best.unwrap_or(0);
                    let name = names.get(best).cloned().unwrap_or_else(|| best.to_string());
                    let probability = of_example.get(best).copied().unwrap_or(f32::NAN);
                    predictions.push(Prediction::Class { index: best, name, probability });
                }
            }
            (Some(Loss::CrossEntropy { .. }), rank) if rank > 2 => {
                let answers = outputs.argmax(-1, false)?;
                let each = answers.len() / answers.shape()[0].max(1);
                for indices in answers.to_vec::<i64>()?.chunks(each.max(1)) {
                    let text = vocabulary.and_then(|vocabulary| vocabulary.decode(indices).ok());
                    predictions.push(Prediction::Sequence { indices: indices.to_vec(), text });
                }
            }
            (Some(Loss::BceWithLogits {}), _) => {
                predictions.extend(numbers(&outputs.sigmoid()?)?.into_iter().map(Prediction::Numbers));
            }
            _ => predictions.extend(numbers(outputs)?.into_iter().map(Prediction::Numbers)),
        }
        Ok(())
    }
}
