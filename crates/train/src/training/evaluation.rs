//! Scores of a network on examples in detail, computed in one pass.

use std::collections::{BTreeMap, BTreeSet};

use precast::{Child, cell::AsCell, error::Result};
use serde::{Deserialize, Serialize};

use super::{
    Loss, Score,
    history::nan_for_null,
    score::{check_counted, each_answer, each_number},
};
use crate::data::{
    Dataset, Standardization, Targets,
    sums::{Sum, is_rounding},
};

/// The quality of a network on examples in detail: for classes, the scores of each and the confusion matrix; for numbers,
/// the usual errors. [`Score`] is the one number of it by which networks are compared.
///
/// ```
/// use precast::prelude::*;
/// use precast_train::{data::Dataset, Evaluation};
/// // The network returns its inputs, so the highest one is its answer.
/// let inputs = vec![1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0];
/// let data = Dataset::new(inputs, &[2], vec![0, 0, 1, 1])?.with_class_names(vec!["cat".into(), "dog".into()])?;
/// let Evaluation::Classes(scores) = Evaluation::of(&Child::new(Identity), &data, 4)? else { panic!() };
/// assert_eq!(scores.confusion, [[2, 0], [1, 1]]); // a dog was taken for a cat
/// assert_eq!((scores.accuracy, scores.classes[1].precision, scores.classes[1].recall), (0.75, 1.0, 0.5));
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Evaluation {
    /// Scores on classes.
    Classes(ClassScores),
    /// Scores on numbers.
    Numbers(NumberScores),
}

/// Scores on examples with classes. Targets that the [`Loss`] ignores or weighs by 0 do not count. The classes are those of
/// the others that occur among the targets or the answers, as in the `classification_report` of scikit-learn; an answer of
/// a class that does not count is wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClassScores {
    /// Share of targets whose answer is right, from 0 to 1.
    pub accuracy: f64,
    /// Mean of the F1 scores of all classes, each counted alike.
    pub macro_f1: f64,
    /// Number of targets.
    pub count: usize,
    /// Number of answers whose highest output is not finite. They are wrong and of no class.
    pub not_finite: usize,
    /// Scores of each class, in the order of their indices.
    pub classes: Vec<ClassScore>,
    /// Number of targets of a class, a row for each of the [`classes`](ClassScores::classes), for which the network
    /// answered a class, a column for each. Empty if there are more than [`ClassScores::MOST_CONFUSED`] classes.
    pub confusion: Vec<Vec<usize>>,
}

/// Scores of one class: of `count` targets and `a` answers of the class, `r` answers are right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClassScore {
    /// Index of the class.
    pub index: usize,
    /// Name of the class, or its index as text.
    pub name: String,
    /// Number of targets of the class.
    pub count: usize,
    /// Share of its answers that are right, `r / a`; 0 if no answer is of the class, as with `zero_division=0` of
    /// scikit-learn.
    pub precision: f64,
    /// Share of its targets that are found, `r / count`; 0 if no target is of the class.
    pub recall: f64,
    /// Harmonic mean of precision and recall, `2 r / (a + count)`.
    pub f1: f64,
}

/// Scores on examples with numbers, in their units: a standardization of the targets is undone. With the loss
/// `bce_with_logits`, they are those of the probabilities.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NumberScores {
    /// The score, if it is not the mean squared error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    score: Option<Score>,
    /// Number of outputs that are not finite. They make the scores infinite or NaN.
    pub not_finite: usize,
    /// Scores of all numbers together. The squared and absolute errors are means over all numbers; `r_squared` is the mean
    /// of those of the targets, as by the `r2_score` of scikit-learn.
    pub total: NumberScore,
    /// Scores of each number of a target, if it has from 2 to [`NumberScores::MOST_TARGETS`].
    pub targets: Vec<NumberScore>,
}

/// Errors of numbers `y` given the targets `t`. JSON has no non-finite numbers; they are written as null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NumberScore {
    /// Name of the target, or its number, counted from 1; empty for all together.
    pub name: String,
    /// Number of outputs.
    pub count: usize,
    /// Mean of `(y - t)^2`.
    #[serde(deserialize_with = "nan_for_null")]
    pub mean_squared_error: f64,
    /// Square root of the mean squared error, in the unit of the targets.
    #[serde(deserialize_with = "nan_for_null")]
    pub root_mean_squared_error: f64,
    /// Mean of `|y - t|`.
    #[serde(deserialize_with = "nan_for_null")]
    pub mean_absolute_error: f64,
    /// Coefficient of determination, `1 - sum (y - t)^2 / sum (t - mean t)^2`: 1 is perfect, and 0 is as good as the mean of
    /// these targets. For targets that are all equal but for rounding, it is 1 if each output is right, else 0, as by scikit-learn. NaN for
    /// a single example.
    #[serde(deserialize_with = "nan_for_null")]
    pub r_squared: f64,
    /// Share of probabilities that are on the side of 0.5 of their target, if the outputs are logits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
}

