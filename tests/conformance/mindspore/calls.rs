//! Wrapper around every op of the recorded networks that computes something, so that a run can be [watched](watched),
//! comparing each op with the same op in f64.

use std::cell::RefCell;

use precast::{DType, Op, Result, Tensor, observe};

use crate::mindspore::exact;

/// One call of an op.
pub struct Call {
    pub op: Op,
    /// Dtypes of the inputs as passed by the network.
    pub arriving: Vec<DType>,
    /// Dtypes seen by the kernel, after casts.
    pub inside: Vec<DType>,
    /// Dtype of the result returned to the network.
    pub returned: DType,
    /// Description of an excessive distance from the exact result, if any.
    pub too_far: Option<String>,
}

thread_local! {
    static CALLS: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
}

/// Runs `f` and returns every call, each compared with the exact result.
pub fn watched<R>(f: impl FnOnce() -> R) -> (R, Vec<Call>) {
    CALLS.set(Some(vec![]));
    let result = f();
    (result, CALLS.take().expect("set above"))
}

/// Calls an op.
pub fn op<const N: usize>(inputs: [&Tensor; N], op: impl Fn([&Tensor; N]) -> Result<Tensor>) -> Result<Tensor> {
    if CALLS.with_borrow(Option::is_none) {
        return op(inputs);
    }
    let (y, events) = observe::watch(|| op(inputs));
    let y = y?;
    let event = events.iter().rfind(|event| event.op != Op::Cast).expect("an op ran").clone();
    let too_far = exact::too_far(&event, inputs, &op, &y)?;
    // A number takes the dtype of the tensor it is combined with.
    let mut arriving: Vec<DType> = inputs.iter().map(|x| x.dtype()).collect();
    arriving.resize(event.inputs.len(), arriving[0]);
    let call = Call { op: event.op, arriving, inside: event.inputs, returned: y.dtype(), too_far };
    CALLS.with_borrow_mut(|calls| calls.as_mut().expect("watched").push(call));
    Ok(y)
}
