//! Recompute: cells whose activations are not kept but computed again in the backward pass.
//!
//! The first run is recorded as a list of op calls, casts included, in the same way as a graph. The second run calls
//! the same ops on the same inputs. So it runs in the same precision, whatever region surrounds the backward pass;
//! dropout uses the same seeds; running statistics are not updated twice; and branches in code are taken as in the
//! first run.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, ThreadId},
};

use precast_tensor::{
    Backward, Place, backward_of,
    context::{self, Quantizing},
    internals::{GradsInternals as _, TensorInternals as _},
    is_recording,
    ops::run_again,
    record_segment, recording,
    recording::{Again, Recorded},
    with_recording,
};

use super::Castable;
use crate::{
    DType, Op, Tensor,
    catalogue::Attributes,
    error::Result,
    precision::{self, Frame},
};

/// Runs `body` on inputs without keeping its activations for a possible backward pass. `inward` is applied to the
/// inputs, `outward` to the outputs.
pub(super) fn recomputed<I: Castable, O: Castable>(
    inputs: I,
    inward: &mut dyn FnMut(Tensor) -> Tensor,
    body: impl FnOnce(I::Owned) -> Result<O>,
    outward: &mut dyn FnMut(Tensor) -> Tensor,
) -> Result<O::Owned> {
    // Inside another recorded run, the outer one repeats the ops.
    if !is_recording() || recording::is_on() {
        return Ok(body(inputs.map(inward))?.map(outward));
    }
    let mut given = vec![];
    let inputs = inputs.map(&mut |x| {
        let x = inward(x);
        given.push(x.clone());
        x
    });
    let (outputs, recorded) = recording::record_for_good(|| body(inputs));
    let outputs = outputs?;
    let (segment, places, from) = Segment::new(given, recorded);
    let segment = Arc::new(segment);
    let place = segment.place(places);
    Ok(outputs.map(&mut |y| {
        let of = |y: &Tensor| segment.output(y, from.get(&y.identity()), &place);
        // A widening that is cast back returns the 16-bit tensor, whose gradient must also reach the segment.
        outward(match y.source().filter(|_| y.is_tracked()) {
            Some(narrow) => y.widening_of(of(narrow)),
            None => of(&y),
        })
    }))
}

/// A recorded run.
struct Segment {
    /// Everything it reads from outside: its inputs, and tensors held by code, such as parameters. Leaves of the tape
    /// are stored as leaves; other tensors are detached from the tape, so that long chains of segments are dropped one
    /// by one.
    given: Vec<Tensor>,
    /// `true` when an op returned f16.
    has_f16: bool,
    calls: Vec<Call>,
    /// By call number and output number.
    outputs: Mutex<Vec<(usize, usize)>>,
    /// Gradients of outputs that have arrived in a backward pass, keyed by the thread that runs it.
    arrived: Mutex<HashMap<ThreadId, Vec<(usize, Tensor)>>>,
}

struct Call {
    op: Op,
    attributes: Attributes,
    again: Option<Again>,
    slot: Option<usize>,
    /// The dtype in which it runs, set if it computes gradients of weights in f32.
    wide_weight_grads: Option<DType>,
    operands: Option<Quantizing>,
    inputs: Vec<Input>,
}

struct Input {
    value: Value,
    /// `true` when no gradient flows through it.
    detached: bool,
}

#[derive(Clone)]
enum Value {
    /// By index into the given tensors.
    Given(usize),
    /// By call number and output number.
    Made(usize, usize),
    Constant(Tensor),
}

impl Segment {
    /// Returns the segment, the places of its given tensors, and the origin of each tensor of the run, by identity.
    fn new(inputs: Vec<Tensor>, recorded: Recorded) -> (Self, Vec<Place>, HashMap<usize, Value>) {
        let mut given: Vec<Tensor> = vec![];
        let mut from: HashMap<usize, (Value, bool)> = HashMap::new();
        // If a tensor is passed in twice, the one on the tape counts.
        for x in inputs {
            if from.get(&x.identity()).is_none_or(|(_, tracked)| !tracked) {
                from.insert(x.identity(), (Value::Given(given.len()), x.is_tracked()));
            }
            given.push(x);
        }
        let mut calls = Vec::with_capacity(recorded.calls.len());
        let mut has_f16 = false;
        // Inputs of casts from f32, by the identity of the result.
        let mut was: HashMap<usize, Tensor> = HashMap::new();
        for call in recorded.calls {
            has_f16 |= call.outputs.iter().any(|y| y.dtype() == DType::F16);
            if call.op == Op::Cast && call.inputs[0].dtype() == DType::F32 {
                was.insert(call.outputs[0].identity(), call.inputs[0].clone());
            }
            let wide_weight_grads =
                call.wide_weight_grads.then(|| call.inputs[0].dtype()).filter(|dtype| dtype.is_low());
            let tracked = call.outputs.first().is_some_and(Tensor::is_tracked);
            let inputs = call.inputs.iter().map(|x| {
                // The call casts its inputs itself, so it reads the uncast ones.
                let x = was.get(&x.identity()).filter(|_| wide_weight_grads.is_some()).unwrap_or(x);
                let (value, tracked) = from.entry(x.identity()).or_insert_with(|| {
                    if !x.is_tracked() {
                        return (Value::Constant(x.clone()), false);
                    }
                    given.push(x.clone());
                    (Value::Given(given.len() - 1), true)
                });
                Input { value: value.clone(), detached: *tracked && !x.is_tracked() }
            });
            let inputs = inputs.collect();
            for (i, y) in call.outputs.iter().enumerate() {
                // A cast may return the original of an earlier cast.
                from.entry(y.identity()).or_insert((Value::Made(calls.len(), i), tracked && i == 0));
            }
            let recording::Call { op, attributes, again, slot, operands, .. } = call;
            calls.push(Call { op, attributes, again, slot, wide_weight_grads, operands, inputs });
        }
        let from = from.into_iter().map(|(identity, (value, _))| (identity, value)).collect();
        let places = given.iter().map(|x| x.place().clone()).collect();
        let kept = |x: Tensor| if x.place().leaf().is_some() { x } else { x.to_keep() };
        let given = given.into_iter().map(kept).collect();
        (Segment { given, has_f16, calls, outputs: Mutex::default(), arrived: Mutex::default() }, places, from)
    }

