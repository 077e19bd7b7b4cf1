//! Recordings of op calls, with their tensors and arguments: for libraries that keep a computation as data and run it
//! again, as `precast-graph` does.
//!
//! ```
//! use precast::{prelude::*, recording};
//! let x = Tensor::ones(&[2, 3], DType::F32);
//! let (y, recorded) = recording::record(|| x.relu()?.sum(&[1], false));
//! let ops: Vec<String> = recorded.calls.iter().map(|call| call.op.to_string()).collect();
//! assert_eq!(ops, ["Relu", "Sum"]);
//!
//! let last = recorded.calls.last().unwrap();
//! let inputs: Vec<&Tensor> = last.inputs.iter().collect();
//! let again = recording::run_recorded(last.op, &last.attributes, &inputs)?;
//! assert_eq!(again[0].to_f64(), y?.to_f64());
//! # Ok::<(), precast::Error>(())
//! ```

use precast_tensor::{context::silence, pass};

pub use precast_tensor::{
    ops::{check_attributes, method_of, run_recorded, written_with_others},
    recording::{Again, Blend, Call, Recorded, Repeatable, is_on, on_end, record},
};

use crate::{
    Param, Tensor,
    cell::{AsCell, Child},
    error::Result,
    precision::{Frame, enter},
};

/// Runs ops on numbers that belong to no precision, such as shapes: outside every region, off the tape, and heard by no
/// listener or recording.
///
/// # Errors
/// Those of `f`.
pub fn hidden<R>(f: impl FnOnce() -> Result<R>) -> Result<R> {
    let _off = enter(Frame::Off);
    let _silence = silence();
    crate::no_grad(f)
}

/// The cells that behave differently in training, and ran in evaluation mode: see
/// [`ran_in_evaluation`](crate::cell::ran_in_evaluation).
#[derive(Clone, Debug, Default)]
pub struct Evaluated(pass::Evaluated);

impl Evaluated {
    /// Returns those of the calls that lead to a tensor.
    pub fn of(x: &Tensor) -> Evaluated {
        let mut all = pass::Evaluated::default();
        pass::passes(x).iter().for_each(|pass| all.add(&pass.evaluated));
        Evaluated(all)
    }
}

/// Runs `f`, a recording of a network's loss, as one forward pass of the network: a step that is skipped takes its changes
/// of buffers back, and the optimizer warns of cells that ran in evaluation mode when they were recorded.
///
/// # Errors
/// Those of `f`; [`ErrorKind::Value`](crate::ErrorKind::Value) for a buffer that refused a non-finite number.
pub fn as_pass<C: ?Sized + AsCell>(
    net: &Child<C>,
    evaluated: &Evaluated,
    f: impl FnOnce() -> Result<Tensor>,
) -> Result<Tensor> {
    let open = pass::open();
    let path = |param: &Param| net.slot().path_of_param(param);
    let loss = f().inspect(|loss| {
        let pass = pass::noted(|_| evaluated.0.clone(), path);
        pass::note_passes(loss, &Vec::from_iter(pass));
    });
    open.end(loss, path)
}
