//! The loss of a training run.

use super::{
    data::{IGNORED, Targets},
    score::{ACCURACY, SQUARED_ERROR, class_logits},
};
use crate::{
    CrossEntropy, DType, Reduction, Tensor,
    error::{Error, Result},
    options::{Range, Takes, options},
};

/// The objective of a training run. Every loss is a mean, computed in f32 whatever the dtype of the outputs: a 16-bit
/// loss would overflow when scaled.
#[options(written)]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Loss {
    /// The [cross entropy](Tensor::cross_entropy_with) of classes.
    CrossEntropy {
        /// Share of each target that is spread evenly over all classes.
        #[option(default = 0.0, at_least = 0, at_most = 1, left_out)]
        label_smoothing: f64,
        /// Class whose targets have no loss.
        #[option(default = None, shown = "-100, that is [`IGNORED`]")]
        ignore_index: Option<i64>,
        /// Weight of each class.
        #[option(default = None, shown = "all 1", at_least = 0)]
        weight: Option<Vec<f32>>,
    },
    /// The [mean squared error](Tensor::mse_loss).
    Mse {},
    /// The [mean absolute error](Tensor::l1_loss).
    L1 {},
    /// The [Huber loss](Tensor::huber_loss): squared below `delta`, linear above.
    Huber {
        /// Transition from squared to linear.
        #[option(default = 1.0, above = 0)]
        delta: f64,
    },
    /// [Binary cross entropy with logits](Tensor::bce_with_logits): targets are numbers from 0 to 1, outputs are
    /// logits.
    BceWithLogits {},
}

impl Loss {
    /// Returns the cross entropy without options.
    pub fn cross_entropy() -> Self {
        Loss::CrossEntropy { label_smoothing: 0.0, ignore_index: None, weight: None }
    }

    /// Returns the usual loss: cross entropy for classes, otherwise the mean squared error.
    pub fn usual(targets: &Targets) -> Self {
        match targets {
            Targets::Classes { .. } => Loss::cross_entropy(),
            _ => Loss::Mse {},
        }
    }

    /// Returns the name of the measure of a [`Score`](super::Score) on targets of this loss, in words.
    pub fn measure(&self) -> &'static str {
        if matches!(self, Loss::CrossEntropy { .. }) { ACCURACY } else { SQUARED_ERROR }
    }

    /// Returns the first target that the loss is not defined for, by its example and its place there, and words on it.
    #[doc(hidden)]
    pub fn outside(&self, targets: &Targets) -> Option<([usize; 2], String)> {
        let (Loss::BceWithLogits {}, Targets::Numbers { shape, values }) = (self, targets) else { return None };
        let at = values.iter().position(|target| !(0.0..=1.0).contains(target))?;
        let each = shape.iter().product::<usize>().max(1);
        let words = format!("{}; the loss {} compares with numbers from 0 to 1", values[at], self.name());
        Some(([at / each, at % each], words))
    }

    /// Checks that the loss is defined for all targets.
    pub(super) fn check_domain(&self, targets: &Targets) -> Result<()> {
        let Some(([example, place], words)) = self.outside(targets) else { return Ok(()) };
        Err(Error::data(format!("target {place} of example {example} is {words}")))
    }

    /// Checks the options, and the kind of the targets and their domain.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for an option outside its range,
    /// [`ErrorKind::Data`](crate::ErrorKind::Data) for targets of the other kind, and for one outside of 0 to 1 with
    /// [`BceWithLogits`](Loss::BceWithLogits).
    pub fn check(&self, targets: &Targets) -> Result<()> {
        if let Some(words) = self.out_of_range("loss", &Range::default()) {
            return Err(Error::value(format!("the loss {}: {words}", self.name())));
        }
        match (matches!(self, Loss::CrossEntropy { .. }), targets) {
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
            _ => self.check_domain(targets),
        }
    }

    /// Returns whether any target of a batch counts. If all are ignored or of weight 0, there is no loss.
    pub fn counts(&self, targets: &Tensor) -> bool {
        let Loss::CrossEntropy { ignore_index, weight, .. } = self else { return true };
        let ignored = ignore_index.unwrap_or(IGNORED);
        let weight_of = |class: i64| match (weight, usize::try_from(class)) {
            (Some(weight), Ok(class)) => weight.get(class).copied(),
            _ => None,
        };
        // The loss rejects targets other than classes.
        let Ok(classes) = targets.to_vec::<i64>() else { return true };
        classes.is_empty() || classes.iter().any(|&class| class != ignored && weight_of(class) != Some(0.0))
    }

    /// Returns the weight of the mean loss of a batch among those of others: the sum of the weights of the targets that
    /// count.
    pub(super) fn weight_of(&self, targets: &Tensor) -> f64 {
        let Loss::CrossEntropy { ignore_index, weight, .. } = self else { return targets.len() as f64 };
        let ignored = ignore_index.unwrap_or(IGNORED);
        let Ok(classes) = targets.to_vec::<i64>() else { return targets.len() as f64 };
        let weight_of = |class: i64| match weight {
            // The loss rejects a class without a weight.
            Some(weight) => usize::try_from(class).ok().and_then(|class| weight.get(class)).map_or(1.0, |&w| w.into()),
            None => 1.0,
        };
        classes.into_iter().filter(|class| *class != ignored).map(weight_of).sum()
    }

    /// Computes the loss of the outputs of a network: a scalar, f32 unless the outputs are f64. For class targets
    /// `[n, ...]` the outputs have one more axis for the classes, last or second.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes of outputs and targets do not match, and the
    /// errors of the loss's ops.
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
