//! Plans for networks, and their use on networks and stored models, through the traits of a library.

use std::path::Path;

use precast_base::{Error, Result, path::named};

use super::{Decision, decide::Prepared, plan::Plan, predict::Tree};
use crate::{
    Policy,
    host::{Outlined, Stored, Timed, Wrap},
    policy::Prefer,
};

impl Policy {
    /// Decides for every cell of a network. Changes nothing.
    ///
    /// # Errors
    /// - [`ErrorKind::DType`](crate::ErrorKind::DType) for a low dtype other than f16 and bf16.
    /// - [`ErrorKind::Policy`](crate::ErrorKind::Policy) when a rule matches no cell, or not as many as it expects, or
    ///   decides nothing because earlier rules match the same cells; and when the policy prefers speed, which requires
    ///   [`plan_for`](Policy::plan_for).
    /// - [`ErrorKind::List`](crate::ErrorKind::List) when a list names a kind that neither the network nor the library
    ///   has, or has an entry that the level does not read.
    pub fn plan<N: ?Sized + Outlined>(&self, net: &N) -> Result<Plan> {
        match self.prefer {
            Prefer::Memory => self.plan_outline(net.outline()),
            Prefer::Speed => Err(Error::policy(
                "the policy prefers speed, so a plan must know how large everything is and how fast the machine is: trace one \
                 call, `net.trace(|net| net.call(&x))`, and plan by `policy.plan_for(&net, &trace, &Speeds::here())`",
            )),
        }
    }

    /// Decides for every cell of a network, and predicts the cost of each: a traced call gives the sizes, and the
    /// speeds describe the machine. If the policy [prefers speed](Prefer::Speed), a cell that only the level or a list
    /// would lower stays f32 if that is predicted to take less time. Nothing is changed, and nothing is measured here:
    /// the same values give the same plan.
    ///
    /// The prediction covers the traced call, with the backward pass if gradients are required. Ops of the traced call
    /// outside the network count as the root's.
    ///
    /// # Errors
    /// As [`plan`](Policy::plan); [`ErrorKind::Path`](crate::ErrorKind::Path) for the trace of another network,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for one without ops, and for speeds that are not finite and
    /// positive.
    pub fn plan_for<N: ?Sized + Timed>(&self, net: &N, trace: &N::Trace, speeds: &N::Speeds) -> Result<Plan> {
        let outline = net.outline();
        let prepared = Prepared::new(self, outline.system)?;
        let (plain, choices, _) = self.decisions(&prepared, outline.clone())?;
        let costs = net.costs(trace, speeds, prepared.ops())?;
        let choices = (self.prefer == Prefer::Speed).then_some(&choices[..]);
        let (decisions, prediction) = Tree::new(&*costs, outline.cells()).decide(&prepared, plain, choices);
        Ok(self.planned(&prepared, decisions, Some(prediction)))
    }

    /// Makes a [plan](Policy::plan) for a network and [applies](Plan::apply) it.
    ///
    /// # Errors
    /// As [`Policy::plan`]; the network is then unchanged.
    pub fn apply<N: ?Sized + Wrap>(&self, net: &mut N) -> Result<N::Applied> {
        self.plan(net)?.apply(net)
    }
}

impl Plan {
    /// Makes a network run by the plan. In a network of precast, this puts the plan's adapters into the slots and
    /// clears all other slots. Applying it again changes nothing. Parameters, their paths and the cells themselves are
    /// untouched.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when the cells of the network differ from those that were planned,
    /// [`ErrorKind::Plan`](crate::ErrorKind::Plan) when a `to_float` was requested or withdrawn since,
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for quantized operands that the network
    /// [cannot run](Wrap::QUANTIZES); nothing is changed then.
    pub fn apply<N: ?Sized + Wrap>(&self, net: &mut N) -> Result<N::Applied> {
        let quantizes = |of: &&Decision| of.quantized().is_some() || of.kept().is_some();
        if let Some(of) = self.decisions.iter().find(quantizes).filter(|_| !N::QUANTIZES) {
            let what = if of.quantized().is_some() { "operands" } else { "kept activations" };
            return Err(Error::unsupported(format!(
                "the plan quantizes {what} of {}, which this network cannot: plan, explain and compare only",
                named(&of.path)
            )));
        }
        net.wrap(self.clone())
    }

    /// Writes a stored model with each weight in the dtype of its cell, with the default options;
    /// [`convert_with`](Plan::convert_with) takes others.
    ///
    /// In precast, a weight of a cell that runs low is stored low; a tensor of any other cell is unchanged, or stored
    /// in f32 if the options widen. Integers, f64 and 8-bit numbers are unchanged.
    ///
    /// Weights are recognized by the kind of their cell and their names. All other tensors of a cell that runs low are
    /// kept unchanged and reported: frequency tables, scales of quantized weights, running statistics and averages,
    /// decay factors, schedules, masks. A rule of the policy whose path is the name of a tensor decides for it:
    /// [`Plan::tensors`].
    ///
    /// A file is written as a file, a folder as a folder, each in one step. In a folder, the index and the dtype in
    /// `config.json` are updated, and other small files are copied. At most a few MiB are held in memory.
    ///
    /// # Errors
    /// - [`ErrorKind::Path`](crate::ErrorKind::Path) when the plan is of another model.
    /// - [`ErrorKind::Value`](crate::ErrorKind::Value) when finite values would become infinite, unless the options
    ///   allow it.
    /// - [`ErrorKind::Weights`](crate::ErrorKind::Weights) for a checkpoint.
    /// - [`ErrorKind::Io`](crate::ErrorKind::Io) when a file cannot be read or written, and when the target exists,
    ///   unless the options replace it.
    ///
    /// On any error, an existing target is unchanged.
    pub fn convert<S>(&self, model: &S, to: impl AsRef<Path>) -> Result<S::Written>
    where
        S: ?Sized + Stored<Options: Default>,
    {
        self.convert_with(model, to, S::Options::default(), &mut |_| ())
    }

    /// Writes weights, as [`convert`](Plan::convert) does, with options. `progress` is called with the number of bytes
    /// read since the last call.
    ///
    /// # Errors
    /// As [`convert`](Plan::convert).
    pub fn convert_with<S: ?Sized + Stored>(
        &self,
        model: &S,
        to: impl AsRef<Path>,
        options: S::Options,
        progress: &mut dyn FnMut(u64),
    ) -> Result<S::Written> {
        model.store(self, to.as_ref(), options, progress)
    }

    /// Writes the weights of a network. In precast, these are every parameter and buffer, as safetensors, in the dtypes
    /// of the mode. Ops governed by lists read weights of any dtype, so weights of cells with op lists are unchanged.
    /// An existing file is replaced in one step.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when the plan is of another network;
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when a finite number would become infinite;
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when the file cannot be written. An existing file is then unchanged.
    pub fn save_weights<S: ?Sized + Stored>(
        &self,
        net: &S,
        to: impl AsRef<Path>,
        mode: S::Options,
    ) -> Result<S::Written> {
        net.store(self, to.as_ref(), mode, &mut |_| ())
    }
}