impl ClassScores {
    /// Largest number of classes with a confusion matrix.
    pub const MOST_CONFUSED: usize = 1000;
}

impl NumberScores {
    /// Largest number of numbers in a target with scores of their own.
    pub const MOST_TARGETS: usize = 100;
}

impl Evaluation {
    /// Evaluates a network by the [usual](Loss::usual) loss, called in its current mode with `batch` examples at a time, in
    /// f64.
    ///
    /// # Errors
    /// As [`accuracy`](super::accuracy) and [`mean_squared_error`](super::mean_squared_error).
    pub fn of<C: ?Sized + AsCell>(net: &Child<C>, data: &Dataset, batch: usize) -> Result<Self> {
        Evaluation::of_standardized(net, data, batch, None)
    }

    /// Evaluates a network trained with standardized targets, on targets that are not standardized.
    ///
    /// # Errors
    /// As [`Evaluation::of`]; [`ErrorKind::Data`](precast::ErrorKind::Data) for a standardization of other targets.
    pub fn of_standardized<C: ?Sized + AsCell>(
        net: &Child<C>,
        data: &Dataset,
        batch: usize,
        targets: Option<&Standardization>,
    ) -> Result<Self> {
        Evaluation::of_loss(&Loss::usual(data.targets()), net, data, batch, targets)
    }

    /// Evaluates a network by the measure of a loss, on the targets that it counts; see the table of [`Loss`].
    ///
    /// # Errors
    /// As [`Evaluation::of_standardized`], and [`ErrorKind::Data`](precast::ErrorKind::Data) for a loss of other targets.
    pub fn of_loss<C: ?Sized + AsCell>(
        loss: &Loss,
        net: &Child<C>,
        data: &Dataset,
        batch: usize,
        targets: Option<&Standardization>,
    ) -> Result<Self> {
        match loss {
            Loss::CrossEntropy { .. } => of_classes(loss, net, data, batch).map(Evaluation::Classes),
            _ => of_numbers(loss, net, data, batch, targets).map(Evaluation::Numbers),
        }
    }

    /// Names the numbers of a target, unless there are more or fewer of them.
    #[must_use]
    pub fn with_target_names(mut self, names: &[String]) -> Self {
        if let Evaluation::Numbers(NumberScores { targets, .. }) = &mut self
            && targets.len() == names.len()
        {
            targets.iter_mut().zip(names).for_each(|(target, name)| target.name.clone_from(name));
        }
        self
    }

    /// Returns the score.
    pub fn score(&self) -> Score {
        match self {
            Evaluation::Classes(of) => Score::of_accuracy(of.accuracy).with_not_finite(of.not_finite),
            Evaluation::Numbers(of) => of
                .score
                .unwrap_or_else(|| Score::of_squared_error(of.total.mean_squared_error))
                .with_not_finite(of.not_finite),
        }
    }
}

fn of_classes<C: ?Sized + AsCell>(loss: &Loss, net: &Child<C>, data: &Dataset, batch: usize) -> Result<ClassScores> {
    // Only pairs that occur: a vocabulary may have too many classes for a matrix.
    let mut pairs = BTreeMap::<(i64, Option<i64>), usize>::new();
    let mut not_finite = 0;
    each_answer(loss, net, data, batch, 0..data.len(), |answer, label| {
        not_finite += usize::from(answer.is_none());
        *pairs.entry((label, answer.filter(|class| loss.counts_class(*class)))).or_default() += 1;
    })?;
    check_counted(pairs.values().sum())?;
    let met: BTreeSet<i64> = pairs.keys().flat_map(|(label, answer)| [Some(*label), *answer]).flatten().collect();
    let places: BTreeMap<i64, usize> = met.iter().enumerate().map(|(place, class)| (*class, place)).collect();
    // For each class the targets, the answers and the right answers.
    let mut counts = vec![[0usize; 3]; met.len()];
    let is_small = met.len() <= ClassScores::MOST_CONFUSED;
    let mut confusion = if is_small { vec![vec![0; met.len()]; met.len()] } else { Vec::new() };
    for (&(label, answer), &count) in &pairs {
        let row = places[&label];
        counts[row][0] += count;
        let Some(column) = answer.map(|answer| places[&answer]) else { continue };
        counts[column][1] += count;
        counts[row][2] += if row == column { count } else { 0 };
        if is_small {
            confusion[row][column] += count;
        }
    }
    let share = |part: usize, of: usize| if of == 0 { 0.0 } else { part as f64 / of as f64 };
    let one = |(&class, &[count, answers, right]): (&i64, &[usize; 3])| {
        let index = class as usize;
        ClassScore {
            index,
            name: data.class_names().get(index).cloned().unwrap_or_else(|| index.to_string()),
            count,
            precision: share(right, answers),
            recall: share(right, count),
            f1: share(2 * right, answers + count),
        }
    };
    let classes: Vec<ClassScore> = met.iter().zip(&counts).map(one).collect();
    let (count, right) = counts.iter().fold((0, 0), |(all, found), [count, _, right]| (all + count, found + right));
    let macro_f1 = classes.iter().map(|class| class.f1).sum::<f64>() / classes.len() as f64;
    Ok(ClassScores { accuracy: share(right, count), macro_f1, count, not_finite, classes, confusion })
}

