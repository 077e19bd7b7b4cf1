//! Conversion of examples to the shape that a network takes.

use precast::error::{Error, Result};

use super::{Dataset, Inputs};
use crate::readers::in_message;

/// Maximum memory of resized images: 1 GiB.
const MOST_BYTES: u128 = 1 << 30;

impl Dataset {
    /// Converts the examples to the shape that a network takes. If only adjacent axes are joined or split, they are
    /// reshaped: images of 8 by 8 as `[64]`. Images `[channels, height, width]`, and single-channel ones in any form,
    /// are [resized](Dataset::resize) to a shape with the same channels.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) with both shapes when the conversion is impossible or would take
    /// more than 1 GiB.
    pub fn fitted(self, shape: &[usize]) -> Result<Self> {
        if let Inputs::Stored(_) = self.inputs() {
            let shape = shape.to_vec();
            return self.later(move |part| part.fitted(&shape));
        }
        let elements = |shape: &[usize]| shape.iter().try_fold(1usize, |all, &axis| all.checked_mul(axis));
        if is_regrouped(shape, self.shape()) {
            return self.reshape(shape);
        }
        let channels = |shape: &[usize]| match shape {
            [outer @ .., _, _] => elements(outer),
            _ => None,
        };
        match (self.shape(), shape) {
            ([_, _, _], [.., height, width]) if channels(self.shape()) == channels(shape) => {
                let (height, width) = (*height, *width);
                let bytes = [height, width, channels(shape).unwrap_or(1), size_of::<f32>()]
                    .iter()
                    .fold(self.len() as u128, |all, &n| all.saturating_mul(n as u128));
                if bytes > MOST_BYTES {
                    let gib = |bytes: u128| bytes as f64 / (1u64 << 30) as f64;
                    return Err(Error::data(format!(
                        "{} images of {height} x {width} would take {:.1} GiB; allowed: {:.1} GiB",
                        self.len(),
                        gib(bytes),
                        gib(MOST_BYTES)
                    )));
                }
                self.resize(height, width)?.reshape(shape)
            }
            (met, _) => {
                let names = match self.input_names() {
                    [] => String::new(),
                    names => format!(": {}", list(names)),
                };
                let further: String = self
                    .further()
                    .iter()
                    .map(|further| {
                        format!("; beside it are indices of shape {:?}, for a `ColumnEmbedding`", further.shape)
                    })
                    .collect();
                let turned = turned(shape, met);
                Err(Error::data(format!(
                    "the model takes examples of shape {shape:?}, and the data has {met:?}{names}{further}{turned}"
                )))
            }
        }
    }
}

/// Returns whether one shape joins adjacent axes of the other: each number keeps its neighbours.
pub(crate) fn is_regrouped(a: &[usize], b: &[usize]) -> bool {
    let ends = |shape: &[usize]| -> Vec<usize> {
        let axes = shape.iter().filter(|axis| **axis != 1);
        axes.scan(1, |all, axis| {
            *all = usize::saturating_mul(*all, *axis);
            Some(*all)
        })
        .collect()
    };
    let (a, b) = (ends(a), ends(b));
    let (few, many) = if a.len() < b.len() { (a, b) } else { (b, a) };
    few.last().unwrap_or(&1) == many.last().unwrap_or(&1) && few.iter().all(|end| many.contains(end))
}

/// Suggests the order of axes that makes one shape of the other.
fn turned(wanted: &[usize], met: &[usize]) -> String {
    let mut left: Vec<usize> = (0..met.len()).collect();
    let axes: Option<Vec<String>> = wanted
        .iter()
        .map(|axis| {
            let at = left.iter().position(|&from| met[from] == *axis)?;
            Some((left.remove(at) + 1).to_string())
        })
        .collect();
    match axes.filter(|_| left.is_empty()) {
        Some(axes) => format!("; its axes are in another order: of an array, `x.transpose(0, {})`", axes.join(", ")),
        None => String::new(),
    }
}

/// Lists names, in part if they are many.
fn list(names: &[String]) -> String {
    const MOST: usize = 40;
    let shown: Vec<String> = names.iter().take(MOST).map(|name| format!("`{}`", in_message(name))).collect();
    let more = if names.len() > MOST { format!(", and {} more", names.len() - MOST) } else { String::new() };
    shown.join(", ") + &more
}
