//! The loss of a training run: the one description of its targets, which scores, weights and means take as well.

use precast::{
    CrossEntropy, DType, Reduction, Tensor,
    error::{Error, Result},
    options::{Range, Takes, options},
};

use super::measure::{Measure, class_logits};
use crate::data::{IGNORED, Targets};

/// The objective of a training run. Every loss is a mean, computed in f32 whatever the dtype of the outputs: a 16-bit
/// loss would overflow when scaled.
///
/// A loss decides what a [`Score`](super::Score) measures, and which targets it counts:
///
/// | loss | targets that count | score |
/// | --- | --- | --- |
/// | `cross_entropy` | those that are not ignored and whose class has a weight above 0 | accuracy |
/// | `mse` | all | mean squared error |
/// | `l1` | all | mean absolute error |
/// | `huber` | all | Huber loss |
/// | `bce_with_logits` | all | binary cross entropy |
#[options(written)]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Loss {
    /// The [cross entropy](Tensor::cross_entropy_with) of classes.
    CrossEntropy {
        /// Share of each target that is spread evenly over all classes.
        #[option(default = 0.0, at_least = 0, at_most = 1, left_out)]
        label_smoothing: f64,
        /// Class whose targets have no loss, in addition to [`IGNORED`]. In a CSV, the one with this name, if there is
        /// one; it is then not counted among the classes.
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
        self.scored_by(f64::NAN).name()
    }

    /// Returns the measure of a score, with its number.
    pub(super) fn scored_by(&self, number: f64) -> Measure {
        match self {
            Loss::CrossEntropy { .. } => Measure::Accuracy(number),
            Loss::Mse {} => Measure::MeanSquaredError(number),
            Loss::L1 {} => Measure::MeanAbsoluteError(number),
            Loss::Huber { .. } => Measure::HuberLoss(number),
            Loss::BceWithLogits {} => Measure::BinaryCrossEntropy(number),
        }
    }

    /// Returns the first target that the loss is not defined for, by its example and its place there, and words on it.
    pub(crate) fn outside(&self, targets: &Targets) -> Option<([usize; 2], String)> {
        let (shape, at, words) = match (self, targets) {
            (Loss::BceWithLogits {}, Targets::Numbers { shape, values }) => {
                let at = values.iter().position(|target| !(0.0..=1.0).contains(target))?;
                (shape, at, format!("{}; the loss {} compares with numbers from 0 to 1", values[at], self.name()))
            }
            (Loss::CrossEntropy { .. }, Targets::Classes { shape, values }) => {
                let at = values.iter().position(|&class| class < 0 && self.counts_class(class))?;
                let words =
                    format!("{0}; classes count from 0, and the loss ignores {0} with `ignore_index: {0}`", values[at]);
                (shape, at, words)
            }
            _ => return None,
        };
        let each = shape.iter().product::<usize>().max(1);
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
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) for an option outside its range and for weights that are all 0,
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) for targets of the other kind, for one outside of 0 to 1 with
    /// [`BceWithLogits`](Loss::BceWithLogits), and for a negative class that is not ignored.
    pub fn check(&self, targets: &Targets) -> Result<()> {
        if let Some(error) = self.out_of_range("loss", &Range::default()) {
            return Err(error.context(format_args!("the loss {}", self.name())));
        }
        if let Loss::CrossEntropy { weight: Some(weight), .. } = self
            && weight.iter().all(|weight| *weight == 0.0)
        {
            let words = "the loss cross_entropy: `weight` is above 0 for no class, so no target counts";
            return Err(Error::value(words).about("weight"));
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
        match self.classes_of(targets) {
            Some(classes) => classes.is_empty() || classes.into_iter().any(|class| self.counts_class(class)),
            None => true,
        }
    }

    /// Returns the weight of the mean loss of a batch among those of others: the sum of the weights of the targets that
    /// count.
    pub fn weight_of(&self, targets: &Tensor) -> f64 {
        match self.classes_of(targets) {
            Some(classes) => classes.into_iter().map(|class| self.weight_of_class(class)).sum(),
            None => targets.len() as f64,
        }
    }

    /// Returns whether targets of a class count: they are not ignored, and not of weight 0.
    pub fn counts_class(&self, class: i64) -> bool {
        self.weight_of_class(class) != 0.0
    }

    /// Returns the weight of a target of a class, 0 if it is ignored.
    fn weight_of_class(&self, class: i64) -> f64 {
        let Loss::CrossEntropy { ignore_index, weight, .. } = self else { return 1.0 };
        let weight_of = |class: usize| weight.as_ref().and_then(|weight| weight.get(class));
        match class == IGNORED || *ignore_index == Some(class) {
            true => 0.0,
            // The loss rejects a class without a weight.
            false => usize::try_from(class).ok().and_then(weight_of).map_or(1.0, |&weight| weight.into()),
        }
    }

    /// Returns the targets, if they are classes. The loss rejects others.
    fn classes_of(&self, targets: &Tensor) -> Option<Vec<i64>> {
        matches!(self, Loss::CrossEntropy { .. }).then(|| targets.to_vec::<i64>().ok()).flatten()
    }

    /// Returns the meaning of an output for a number: a probability for `bce_with_logits`, otherwise the output itself.
    pub fn answer(&self, output: f64) -> f64 {
        if let Loss::BceWithLogits {} = self { sigmoid(output) } else { output }
    }

    /// Computes the loss of one output for a number, both in the units of the targets; `unit` of them are 1 for the loss.
    pub(super) fn of_number(&self, output: f64, target: f64, unit: f64) -> f64 {
        let error = (output - target).abs();
        match *self {
            Loss::L1 {} => error,
            Loss::Huber { delta } => match error / unit {
                small if small <= delta => 0.5 * small.powi(2),
                large => delta * (large - 0.5 * delta),
            },
            // Without the product of 0 and infinity.
            Loss::BceWithLogits {} if output.is_infinite() && sigmoid(output) == target => 0.0,
            Loss::BceWithLogits {} => output.max(0.0) - output * target + (-output.abs()).exp().ln_1p(),
            Loss::CrossEntropy { .. } | Loss::Mse {} => error.powi(2),
        }
    }

    /// Computes the loss of the outputs of a network: a scalar, f32 unless the outputs are f64. For class targets
    /// `[n, ...]` the outputs have one more axis for the classes, last or second.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](precast::ErrorKind::Shape) when the shapes of outputs and targets do not match, and the
    /// errors of the loss's ops.
    pub fn of(&self, outputs: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let wide = if outputs.dtype().is_low() { outputs.cast(DType::F32) } else { outputs.clone() };
        match self {
            Loss::CrossEntropy { label_smoothing, ignore_index, weight } => {
                let weight = weight.as_ref().map(|w| Tensor::from_vec(w.clone(), &[w.len()])).transpose()?;
                let (label_smoothing, ignored) = (*label_smoothing, ignore_index.unwrap_or(IGNORED));
                let (targets, ignore_index) = (&with_one_ignored(targets, ignored)?, Some(ignored));
                let mut options = CrossEntropy::default();
                (options.label_smoothing, options.ignore_index, options.weight) =
                    (label_smoothing, ignore_index, weight);
                class_logits(&wide, targets)?.cross_entropy_with(targets, &options)
            }
            Loss::Mse {} => wide.mse_loss(targets, Reduction::Mean),
            Loss::L1 {} => wide.l1_loss(targets, Reduction::Mean),
            Loss::Huber { delta } => wide.huber_loss(targets, *delta, Reduction::Mean),
            Loss::BceWithLogits {} => wide.bce_with_logits(targets, Reduction::Mean),
        }
    }
}

/// Replaces [`IGNORED`] by the class that an op ignores.
fn with_one_ignored(targets: &Tensor, class: i64) -> Result<Tensor> {
    let classes = targets.to_vec::<i64>().unwrap_or_default();
    if class == IGNORED || !classes.contains(&IGNORED) {
        return Ok(targets.clone());
    }
    let classes = classes.into_iter().map(|other| if other == IGNORED { class } else { other });
    Tensor::from_vec(classes.collect(), targets.shape())
}

/// Computes the probability of a logit.
fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
