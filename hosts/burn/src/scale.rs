//! The loss scale, and the training step.

use burn::{
    lr_scheduler::module_lr_scheduler::ModuleLearningRate,
    module::{Module, ModuleMapper, ModuleVisitor, Param},
    optim::{GradientsParams, ModuleOptimizer},
    tensor::{DType, FloatDType, Tensor},
};
use precast_policy::{
    Error, Policy, Result,
    policy::LossScaleSpec,
    scale::{Outcome, ScaleMachine, ScaleState},
};

use crate::{castable::Castable, walk};

/// A loss scale: multiplies the loss before the backward pass, so that small gradients do not underflow in f16, and
/// divides the gradients by the same number afterwards. A step with a loss or a gradient that is not finite is skipped.
///
/// [`step`](LossScale::step) does all of it. A loop of your own calls [`backward`](LossScale::backward),
/// [`unscale`](ScaledGrads::unscale) and [`judge`](LossScale::judge).
#[derive(Clone, Debug, PartialEq)]
pub struct LossScale {
    machine: ScaleMachine,
}

/// Gradients that are multiplied by the loss scale. They cannot be read or passed to an optimizer before they are
/// [unscaled](ScaledGrads::unscale).
#[derive(Debug)]
#[must_use = "scaled gradients are there to be unscaled"]
pub struct ScaledGrads {
    grads: GradientsParams,
    loss: Tensor<1>,
    scale: f32,
}

/// Gradients that were divided by the loss scale, and the result of looking at each of them.
#[derive(Debug)]
#[non_exhaustive]
pub struct Checked {
    /// The gradients. Those of a step that is skipped are still scaled.
    pub grads: GradientsParams,
    /// `true` when the loss was finite before it was scaled.
    pub finite_loss: bool,
    /// Path of the last parameter, in the order of the network, with a gradient that is not finite. Where fields are
    /// declared in the order in which they are called, the backward pass met it first.
    pub first_non_finite: Option<String>,
    /// Paths of the parameters that require a gradient and got none.
    pub missing: Vec<String>,
}

impl LossScale {
    /// Creates the loss scale that a policy specifies: a dynamic one for f16, none for bf16, unless it says otherwise.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a number outside its range.
    pub fn new(policy: &Policy) -> Result<Self> {
        ScaleMachine::new(policy.loss_scale.clone()).map(LossScale::from)
    }

    /// Returns the current factor of the loss.
    pub fn value(&self) -> f32 {
        self.machine.value()
    }

    /// Returns the current state, for a checkpoint.
    pub fn state(&self) -> ScaleState {
        self.machine.state()
    }

    /// Continues from a state taken between two steps.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a state that this scale cannot reach.
    pub fn restore(&mut self, state: ScaleState) -> Result<()> {
        self.machine.restore(state)
    }

    /// Takes one training step: scales the loss, runs the backward pass, unscales and checks the gradients, and updates
    /// the network if all are finite. Returns the network, and whether it was updated.
    ///
    /// A skipped step leaves parameters, optimizer and running states as they were before the forward pass. The
    /// gradients are read back once, as in `torch.amp.GradScaler`. The clipping of the optimizer sees unscaled
    /// gradients.
    ///
    /// # Errors
    /// As [`backward`](LossScale::backward). The network is lost with an error, as no gradient was computed; clone it
    /// first where that matters.
    pub fn step<M: Module>(
        &mut self,
        optimizer: &mut ModuleOptimizer,
        lr: impl Into<ModuleLearningRate>,
        net: M,
        loss: Tensor<1>,
    ) -> Result<(M, Outcome)> {
        let (grads, outcome) = self.gradients(loss, &net)?;
        Ok((if outcome.is_step() { optimizer.step(lr, net, grads) } else { net }, outcome))
    }

