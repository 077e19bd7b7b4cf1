//! Finding precision hazards before training, from the numbers of one pass in f32.

mod cure;
mod digits;
mod edges;
mod far;
mod finding;
mod format;
mod masks;
mod operands;
mod patterns;
mod range;
mod reference;
mod storage;
mod wrapping;

use std::{collections::HashSet, rc::Rc};

pub use finding::{Finding, Place, Rule, Severity};

use self::{edges::Follower, reference::Recorder};
use precast::{
    Child, DType, Grads, Param, Policy, Tensor,
    cell::AsCell,
    error::Result,
    observe::observed_by,
    optim::Method,
    policy::{LossScaleSpec, RunAs},
    precision, recording,
    storage::Decorate,
};

/// Lint of a network: the hazards of the precision in which it runs.
///
/// It runs the forward and the backward pass twice: once in f32, for the numbers, and once with the adapters of the
/// network, for the dtype of every result, cast and gradient. A number in f32 that does not fit the dtype of its place
/// is a finding, whether or not the pass under the policy still reaches it with good numbers. No parameter, buffer or
/// counter of the network changes.
///
/// It costs two forward and backward passes, reads each of their numbers, and keeps all tensors of the pass in f32
/// in memory until it ends.
///
/// ```
/// use precast::prelude::*;
/// use precast_diagnose::lint::{Lint, Rule};
/// let rng = &mut Rng::seed(1);
/// let mut net = Child::new(sequential![Dense::new(16, 16, rng), ReLU, Dense::new(16, 8, rng)]);
/// let x = Tensor::full(&[8, 16], 1e6, DType::F32);
///
/// let policy = Policy::new("O2", DType::F16)?;
/// let findings = Lint::new().under(&policy, &mut net, |net| net.call(&x)?.mean_all())?;
/// for finding in &findings {
///     println!("{finding}"); // rule, cell, op, number, limit, and the cure
/// }
/// assert_eq!(findings[0].rule, Rule::Overflow);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Lint {
    loss_scale: Option<LossScaleSpec>,
    /// Precision of the rules to be written: that of the policy's pack.
    keeps: Option<RunAs>,
    update: Option<(Method, f64)>,
    storage: Option<Decorate>,
}

impl Lint {
    /// Creates a lint with the loss scale of the policy, or none.
    pub fn new() -> Self {
        Lint::default()
    }

    /// Sets the loss scale of the backward pass; a dynamic one is that of the first step. Default: that of the policy,
    /// with [`under`](Lint::under).
    #[must_use]
    pub fn loss_scale(self, scale: LossScaleSpec) -> Self {
        Lint { loss_scale: Some(scale), ..self }
    }

    /// Sets the optimizer and the learning rate, for the share of updates that low parameters would lose. Default:
    /// none; low parameters without masters are then a finding in any case.
    #[must_use]
    pub fn update(self, method: Method, lr: f64) -> Self {
        Lint { update: Some((method, lr)), ..self }
    }

    /// Sets the storage that the parameters will have. Default: the one that they have.
    #[must_use]
    pub fn storage(self, storage: Decorate) -> Self {
        Lint { storage: Some(storage), ..self }
    }

    /// Lints a network as a policy would run it: applies the policy, and undoes it at the end. `loss` calls the network
    /// and returns the loss; it runs twice. Where findings propose rules, the network is linted again under these, and
    /// the rules grow until they suffice.
    ///
    /// # Errors
    /// Those of [`Policy::apply`] and of `loss`; [`ErrorKind::Shape`](precast::ErrorKind::Shape) when the loss is not a
    /// floating scalar.
    pub fn under<C: ?Sized + AsCell>(
        &self,
        policy: &Policy,
        net: &mut Child<C>,
        loss: impl Fn(&Child<C>) -> Result<Tensor>,
    ) -> Result<Vec<Finding>> {
        let over = wrapping::replaced(net, policy)?;
        let scale = self.loss_scale.clone().unwrap_or_else(|| policy.loss_scale.clone());
        let lint = Lint { loss_scale: Some(scale), keeps: Some(policy.keeps()), ..self.clone() };
        let mut under = |policy: &Policy| {
            let applied = policy.apply(net)?;
            let found = lint.found(net, &loss);
            applied.undo(net)?;
            found
        };
        let found = under(policy)?;
        let found = cure::verified(policy, found, under);
        Ok(cure::once(sorted(over.into_iter().chain(found).collect())))
    }

