//! The listener that looks at every edge of a step.

use std::{cell::RefCell, collections::BTreeMap};

use precast::{
    DType, LeafId, Op, Tensor,
    observe::{Accumulation, CastCall, EdgeOp, GradientCall, Numbers, Observer, OpCall, ParamStep, Phase, Subject},
};

use super::{
    beside::Beside,
    measure::{relative, values},
    reference::{Repeated, fits_f32, wide},
};

/// An edge whose cell and parameter are not named yet.
pub(super) struct Raw {
    pub phase: Phase,
    pub slot: Option<usize>,
    pub leaf: Option<LeafId>,
    pub op: EdgeOp,
    pub subject: Subject,
    pub dtype: DType,
    pub numbers: Numbers,
    pub error: Option<f64>,
    pub from: Vec<usize>,
    pub good_inputs: bool,
}

impl Raw {
    /// Creates the edge of a tensor. What was read follows when it is [written](State::write).
    fn new(phase: Phase, op: EdgeOp, subject: Subject, x: &Tensor, numbers: Numbers) -> Self {
        let (slot, leaf, error, from) = (None, None, None, Vec::new());
        Raw { phase, slot, leaf, op, subject, dtype: x.dtype(), numbers, error, from, good_inputs: true }
    }
}

/// Records the edges of a step.
#[derive(Default)]
pub(super) struct Recorder(RefCell<State>);

#[derive(Default)]
struct State {
    edges: Vec<Raw>,
    /// Edge that wrote each value.
    wrote: Beside<usize>,
    /// Each value as the same pass in f64 has it.
    shadows: Beside<Tensor>,
    /// Calls by the number of their node on the tape.
    calls: BTreeMap<u64, Repeated>,
}

impl Recorder {
    pub fn take(&self) -> Vec<Raw> {
        std::mem::take(&mut *self.0.borrow_mut()).edges
    }
}

/// Share of zeros above which the numbers before rounding are computed to see how many of the zeros it made.
const ZEROS: f64 = 0.25;

/// Returns whether the numbers before rounding are needed to judge those after it.
fn needs_exact(x: &Tensor, found: &[f64]) -> bool {
    let zeros = found.iter().filter(|x| **x == 0.0).count() as f64;
    x.dtype().is_low() && (zeros >= ZEROS * found.len() as f64 || !all_finite(found))
}

fn all_finite(found: &[f64]) -> bool {
    found.iter().all(|x| x.is_finite())
}

impl State {
    /// Adds an edge that wrote `output`, after reading `inputs`.
    fn write(&mut self, mut raw: Raw, inputs: &[&Tensor], output: &Tensor) {
        let from = inputs.iter().filter_map(|x| self.wrote.get(x)).copied();
        raw.from = from.collect();
        raw.good_inputs &= inputs.iter().all(|x| x.has_only_finite());
        self.wrote.insert(output, self.edges.len());
        self.edges.push(raw);
    }

    /// Returns a value as the same pass in f64 has it.
    fn shadow(&self, x: &Tensor) -> Tensor {
        self.shadows.get(x).cloned().unwrap_or_else(|| wide(x))
    }
}

impl Observer for Recorder {
    fn op(&self, call: &OpCall<'_>) {
        if call.backward || !call.output.dtype().is_float() {
            return;
        }
        let mut state = self.0.borrow_mut();
        let state = &mut *state;
        let inputs: Vec<&Tensor> = call.inputs.iter().collect();
        let repeated = Repeated::new(call);
        let found = values(call.output);
        let shadows: Vec<Tensor> = call.inputs.iter().map(|x| state.shadow(x)).collect();
        let shadow = repeated.on(&shadows).filter(|shadow| shadow.shape() == call.output.shape());
        let error = shadow.as_ref().map(|shadow| relative(&found, &values(shadow))).filter(|error| error.is_finite());
        let exact = needs_exact(call.output, &found).then(|| repeated.on(&repeated.inputs)).flatten();
        let good_inputs = all_finite(&found) || exact.as_ref().is_some_and(fits_f32);
        let numbers = Numbers::of(&found, exact.as_ref().map(values).as_deref());
        let raw = Raw::new(Phase::Forward, EdgeOp::Op(call.op), Subject::Output, call.output, numbers);
        let raw = Raw { slot: call.slot, error, good_inputs, ..raw };
        state.write(raw, &inputs, call.output);
        if let Some(shadow) = shadow {
            state.shadows.insert(call.output, shadow);
        }
        if let Some(node) = call.output.node() {
            state.calls.insert(node, repeated);
        }
    }

