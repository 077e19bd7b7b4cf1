//! Parameters under training: the part of an optimizer that does not depend on its formula.

use std::{
    collections::HashSet,
    fmt::{self, Debug},
    ops::Range,
};

use precast_tensor::{
    Rounding, context,
    internals::{GradsInternals as _, ParamInternals as _, TensorInternals as _},
    listener::ParamStep,
    logging::{warn, warn_if_unoptimized},
    next_id,
    pass::refused,
};

use super::{
    Group, LostUpdates, OptimizerState, no_member,
    overflow::Overflow,
    rule::{Rule, Step, check_not_negative},
    state::{self, Layout, Memory},
    update::One,
};
use crate::{
    DType, Grads, Param,
    cell::Params,
    error::{Error, Result},
    policy::Pattern,
};

/// Parameters, the state of each that has had a gradient, and the formula that updates them.
#[derive(Clone)]
pub(super) struct Trained<R> {
    pub params: Params,
    pub rule: R,
    pub lr: f64,
    /// Hyperparameter overrides, one entry per parameter.
    groups: Vec<Group>,
    pub memory: Vec<Option<Memory>>,
    lost: Option<Lost>,
    /// `true` when a warning about gradients through f16 with an unscaled loss was given.
    told: bool,
    /// `true` when a warning about training in evaluation mode was given, or is not wanted.
    pub evaluation_told: bool,
}

/// Counts of lost updates.
#[derive(Clone, Default)]
struct Lost {
    /// Counts of the last step.
    updates: Vec<LostUpdates>,
    warned: bool,
}

/// Parameters with fewer elements keep f32 averages, as in bitsandbytes.
const LEAST_IN_EIGHT_BIT: usize = 4096;

impl<R: Rule> Trained<R> {
    pub fn new(params: Params, lr: f64, rule: R) -> Self {
        let now = next_id();
        params.iter().for_each(|(_, param)| param.note_optimizer(now));
        let (groups, memory) = (vec![Group::default(); params.len()], vec![None; params.len()]);
        Trained { params, rule, lr, groups, memory, lost: None, told: false, evaluation_told: false }
    }

    pub fn group(&mut self, pattern: &str, group: Group) -> Result<()> {
        match self.joins(pattern, group)? {
            true => Ok(()),
            false => Err(no_member(pattern, &self.params)),
        }
    }

    /// Adds the parameters that match, or are inside a cell that does, to a group, and returns whether there are any.
    pub fn joins(&mut self, pattern: &str, Group { lr_factor, weight_decay, state_8bit }: Group) -> Result<bool> {
        let pattern: Pattern = pattern.parse()?;
        let members = self.params.paths().filter(|(path, _)| Group::has(&pattern, path));
        let found: HashSet<_> = members.map(|(_, param)| param.id()).collect();
        let mut matched = false;
        for ((_, param), group) in self.params.iter().zip(&mut self.groups) {
            if found.contains(&param.id()) {
                matched = true;
                group.lr_factor = lr_factor.or(group.lr_factor);
                group.weight_decay = weight_decay.or(group.weight_decay);
                group.state_8bit = state_8bit.or(group.state_8bit);
            }
        }
        Ok(matched)
    }

    pub fn count_lost_updates(&mut self) {
        self.lost.get_or_insert_default();
    }

    pub fn lost_updates(&self) -> &[LostUpdates] {
        self.lost.as_ref().map_or(&[], |lost| &lost.updates)
    }

    /// Checks the hyperparameters.
    pub fn check(&self) -> Result<()> {
        check_not_negative("learning rate", self.lr)?;
        for group in &self.groups {
            check_not_negative("group's factor of the learning rate", group.lr_factor.unwrap_or(1.0))?;
            check_not_negative("group's weight decay", group.weight_decay.unwrap_or(0.0))?;
            if group.state_8bit == Some(true) && self.rule.kept(&[1, 1]).iter().all(|kept| kept.eight_bit.is_none()) {
                let words =
                    "a group asks for states in 8 bits, which this optimizer has not; allowed: Adam, AdamW and Lion";
                return Err(Error::unsupported(words));
            }
        }
        if let Some((_, error)) = self.rule.out_of_range() {
            let option = error.word().unwrap_or_default().to_string();
            return Err(Error::value(format!("the optimizer's {error}")).about(option));
        }
        self.rule.check_together()
    }

