//! Metrics: the error of a lowered network on a batch, compared with the same network in f32.

use std::fmt;

use precast::{
    DType, Param, Tensor,
    cell::{AsCell, Child},
    error::{Error, Result},
    layers::Rng,
    no_grad,
    observe::Origin,
};

use super::score::Probe;
use crate::{
    Monitor,
    measure::{norm, relative},
};

/// A function that returns the loss of the outputs for the batch with this number.
pub type LossOf<'a> = &'a dyn Fn(&Tensor, usize) -> Result<Tensor>;

/// A function that returns the error of the first outputs, given those in f32, for the batch with this number.
pub type ErrorOf<'a> = &'a dyn Fn(&Tensor, &Tensor, usize) -> Result<f64>;

/// The error that a search keeps within a budget.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Metric<'a> {
    /// Mean Kullback-Leibler divergence of the probabilities from those in f32, in nats. The outputs are logits, with
    /// the classes on the last axis.
    Kl,
    /// Norm of the error of the outputs, divided by the norm of the outputs.
    Relative,
    /// Difference of the loss, in either direction.
    Loss(LossOf<'a>),
    /// Norm of the error of the gradient of this loss, divided by the norm of the gradient, over all parameters.
    Gradient(LossOf<'a>),
    /// An error of the program's own, at least 0.
    Own(ErrorOf<'a>),
}

impl Metric<'_> {
    /// Returns the name of the metric.
    pub fn name(&self) -> &'static str {
        match self {
            Metric::Kl => "kl",
            Metric::Relative => "relative",
            Metric::Loss(_) => "loss",
            Metric::Gradient(_) => "gradient",
            Metric::Own(_) => "own",
        }
    }

    /// Returns the cost of an error: a number to which the errors of cells add up, if they are independent.
    pub(super) fn cost(&self, error: f64) -> f64 {
        if matches!(self, Metric::Kl) { error } else { error * error }
    }

    /// Returns the error with this cost.
    pub(super) fn error(&self, cost: f64) -> f64 {
        if matches!(self, Metric::Kl) { cost } else { cost.sqrt() }
    }

    /// Returns whether scores predict the cost itself, rather than a multiple of it.
    pub(super) fn is_predicted(&self) -> bool {
        matches!(self, Metric::Kl | Metric::Relative)
    }

    /// Returns the probe whose squared products estimate the cost.
    pub(crate) fn probe(&self) -> Probe<'static> {
        match self {
            Metric::Kl => &|y, rng| kl_probe(y, rng),
            _ => &|y, rng| relative_probe(y, rng),
        }
    }

    /// Runs a batch in f32, and keeps what the metric compares.
    pub(super) fn reference<C: ?Sized + AsCell>(
        &self,
        net: &Child<C>,
        call: Call<'_, C>,
        at: usize,
    ) -> Result<Reference> {
        let run = |net: &Child<C>| -> Result<_> {
            let gradient = match self {
                Metric::Gradient(loss) => gradient(net, &loss(&outputs(net, call, at)?, at)?, 1.0)?,
                _ => Vec::new(),
            };
            let output = no_grad(|| outputs(net, call, at))?;
            let loss = match self {
                Metric::Loss(loss) => no_grad(|| loss(&output, at))?.item()?,
                _ => 0.0,
            };
            Ok((output, loss, gradient))
        };
        let mut monitor = Monitor::default();
        let (output, loss, gradient) = monitor.watch(net, run)?;
        if !output.has_only_finite() || !loss.is_finite() || !gradient.iter().all(|number| number.is_finite()) {
            return Err(Error::value(format!(
                "the network is not finite in float32 on batch {at}, so no precision makes it so: look for the cause with \
                 `net.record`"
            )));
        }
        if matches!(self, Metric::Kl) && classes(&output) < 2 {
            return Err(Error::value(
                "`kl` compares the probabilities of classes, and the output has one number for each example; expected another \
                 metric, such as `relative`",
            ));
        }
        Ok(Reference { output, loss, gradient, fault: monitor.fault().map(|fault| fault.origin()) })
    }

    /// Returns the error of the network as it is now; infinite if a number in the run is not finite, except where the
    /// run in f32 has such a number first, and for harmless masks. A gradient is computed with this loss scale.
    pub(super) fn measure<C: ?Sized + AsCell>(
        &self,
        net: &Child<C>,
        call: Call<'_, C>,
        at: usize,
        reference: &Reference,
        scale: f64,
    ) -> Result<f64> {
        let exact = &reference.output;
        let run = |net: &Child<C>| -> Result<_> {
            let now = match self {
                Metric::Gradient(_) => outputs(net, call, at)?,
                _ => no_grad(|| outputs(net, call, at))?,
            };
            if !now.has_only_finite() {
                return Ok(f64::INFINITY);
            }
            Ok(match self {
                Metric::Kl => divergence(exact, &now),
                Metric::Relative => relative(&now.to_f64(), &exact.to_f64()),
                Metric::Loss(loss) => (no_grad(|| loss(&now, at))?.item()? - reference.loss).abs(),
                Metric::Gradient(loss) => relative(&gradient(net, &loss(&now, at)?, scale)?, &reference.gradient),
                Metric::Own(error) => error(&now, exact, at)?,
            })
        };
        let mut monitor = Monitor::default();
        let error = monitor.watch(net, run)?;
        let sound = monitor.fault().is_none_or(|fault| reference.has_fault_of(&fault.origin()));
        Ok(if sound && error.is_finite() { error } else { f64::INFINITY })
    }
}