    /// Lints a network as it is wrapped now. `loss` calls the network and returns the loss; it runs twice.
    ///
    /// # Errors
    /// Those of `loss`; [`ErrorKind::Shape`](precast::ErrorKind::Shape) when the loss is not a floating scalar.
    pub fn run<C: ?Sized + AsCell>(
        &self,
        net: &Child<C>,
        loss: impl Fn(&Child<C>) -> Result<Tensor>,
    ) -> Result<Vec<Finding>> {
        let found = self.found(net, loss)?;
        Ok(cure::once(cure::proposed(found, self.keeps.unwrap_or(RunAs::Full))))
    }

    /// Lints a network without writing rules into the findings.
    fn found<C: ?Sized + AsCell>(&self, net: &Child<C>, loss: impl Fn(&Child<C>) -> Result<Tensor>) -> Result<Found> {
        let spec = self.loss_scale.clone().unwrap_or(LossScaleSpec::None);
        let scale = initial(&spec);
        let recorder = Rc::new(Recorder::default());
        let (_, gradients) = observed_by(recorder.clone(), || pass(scale, || precision::all_in_f32(|| loss(net))))?;
        let follower = Rc::new(Follower::new(recorder.take()));
        let (low_loss, low_gradients) = observed_by(follower.clone(), || pass(scale, || loss(net)))?;
        low_gradients.scaled.discard();
        let edges = follower.finish(net);
        let mut found = range::findings(&edges, &spec, scale);
        if self.loss_scale == Some(LossScaleSpec::None) {
            found.extend(range::unscaled(&edges, &found));
        }
        found.extend(digits::findings(&edges));
        found.extend(digits::of_inputs(&edges));
        found.extend(patterns::findings(&edges, &found));
        found.extend(operands::findings(&edges, net));
        found.extend(wrapping::findings(&edges, net, low_loss));
        found.extend(storage::findings(net, self.storage.as_ref(), self.update.as_ref(), &gradients)?);
        if let Some(method) = &self.update {
            found.extend(far::update(net, method, &gradients)?);
        }
        found.extend(far::data(&edges, &found));
        gradients.scaled.discard();
        let low = edges.list.into_iter().filter(|edge| edge.dtype.is_low()).map(|edge| edge.cell).collect();
        Ok(Found { findings: sorted(found), low })
    }
}

/// Findings whose rules are not written yet.
struct Found {
    findings: Vec<Finding>,
    /// Paths of the cells with low results.
    low: HashSet<String>,
}

/// Results of a pass.
struct Gradients {
    /// Gradients, multiplied by the loss scale.
    scaled: Grads,
    scale: f64,
    /// Buffers, each with the statistics of the batch towards which it moves.
    statistics: Vec<(Param, Tensor)>,
}

/// Returns the loss scale of the first step.
fn initial(spec: &LossScaleSpec) -> f64 {
    match spec {
        LossScaleSpec::Fixed { scale } => f64::from(*scale),
        LossScaleSpec::Dynamic(dynamic) => f64::from(dynamic.init),
        _ => 1.0,
    }
}

/// Runs a forward and a backward pass without side effects; also returns the dtype of the loss.
fn pass(scale: f64, loss: impl FnOnce() -> Result<Tensor>) -> Result<(DType, Gradients)> {
    let (loss, recorded) = recording::record(loss);
    let loss = loss?;
    loss.check_scalar("a lint starts from a floating scalar; the loss")?;
    let dtype = loss.dtype();
    let wide = if dtype.is_low() { loss.cast(DType::F32) } else { loss };
    let scaled = wide.mul(&Tensor::scalar(scale, wide.dtype()))?.into_grads()?;
    let statistics = recorded.blends.into_iter().map(|blend| (blend.buffer, blend.batch)).collect();
    Ok((dtype, Gradients { scaled, scale, statistics }))
}

/// Sorts findings by severity, the worst first, and leaves their order otherwise.
fn sorted(mut found: Vec<Finding>) -> Vec<Finding> {
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found
}
