//! Measures of a network on examples, and the outputs that they read.

use serde::{Deserialize, Serialize};

use precast::{
    Tensor,
    error::{Error, Result},
};

/// A measure, with its number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Measure {
    Accuracy(#[serde(deserialize_with = "super::history::nan_for_null")] f64),
    MeanSquaredError(#[serde(deserialize_with = "super::history::nan_for_null")] f64),
    MeanAbsoluteError(#[serde(deserialize_with = "super::history::nan_for_null")] f64),
    HuberLoss(#[serde(deserialize_with = "super::history::nan_for_null")] f64),
    BinaryCrossEntropy(#[serde(deserialize_with = "super::history::nan_for_null")] f64),
}

impl Measure {
    /// Returns its name, in words.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Accuracy(_) => "accuracy",
            Measure::MeanSquaredError(_) => "mean squared error",
            Measure::MeanAbsoluteError(_) => "mean absolute error",
            Measure::HuberLoss(_) => "Huber loss",
            Measure::BinaryCrossEntropy(_) => "binary cross entropy",
        }
    }

    pub fn number(self) -> f64 {
        match self {
            Measure::Accuracy(number)
            | Measure::MeanSquaredError(number)
            | Measure::MeanAbsoluteError(number)
            | Measure::HuberLoss(number)
            | Measure::BinaryCrossEntropy(number) => number,
        }
    }
}

/// Moves the class axis of a network's outputs to the second place, as [`Tensor::cross_entropy`] takes them.
///
/// Targets are `[n, ...]`. The outputs have one more axis for the classes: the last one, as from a final `Dense`, or
/// the second, as from a convolution. If both are possible, it is the last.
///
/// # Errors
/// [`ErrorKind::Shape`](precast::ErrorKind::Shape) for outputs of another shape.
pub(super) fn class_logits(outputs: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let (met, places) = (outputs.shape(), targets.shape());
    if met.len() == places.len() + 1 && met.len() > 1 {
        if met.len() > 2 && met[..places.len()] == *places {
            let last = places.len();
            let order: Vec<usize> = [0, last].into_iter().chain(1..last).collect();
            return outputs.permute(&order);
        }
        if met[0] == places[0] && met[2..] == places[1..] {
            return Ok(outputs.clone());
        }
    }
    Err(Error::shape(match places {
        [_] => format!("a classifier returns [n, classes]; this network returned {met:?} for {} examples", places[0]),
        _ => format!(
            "a network for classes of shape {places:?} returns one axis more, for the classes, last or second; \
                      this network returned {met:?}"
        ),
    }))
}