    fn cast(&self, cast: &CastCall<'_>) {
        let mut state = self.0.borrow_mut();
        let state = &mut *state;
        if !cast.output.dtype().is_float() || !cast.input.dtype().is_float() {
            return;
        }
        // A low copy that is kept has been looked at.
        if !cast.backward && state.wrote.at(cast.output.identity()).is_some() {
            return;
        }
        let (leaf, subject) = (cast.of.leaf(), Subject::of_cast(cast.of));
        let shadow = state.shadow(cast.input);
        let (found, exact) = (values(cast.output), values(cast.input));
        let error = (!cast.backward).then(|| relative(&found, &values(&shadow))).filter(|error| error.is_finite());
        let phase = if cast.backward { Phase::Backward } else { Phase::Forward };
        let numbers = Numbers::of(&found, Some(&exact));
        let raw = Raw::new(phase, EdgeOp::Op(Op::Cast), subject, cast.output, numbers);
        let good_inputs = all_finite(&found) || cast.output.dtype().is_low() && fits_f32(cast.input);
        let raw = Raw { slot: cast.slot, leaf, error, good_inputs, ..raw };
        state.write(raw, &[cast.input], cast.output);
        if !cast.backward {
            state.shadows.insert(cast.output, shadow);
        }
    }

    fn gradient(&self, call: &GradientCall<'_>) {
        let Some(op) = call.op.filter(|op| *op != Op::Cast) else { return };
        let mut state = self.0.borrow_mut();
        let state = &mut *state;
        // Computed for the first gradient that needs it.
        let mut exact = None;
        for (input, gradient) in call.gradients.iter().enumerate() {
            let Some(gradient) = gradient else { continue };
            let found = values(gradient);
            let exact = needs_exact(gradient, &found)
                .then(|| exact.get_or_insert_with(|| state.calls.get(&call.node)?.gradients(call.grad)).as_ref())
                .flatten();
            let exact = exact.and_then(|exact| exact.get(input)?.as_ref());
            let exact = exact.filter(|exact| exact.shape() == gradient.shape());
            let good_inputs = all_finite(&found) || exact.is_some_and(fits_f32);
            let numbers = Numbers::of(&found, exact.map(values).as_deref());
            let raw = Raw::new(Phase::Backward, EdgeOp::Op(op), Subject::Gradient(input), gradient, numbers);
            let raw = Raw { slot: call.slot, good_inputs, ..raw };
            state.write(raw, &[call.grad], gradient);
        }
    }

    fn accumulate(&self, sum: &Accumulation<'_>) {
        let mut exact = vec![0.0; sum.sum.len()];
        for term in sum.terms {
            exact.iter_mut().zip(values(term)).for_each(|(sum, x)| *sum += x);
        }
        let found = values(sum.sum);
        let good_inputs = all_finite(&found) || sum.sum.dtype().is_low();
        let numbers = Numbers::of(&found, Some(&exact));
        let raw = Raw::new(Phase::Backward, EdgeOp::Accumulate, Subject::Other, sum.sum, numbers);
        let raw = Raw { slot: sum.slot, leaf: sum.leaf, good_inputs, ..raw };
        self.0.borrow_mut().write(raw, sum.terms, sum.sum);
    }

    fn unscale(&self, step: &ParamStep<'_>) {
        let numbers = Numbers::of(&values(step.after), Some(&values(step.before)));
        let raw = Raw::new(Phase::Unscale, EdgeOp::Unscale, Subject::Other, step.after, numbers);
        let good_inputs = raw.numbers.is_finite();
        let raw = Raw { leaf: Some(step.leaf), good_inputs, ..raw };
        self.0.borrow_mut().write(raw, &[step.before], step.after);
    }

    fn update(&self, step: &ParamStep<'_>) {
        let (before, after) = (values(step.before), values(step.after));
        let mut numbers = Numbers::of(&after, None);
        numbers.inf += step.refused as usize;
        // An update that changes nothing although there is a gradient was lost.
        let gradient = step.gradient.map(values).unwrap_or_default();
        let moved = gradient.iter().zip(before.iter().zip(&after)).filter(|(g, _)| **g != 0.0);
        (numbers.nonzero, numbers.flushed) =
            moved.fold((0, 0), |(n, lost), (_, (before, after))| (n + 1, lost + usize::from(before == after)));
        let raw = Raw::new(Phase::Optimizer, EdgeOp::Update, Subject::Other, step.after, numbers);
        let good_inputs = raw.numbers.is_finite() || raw.dtype.is_low();
        let raw = Raw { leaf: Some(step.leaf), good_inputs, ..raw };
        self.0.borrow_mut().write(raw, &[step.before], step.after);
    }
}