impl fmt::Debug for Metric<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A function that runs a network on the batch with this number.
pub(super) type Call<'a, C> = &'a dyn Fn(&Child<C>, usize) -> Result<Tensor>;

/// The results of a batch in f32.
pub(super) struct Reference {
    pub output: Tensor,
    pub loss: f64,
    pub gradient: Vec<f64>,
    /// The first number in the run that is not finite and not harmless, although the outputs are finite.
    pub fault: Option<Origin>,
}

impl Reference {
    /// Returns whether the first fault in f32 has the place of this one.
    fn has_fault_of(&self, other: &Origin) -> bool {
        let place = |origin: &Origin| (origin.edge.phase, origin.edge.cell.clone(), origin.edge.op);
        self.fault.as_ref().is_some_and(|fault| place(fault) == place(other))
    }
}

fn outputs<C: ?Sized + AsCell>(net: &Child<C>, call: Call<'_, C>, at: usize) -> Result<Tensor> {
    wide(call(net, at)?)
}

/// Returns the output of a network in f32 at least.
pub(crate) fn wide(output: Tensor) -> Result<Tensor> {
    match output.dtype() {
        dtype if dtype.is_low() => Ok(output.cast(DType::F32)),
        dtype if dtype.is_float() => Ok(output),
        dtype => Err(Error::dtype(format!("the outputs of a network are compared as floating numbers, got {dtype}"))),
    }
}

/// Returns the gradient of a loss by all trained parameters, computed with this loss scale.
fn gradient<C: ?Sized + AsCell>(net: &Child<C>, loss: &Tensor, scale: f64) -> Result<Vec<f64>> {
    let grads = loss.mul(&Tensor::scalar(scale, loss.dtype()))?.backward()?;
    let of = |param: Param| grads.get(&param).map_or_else(|| vec![0.0; param.value().len()], |grad| grad.to_f64());
    let params = net.named_params().into_iter().map(|(_, param)| param).filter(Param::is_trained);
    Ok(params.flat_map(of).map(|gradient| gradient / scale).collect())
}

/// Returns the logarithms of the probabilities of each row of logits.
fn log_softmax(logits: &[f64], classes: usize) -> impl Iterator<Item = Vec<f64>> {
    logits.chunks(classes).map(|row| {
        let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum = row.iter().map(|x| (x - most).exp()).sum::<f64>().ln() + most;
        row.iter().map(|x| x - sum).collect()
    })
}

fn classes(logits: &Tensor) -> usize {
    logits.shape().last().copied().unwrap_or(1).max(1)
}

/// Returns the mean divergence of the probabilities of `logits` from those of `exact`.
fn divergence(exact: &Tensor, logits: &Tensor) -> f64 {
    let classes = classes(exact);
    let (p, q) = (exact.to_f64(), logits.to_f64());
    let rows = (p.len() / classes).max(1) as f64;
    let of_row = |(p, q): (Vec<f64>, Vec<f64>)| p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>();
    let mean = log_softmax(&p, classes).zip(log_softmax(&q, classes)).map(of_row).sum::<f64>() / rows;
    // Rounding can leave it just below 0. `max` would make 0 of NaN.
    if mean < 0.0 { 0.0 } else { mean }
}

fn signs(length: usize, rng: &mut Rng) -> impl Iterator<Item = f64> {
    (0..length).map(|_| if rng.bits() & 1 == 0 { 1.0 } else { -1.0 })
}

/// Draws a probe for the squared error of the output, relative to its squared norm.
fn relative_probe(y: &Tensor, rng: &mut Rng) -> Result<Tensor> {
    let norm = norm(y.to_f64().into_iter());
    let scale = if norm > 0.0 { 1.0 / norm } else { 1.0 };
    probe(y, signs(y.len(), rng).map(|sign| sign * scale))
}

/// Draws a probe for the divergence of probabilities. To second order it is `(1/2) Σ p (e - Σ p e)²` for an error `e`
/// of the logits, which is the mean square of `(√p r - p (√p · r)) · e / √2` for random signs `r`.
fn kl_probe(y: &Tensor, rng: &mut Rng) -> Result<Tensor> {
    let (classes, logits) = (classes(y), y.to_f64());
    let rows = (logits.len() / classes).max(1) as f64;
    let mut values = Vec::with_capacity(logits.len());
    for log_p in log_softmax(&logits, classes) {
        let r: Vec<f64> = signs(log_p.len(), rng).collect();
        let sum: f64 = log_p.iter().zip(&r).map(|(p, r)| (p / 2.0).exp() * r).sum();
        values.extend(log_p.iter().zip(&r).map(|(p, r)| ((p / 2.0).exp() * r - p.exp() * sum) / (2.0 * rows).sqrt()));
    }
    probe(y, values.into_iter())
}

fn probe(y: &Tensor, values: impl Iterator<Item = f64>) -> Result<Tensor> {
    Ok(Tensor::from_vec(values.map(|x| x as f32).collect::<Vec<f32>>(), y.shape())?.cast(y.dtype()))
}
