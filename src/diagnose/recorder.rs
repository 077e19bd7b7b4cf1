//! The listener that looks at every edge of a step.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
};

use super::{
    edge::{EdgeOp, Numbers, Phase, Subject, values},
    reference::{Repeatable, fits_f32, relative, wide},
};
use crate::{
    DType, Op, Tensor,
    observe::{Accumulation, CastCall, CastRole, GradientCall, Hears, OpCall, ParamStep},
    tensor::Place,
};

/// An edge whose cell and parameter are not named yet.
pub(super) struct Raw {
    pub phase: Phase,
    pub slot: Option<usize>,
    pub leaf: Option<u64>,
    pub op: EdgeOp,
    pub subject: Subject,
    pub dtype: DType,
    pub numbers: Numbers,
    pub error: Option<f64>,
    pub from: Vec<usize>,
    pub good_inputs: bool,
}

/// Records the edges of a step. Keeps every tensor alive until the end, so that each has an identity of its own.
#[derive(Default)]
pub(super) struct Recorder(RefCell<State>);

#[derive(Default)]
struct State {
    edges: Vec<Raw>,
    alive: Vec<Tensor>,
    /// Edge that wrote each value.
    wrote: HashMap<usize, usize>,
    /// Each value as the same pass in f64 has it.
    shadows: HashMap<usize, Tensor>,
    /// Calls by the number of their node on the tape.
    calls: BTreeMap<u64, Repeatable>,
}

impl Recorder {
    pub fn take(&self) -> Vec<Raw> {
        std::mem::take(&mut *self.0.borrow_mut()).edges
    }
}

/// Share of zeros above which the numbers before rounding are computed to see how many of the zeros it made.
const ZEROS: f64 = 0.25;

impl State {
    /// Adds an edge that wrote `output`, after reading `inputs`.
    fn write(&mut self, mut raw: Raw, inputs: &[&Tensor], output: &Tensor) {
        let from = inputs.iter().filter_map(|x| self.wrote.get(&x.identity())).copied();
        raw.from = from.collect();
        raw.good_inputs &= inputs.iter().all(|x| x.has_only_finite());
        self.wrote.insert(output.identity(), self.edges.len());
        self.edges.push(raw);
        self.alive.push(output.detach());
        self.alive.extend(inputs.iter().map(|x| x.detach()));
    }

    /// Returns a value as the same pass in f64 has it.
    fn shadow(&self, x: &Tensor) -> Tensor {
        let known = |x: &Tensor| self.shadows.get(&x.identity()).cloned();
        known(x).or_else(|| known(x.narrow()?)).unwrap_or_else(|| wide(x))
    }
}

impl Hears for Recorder {
    fn op(&self, call: &OpCall<'_>) {
        if call.backward || !call.output.dtype().is_float() {
            return;
        }
        let mut state = self.0.borrow_mut();
        let state = &mut *state;
        let inputs: Vec<&Tensor> = call.inputs.iter().collect();
        let repeatable = Repeatable {
            op: call.op,
            attributes: call.attributes.clone(),
            again: call.again.cloned(),
            inputs: call.inputs.iter().map(Tensor::to_keep).collect(),
        };
        let found = values(call.output);
        let shadows: Vec<Tensor> = call.inputs.iter().map(|x| state.shadow(x)).collect();
        let shadow = repeatable.on(&shadows).filter(|shadow| shadow.shape() == call.output.shape());
        let error = shadow.as_ref().and_then(|shadow| relative(&found, &values(shadow)));
        let zeros = found.iter().filter(|x| **x == 0.0).count() as f64;
        let finite = found.iter().all(|x| x.is_finite());
        let exact = (call.output.dtype().is_low() && (zeros >= ZEROS * found.len() as f64 || !finite))
            .then(|| repeatable.on(&repeatable.inputs))
            .flatten();
        let good_inputs = finite || exact.as_ref().is_some_and(fits_f32);
        let raw = Raw {
            phase: Phase::Forward,
            slot: call.slot,
            leaf: None,
            op: EdgeOp::Op(call.op),
            subject: Subject::Output,
            dtype: call.output.dtype(),
            numbers: Numbers::of(&found, exact.as_ref().map(values).as_deref()),
            error,
            from: Vec::new(),
            good_inputs,
        };
        state.write(raw, &inputs, call.output);
        if let Some(shadow) = shadow {
            state.shadows.insert(call.output.identity(), shadow);
        }
        if let Place::Node(node) = call.output.place() {
            state.calls.insert(node.id, repeatable);
        }
    }

