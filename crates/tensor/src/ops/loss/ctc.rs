//! Connectionist temporal classification.

use crate::{
    DType, Op, Tensor,
    error::{Error, Result},
    ops::{Reduction, call, dispatch, elements},
    tensor::Forward,
};

/// Labels of all samples, each with its length of the input: what is read from the integer inputs.
struct Labels {
    /// Length of each input, and the labels with blanks between them and around them.
    samples: Vec<(usize, Vec<usize>)>,
    blank: usize,
    classes: usize,
}

impl Labels {
    fn new(shape: &[usize], inputs: &[Tensor], blank: usize) -> Result<Labels> {
        let &[length, count, classes] = shape else {
            return Err(Error::shape(format!("needs log-probabilities [length, batch, classes], got {shape:?}")));
        };
        if blank >= classes {
            return Err(Error::value(format!("blank = {blank} with {classes} classes; allowed: below {classes}")));
        }
        if let Some(other) = inputs.iter().find(|input| input.dtype() != DType::I64) {
            return Err(Error::dtype(format!("targets and lengths are i64, got {}", other.dtype().long_name())));
        }
        let [targets, of_inputs, of_targets] = inputs else { unreachable!("three inputs of integers") };
        let lengths = |lengths: &Tensor, name: &str, most: usize| {
            if lengths.shape() != [count] {
                let met = lengths.shape();
                return Err(Error::shape(format!(
                    "{name} of shape {met:?}; one for each of {count} samples: [{count}]"
                )));
            }
            let length = |&length: &i64| usize::try_from(length).ok().filter(|length| *length <= most);
            let refused = |met: &i64| Error::value(format!("{met} among the {name}; allowed: 0 to {most}"));
            elements::<i64>(lengths)
                .iter()
                .map(|met| length(met).ok_or_else(|| refused(met)))
                .collect::<Result<Vec<_>>>()
        };
        let of_inputs = lengths(of_inputs, "input lengths", length)?;
        let (most, stride) = match *targets.shape() {
            [all] => (all, None),
            [samples, most] if samples == count => (most, Some(most)),
            ref met => {
                let wanted = format!("[{count}, longest], or all labels in a row");
                return Err(Error::shape(format!("targets of shape {met:?}; allowed: {wanted}")));
            }
        };
        let of_targets = lengths(of_targets, "target lengths", most)?;
        let sum: usize = of_targets.iter().sum();
        if stride.is_none() && sum != most {
            return Err(Error::shape(format!("{most} labels in a row, and the target lengths have the sum {sum}")));
        }
        let (labels, mut begin) = (elements::<i64>(targets), 0);
        let mut samples = Vec::with_capacity(count);
        for (n, (of_input, of_target)) in of_inputs.into_iter().zip(of_targets).enumerate() {
            let first = stride.map_or(begin, |stride| n * stride);
            begin += of_target;
            let mut with_blanks = Vec::with_capacity(2 * of_target + 1);
            with_blanks.push(blank);
            for &label in &labels[first..first + of_target] {
                let class = usize::try_from(label).ok().filter(|&class| class < classes && class != blank);
                let class = class.ok_or_else(|| {
                    let allowed = format!("0 to {} but the blank, {blank}", classes - 1);
                    Error::value(format!("class {label} among the targets; allowed: {allowed}"))
                })?;
                with_blanks.extend([class, blank]);
            }
            samples.push((of_input, with_blanks));
        }
        Ok(Labels { samples, blank, classes })
    }

    /// Returns the index of a class at a place of a sample.
    fn at(&self, sample: usize, t: usize, class: usize) -> usize {
        (t * self.samples.len() + sample) * self.classes + class
    }

    /// Divisor of the loss of a sample: with the mean, the number of its labels and the number of samples.
    fn divisor(&self, sample: usize, reduction: Reduction) -> f64 {
        match reduction {
            Reduction::Mean => ((self.samples[sample].1.len() / 2).max(1) * self.samples.len()) as f64,
            _ => 1.0,
        }
    }

    /// Returns, for each place of a sample, the logarithm of the probability of all paths that end (forward) or begin
    /// (backward) at each label there: `[length, labels]`. Both count the probability of the place itself.
    fn paths(&self, sample: usize, log: &[f64], backward: bool) -> Vec<f64> {
        let (length, labels) = &self.samples[sample];
        let count = labels.len();
        // Backward, both axes are turned round.
        let at = |t: usize| if backward { length - 1 - t } else { t };
        let label = |s: usize| labels[if backward { count - 1 - s } else { s }];
        let mut all = vec![f64::NEG_INFINITY; length * count];
        for t in 0..*length {
            let (before, row) = all.split_at_mut(t * count);
            let before = before.len().checked_sub(count).map(|start| &before[start..]);
            for (s, path) in row[..count].iter_mut().enumerate() {
                let reached = match before {
                    None if s < 2 => 0.0,
                    None => f64::NEG_INFINITY,
                    Some(before) => {
                        let one = if s > 0 { before[s - 1] } else { f64::NEG_INFINITY };
                        let skips = s > 1 && label(s) != self.blank && label(s) != label(s - 2);
                        let two = if skips { before[s - 2] } else { f64::NEG_INFINITY };
                        log_sum([before[s], one, two])
                    }
                };
                *path = reached + log[self.at(sample, at(t), label(s))];
            }
        }
        all
    }