/// Sums over the numbers at one place of all targets.
#[derive(Clone, Default)]
struct Sums {
    count: usize,
    /// The sum of the targets, and their mean.
    targets: Sum,
    mean: f64,
    squared: f64,
    absolute: f64,
    /// Squares of the differences of the targets from their mean.
    spread: f64,
    /// Answers on the side of 0.5 of their target.
    right: usize,
}

impl Sums {
    fn r_squared(&self) -> f64 {
        let count = self.count as f64;
        match is_rounding(count, self.mean, self.spread / count, false) {
            _ if self.count < 2 => f64::NAN,
            _ if self.squared.is_nan() => f64::NAN,
            // As for the targets: right but for rounding.
            true => f64::from(is_rounding(count, self.mean, self.squared / count, false)),
            false => 1.0 - self.squared / self.spread,
        }
    }
}

fn of_numbers<C: ?Sized + AsCell>(
    loss: &Loss,
    net: &Child<C>,
    data: &Dataset,
    batch: usize,
    targets: Option<&Standardization>,
) -> Result<NumberScores> {
    let shape = if let Targets::Numbers { shape, .. } = data.targets() { &shape[..] } else { &[] };
    let each = shape.iter().product::<usize>().max(1);
    let mut sums = vec![Sums::default(); each];
    data.exact_targets(0).into_iter().flatten().enumerate().for_each(|(i, x)| sums[i % each].targets.add(x));
    sums.iter_mut().for_each(|of| of.mean = of.targets.total() / data.len() as f64);
    let (mut i, mut all, mut measured, mut not_finite) = (0, Sums::default(), 0.0, 0);
    each_number(net, data, batch, 0..data.len(), targets, |output, target, unit| {
        measured += loss.of_number(output, target, unit);
        not_finite += usize::from(!output.is_finite());
        let answer = loss.answer(output);
        let error = answer - target;
        let of = &mut sums[i % each];
        of.spread += (target - of.mean).powi(2);
        for sums in [of, &mut all] {
            sums.count += 1;
            sums.squared += error.powi(2);
            sums.absolute += error.abs();
            sums.right += usize::from((answer > 0.5) == (target > 0.5) && !answer.is_nan());
        }
        i += 1;
    })?;
    let is_probability = matches!(loss, Loss::BceWithLogits {});
    let score = |name: String, of: &Sums, r_squared: f64| {
        let count = of.count as f64;
        NumberScore {
            name,
            count: of.count,
            mean_squared_error: of.squared / count,
            root_mean_squared_error: (of.squared / count).sqrt(),
            mean_absolute_error: of.absolute / count,
            r_squared,
            accuracy: is_probability.then_some(of.right as f64 / count),
        }
    };
    let mean = sums.iter().map(Sums::r_squared).sum::<f64>() / each as f64;
    let total = score(String::new(), &all, mean);
    let of_target = |(i, of): (usize, &Sums)| score((i + 1).to_string(), of, of.r_squared());
    let listed = (2..=NumberScores::MOST_TARGETS).contains(&each);
    let targets = if listed { sums.iter().enumerate().map(of_target).collect() } else { Vec::new() };
    let score = Score::from(loss.scored_by(measured / i as f64));
    let score = (!matches!(loss, Loss::Mse {})).then_some(score);
    Ok(NumberScores { score, not_finite, total, targets })
}
