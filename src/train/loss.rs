//! The loss of a training run.

use serde::{Deserialize, Serialize};

use super::{
    data::{IGNORED, Targets},
    score::class_logits,
};
use crate::{
    CrossEntropy, DType, Reduction, Tensor,
    error::{Error, Result},
};

/// What a training run makes small. Every loss is a mean, and computed in f32 whatever the dtype of the outputs is: a 16-bit
/// loss would overflow when it is scaled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Loss {
    /// The [cross entropy](Tensor::cross_entropy_with) of classes.
    CrossEntropy {
        /// The part of each target that is spread evenly over all classes, from 0 to 1; 0.
        #[serde(default, skip_serializing_if = "is_zero")]
        label_smoothing: f64,
        /// Targets of this class have no loss; [`IGNORED`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ignore_index: Option<i64>,
        /// A factor for each class; all 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight: Option<Vec<f32>>,
    },
    /// The [mean squared error](Tensor::mse_loss).
    Mse {},
    /// The [mean absolute error](Tensor::l1_loss).
    L1 {},
    /// The [Huber loss](Tensor::huber_loss): squared below `delta`, linear above.
    Huber {
        /// Where the line begins, above 0; 1.
        #[serde(default = "one")]
        delta: f64,
    },
    /// The [cross entropy of yes and no](Tensor::bce_with_logits): targets are numbers from 0 to 1, outputs are logits.
    BceWithLogits {},
}

fn is_zero(x: &f64) -> bool {
    *x == 0.0
}

fn one() -> f64 {
    1.0
}

impl Loss {
    /// The cross entropy without options.
    pub fn cross_entropy() -> Self {
        Loss::CrossEntropy { label_smoothing: 0.0, ignore_index: None, weight: None }
    }

    /// The usual one: cross entropy of classes, otherwise the mean squared error.
    pub fn usual(targets: &Targets) -> Self {
        match targets {
            Targets::Classes { .. } => Loss::cross_entropy(),
            _ => Loss::Mse {},
        }
    }

    /// Its name in files.
    pub fn name(&self) -> &'static str {
        match self {
            Loss::CrossEntropy { .. } => "cross_entropy",
            Loss::Mse {} => "mse",
            Loss::L1 {} => "l1",
            Loss::Huber { .. } => "huber",
            Loss::BceWithLogits {} => "bce_with_logits",
        }
    }

    /// Checks the options, and that the targets are of the kind which the loss compares with.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for an option outside its range,
    /// [`ErrorKind::Data`](crate::ErrorKind::Data) for targets of the other kind.
    pub fn check(&self, targets: &Targets) -> Result<()> {
        let refused = |words: String| Err(Error::value(format!("the loss {}: {words}", self.name())));
        let classes = match self {
            Loss::CrossEntropy { label_smoothing, weight, .. } => {
                if !(0.0..=1.0).contains(label_smoothing) {
                    return refused(format!("`label_smoothing` is {label_smoothing}; allowed: 0 to 1"));
                }
                if let Some(factor) = weight.iter().flatten().find(|w| !(w.is_finite() && **w >= 0.0)) {
                    return refused(format!("a weight is {factor}; allowed: finite numbers from 0"));
                }
                true
            }
            Loss::Huber { delta } if !(delta.is_finite() && *delta > 0.0) => {
                return refused(format!("`delta` is {delta}; allowed: finite and above 0"));
            }
            _ => false,
        };
        match (classes, targets) {
            (_, Targets::None) => Err(Error::data("the examples have no targets, which a loss compares with")),
            (true, Targets::Numbers { .. }) => {
                let words = "the loss cross_entropy compares with classes, and the targets are numbers; \
                             allowed: mse, l1, huber, bce_with_logits";
                Err(Error::data(words))
            }
            (false, Targets::Classes { .. }) => Err(Error::data(format!(
                "the loss {} compares with numbers, and the targets are classes; allowed: cross_entropy",
                self.name()
            ))),
            _ => Ok(()),
        }
    }

    /// Whether a target of a batch counts. Where none does, all being ignored or of the weight 0, there is no loss.
    pub fn counts(&self, targets: &Tensor) -> bool {
        let Loss::CrossEntropy { ignore_index, weight, .. } = self else { return true };
        let ignored = ignore_index.unwrap_or(IGNORED);
        let weight_of = |class: i64| match (weight, usize::try_from(class)) {
            (Some(weight), Ok(class)) => weight.get(class).copied(),
            _ => None,
        };
        // Others than classes are refused by the loss.
        let Ok(classes) = targets.to_vec::<i64>() else { return true };
        classes.is_empty() || classes.iter().any(|&class| class != ignored && weight_of(class) != Some(0.0))
    }

    /// The loss of the outputs of a network: a scalar, f32 unless the outputs are f64. Of classes, targets `[n, ...]` go with
    /// outputs that have one axis more, for the classes, last or second.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when outputs and targets do not go together, and what the ops of the
    /// loss report.
    pub fn of(&self, outputs: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let wide = if outputs.dtype().is_low() { outputs.cast(DType::F32) } else { outputs.clone() };
        match self {
            Loss::CrossEntropy { label_smoothing, ignore_index, weight } => {
                let weight = weight.as_ref().map(|w| Tensor::from_vec(w.clone(), &[w.len()])).transpose()?;
                let (label_smoothing, ignore_index) = (*label_smoothing, Some(ignore_index.unwrap_or(IGNORED)));
                let options = CrossEntropy { label_smoothing, ignore_index, weight, ..CrossEntropy::default() };
                class_logits(&wide, targets)?.cross_entropy_with(targets, &options)
            }
            Loss::Mse {} => wide.mse_loss(targets, Reduction::Mean),
            Loss::L1 {} => wide.l1_loss(targets, Reduction::Mean),
            Loss::Huber { delta } => wide.huber_loss(targets, *delta, Reduction::Mean),
            Loss::BceWithLogits {} => wide.bce_with_logits(targets, Reduction::Mean),
        }
    }
}