    fn check_grads(&self, grads: &Grads, which: Range<usize>) -> Result<()> {
        let first = self.params.first()?;
        if !self.has_gradients(grads, which.clone()) {
            return Err(Error::value(format!(
                "none of the optimizer's parameters, the first of which is `{first}`, has a gradient: the loss depends on none of \
                 them (was it computed from another network?), or these are the gradients of another optimizer's"
            )));
        }
        for (path, param) in self.params.range(which) {
            let Some((grad, _)) = grads.pending(param) else { continue };
            let (dtype, shape) = (grad.dtype(), grad.shape());
            if shape != param.shape() || !dtype.is_float() {
                return Err(Error::shape(format!(
                    "the gradient of `{path}` is {dtype} {shape:?}, the parameter has the shape {:?}",
                    param.shape()
                )));
            }
            if !param.dtype().is_float() {
                return Err(Error::dtype(format!(
                    "`{path}`: {} parameter cannot be trained",
                    param.dtype().with_article()
                )));
            }
            self.rule.check_shape(shape).map_err(|e| e.context(format_args!("`{path}` {shape:?}")))?;
        }
        Ok(())
    }

    /// Refuses gradients known to be non-finite and, if a policy requires a scaler, those that come through f16 from an
    /// unscaled loss. Without such a policy, warns once.
    fn check_scaled(&mut self, grads: &Grads, which: Range<usize>) -> Result<()> {
        warn_if_unoptimized();
        if let Some(path) = grads.refused() {
            grads.doubt();
            return Err(Error::value(refused(path)));
        }
        if let Some(path) = grads.non_finite() {
            return Err(Error::value(format!(
                "the gradient of `{path}` is not finite; `LossScale::apply` skips such a step, `update` cannot"
            )));
        }
        let Some((path, param)) = self.params.range(which).find(|(_, param)| grads.is_unscaled_f16(param)) else {
            return Ok(());
        };
        let cell = path.rsplit_once('.').map_or(path, |(cell, _)| cell);
        let words = format!(
            "gradients of `{cell}` come through ops in float16, and their loss was not scaled: gradients below 6e-8 are 0, and \
             the network may not converge. Scale the loss with a `LossScale`, or use bfloat16"
        );
        if param.requires_scaler() {
            return Err(Error::value(format!("{words}; the policy says `scaler: required`")));
        }
        if !std::mem::replace(&mut self.told, true) {
            tracing::warn!(target: "precast", cell, "gradients in float16 without a loss scale");
            warn(&words);
        }
        Ok(())
    }

    /// Warns once when a network is trained in evaluation mode.
    fn check_mode(&mut self, grads: &Grads, which: Range<usize>) {
        if self.evaluation_told {
            return;
        }
        if let Some(path) = grads.evaluated_beside(self.params.range(which).map(|(_, param)| param)) {
            let cell = if path.is_empty() { "the root cell" } else { path };
            self.evaluation_told = true;
            tracing::warn!(target: "precast", cell, "trained in evaluation");
            warn(&format!(
                "the network is trained, and its cell `{cell}` ran in evaluation: batch norm and dropout do then what they do after \
                 training. Call `set_train(true)`, or, if this is on purpose, `in_evaluation()` on the optimizer"
            ));
        }
    }

    /// Returns the places of all parameters.
    pub fn all(&self) -> Range<usize> {
        0..self.params.len()
    }

    /// Returns whether one of these parameters has a gradient.
    pub fn has_gradients(&self, grads: &Grads, which: Range<usize>) -> bool {
        self.params.range(which).any(|(_, param)| grads.pending(param).is_some())
    }

    pub fn update(&mut self, grads: &Grads) -> Result<()> {
        self.check()?;
        self.prepare(grads, self.all())?;
        grads.warn_of_late(self.params.iter().map(|(_, param)| param));
        Overflow::check(&self.apply(grads, self.all()))
    }

    /// Updates the parameter at a place, as a part of a step that began with a [check](Trained::check).
    pub fn update_one(&mut self, place: usize, grads: &Grads) -> Result<()> {
        let which = place..place + 1;
        self.prepare(grads, which.clone())?;
        Overflow::check(&self.apply(grads, which))
    }

    /// Runs every check of gradients that can refuse an update of these parameters.
    pub fn prepare(&mut self, grads: &Grads, which: Range<usize>) -> Result<()> {
        self.check_grads(grads, which.clone())?;
        self.check_scaled(grads, which.clone())?;
        self.check_mode(grads, which);
        Ok(())
    }

