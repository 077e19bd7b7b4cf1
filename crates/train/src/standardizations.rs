//! The encoding and the standardization of a run's examples.

use precast::error::Result;
use precast_base::printable;
use serde::{Deserialize, Serialize};

use super::data::{Dataset, Encoding, Inputs, Standardization};

/// Encoding and standardization of a run's examples: the contents of `standardization.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Standardizations {
    /// Encoding of inputs that are a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Standardization>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Standardization>,
}

/// Number of deviations from the mean beyond which a number is noted.
const FAR: f64 = 20.0;
/// Number of examples that are looked at together, and of their numbers.
const PART: [usize; 2] = [4096, 1 << 22];

impl Standardizations {
    /// Encodes the inputs of examples, if they are a table: when they are needed, if they would take more than `memory`
    /// bytes.
    pub fn encoded(&self, data: Dataset, memory: u64) -> Result<Dataset> {
        match (&self.encoding, data.form()) {
            (Some(by), Inputs::Table(_)) if self.fits(data.len(), memory) => data.encoded(by),
            (Some(by), Inputs::Table(_)) => data.on_demand()?.encoded(by),
            _ => Ok(data),
        }
    }

    /// Returns whether so many examples of a table take at most `memory` bytes once they are encoded.
    pub fn fits(&self, examples: usize, memory: u64) -> bool {
        let width = self.encoding.as_ref().map_or(0, Encoding::width);
        [examples, width].iter().fold(size_of::<f32>() as u128, |all, &n| all.saturating_mul(n as u128))
            <= memory.into()
    }

    /// Returns notes on examples as read: on words that no training example has, and on numbers far from those of the
    /// training examples.
    pub fn notes_on(&self, data: &Dataset, memory: u64) -> Result<Vec<String>> {
        let mut notes: Vec<String> = self.encoding.iter().flat_map(|encoding| encoding.notes_on(data)).collect();
        let encoded = self.encoded(data.clone(), memory)?;
        let (Some(by), Inputs::Numbers(_), &[width]) = (&self.inputs, encoded.form(), encoded.shape()) else {
            return Ok(notes);
        };
        // The number of far values of each column, and the farthest.
        let mut far = vec![(0, 0.0, 0.0); width.min(by.mean.len())];
        for inputs in encoded.try_batches_of_inputs((PART[1] / width.max(1)).clamp(1, PART[0]))? {
            let values = inputs?[0].to_vec::<f32>()?;
            for row in values.chunks_exact(width) {
                for (column, (&x, (count, farthest, most))) in row.iter().zip(&mut far).enumerate() {
                    let x = f64::from(x);
                    let distance = (x - by.mean[column]).abs() / by.deviation[column];
                    // A rare word is a 1 among zeros.
                    if distance > FAR && x != 0.0 && x != 1.0 {
                        *count += 1;
                        if distance > *most {
                            (*farthest, *most) = (x, distance);
                        }
                    }
                }
            }
        }
        for (column, (count, farthest, _)) in far.into_iter().enumerate().filter(|(_, (count, ..))| *count > 0) {
            let name = encoded.input_names().get(column);
            let name =
                name.map_or_else(|| format!("input {}", column + 1), |name| format!("column `{}`", printable(name)));
            let (mean, deviation) = (by.mean[column] as f32, by.deviation[column] as f32);
            let are = if count == 1 { "number is" } else { "numbers are" };
            notes.push(format!(
                "{name}: {count} {are} more than {FAR} deviations from the mean of the training examples, such as \
                 {farthest}; their mean is {mean}, their deviation {deviation}"
            ));
        }
        Ok(notes)
    }

    /// Encodes and standardizes the inputs of examples, and reshapes them for a model. Those of a table that take more than
    /// `memory` bytes are made when they are needed.
    pub fn inputs_of(&self, data: Dataset, model_takes: Option<&[usize]>, memory: u64) -> Result<Dataset> {
        let data = self.encoded(data, memory)?;
        let data = match &self.inputs {
            Some(by) => data.standardized(by)?,
            None => data.in_f32(),
        };
        match model_takes {
            Some(shape) => data.fitted(shape),
            None => Ok(data),
        }
    }
}
