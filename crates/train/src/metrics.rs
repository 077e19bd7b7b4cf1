//! Lines of `metrics.jsonl`, the record of a run, and the rows of `metrics.csv`, made from it.

use std::path::Path;

use precast::{
    error::{Error, Result},
    io::json,
};
use precast_base::files;
use serde::{Deserialize, Serialize};

use crate::training::{Ended, Epoch, History, Raised, Step, Tested};

/// A line of `metrics.jsonl`.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Line {
    Step(Step),
    Epoch(Epoch),
    /// Written after the step that stalled the run.
    Raised(Raised),
    /// Written after the last step of rules that end.
    Ended(Ended),
    /// Written at the end of a run with validation examples.
    Test(Tested),
    /// Written after the first step.
    Memory(Memory),
}

/// Memory kept and casts done by a step.
#[derive(Serialize, Deserialize)]
pub(super) struct Memory {
    pub activation_bytes: usize,
    pub parameter_bytes: usize,
    pub casts_per_step: usize,
}

/// Reads the metrics up to the given number of steps and epochs, and the length of their text. A last line without a
/// line end was truncated.
pub(super) fn read_metrics(file: &Path, steps: u64, epochs: u64) -> Result<(History, usize)> {
    let text = files::read(file)?;
    let (mut history, mut len) = (History::default(), 0);
    for (i, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if !line.ends_with(b"\n") {
            break;
        }
        let line: Line = json::read(line)
            .map_err(|e| Error::run(format!("not a line of metrics: {e}")).at(file.display(), i + 1, None))?;
        match line {
            Line::Step(step) if (history.steps.len() as u64) < steps => {
                // The score of an earlier end is out of date.
                history.test = None;
                history.steps.push(step);
            }
            Line::Epoch(epoch) if (history.epochs.len() as u64) < epochs => history.epochs.push(epoch),
            Line::Raised(raised) if raised.step as u64 <= steps => history.raised.push(raised),
            Line::Ended(ended) if ended.step as u64 <= steps => history.ended.push(ended),
            Line::Test(test) if test.step as u64 <= steps => history.test = Some(test),
            Line::Memory(memory) if steps > 0 => {
                history.tape_bytes = memory.activation_bytes;
                history.param_bytes = memory.parameter_bytes;
                history.casts = memory.casts_per_step;
            }
            _ => break,
        }
        len += text[len..].iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    }
    Ok((history, len))
}

/// Returns the steps of a run up to the end of each epoch, and the loss scale of the last one.
pub(super) fn ends_of_epochs(history: &History) -> impl Iterator<Item = (&Epoch, usize, f32)> {
    history.epochs.iter().map(|epoch| {
        let steps = history.steps.partition_point(|step| step.epoch <= epoch.epoch);
        let scale = steps.checked_sub(1).map_or(f32::NAN, |last| history.steps[last].scale);
        (epoch, steps, scale)
    })
}

/// Returns the text of `metrics.csv`: a row for each epoch. A number that is not finite or not known is an empty field.
pub(super) fn csv_of(history: &History) -> String {
    let number = |number: f64| if number.is_finite() { number.to_string() } else { String::new() };
    let score = history.score().map_or("score".into(), |score| score.name().replace(' ', "_").to_lowercase());
    let mut text = format!("epoch,steps,loss,{score},skipped,scale,learning_rate,seconds\n");
    for (epoch, steps, scale) in ends_of_epochs(history) {
        let rate = epoch.learning_rate.map_or(String::new(), number);
        let (loss, score, scale) = (number(epoch.loss), number(epoch.score.number()), number(scale.into()));
        let (count, skipped, seconds) = (epoch.epoch + 1, epoch.skipped, epoch.seconds);
        text += &format!("{count},{steps},{loss},{score},{skipped},{scale},{rate},{seconds:.3}\n");
    }
    text
}
