//! The scores of the best weights in detail, at the end of a run.

use std::path::Path;

use precast::{Checkpoint, Child, LossScale, error::Result, storage::weights};
use serde::{Deserialize, Serialize};

use super::{
    Run, RunFile,
    data::{Column, Source},
    folder::{read_json, write_json},
    load::best_weights,
    records::history_of,
};
use crate::{
    data::{Dataset, Standardization},
    training::{Evaluation, Loss, Tested},
};

/// Scores of the best weights of a run in detail, as of its end: the contents of `scores.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Scores {
    /// Number of steps before.
    pub step: usize,
    /// Index of the epoch of the best weights, from 0.
    pub epoch: usize,
    /// Scores on the validation examples, which chose the weights, if the run has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<Evaluation>,
    /// Scores on the test examples. Without validation examples, these chose the weights.
    pub test: Evaluation,
}

const SCORES: &str = "scores.json";

impl Scores {
    /// Reads the scores of the end of the run in a folder after so many steps, if it came to one there.
    pub(crate) fn after(steps: usize, folder: &Path) -> Result<Option<Scores>> {
        let file = folder.join(SCORES);
        if !file.is_file() {
            return Ok(None);
        }
        Ok(Some(read_json(&file)?).filter(|scores: &Scores| scores.step == steps))
    }

    fn write(&self, folder: &Path) -> Result<()> {
        write_json(&folder.join(SCORES), self)
    }
}

/// Reads the scores of the run in a folder; `None` before its end, also where it went on after an earlier end.
///
/// # Errors
/// [`ErrorKind::Run`](precast::ErrorKind::Run) when there is no run, or a file cannot be read.
pub fn scores_of(folder: &Path) -> Result<Option<Scores>> {
    Scores::after(history_of(folder)?.steps.len(), folder)
}

impl Run {
    /// Returns the test examples, which have no part in the training if the run has
    /// [validation](RunFile::validation) examples.
    pub fn test(&self) -> &Dataset {
        self.held_out.as_ref().unwrap_or(&self.data.test)
    }

    /// Returns the validation examples, if the run has some.
    pub fn validation(&self) -> Option<&Dataset> {
        self.held_out.as_ref().map(|_| &self.data.test)
    }

    /// Scores the best weights in detail, once after the last step.
    pub(super) fn score_best(&mut self) -> Result<()> {
        let (step, folder) = (self.fit.steps_done(), self.folder.path());
        let Some((epoch, _)) = self.best() else { return Ok(()) };
        // Damaged scores are computed again.
        let scores = match Scores::after(step, folder).ok().flatten() {
            Some(scores) => scores,
            None => {
                let Some(best) = best_weights(folder)? else { return Ok(()) };
                weights::check_of_run(&best)?;
                let mut none = LossScale::none();
                let last = Checkpoint::of(&self.net, &[], &none);
                let scores = weights::load(&self.net, &best).and_then(|_| self.scores_now(step, epoch));
                last.restore(&mut self.net, &mut [], &mut none)?;
                let scores = scores?;
                scores.write(self.folder.path())?;
                scores
            }
        };
        if self.held_out.is_some() && self.history().test.is_none() {
            let test = Tested::new(step, scores.epoch, scores.test.score());
            self.folder.note_test(&test)?;
            self.fit.note_test(test);
        }
        Ok(())
    }

    /// Scores the network with the weights that it has.
    fn scores_now(&mut self, step: usize, epoch: usize) -> Result<Scores> {
        self.net.set_train(false);
        let targets = self.target_standardization();
        let evaluated = |data: &Dataset| self.file.evaluate(&self.net, data, targets);
        let validation = self.validation().map(evaluated).transpose()?;
        Ok(Scores { step, epoch, validation, test: evaluated(self.test())? })
    }
}

impl RunFile {
    /// Evaluates a network by the loss of the run.
    pub(crate) fn evaluate(&self, net: &Child, data: &Dataset, by: Option<&Standardization>) -> Result<Evaluation> {
        let loss = self.loss().unwrap_or_else(|| Loss::usual(data.targets()));
        Ok(Evaluation::of_loss(&loss, net, data, self.options.batch, by)?.with_target_names(&self.target_names()))
    }

    /// Returns the names of the target columns, if the data is a table whose columns have names.
    pub fn target_names(&self) -> Vec<String> {
        let Source::Csv(csv) = &self.data else { return Vec::new() };
        let name = |column: &Column| match column {
            Column::Name(name) => Some(name.clone()),
            Column::Number(_) => None,
        };
        csv.target.0.iter().map(name).collect::<Option<_>>().unwrap_or_default()
    }
}
