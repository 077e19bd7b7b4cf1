//! Low-rank adapters of layers whose own weights are frozen.

use serde::{Deserialize, Serialize};

use super::{
    dense::Dense,
    dropout::{Dropout, DropoutSpec},
    init::{Init, Rng, constant, with_reading_rng},
};
use crate::{
    DType, Param, Tensor,
    cell::{Cell, Child, Forward},
    error::{Error, Result},
    options::{OptionInfo, Options, options},
};

/// Options of a [`LoRA`], and the layer to adapt.
#[options(of_cell)]
#[derive(Clone, Debug)]
pub struct LoRASpec {
    /// The layer to adapt.
    pub base: Dense,
    /// Number of rows of the first matrix and columns of the second.
    #[option(at_least = 1)]
    pub rank: usize,
    /// Scale of the adapter: its output is multiplied by `alpha / rank`.
    #[option(finite)]
    pub alpha: f64,
    /// The probability of zeroing an element of the adapter's input in training.
    #[option(default = 0.0, at_least = 0, at_most = 1)]
    pub dropout: f64,
}

impl LoRASpec {
    /// Builds the cell: `a` uniform within `1 / sqrt(in_features)`, as in the authors' code, and `b` 0, so that it
    /// initially computes the same as the base. The parameters of the base become buffers, which are not trained.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when the rank is 0, `alpha` is not finite, or the dropout is out
    /// of range; [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the weights do not fit into memory.
    pub fn build(self, rng: &mut Rng) -> Result<LoRA> {
        self.check()?;
        let dropout = DropoutSpec::new(self.dropout).build(rng)?;
        self.make(dropout, rng)
    }

    fn make(self, dropout: Dropout, rng: &mut Rng) -> Result<LoRA> {
        let (inputs, outputs) = self.base.features();
        Ok(LoRA {
            base: Child::new(self.base.with_params(|param| Param::buffer(param.full()))),
            a: Param::new(Init::weight().sample(&[self.rank, inputs], rng)?),
            b: Param::new(constant(&[outputs, self.rank], 0.0)?),
            dropout: Child::new(dropout),
            alpha: self.alpha,
        })
    }
}

/// Returns the factor of the product of the two matrices.
fn factor(rank: usize, alpha: f64) -> Result<f64> {
    if rank == 0 {
        return Err(Error::value("`rank` is 0; allowed: at least 1"));
    }
    if !alpha.is_finite() {
        return Err(Error::value(format!("`alpha` is {alpha}; allowed: a finite number")));
    }
    Ok(alpha / rank as f64)
}

/// A frozen [`Dense`] layer plus a trained product of two small matrices (Hu et al. 2021, "LoRA: low-rank adaptation of
/// large language models"): `base(x) + alpha / rank * (dropout(x) · aᵀ) · bᵀ`.
///
/// `[..., in_features] -> [..., out_features]`. The weights of the base are buffers: saved under `base.weight` and
/// `base.bias`, but not trained and without gradients. They may be stored in 16 bits without master copies
/// ([`decorate`](crate::storage::decorate)), and a rule for the path `**.base` sets the dtype in which the base runs.
///
/// In files: `{kind: LoRA, base: {in_features: 64, out_features: 10}, rank: 8, alpha: 16}`, and `dropout: 0.05`.
///
/// ```
/// use precast::prelude::*;
/// let rng = &mut Rng::seed(0);
/// let trained = Dense::new(64, 10, rng);                           // perhaps read from a file
/// let net = Child::new(LoRA::new(trained.clone(), 8, 16.0, rng));
/// let x = Tensor::randn(&[2, 64], rng)?;
/// assert_eq!(net.call(&x)?.to_f64(), Child::new(trained).call(&x)?.to_f64());
/// assert_eq!(net.params().iter().map(|(path, _)| path).collect::<Vec<_>>(), ["a", "b"]); // what is trained
/// let merged: Dense = net.cell().merge()?;                         // one layer again
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Cell, Clone, Debug, Serialize, Deserialize)]
#[cell(saved)]
#[serde(try_from = "LoRASpec", into = "LoRASpec")]
pub struct LoRA {
    /// The adapted layer, with buffers instead of parameters.
    pub base: Child<Dense>,
    /// `[rank, in_features]`.
    pub a: Param,
    /// `[out_features, rank]`, initially 0.
    pub b: Param,
    /// Dropout of the adapter's input.
    pub dropout: Child<Dropout>,
    alpha: f64,
}

