//! Gradients of the variables, by name: as a scaled loss gives them, and ready for an optimizer.

use candle_core::{DType, Tensor, Var, backprop::GradStore};
use precast_base::printable;
use precast_policy as policy;

use crate::Result;

/// A trained variable with its gradient.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub name: String,
    pub var: Var,
    pub grad: Option<Tensor>,
    /// `true` when the gradient may be missing.
    pub may_lack: bool,
}

/// Gradients that are still multiplied by the loss scale: they can be added, but not clipped or passed to an optimizer.
#[derive(Clone, Debug)]
#[must_use = "gradients are unscaled and passed to an update"]
pub struct ScaledGrads {
    pub(crate) scale: f32,
    pub(crate) finite_loss: bool,
    pub(crate) entries: Vec<Entry>,
}

/// Gradients of a loss, for an optimizer: in f32, divided by the loss scale, and checked.
#[derive(Clone, Debug)]
#[must_use = "gradients are passed to an update"]
pub struct Grads {
    finite_loss: bool,
    first_non_finite: Option<String>,
    entries: Vec<Entry>,
}

impl ScaledGrads {
    /// Adds the gradients of another batch or loss at the same scale.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](policy::ErrorKind::Value) for gradients at another scale or of other variables.
    pub fn accumulate(&mut self, other: ScaledGrads) -> Result<()> {
        let names = |entries: &[Entry]| entries.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>();
        if self.scale != other.scale || names(&self.entries) != names(&other.entries) {
            let (here, there) = (self.scale, other.scale);
            let words =
                format!("gradients at loss scale {there} cannot be added to gradients at {here} of these variables");
            return Err(policy::Error::value(words).into());
        }
        self.finite_loss &= other.finite_loss;
        for (entry, more) in self.entries.iter_mut().zip(other.entries) {
            entry.grad = match (entry.grad.take(), more.grad) {
                (Some(one), Some(two)) => Some((one + two)?),
                (one, two) => one.or(two),
            };
        }
        Ok(())
    }

    /// Divides the gradients by the loss scale, and finds the first that is not finite.
    ///
    /// # Errors
    /// Those of candle.
    pub fn unscale(self) -> Result<Grads> {
        let ScaledGrads { scale, finite_loss, mut entries } = self;
        // A product with 0 is 0 for every finite number and NaN for all others. One tensor, so a GPU is asked once.
        let (mut names, mut checks) = (Vec::new(), Vec::new());
        for Entry { name, grad, .. } in &entries {
            if let Some(grad) = grad {
                names.push(name.clone());
                let sum = grad.zeros_like()?.mul(grad)?.sum_all()?;
                checks.push(sum.to_dtype(DType::F32)?);
            }
        }
        let checks = if checks.is_empty() { Vec::new() } else { Tensor::stack(&checks, 0)?.to_vec1::<f32>()? };
        let first_non_finite = checks.iter().position(|check| !check.is_finite()).map(|first| names.swap_remove(first));
        if scale != 1.0 {
            for grad in entries.iter_mut().filter_map(|entry| entry.grad.as_mut()) {
                *grad = (&*grad * (1.0 / f64::from(scale)))?;
            }
        }
        Ok(Grads { finite_loss, first_non_finite, entries })
    }
}

impl Grads {
    /// Returns the gradient of a variable, by its name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.entries.iter().find(|entry| entry.name == name)?.grad.as_ref()
    }

    /// Iterates over the gradients with the names of their variables, in the order of the constructor.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.entries.iter().filter_map(|entry| Some((entry.name.as_str(), entry.grad.as_ref()?)))
    }

    /// Returns the names of the trained variables that no gradient reaches, but for the
    /// [optional](crate::Network::optional) ones.
    pub fn missing(&self) -> Vec<&str> {
        let missing = self.entries.iter().filter(|entry| entry.grad.is_none() && !entry.may_lack);
        missing.map(|entry| entry.name.as_str()).collect()
    }

    /// Returns whether the loss was finite before it was scaled.
    pub fn is_loss_finite(&self) -> bool {
        self.finite_loss
    }

    /// Returns the name of the first variable with a gradient that is not finite.
    pub fn first_non_finite(&self) -> Option<&str> {
        self.first_non_finite.as_deref()
    }

    /// Scales all gradients down so that their common norm is at most `max`, and returns the norm before. Gradients that
    /// are not finite stay as they are: the update skips them.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](policy::ErrorKind::Value) unless `max` is finite and above 0; those of candle.
    pub fn clip_norm(&mut self, max: f64) -> Result<f64> {
        check_bound(max)?;
        let squares = self.iter().map(|(_, grad)| grad.sqr()?.sum_all()).collect::<candle_core::Result<Vec<_>>>()?;
        let squares = if squares.is_empty() { Vec::new() } else { Tensor::stack(&squares, 0)?.to_vec1::<f32>()? };
        let norm = squares.iter().map(|square| f64::from(*square)).sum::<f64>().sqrt();
        if norm.is_finite() && norm > max {
            self.each(|grad| grad * (max / norm))?;
        }
        Ok(norm)
    }

    /// Limits each number of the gradients to `-max..=max`. Gradients that are not finite stay as they are.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](policy::ErrorKind::Value) unless `max` is finite and above 0; those of candle.
    pub fn clip_value(&mut self, max: f64) -> Result<()> {
        check_bound(max)?;
        if self.first_non_finite.is_some() { Ok(()) } else { self.each(|grad| grad.clamp(-max, max)) }
    }

    fn each(&mut self, change: impl Fn(&Tensor) -> candle_core::Result<Tensor>) -> Result<()> {
        for grad in self.entries.iter_mut().filter_map(|entry| entry.grad.as_mut()) {
            *grad = change(grad)?;
        }
        Ok(())
    }

    /// Returns the gradients as candle's optimizers take them.
    pub(crate) fn store(&self) -> GradStore {
        let mut store = GradStore::default();
        for Entry { var, grad, .. } in &self.entries {
            if let Some(grad) = grad {
                store.insert(var, grad.clone());
            }
        }
        store
    }

    /// Refuses gradients that do not reach every variable.
    pub(crate) fn check_missing(&self) -> Result<()> {
        const SHOWN: usize = 6;
        let missing = self.missing();
        let (Some(first), Some(last)) = (missing.first(), missing.last()) else { return Ok(()) };
        if missing.len() == self.entries.len() {
            let words = "no gradient reaches any variable: the loss is computed from another network than that of `net.build()`, or \
                         its last layer has no backward pass, or it was detached";
            return Err(policy::Error::gradient(words).into());
        }
        let names: Vec<String> = missing.iter().take(SHOWN).map(|name| format!("`{}`", printable(name))).collect();
        let more = match missing.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(", and {more} more, the last of which is `{}`", printable(last)),
        };
        let (cell, names) = (printable(policy::weights::cell_of(first).0), names.join(", "));
        let words = format!(
            "no gradient reaches {names}{more}. candle_nn's `LayerNorm`, `RmsNorm`, `softmax_last_dim`, `rope` and `sdpa` have no \
             backward pass, and cut the gradients of all before them; precast_candle's have one. `detach` cuts them as well. If this is intended, \
             declare it: `frozen(\"{cell}\")`, or `optional(\"{cell}\")` for a part that some steps leave out"
        );
        Err(policy::Error::gradient(words).into())
    }
}

fn check_bound(max: f64) -> Result<()> {
    if max.is_finite() && max > 0.0 {
        return Ok(());
    }
    Err(policy::Error::value(format!("gradients cannot be clipped to {max}; allowed: a finite number above 0")).into())
}