    /// Returns the negative logarithm of the probability of a sample's labels.
    fn loss(&self, sample: usize, forward: &[f64]) -> f64 {
        let (length, labels) = &self.samples[sample];
        match length {
            0 if labels.len() == 1 => 0.0,
            0 => f64::INFINITY,
            _ => {
                let last = &forward[(length - 1) * labels.len()..];
                let label = if labels.len() > 1 { last[labels.len() - 2] } else { f64::NEG_INFINITY };
                -log_sum([last[labels.len() - 1], label, f64::NEG_INFINITY])
            }
        }
    }
}

/// Computes `ln(exp(a) + exp(b) + exp(c))`.
fn log_sum(terms: [f64; 3]) -> f64 {
    let largest = terms.into_iter().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        // NaN is in no comparison.
        return terms.into_iter().find(|term| term.is_nan()).unwrap_or(largest);
    }
    largest + terms.into_iter().map(|term| (term - largest).exp()).sum::<f64>().ln()
}

impl Tensor {
    /// Computes the connectionist temporal classification loss of log-probabilities `[length, batch, classes]`: the
    /// negative logarithm of the probability of all alignments of the labels with the places, in f64 (Graves et al. 2006).
    ///
    /// `targets` (i64) are `[batch, longest]`, or the labels of all samples in a row; `input_lengths` and `target_lengths`
    /// (i64) are `[batch]`. The mean is that of torch: each loss is divided by its number of labels, then averaged. A
    /// sample without an alignment has the loss infinity, or 0 with `zero_infinity`. The gradient is that of the
    /// log-probabilities as they are given; after a `log_softmax` it agrees with torch's.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a class, a length or a blank out of range,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for targets or lengths that are not i64.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::{Reduction, Tensor};
    /// let log = Tensor::from_vec(vec![0.5f64.ln(); 4], &[2, 1, 2])?; // two places, blank and one class
    /// let [labels, places, count] = [1i64, 2, 1].map(|n| Tensor::from([n]));
    /// let loss = log.ctc_loss(&labels, &places, &count, 0, false, Reduction::Sum)?;
    /// assert!((loss.item()? - -(0.75f64.ln())).abs() < 1e-12); // "1 1", "1 blank" and "blank 1"
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn ctc_loss(
        &self,
        targets: &Tensor,
        input_lengths: &Tensor,
        target_lengths: &Tensor,
        blank: usize,
        zero_infinity: bool,
        reduction: Reduction,
    ) -> Result<Tensor> {
        let inputs = [self, targets, input_lengths, target_lengths];
        dispatch(call!(Op::CtcLoss, &inputs; blank, zero_infinity, reduction), move |inputs| {
            let (x, integers) = (&inputs[0], &inputs[1..]);
            let labels = Labels::new(x.shape(), integers, blank)?;
            let log = x.to_f64();
            let losses: Vec<f64> = (0..labels.samples.len())
                .map(|n| {
                    let loss = labels.loss(n, &labels.paths(n, &log, false));
                    if zero_infinity && loss == f64::INFINITY { 0.0 } else { loss }
                })
                .collect();
            let scaled = losses.iter().enumerate().map(|(n, loss)| loss / labels.divisor(n, reduction));
            let value = match reduction {
                Reduction::None => Tensor::from_f64(&losses, &[losses.len()], x.dtype())?,
                _ => Tensor::from_f64(&[scaled.sum()], &[], x.dtype())?,
            };
            Ok(Forward::new(value.array().clone(), inputs.to_vec(), move |back| {
                let (x, grad) = (&back.saved[0], back.grad.to_f64());
                let labels = Labels::new(x.shape(), &back.saved[1..], blank)?;
                let factor =
                    |n: usize| grad[if reduction == Reduction::None { n } else { 0 }] / labels.divisor(n, reduction);
                let dx = gradient(&x.to_f64(), &labels, zero_infinity, &factor);
                Ok(vec![Some(Tensor::from_f64(&dx, x.shape(), x.dtype())?), None, None, None])
            }))
        })
    }
}

/// Computes the gradient: less the probability, over all alignments, that a place has a class.
fn gradient(log: &[f64], labels: &Labels, zero_infinity: bool, factor: &dyn Fn(usize) -> f64) -> Vec<f64> {
    let mut dx = vec![0.0; log.len()];
    for (n, (length, with_blanks)) in labels.samples.iter().enumerate() {
        let (factor, count) = (factor(n), with_blanks.len());
        let (forward, backward) = (labels.paths(n, log, false), labels.paths(n, log, true));
        let loss = labels.loss(n, &forward);
        if zero_infinity && loss == f64::INFINITY {
            continue;
        }
        for t in 0..*length {
            for (s, &class) in with_blanks.iter().enumerate() {
                let both = forward[t * count + s] + backward[(length - 1 - t) * count + (count - 1 - s)];
                // A class that no alignment passes has none, whatever its own probability.
                if both != f64::NEG_INFINITY || loss.is_infinite() {
                    let at = labels.at(n, t, class);
                    dx[at] -= (both - log[at] + loss).exp() * factor;
                }
            }
        }
    }
    dx
}