    /// Returns the gradients for an optimizer, unscaled and checked; none when the step is to be skipped. With them an
    /// optimizer changes nothing, so this is all that a `TrainStep` of burn's `Learner` needs. The running states of the
    /// network are [taken back](take_back) then.
    ///
    /// # Errors
    /// As [`backward`](LossScale::backward).
    pub fn gradients<M: Module>(&mut self, loss: Tensor<1>, net: &M) -> Result<(GradientsParams, Outcome)> {
        let checked = self.backward(loss, net)?.unscale(net);
        let outcome = self.judge(&checked);
        if outcome.is_step() {
            return Ok((checked.grads, outcome));
        }
        take_back(net);
        Ok((GradientsParams::new(), outcome))
    }

    /// Multiplies the loss by the scale and computes the gradients of the parameters of a network.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) for a loss of more than one number;
    /// [`ErrorKind::Gradient`](crate::ErrorKind::Gradient) for a loss that does not depend on a parameter.
    pub fn backward<M: Module>(&self, loss: Tensor<1>, net: &M) -> Result<ScaledGrads> {
        let [numbers] = loss.dims();
        if numbers != 1 {
            return Err(Error::shape(format!("a training step starts from one number; the loss has {numbers}")));
        }
        let without_gradients = || {
            Error::gradient(
                "the loss does not depend on a parameter of the network that requires a gradient: create network and data \
                 on `device.autodiff()`, and detach nothing between them and the loss",
            )
        };
        if !loss.is_tracked() {
            return Err(without_gradients());
        }
        let wide = loss.cast_to(FloatDType::F32);
        let before = wide.clone().detach().inner();
        let scaled = match self.machine.spec() {
            LossScaleSpec::None => wide,
            _ => wide.mul_scalar(self.value()),
        };
        let grads = GradientsParams::from_grads(scaled.backward(), net);
        if grads.is_empty() {
            return Err(without_gradients());
        }
        Ok(ScaledGrads { grads, loss: before, scale: self.value() })
    }

    /// Decides on a step, and sets the scale of the next one. The rule is that of
    /// [`ScaleMachine::judge`](precast_policy::scale::ScaleMachine::judge).
    pub fn judge(&mut self, checked: &Checked) -> Outcome {
        self.machine.judge(checked.finite_loss, checked.first_non_finite.clone())
    }
}

impl From<ScaleMachine> for LossScale {
    fn from(machine: ScaleMachine) -> Self {
        LossScale { machine }
    }
}

impl ScaledGrads {
    /// Adds gradients of the same network at the same scale, for a step of several batches.
    ///
    /// # Errors
    /// [`ErrorKind::Gradient`](crate::ErrorKind::Gradient) for gradients at another scale.
    pub fn accumulate<M: Module>(&mut self, other: ScaledGrads, net: &M) -> Result<()> {
        if self.scale != other.scale {
            return Err(Error::gradient(format!(
                "gradients at loss scale {} cannot be added to those at {}",
                other.scale, self.scale
            )));
        }
        struct Add<'a>(&'a mut GradientsParams, GradientsParams);
        impl ModuleVisitor for Add<'_> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let Some(new) = self.1.remove::<D>(param.id) else { return };
                let sum = match self.0.remove::<D>(param.id) {
                    Some(old) => old + new,
                    None => new,
                };
                self.0.register(param.id, sum);
            }
        }
        net.visit(&mut Add(&mut self.grads, other.grads));
        self.loss = self.loss.clone() + other.loss;
        Ok(())
    }

    /// Divides the gradients by the scale and checks that all are finite. One number is read from the device, and more
    /// only if a gradient is not finite, to name it.
    pub fn unscale<M: Module>(self, net: &M) -> Checked {
        let ScaledGrads { grads, loss, scale } = self;
        let mut look = Look { grads: &grads, pieces: vec![loss], ends: Vec::new(), missing: Vec::new() };
        let ((), _) = walk::walk(None, || net.visit(&mut look));
        let Look { pieces, ends, missing, .. } = look;
        let zeros = Tensor::cat(pieces, 0).mul_scalar(0.0);
        let (mut finite_loss, mut first_non_finite) = (true, None);
        if read(zeros.clone().sum()) != [0.0] {
            let numbers = read(zeros);
            finite_loss = numbers.first() == Some(&0.0);
            let bad = numbers.iter().skip(1).rposition(|number| *number != 0.0);
            first_non_finite = bad.and_then(|bad| ends.into_iter().find(|(end, _)| bad < *end)).map(|(_, path)| path);
        }
        let mut checked = Checked { grads, finite_loss, first_non_finite, missing };
        if scale != 1.0 && checked.finite_loss && checked.first_non_finite.is_none() {
            net.visit(&mut Divide { grads: &mut checked.grads, by: scale });
        }
        checked
    }
}

