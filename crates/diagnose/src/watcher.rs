//! The listener that looks at the largest magnitude of every result of a step.

use std::{
    mem,
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use precast::{
    DType, LeafId, Op, Param, Tensor, WeakTensor,
    observe::{Accumulation, CastCall, Codes, EdgeOp, Elsewhere, GradientCall, Numbers, Observer, OpCall, Phase},
};

use super::{
    beside::Beside,
    recorder::Raw,
    reference::{Repeated, fits_f32},
    steps::{Site, Steps, Which},
};

/// Looks at the results of one step, on one thread.
pub(super) struct Watcher {
    state: Arc<Mutex<State>>,
    /// `true` on a thread into which the precision was carried. Its results have no place among those of other steps,
    /// since their order may change.
    elsewhere: bool,
}

#[derive(Default)]
struct State {
    steps: Steps,
    samples: bool,
    /// `true` when large results in f32 and low copies of parameters are looked at as well.
    thorough: bool,
    /// `true` when a gradient was not finite.
    overflowed: bool,
    /// Results that are not finite, and those that read them.
    bad: Vec<Raw>,
    /// Position in `bad` of each value that is not finite.
    wrote: Beside<usize>,
    /// Results that were not looked at, in order, until one that is not finite is met.
    unread: Vec<Unread>,
    /// The codes of quantized operands, if the step is sampled.
    codes: Vec<Codes>,
}

/// A result that is looked at only if a later one of the step is not finite.
struct Unread {
    site: Site,
    /// Values that were read: an infinity in them is not the result's own.
    inputs: Vec<WeakTensor>,
    output: WeakTensor,
}

/// Returns whether no result of an op, and no gradient that it passes back, is larger than its inputs.
fn cannot_enlarge(op: Op) -> bool {
    matches!(
        op,
        Op::Relu
            | Op::Reshape
            | Op::Flatten
            | Op::Transpose
            | Op::Squeeze
            | Op::Unsqueeze
            | Op::Slice
            | Op::Split
            | Op::Concat
    )
}

/// Number of elements up to which a result in f32 is looked at in every step.
const FEW: usize = 4096;

/// Findings of one step.
pub(super) struct Watched {
    /// Results that were not finite, and those that read one that was not.
    pub bad: Vec<Raw>,
    /// `true` when a gradient was not finite.
    pub overflowed: bool,
    /// The codes of quantized operands; `None` if the step was not sampled.
    pub codes: Option<Vec<Codes>>,
}

impl Watcher {
    /// Creates a watcher of a step. Large results in f32 overflow rarely, and parameters change slowly, so they are
    /// looked at on demand, and when a later result is not finite; low copies of parameters also in the steps that are
    /// sampled.
    pub fn new(mut steps: Steps, thorough: bool) -> Self {
        steps.begin();
        let state = State { samples: steps.samples(), steps, thorough, ..State::default() };
        Watcher { state: Arc::new(Mutex::new(state)), elsewhere: false }
    }

    /// Returns the steps, with the one that was watched.
    pub fn take_steps(&self) -> Steps {
        mem::take(&mut self.state().steps)
    }

    pub fn take(&self) -> Watched {
        let State { bad, overflowed, codes, samples, .. } = mem::take(&mut *self.state());
        Watched { bad, overflowed, codes: samples.then_some(codes) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at a result as [`State::look`] does.
    fn look(&self, site: Site, inputs: &[&Tensor], output: &Tensor, good: impl FnOnce() -> bool) {
        match self.elsewhere {
            true => self.state().judge(site, output.peak(), inputs, output, good),
            false => self.state().look(site, inputs, output, good),
        }
    }
}

impl State {
    /// Looks at a result, given its inputs. `good` says whether it would be finite in f32, if its inputs are.
    fn look(&mut self, site: Site, inputs: &[&Tensor], output: &Tensor, good: impl FnOnce() -> bool) {
        // Only these have a place among the steps, which is the same in each.
        let always = output.dtype().is_low() || output.len() <= FEW;
        if !always && !self.thorough && self.wrote.is_empty() {
            return self.leave_unread(site, inputs, output);
        }
        let peak = output.peak();
        if always {
            let small = self.samples.then(|| output.small_shares());
            self.steps.push(site, peak, small);
        }
        self.judge(site, peak, inputs, output, good);
    }

    /// Leaves a result for later, without keeping its value.
    fn leave_unread(&mut self, site: Site, inputs: &[&Tensor], output: &Tensor) {
        let inputs = inputs.iter().map(|x| x.source().unwrap_or(x).downgrade()).collect();
        self.unread.push(Unread { site, inputs, output: output.downgrade() });
    }

    /// Looks at the results that were left, as far as they are still there.
    fn read_the_rest(&mut self) {
        for Unread { site, inputs, output } in mem::take(&mut self.unread) {
            let identity = output.identity();
            let Some(x) = output.upgrade().filter(|_| self.wrote.at(identity).is_none()) else { continue };
            let from: Vec<usize> = inputs.iter().filter_map(|x| self.wrote.at(x.identity())).copied().collect();
            // In f32, what overflowed once overflows again; a cast to 16 bits is not to blame for what it reads.
            let good = || x.dtype().is_low() && inputs.iter().all(|x| x.upgrade().is_none_or(|x| x.has_only_finite()));
            self.keep(site, x.peak(), from, &x, output, good);
        }
    }

    /// Keeps a result that is not finite, or read one.
    fn judge(&mut self, site: Site, peak: f64, inputs: &[&Tensor], output: &Tensor, good: impl FnOnce() -> bool) {
        if peak.is_finite() && self.wrote.is_empty() {
            return;
        }
        self.read_the_rest();
        // A widening is not looked at: its source was.
        let from: Vec<usize> = inputs.iter().filter_map(|x| self.wrote.get(x)).copied().collect();
        let good = || inputs.iter().all(|x| x.has_only_finite()) && good();
        self.keep(site, peak, from, output, output.downgrade(), good);
    }

    /// Keeps a result that is not finite, or was computed from such results.
    fn keep(
        &mut self,
        site: Site,
        peak: f64,
        from: Vec<usize>,
        output: &Tensor,
        identity: WeakTensor,
        good: impl FnOnce() -> bool,
    ) {
        if peak.is_finite() && from.is_empty() {
            return;
        }
        let mut numbers = Numbers { n: output.len(), amax: peak, ..Numbers::default() };
        let mut good_inputs = true;
        if !peak.is_finite() {
            (numbers.nan, numbers.inf, numbers.neg_inf, numbers.amax) = output.not_finite();
            good_inputs = from.is_empty() && good();
            self.wrote.insert_at(identity, self.bad.len());
        }
        let Site { phase, op, which, slot, leaf, dtype } = site;
        let (subject, error) = (which.subject(), None);
        self.bad.push(Raw { phase, slot, leaf, op, subject, dtype, numbers, error, from, good_inputs });
    }

    /// Keeps a number that is not finite where no tensor holds it. In f32 nothing was rounded.
    fn judge_param(&mut self, phase: Phase, op: EdgeOp, leaf: LeafId, dtype: DType, inf: usize) {
        let numbers = Numbers { n: inf, inf, ..Numbers::default() };
        let (slot, leaf, subject, error, from) = (None, Some(leaf), Which::Param.subject(), None, Vec::new());
        let good_inputs = dtype.is_low();
        self.bad.push(Raw { phase, slot, leaf, op, subject, dtype, numbers, error, from, good_inputs });
    }
}

impl Observer for Watcher {
    fn is_light(&self) -> bool {
        true
    }

    fn elsewhere(&self) -> Option<Elsewhere> {
        let state = self.state.clone();
        Some(Arc::new(move || Rc::new(Watcher { state: state.clone(), elsewhere: true })))
    }

    fn op(&self, call: &OpCall<'_>) {
        if call.backward || !call.output.dtype().is_float() {
            return;
        }
        let passes = cannot_enlarge(call.op);
        if passes && self.state().wrote.is_empty() {
            return;
        }
        let (phase, op, which, dtype) = (Phase::Forward, EdgeOp::Op(call.op), Which::Output, call.output.dtype());
        let site = Site { phase, op, which, slot: call.slot, leaf: None, dtype };
        // The same op in f64. Without 16-bit numbers it was computed in f32, which is to blame.
        let is_low = call.inputs.iter().chain([call.output]).any(|x| x.dtype().is_low());
        let good = || {
            if !is_low {
                return false;
            }
            let repeated = Repeated::new(call);
            repeated.on(&repeated.inputs).as_ref().is_some_and(fits_f32)
        };
        let inputs: Vec<&Tensor> = call.inputs.iter().collect();
        match passes {
            true => self.state().judge(site, call.output.peak(), &inputs, call.output, good),
            false => self.look(site, &inputs, call.output, good),
        }
    }

    fn cast(&self, cast: &CastCall<'_>) {
        // A widening is exact.
        let exact = cast.input.dtype().is_low() && !cast.output.dtype().is_low();
        let leaf = cast.of.leaf();
        // A low copy of a parameter that is kept was computed in an earlier step.
        let kept = leaf.is_some() && !cast.computed;
        if !(cast.computed || kept) || exact || !cast.output.dtype().is_float() || !cast.input.dtype().is_float() {
            return;
        }
        let phase = if cast.backward { Phase::Backward } else { Phase::Forward };
        let (op, which, dtype) = (EdgeOp::Op(Op::Cast), Which::Cast(cast.of), cast.output.dtype());
        let site = Site { phase, op, which, slot: cast.slot, leaf, dtype };
        let fits = || cast.output.dtype().is_low() && fits_f32(cast.input);
        let mut state = self.state();
        let knows = leaf.is_some() && !state.thorough && !state.samples && state.wrote.is_empty();
        if kept && state.wrote.is_empty() || knows && (self.elsewhere || state.steps.push_again(site)) {
            state.leave_unread(site, &[cast.input], cast.output);
        } else if !kept && !self.elsewhere {
            state.look(site, &[cast.input], cast.output, fits);
        } else if state.wrote.at(cast.output.identity()).is_none() {
            state.judge(site, cast.output.peak(), &[cast.input], cast.output, fits);
        }
    }

    fn gradient(&self, call: &GradientCall<'_>) {
        let Some(op) = call.op.filter(|op| *op != Op::Cast) else { return };
        let passes = cannot_enlarge(op);
        for (input, gradient) in call.gradients.iter().enumerate() {
            let Some(gradient) = gradient else { continue };
            let known = gradient.identity() == call.grad.identity();
            if known || passes && self.state().wrote.is_empty() {
                continue;
            }
            let (phase, op, which, dtype) = (Phase::Backward, EdgeOp::Op(op), Which::Gradient(input), gradient.dtype());
            let site = Site { phase, op, which, slot: call.slot, leaf: None, dtype };
            // An infinite slope, such as that of a root at 0, is one in f32 as well.
            let good = || (dtype.is_low() || call.grad.dtype().is_low()) && call.has_finite_slopes();
            match passes {
                true => self.state().judge(site, gradient.peak(), &[call.grad], gradient, good),
                false => self.look(site, &[call.grad], gradient, good),
            }
        }
    }

    fn accumulate(&self, sum: &Accumulation<'_>) {
        let (phase, op, which, dtype) = (Phase::Backward, EdgeOp::Accumulate, Which::Param, sum.sum.dtype());
        let site = Site { phase, op, which, slot: sum.slot, leaf: sum.leaf, dtype };
        self.look(site, sum.terms, sum.sum, || dtype.is_low());
    }

    fn unscaled(&self, leaf: LeafId, before: f64, after: f64) {
        let mut state = self.state();
        state.overflowed |= !before.is_finite();
        let (phase, op, which, dtype) = (Phase::Unscale, EdgeOp::Unscale, Which::Param, DType::F32);
        state.steps.push(Site { phase, op, which, slot: None, leaf: Some(leaf), dtype }, after, None);
        if before.is_finite() && !after.is_finite() {
            state.judge_param(phase, op, leaf, dtype, 1);
        }
    }

    fn counts_codes(&self) -> bool {
        self.state().samples
    }

    fn codes(&self, codes: &Codes) {
        self.state().codes.push(codes.clone());
    }

    fn updated(&self, param: &Param, refused: u64) {
        if refused > 0 {
            let (phase, op) = (Phase::Optimizer, EdgeOp::Update);
            self.state().judge_param(phase, op, param.id(), param.dtype(), refused as usize);
        }
    }
}