impl LoRA {
    /// Adapts a layer, without dropout; see [`LoRASpec::build`] for the initial values. A rank of 0 is reported by the
    /// first call.
    ///
    /// # Panics
    /// When the weights do not fit into memory, as with `Vec`.
    pub fn new(base: Dense, rank: usize, alpha: f64, rng: &mut Rng) -> Self {
        LoRASpec::new(base, rank, alpha).make(Dropout::new(0.0, rng), rng).expect("weights that fit into memory")
    }

    /// Wraps the [`Dense`] layer in a slot with an adapter, as created by [`new`](LoRA::new). Requests made on the slot
    /// in code are preserved.
    ///
    /// ```
    /// use precast::prelude::*;
    /// let rng = &mut Rng::seed(0);
    /// let mut attention = Child::new(MultiheadAttention::new(8, 2, rng)); // its weights perhaps read from a file
    /// let cell = attention.cell_mut();
    /// LoRA::adapt(&mut cell.q_proj, 2, 4.0, rng)?;
    /// LoRA::adapt(&mut cell.v_proj, 2, 4.0, rng)?;
    /// assert!(attention.named_params().iter().any(|(path, _)| path == "q_proj.base.weight"));
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when the slot holds another cell, when the rank is 0, or when
    /// `alpha` is not finite; [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the weights do not fit into memory.
    pub fn adapt(slot: &mut Child, rank: usize, alpha: f64, rng: &mut Rng) -> Result<()> {
        let cell = slot.cell();
        let Some(base) = cell.downcast_ref::<Dense>() else {
            return Err(Error::value(format!("LoRA adapts a Dense, and a {} sits in this slot", cell.kind())));
        };
        let mut adapted = Child::of(LoRASpec::new(base.clone(), rank, alpha).build(rng)?);
        adapted.set_to_float(slot.requested())?;
        adapted.set_recompute(slot.slot().recompute);
        *slot = adapted;
        Ok(())
    }

    /// Merges the adapter into one layer that computes the same in evaluation and is trained as a whole. Its weight is
    /// `base.weight + alpha / rank * b · a`, in f32 (f64 where the base is f64).
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when the rank is 0 or `alpha` is not finite.
    pub fn merge(&self) -> Result<Dense> {
        let base = self.base.cell();
        let mut merged = base.with_params(|param| Param::new(wide(param)));
        let weight = merged.weight.value();
        let product = wide(&self.b).matmul(&wide(&self.a))?.mul(&Tensor::scalar(self.factor()?, DType::F32))?;
        merged.weight = Param::new(weight.add(&product.cast(weight.dtype()))?);
        Ok(merged)
    }

    fn rank(&self) -> usize {
        self.b.shape().last().copied().unwrap_or(0)
    }

    fn factor(&self) -> Result<f64> {
        factor(self.rank(), self.alpha)
    }
}

/// Returns the full-precision value of a parameter, in at least 32 bits.
fn wide(param: &Param) -> Tensor {
    let value = param.full();
    if value.dtype().is_low() { value.cast(DType::F32) } else { value }
}

impl TryFrom<LoRASpec> for LoRA {
    type Error = Error;
    fn try_from(spec: LoRASpec) -> Result<Self> {
        with_reading_rng(|rng| spec.build(rng))
    }
}

impl Options for LoRA {
    const CALLED: &'static str = LoRASpec::CALLED;
    fn options() -> Vec<OptionInfo> {
        LoRASpec::options()
    }
    /// Its spec was checked when it was built.
    fn out_of_range(&self) -> Option<(&'static str, Error)> {
        None
    }
}

impl From<LoRA> for LoRASpec {
    fn from(cell: LoRA) -> Self {
        let (rank, alpha, dropout) = (cell.rank(), cell.alpha, cell.dropout.cell().p());
        LoRASpec { base: cell.base.cell().clone(), rank, alpha, dropout }
    }
}

impl Forward for LoRA {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let factor = self.factor()?;
        let low_rank = self.dropout.call(x)?.linear(&self.a.tensor(), None)?;
        let added = low_rank.linear(&self.b.tensor(), None)?;
        let factor = Tensor::scalar(factor, added.dtype());
        self.base.call(x)?.add(&added.mul(&factor)?)
    }
}
