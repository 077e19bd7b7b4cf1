//! The wrapper of a module that runs in a precision of its own.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use candle_core::{Module, ModuleT, Result, Tensor};
use candle_nn::VarBuilder;

use crate::{border::Border, dtype::cast};

/// A module with the casts that a plan has for its path: inputs are cast to the precision inside, outputs to that around
/// it, on the tape. It is itself a [`Module`] and takes its place.
///
/// Integers and f64 are not cast. Built from a `VarBuilder` that is not a [`Network`](crate::Network)'s, it casts nothing,
/// so one definition of a network serves training and inference.
///
/// ```
/// use candle_core::{DType, Device, Module, Tensor};
/// use candle_nn::{VarBuilder, VarMap, linear};
/// use precast_candle::{Amp, Network, Policy};
///
/// let fc = |vb: VarBuilder| Amp::new(vb.pp("fc"), |vb| linear(4, 2, vb));
/// let mut net = Network::new(&VarMap::new(), &Device::Cpu, fc)?;
/// net.apply(net.plan(&Policy::named("o1-bf16")?)?)?;
///
/// let model = net.build()?;
/// assert_eq!(model.inner().inner().weight().dtype(), DType::BF16);
/// let y = model.forward(&Tensor::ones((1, 4), DType::F32, &Device::Cpu)?)?;
/// assert_eq!(y.dtype(), DType::F32);
/// # Ok::<(), precast_candle::Error>(())
/// ```
#[derive(Clone)]
pub struct Amp<M> {
    module: M,
    path: String,
    border: Border,
    age: Option<Age>,
}

/// Number of updates of the variables that a network was built before.
#[derive(Clone)]
pub(crate) struct Age {
    pub built: u64,
    pub now: Arc<AtomicU64>,
}

impl<M> Amp<M> {
    /// Builds a module from the builder of its path, and wraps it in the casts for this path. The dtype of the builder is
    /// that of the module.
    ///
    /// # Errors
    /// Those of `build`.
    pub fn new<'a>(vb: VarBuilder<'a>, build: impl FnOnce(VarBuilder<'a>) -> Result<M>) -> Result<Self> {
        let (border, path) = (Border::at::<M>(&vb), vb.prefix());
        // Some layers make tensors of the builder's dtype, as the first state of an LSTM.
        let vb = border.inward.map_or(vb.clone(), |dtype| vb.to_dtype(dtype));
        Ok(Amp { module: build(vb)?, path, border, age: None })
    }

    /// Wraps a whole network.
    pub(crate) fn root(module: M, border: Border, age: Age) -> Self {
        Amp { module, path: String::new(), border, age: Some(age) }
    }

    /// Returns the wrapped module. Called directly, it casts nothing.
    pub fn inner(&self) -> &M {
        &self.module
    }

    /// Casts an input to the precision inside.
    ///
    /// # Errors
    /// Those of candle; an error for a whole network that was built before the last step, because it computes with the
    /// old weights.
    pub fn input(&self, x: &Tensor) -> Result<Tensor> {
        self.check_age()?;
        cast(x, self.border.inward)
    }

    /// Casts an output to the precision around the module.
    ///
    /// # Errors
    /// Those of candle.
    pub fn output(&self, y: &Tensor) -> Result<Tensor> {
        cast(y, self.border.outward)
    }

    /// Calls the module in another way than [`Module::forward`]: with further inputs, or by a method of its own. `x` and
    /// the result are cast; further inputs are cast by [`input`](Amp::input).
    ///
    /// # Errors
    /// Those of `call`, and of [`input`](Amp::input).
    pub fn call(&self, x: &Tensor, call: impl FnOnce(&M, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let x = self.input(x)?;
        let y = call(&self.module, &x).map_err(|error| self.explain(error))?;
        self.output(&y)
    }

    fn check_age(&self) -> Result<()> {
        match &self.age {
            Some(Age { built, now }) if now.load(Ordering::Acquire) != *built => candle_core::bail!(
                "this network was built before its variables last changed, and has the old weights; build it in every step, \
                 with `net.build()`"
            ),
            _ => Ok(()),
        }
    }

    /// Says what usually makes two dtypes meet.
    fn explain(&self, error: candle_core::Error) -> candle_core::Error {
        if !error.to_string().starts_with("dtype mismatch") {
            return error;
        }
        let place = if self.path.is_empty() { "the network".to_string() } else { format!("`{}`", self.path) };
        error.context(format!(
            "two precisions meet in {place}. A layer takes inputs of the dtype of its weights only: wrap it, \
             `Amp::new(vb.pp(\"fc\"), |vb| linear(4, 2, vb))`, or use precast_candle's. A layer with `run: float32` returns f32; \
             with `run: float32-inside`, the dtype around it"
        ))
    }
}

impl<M: Module> Module for Amp<M> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.call(x, |module, x| module.forward(x))
    }
}

impl<M: ModuleT> Amp<M> {
    /// Calls [`ModuleT::forward_t`], for modules that differ in training, such as candle's `BatchNorm`.
    ///
    /// # Errors
    /// As [`call`](Amp::call).
    pub fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        self.call(x, |module, x| module.forward_t(x, train))
    }
}

impl<M> fmt::Debug for Amp<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Amp { path, border, .. } = self;
        f.debug_struct("Amp").field("path", path).field("border", border).finish_non_exhaustive()
    }
}