    /// Updates these parameters after the update was [prepared](Trained::prepare). Returns those with numbers that
    /// would have become infinite.
    pub fn apply(&mut self, grads: &Grads, which: Range<usize>) -> Vec<Overflow> {
        let Trained { params, rule, lr, groups, memory, lost, .. } = self;
        let mut overflows = Vec::new();
        if let Some(lost) = lost
            && !grads.continues_step()
        {
            lost.updates.clear();
        }
        let counted = lost.as_ref().map_or(0, |lost| lost.updates.len());
        let (groups, memory) = (&groups[which.clone()], &mut memory[which.clone()]);
        for (((path, param), group), memory) in params.range(which).zip(groups).zip(memory) {
            let Some((grad, factors)) = grads.pending(param) else { continue };
            let layout = layout(rule, group, param);
            let memory = match memory {
                Some(memory) if memory.fits(&layout) => memory,
                stale => stale.insert(Memory::new(&layout)),
            };
            // The storage of a parameter may have changed since the last step.
            if memory.compensation.is_some() != layout.compensation.is_some() {
                memory.compensation = layout.compensation.as_deref().map(state::zeros);
            }
            let step = Step {
                count: memory.steps + 1,
                lr: *lr * group.lr_factor.unwrap_or(1.0),
                weight_decay: group.weight_decay.unwrap_or_else(|| rule.weight_decay()),
            };
            let one = One { rule, step, path, param, shape: param.shape(), layout: &layout, count: lost.is_some() };
            let before = context::is_heard_in_full().then(|| param.value());
            let count = one.update(&grad.array().cast(wide_of(grad.dtype(), layout.wide)), factors, memory);
            memory.steps += 1;
            if let Some(before) = &before {
                let (after, gradient) = (&param.value(), grads.get(param));
                let step = ParamStep::update(param, [before, after], gradient.as_ref(), count.infinite);
                context::tell(|listener| listener.update(&step));
            }
            context::tell(|listener| listener.updated(param, count.infinite));
            if count.infinite > 0 {
                overflows.push(Overflow { path: path.to_string(), dtype: param.dtype(), numbers: count.infinite });
            }
            if let Some(lost) = lost {
                let is_stochastic = matches!(param.rounding(), Rounding::Stochastic { .. });
                lost.updates.push(LostUpdates::new(path, count, is_stochastic));
            }
        }
        if let Some(lost) = lost {
            lost.warn(counted);
        }
        grads.settle();
        overflows
    }

    pub fn state(&self) -> OptimizerState {
        let mut state =
            OptimizerState { optimizer: R::NAME.to_string(), steps: Default::default(), tensors: Vec::new() };
        for (((path, param), group), memory) in self.params.iter().zip(&self.groups).zip(&self.memory) {
            state.steps.insert(path.to_string(), memory.as_ref().map_or(0, |memory| memory.steps));
            let Some(memory) = memory else { continue };
            let tensors = memory.tensors(&layout(&self.rule, group, param));
            state.tensors.extend(tensors.into_iter().map(|(name, tensor)| (format!("{path}/{name}"), tensor)));
        }
        state
    }

    pub fn restore(&mut self, state: OptimizerState) -> Result<()> {
        self.memory = self.restored(state)?;
        Ok(())
    }

    /// Returns the memory restored from a state.
    pub fn restored(&self, state: OptimizerState) -> Result<Vec<Option<Memory>>> {
        let of =
            |((path, param), group): ((&str, &Param), &Group)| (path.to_string(), layout(&self.rule, group, param));
        let layouts: Vec<(String, Layout)> = self.params.iter().zip(&self.groups).map(of).collect();
        state::restored(state, R::NAME, &layouts)
    }
}

impl<R> Debug for Trained<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} parameters", self.params.len())
    }
}

impl Lost {
    /// Warns, once, when one of the parameters counted from a place on has lost too many updates.
    fn warn(&mut self, from: usize) {
        let most = self.updates[from..].iter().max_by(|a, b| a.share().total_cmp(&b.share()));
        if let Some(high) = most.filter(|most| most.is_high() && !self.warned) {
            let (path, percent) = (&high.path, 100.0 * high.share());
            tracing::warn!(target: "precast", path, share = high.share(), "rounding loses updates");
            warn(&format!(
                "rounding swallows {percent:.0} % of the updates of `{path}`: store weights with a master, or round by stochastic \
                 rounding or Kahan compensation"
            ));
            self.warned = true;
        }
    }
}

/// Returns the dtype in which a gradient is read: its own, unless only the arithmetic's is wide enough.
fn wide_of(grad: DType, wide: DType) -> DType {
    if wide == DType::F64 || grad == DType::F64 { wide } else { grad }
}

/// Returns the layout of the state of a parameter.
fn layout(rule: &impl Rule, group: &Group, param: &Param) -> Layout {
    let shape = param.shape();
    let wide = param.dtype().wide();
    let eight_bit = group.state_8bit.unwrap_or_else(|| rule.eight_bit());
    let eight_bit = eight_bit && wide == DType::F32 && shape.iter().product::<usize>() >= LEAST_IN_EIGHT_BIT;
    let kept = rule.kept(&shape).into_iter().map(|kept| {
        let in_eight_bit = eight_bit && kept.eight_bit.is_some();
        (kept, in_eight_bit)
    });
    let kept = kept.collect();
    let compensation = (param.rounding() == Rounding::Kahan).then_some(shape);
    Layout { wide, kept, compensation }
}

