//! Lines of `metrics.jsonl`, the record of a run.

use std::path::Path;

use precast::{
    error::{Error, Result},
    io::json,
    train::{Ended, Epoch, History, Raised, Step, Tested},
};
use precast_policy::files;
use serde::{Deserialize, Serialize};

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
        let line: Line = json::read(line).map_err(|e| {
            Error::run(format!("not a line of metrics: {e}")).context(format_args!("{}:{}", file.display(), i + 1))
        })?;
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