fn read(numbers: Tensor<1>) -> Vec<f32> {
    numbers.into_data().try_to_vec().unwrap_or_default()
}

/// Collects a few numbers of each gradient, which are finite if the gradient is, and only then.
///
/// A network has hundreds of gradients, and a GPU takes longer to start an op on most of them than to compute it. So as
/// few ops as possible look at one, and all others at all of them together.
struct Look<'a> {
    grads: &'a GradientsParams,
    /// The loss, and the numbers of each gradient.
    pieces: Vec<Tensor<1>>,
    /// The count of the numbers after the loss up to those of a gradient, these included, and its path.
    ends: Vec<(usize, String)>,
    missing: Vec<String>,
}

impl ModuleVisitor for Look<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        walk::enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        walk::exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let path = walk::here().unwrap_or_default();
        match self.grads.get::<D>(param.id) {
            Some(grad) if grad.shape().num_elements() > 0 => {
                let piece = few(grad);
                let before = self.ends.last().map_or(0, |(end, _)| *end);
                self.ends.push((before + piece.dims()[0], path));
                self.pieces.push(piece);
            }
            None if param.base().is_require_grad() => self.missing.push(path),
            _ => {}
        }
    }
}

/// The most numbers of a gradient that are looked at one by one.
const FEW: usize = 16 * 1024;
/// The length of the rows that are summed in a larger gradient, at most: short, so that a GPU sums many at a time.
const ROW: usize = 1024;

/// Returns the numbers of a gradient, or 0 for each of them, if they are few; else 0 for each row. NaN comes for what is
/// not finite: 0 times an infinity is NaN, and so is a sum with NaN.
fn few<const D: usize>(grad: Tensor<D>) -> Tensor<1> {
    let count = grad.shape().num_elements();
    let row = if count > FEW { (1..=ROW).rev().find(|row| count.is_multiple_of(*row)).unwrap_or(1) } else { 1 };
    let few = match row {
        1 => grad.reshape([count]),
        _ => grad.reshape([count / row, row]).mul_scalar(0.0).sum_dim(1).reshape([count / row]),
    };
    // The largest numbers of f64 are infinite in f32.
    if few.dtype() == DType::F32 { few } else { few.mul_scalar(0.0).cast(FloatDType::F32) }
}

struct Divide<'a> {
    grads: &'a mut GradientsParams,
    by: f32,
}

impl ModuleVisitor for Divide<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(grad) = self.grads.remove::<D>(param.id) {
            self.grads.register(param.id, grad.mul_scalar(1.0 / self.by));
        }
    }
}

/// Gives a network the running states that it had before its last forward pass, for a step that is skipped in a loop of
/// your own. A batch norm keeps its last update aside until the next forward pass, so the value to return to is there;
/// copies of a network share it. [`Module::valid`] and [`RunningState::value_sync`](burn::module::RunningState::value_sync)
/// drop it, so neither may be called between the forward pass and the step.
pub fn take_back<M: Module>(net: &M) {
    // The container of gradients holds tensors of any rank by parameter; nothing leaves the device.
    struct Keep(GradientsParams);
    impl ModuleVisitor for Keep {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if param.is_initialized() && !param.base().is_require_grad() {
                self.0.register(param.id, param.base());
            }
        }
    }
    impl ModuleMapper for Keep {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            match self.0.remove::<D>(param.id) {
                Some(kept) => param.map(|_| kept),
                None => param,
            }
        }
    }
    let mut kept = Keep(GradientsParams::new());
    net.visit(&mut kept);
    if kept.0.is_empty() {
        return;
    }
    // Drops the updates that are kept aside.
    let _ = net.valid();
    let _ = net.clone().map(&mut kept);
}