    /// Returns the place that passes gradients on to the given tensors.
    fn place(self: &Arc<Self>, places: Vec<Place>) -> Place {
        let segment = self.clone();
        record_segment(places, &self.given, self.has_f16, Box::new(move |back| segment.backward(back)))
    }

    /// Returns an output of the recorded run; its gradient runs the segment again.
    fn output(self: &Arc<Self>, y: &Tensor, from: Option<&Value>, place: &Place) -> Tensor {
        // A tensor that is passed through keeps its place on the tape.
        let Some(&Value::Made(call, port)) = from.filter(|_| y.is_tracked()) else { return y.clone() };
        let mut outputs = lock(&self.outputs);
        let (number, segment) = (outputs.len(), self.clone());
        outputs.push((call, port));
        let arrives = move |back: &Backward<'_>| {
            let grad = (number, back.grad.clone());
            lock(&segment.arrived).entry(thread::current().id()).or_default().push(grad);
            // The segment only needs to know that a gradient has arrived.
            Ok(vec![Some(Tensor::scalar(0.0, DType::F32))])
        };
        y.with_place(record_segment(vec![place.clone()], &[], false, Box::new(arrives)))
    }

    fn backward(&self, back: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
        let arrived = lock(&self.arrived).remove(&thread::current().id()).unwrap_or_default();
        // Separate leaves, so that the inner backward pass ends at them.
        let leaf =
            |(x, &needed): (&Tensor, &bool)| if needed && !x.is_tracked() { x.requires_grad() } else { x.clone() };
        let given: Vec<Tensor> = self.given.iter().zip(back.needs).map(leaf).collect();
        let made = with_recording(true, || {
            let _off = precision::enter(Frame::Off);
            self.run(&given)
        })?;
        let outputs = lock(&self.outputs);
        let seeded = arrived.into_iter().map(|(number, grad)| {
            let (call, port) = outputs[number];
            (made[call][port].clone(), grad)
        });
        let seeded: Vec<(Tensor, Tensor)> = seeded.collect();
        drop((made, outputs));
        let stand_ins = self.given.iter().zip(&given).filter(|(before, _)| !before.is_tracked());
        let stand_ins = stand_ins.filter_map(|(_, leaf)| leaf.place().leaf()).collect();
        let grads = with_recording(false, || backward_of(&seeded, &stand_ins))?;
        Ok(given.iter().map(|x| grads.lying(x.place().leaf()?).cloned()).collect())
    }

    /// Returns the results of all calls.
    fn run(&self, given: &[Tensor]) -> Result<Vec<Vec<Tensor>>> {
        let mut made: Vec<Vec<Tensor>> = Vec::with_capacity(self.calls.len());
        for call in &self.calls {
            let inputs = call.inputs.iter().map(|input| {
                let value = match &input.value {
                    Value::Given(number) => &given[*number],
                    Value::Made(call, port) => &made[*call][*port],
                    Value::Constant(value) => value,
                };
                if input.detached { value.detach() } else { value.clone() }
            });
            let inputs: Vec<Tensor> = inputs.collect();
            let inputs: Vec<&Tensor> = inputs.iter().collect();
            let _slot = call.slot.map(context::enter_slot);
            let _region = call.wide_weight_grads.map(|dtype| precision::enter(Frame::Fixed(dtype)));
            let _grads = call.wide_weight_grads.map(|_| context::enter_weight_grads(true));
            let quantizes = call.operands.is_some() || context::quantizes();
            let _operands = quantizes.then(|| context::enter_operands(call.operands.clone()));
            made.push(run_again(call.op, &call.attributes, call.again.as_ref(), &inputs)?);
        }
        Ok(made)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
