//! Low-rank adapters of layers whose own weights stay as they are.

use serde::{Deserialize, Serialize};

use super::{
    dense::Dense,
    dropout::{Dropout, DropoutSpec},
    init::{Init, Rng, constant, with_reading_rng},
    spec::{left_out, setters},
};
use crate::{
    DType, Param, Tensor,
    cell::{Cell, Child, Forward},
    error::{Error, Result},
};

/// Options of a [`LoRA`], and the layer that it adapts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoRASpec {
    /// The layer that is adapted.
    pub base: Dense,
    /// Rows of the first matrix and columns of the second.
    pub rank: usize,
    /// What the adapter adds is multiplied by `alpha / rank`.
    pub alpha: f64,
    /// The probability with which an element of the adapter's input becomes 0 in training.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropout: f64,
}

fn is_zero(p: &f64) -> bool {
    left_out(*p == 0.0)
}

impl LoRASpec {
    /// Without dropout.
    pub fn new(base: Dense, rank: usize, alpha: f64) -> Self {
        LoRASpec { base, rank, alpha, dropout: 0.0 }
    }

    setters! {
        /// The probability with which an element of the adapter's input becomes 0 in training.
        dropout: f64;
    }

    /// The cell: `a` uniform within `1 / sqrt(in_features)`, as in the authors' code, and `b` 0. So it computes at
    /// first what the base does. The parameters of the base become buffers, which are not trained.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when the rank is 0, `alpha` is not finite, or the dropout is out
    /// of range; [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the weights do not fit into memory.
    pub fn build(self, rng: &mut Rng) -> Result<LoRA> {
        factor(self.rank, self.alpha)?;
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

/// By which the product of the two matrices is multiplied.
fn factor(rank: usize, alpha: f64) -> Result<f64> {
    if rank == 0 {
        return Err(Error::value("rank is 0: 1 or more is allowed"));
    }
    if !alpha.is_finite() {
        return Err(Error::value(format!("alpha is {alpha}: a finite number is allowed")));
    }
    Ok(alpha / rank as f64)
}

/// A [`Dense`] layer that is not trained, and a trained product of two small matrices beside it (Hu et al. 2021, "LoRA:
/// low-rank adaptation of large language models"): `base(x) + alpha / rank * (dropout(x) · aᵀ) · bᵀ`.
///
/// `[..., in_features] -> [..., out_features]`. The weights of the base are buffers: saved under `base.weight` and
/// `base.bias`, and neither trained nor given gradients. They may be stored low without masters
/// ([`decorate`](crate::rewrite::decorate)), and a rule for the path `**.base` says in which dtype the base runs.
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
    /// The layer that is adapted, with buffers in place of parameters.
    pub base: Child<Dense>,
    /// `[rank, in_features]`.
    pub a: Param,
    /// `[out_features, rank]`, at first 0.
    pub b: Param,
    /// Of the adapter's input.
    pub dropout: Child<Dropout>,
    alpha: f64,
}

impl LoRA {
    /// Adapts a layer, without dropout; see [`LoRASpec::build`] for the initial values. A rank of 0 is an error of the
    /// first call.
    ///
    /// # Panics
    /// When the weights do not fit into memory, as `Vec` does.
    pub fn new(base: Dense, rank: usize, alpha: f64, rng: &mut Rng) -> Self {
        LoRASpec::new(base, rank, alpha).make(Dropout::new(0.0, rng), rng).expect("weights that fit into memory")
    }

    /// Puts an adapter around the [`Dense`] layer in a slot, as [`new`](LoRA::new) makes it. What code asked of the
    /// slot stays.
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
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when another cell sits in the slot, when the rank is 0, or when
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

    /// One layer that computes the same in evaluation and is trained as a whole. Its weight is
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

/// All that is known of a parameter, in 32 bits at least.
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