/// The public interface common to all optimizers. Of the options, `made` also makes the optimizer of a run, which trains
/// all its parameters; `new` makes both that and a constructor with the defaults of the options.
/// Never holds; because of the lifetime in the bound, the compiler checks it where `step` is called.
#[diagnostic::on_unimplemented(
    message = "an optimizer takes the gradients of a step",
    label = "without gradients",
    note = "`scale.step(&mut optimizer, loss)?` scales, checks and updates; by hand, `optimizer.update(&loss.backward()?)?`"
)]
pub trait StepsAlone {}

macro_rules! optimizer {
    (new $name:ident, $options:ident) => {
        impl $name {
            #[doc = concat!("Creates the optimizer with the [default options](", stringify!($options), "). Options are checked when a step is taken.")]
            pub fn new(params: crate::cell::Params, lr: f64) -> Self {
                Self::with_options(params, lr, $options::default())
            }
        }

        $crate::optim::trained::optimizer!(made $name, $options);
    };
    (made $name:ident, $options:ident) => {
        impl crate::optim::makes::Makes for $options {
            fn optimizer(
                &self,
                params: crate::cell::Params,
                lr: f64,
                _: &dyn Fn(&crate::Param) -> bool,
            ) -> Box<dyn crate::optim::Optimizer> {
                Box::new($name::with_options(params, lr, self.clone()))
            }
        }

        $crate::optim::trained::optimizer!($name, $options);
    };
    ($name:ident, $options:ident) => {
        impl $name {
            /// Creates the optimizer with some options, which are checked when a step is taken.
            pub fn with_options(params: crate::cell::Params, lr: f64, options: $options) -> Self {
                $name($crate::optim::trained::Trained::new(params, lr, options.into()))
            }

            fn options(&mut self) -> &mut $options {
                &mut self.0.rule
            }

            /// Sets hyperparameters for the parameters whose paths match a [pattern](crate::policy::Pattern), or that are
            /// inside a cell whose path does: see [`Group`](crate::optim::Group). A parameter may be in several groups;
            /// if these set the same one, the last wins.
            ///
            /// # Errors
            /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) for a malformed pattern;
            /// [`ErrorKind::Path`](crate::ErrorKind::Path) when no parameter matches, with the nearest path.
            pub fn group(
                mut self,
                pattern: &str,
                options: impl FnOnce(crate::optim::Group) -> crate::optim::Group,
            ) -> $crate::Result<Self> {
                self.0.group(pattern, options(crate::optim::Group::default()))?;
                Ok(self)
            }

            /// Declares that the network is trained in evaluation mode on purpose: batch norm uses its running
            /// statistics, and dropout is off. Otherwise, an update of parameters near a cell that ran in evaluation
            /// mode, and behaves differently in training, warns once: usually [`set_train`](crate::Child::set_train)
            /// was forgotten.
            #[must_use]
            pub fn in_evaluation(mut self) -> Self {
                self.0.evaluation_told = true;
                self
            }

            /// Does not compile: an update [takes gradients](crate::Optimizer::update).
            pub fn step(&mut self) -> $crate::Result<()>
            where
                for<'never> &'never Self: crate::optim::trained::StepsAlone,
            {
                Ok(())
            }

            /// Does nothing: each backward pass returns gradients of its own.
            #[deprecated(note = "gradients are values, so there is nothing to reset: leave the line out")]
            pub fn zero_grad(&self) {}

            /// Counts the updates lost to rounding, for [`lost_updates`](crate::Optimizer::lost_updates), and warns
            /// once when a parameter loses [more than half](crate::optim::LostUpdates::WARN_ABOVE) of them.
            #[must_use]
            pub fn count_lost_updates(mut self) -> Self {
                self.0.count_lost_updates();
                self
            }
        }

        impl crate::optim::Optimizer for $name {
            fn params(&self) -> &crate::cell::Params {
                &self.0.params
            }

            fn update(&mut self, grads: &crate::Grads) -> crate::Result<()> {
                self.0.update(grads)
            }

            fn update_one(&mut self, place: usize, grads: &crate::Grads) -> crate::Result<()> {
                self.0.update_one(place, grads)
            }

            fn check(&self) -> crate::Result<()> {
                self.0.check()
            }

            fn lr(&self) -> f64 {
                self.0.lr
            }

            fn set_lr(&mut self, lr: f64) {
                self.0.lr = lr;
            }

            fn set_group(&mut self, pattern: &str, group: crate::optim::Group) -> crate::Result<()> {
                self.0.group(pattern, group)
            }

            fn lost_updates(&self) -> &[crate::optim::LostUpdates] {
                self.0.lost_updates()
            }

            fn state(&self) -> crate::optim::OptimizerState {
                self.0.state()
            }

            fn restore(&mut self, state: crate::optim::OptimizerState) -> crate::Result<()> {
                self.0.restore(state)
            }
        }
    };
}

pub(super) use optimizer;