    fn cast(&self, cast: &CastCall<'_>) {
        let mut state = self.0.borrow_mut();
        let state = &mut *state;
        if !cast.output.dtype().is_float() || !cast.input.dtype().is_float() {
            return;
        }
        // A low copy that is kept has been looked at.
        if !cast.backward && state.wrote.contains_key(&cast.output.identity()) {
            return;
        }
        let (leaf, subject) = match cast.of {
            CastRole::Leaf(leaf) => (Some(leaf), Subject::Other),
            CastRole::IntoCell => (None, Subject::CellInput),
            CastRole::OutOfCell => (None, Subject::CellOutput),
            CastRole::IntoOp(op) => (None, Subject::InputOf(op)),
            CastRole::Gradient => (None, Subject::Gradient(0)),
            _ => (None, Subject::Other),
        };
        let shadow = state.shadow(cast.input);
        let (found, exact) = (values(cast.output), values(cast.input));
        let error = (!cast.backward).then(|| relative(&found, &values(&shadow))).flatten();
        let raw = Raw {
            phase: if cast.backward { Phase::Backward } else { Phase::Forward },
            slot: cast.slot,
            leaf,
            op: EdgeOp::Op(Op::Cast),
            subject,
            dtype: cast.output.dtype(),
            numbers: Numbers::of(&found, Some(&exact)),
            error,
            from: Vec::new(),
            good_inputs: true,
        };
        state.write(raw, &[cast.input], cast.output);
        if !cast.backward {
            state.shadows.insert(cast.output.identity(), shadow);
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
            let zeros = found.iter().filter(|x| **x == 0.0).count() as f64;
            let finite = found.iter().all(|x| x.is_finite());
            let mut good_inputs = finite;
            let numbers = if gradient.dtype().is_low() && (zeros >= ZEROS * found.len() as f64 || !finite) {
                let exact = exact.get_or_insert_with(|| state.calls.get(&call.node)?.gradients(call.grad));
                let exact = exact.as_ref().and_then(|exact| exact.get(input)?.as_ref());
                let exact = exact.filter(|exact| exact.shape() == gradient.shape());
                good_inputs |= exact.is_some_and(fits_f32);
                Numbers::of(&found, exact.map(values).as_deref())
            } else {
                Numbers::of(&found, None)
            };
            let raw = Raw {
                phase: Phase::Backward,
                slot: call.slot,
                leaf: None,
                op: EdgeOp::Op(op),
                subject: Subject::Gradient(input),
                dtype: gradient.dtype(),
                numbers,
                error: None,
                from: Vec::new(),
                good_inputs,
            };
            state.write(raw, &[call.grad], gradient);
        }
    }

    fn accumulate(&self, sum: &Accumulation<'_>) {
        let mut state = self.0.borrow_mut();
        let (found, exact) = (values(sum.sum), sum.terms.map(values));
        // The rounding of a sum that was kept in f32 has one term.
        let rounded = sum.terms[0].dtype() != sum.sum.dtype();
        let exact: Vec<f64> = match rounded {
            true => exact[0].clone(),
            false => exact[0].iter().zip(&exact[1]).map(|(a, b)| a + b).collect(),
        };
        let raw = Raw {
            phase: Phase::Backward,
            slot: sum.slot,
            leaf: sum.leaf,
            op: EdgeOp::Accumulate,
            subject: Subject::Other,
            dtype: sum.sum.dtype(),
            numbers: Numbers::of(&found, Some(&exact)),
            error: None,
            from: Vec::new(),
            good_inputs: true,
        };
        state.write(raw, &sum.terms, sum.sum);
    }

    fn unscale(&self, step: &ParamStep<'_>) {
        let raw = Raw {
            phase: Phase::Unscale,
            slot: None,
            leaf: Some(step.leaf),
            op: EdgeOp::Unscale,
            subject: Subject::Other,
            dtype: step.after.dtype(),
            numbers: Numbers::of(&values(step.after), Some(&values(step.before))),
            error: None,
            from: Vec::new(),
            good_inputs: true,
        };
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
        let raw = Raw {
            phase: Phase::Optimizer,
            slot: None,
            leaf: Some(step.leaf),
            op: EdgeOp::Update,
            subject: Subject::Other,
            dtype: step.after.dtype(),
            numbers,
            error: None,
            from: Vec::new(),
            good_inputs: true,
        };
        self.0.borrow_mut().write(raw, &[step.before], step.after);
    }
}
