//! All ops, forward and backward, each run by one `dispatch` that resolves precision first and notifies listeners
//! after.

mod composed;
mod custom;
mod elementwise;
mod gradient;
mod index;
mod linear;
mod loss;
mod recurrent;
mod reduce;
mod run;
mod spatial;
mod weight_grads;
mod with_dtype;

pub(crate) use crate::tensor::elements;
use precast_kernels::elementwise::Saved;

pub use custom::CustomOp;
pub use gradient::twice_differentiable;
pub(crate) use linear::quantized::multiplies_weights;
pub use loss::cross_entropy::CrossEntropy;
pub use loss::reduction::Reduction;
pub use recurrent::RecurrentWeights;
pub use run::run_again;
pub use run::{check_attributes, method_of, run, run_recorded, run_with};
pub use spatial::conv::{ConvOptions, ConvTransposeOptions};
pub use spatial::grid_sample::GridPadding;
pub use spatial::interpolate::{Interpolation, Resize};
pub use spatial::pool::PoolOptions;
pub use spatial::windows::Padding;

use crate::{
    DType, Op, Tensor,
    catalogue::Attributes,
    error::{Error, Result},
    precision,
    tensor::{
        self, Array, Forward, context,
        listener::{CastRole, OnDemand, OpCall},
        recording::Again,
    },
};

/// Runs an op as the ops of which it is composed, each seen by listeners; `None` for an op that is not composed of
/// others. The inputs have the order in which the op is recorded.
///
/// # Errors
/// Those of the ops.
pub fn written_with_others(op: Op, attributes: &Attributes, inputs: &[Tensor]) -> Option<Result<Tensor>> {
    if let Some(formula) = gradient::formula(op) {
        return Some(formula(attributes, inputs));
    }
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    composed::opened(|| run_recorded(op, attributes, &inputs).map(|mut outputs| outputs.swap_remove(0)))
}

/// One call of an op.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub op: Op,
    pub inputs: &'a [&'a Tensor],
    /// Closure that builds the attributes on demand.
    pub attributes: &'a dyn Fn() -> Attributes,
    /// Closure that builds the replay of a custom op.
    pub again: Option<&'a dyn Fn() -> Again>,
}

/// Creates a call of an op with these inputs and, after a semicolon, attributes named after variables.
macro_rules! call {
    ($op:expr, $inputs:expr $(; $($name:ident),* $(,)?)?) => {
        $crate::ops::Call {
            op: $op,
            inputs: $inputs,
            attributes: &|| {
                #[allow(unused_mut, reason = "some ops have no attributes")]
                let mut attributes = $crate::catalogue::Attributes::default();
                $($(attributes.set(stringify!($name), &$name.to_owned());)*)?
                attributes
            },
            again: None,
        }
    };
}
pub(crate) use call;

/// Runs one op: casts the inputs as required by the innermost frame, runs the kernel, records the result on the tape,
/// notifies listeners, and casts the result back if the frame requires it.
///
/// `kernel` reads the cast inputs and must not call other ops on them.
pub(crate) fn dispatch(call: Call<'_>, kernel: impl FnOnce(&[Tensor]) -> Result<Forward>) -> Result<Tensor> {
    let (inputs, cast_back) = cast_inputs(call)?;
    let forward = tensor::fitting(|| {
        let _hidden = context::enter_op();
        kernel(&inputs)
    });
    finish(call, &inputs, forward, cast_back)
}

/// Completes a [`dispatch`] after the kernel: one copy for all kernels.
#[inline(never)]
fn finish(call: Call<'_>, inputs: &[Tensor], forward: Result<Forward>, cast_back: Option<DType>) -> Result<Tensor> {
    let op = call.op;
    let mut forward = forward.map_err(|e| e.in_op(op.name()))?;
    if context::wide_weight_grads() && weight_grads::apply(op, call.inputs, inputs) {
        forward = weight_grads::in_f32(forward, call.inputs[0]);
    }
    let more = std::mem::take(&mut forward.more);
    let output = tensor::record(op, inputs, forward, call.attributes);
    if context::is_heard() {
        tell(call, inputs, &output, &more);
    }
    Ok(match cast_back {
        Some(to) if output.dtype().is_castable() => output.cast(to),
        _ => output,
    })
}

/// Returns the inputs cast as required by the innermost frame, and the dtype to which it casts the result.
#[inline(never)]
fn cast_inputs(call: Call<'_>) -> Result<(Vec<Tensor>, Option<DType>)> {
    let Call { op, inputs, .. } = call;
    let dtypes: Vec<DType> = inputs.iter().map(|x| x.dtype()).collect();
    let (casts, cached) =
        context::with_current(|frame, cached| Ok::<_, Error>((precision::resolve(frame, op, &dtypes)?, cached)))?;
    // A lookup reads a few rows of its table, and its backward pass none.
    let cached = cached && !(op == Op::Embedding && context::is_recording());
    let cast = |(x, to): (&&Tensor, &Option<DType>)| match to {
        Some(to) if cached => x.cast_as(CastRole::IntoOp(op), *to),
        Some(to) => x.cast_anew(CastRole::IntoOp(op), *to),
        None => (*x).clone(),
    };
    Ok((inputs.iter().zip(&casts.inputs).map(cast).collect(), casts.output))
}

/// Notifies listeners of an op call.
fn tell(call: Call<'_>, inputs: &[Tensor], output: &Tensor, more: &[Tensor]) {
    let describe = || ((call.attributes)(), call.again.map(|again| again()));
    let (attributes, again) = if context::is_heard_in_full() { describe() } else { Default::default() };
    let heard = OpCall {
        op: call.op,
        attributes: &attributes,
        inputs,
        output,
        more,
        slot: context::slot_of_call(),
        backward: context::in_backward(),
        in_code: context::in_code(),
        given: call.inputs,
        again: again.as_ref(),
        description: OnDemand(&describe),
    };
    context::tell(|listener| listener.op(&heard));
}

/// Returns the saved tensors of an op with one input whose backward pass needs nothing more.
fn saved(kept: Saved, x: &Tensor, value: &Array) -> Vec<Tensor> {
    match kept {
        Saved::Nothing => vec![],
        Saved::Input => vec![x.clone()],
        Saved::Output => vec![Tensor::from_array(value.clone())],
    }
}

/// Runs a kernel over contiguous slices of one floating dtype. Its result has the same dtype and the given shape.
macro_rules! float_kernel {
    ($x:expr, $shape:expr, |$slice:ident: $t:ident| $body:expr) => {{
        let contiguous = $x.array().contiguous();
        $crate::tensor::with_float!(&contiguous, a: $t => {
            let $slice: &[$t] = a.as_slice().expect("contiguous");
            $crate::tensor::Array::from_vec::<$t>($body, $shape)
        }, else Err($crate::ops::not_floating("a floating tensor", &[$x.dtype()])))
    }};
}
pub(crate) use float_kernel;

/// Dispatches on the dtype of a floating tensor: `$t` is its element type in the body, which is a `Result`.
macro_rules! by_float {
    ($x:expr, $t:ident => $body:expr) => {
        $crate::tensor::with_float!($x.array(), array: $t => { let _ = array; $body },
            else Err($crate::ops::not_floating("a floating tensor", &[$x.dtype()])))
    };
}
pub(crate) use by_float;

/// Checks that all inputs have one floating dtype. `resolve` also accepts integers and booleans along with floating
/// tensors.
pub(crate) fn one_float_dtype(inputs: &[Tensor]) -> Result<()> {
    match inputs.iter().find(|x| !x.dtype().is_float() || x.dtype() != inputs[0].dtype()) {
        None => Ok(()),
        Some(_) => {
            let met: Vec<DType> = inputs.iter().map(Tensor::dtype).collect();
            Err(not_floating("floating tensors of one dtype", &met))
        }
    }
}

/// Returns the error of an op that takes floating-point tensors. Integers often come from an array that was meant to be
/// read as numbers.
pub(crate) fn not_floating(expected: &str, met: &[DType]) -> Error {
    let hint = match met {
        met if met.contains(&DType::I64) => {
            "; i64 is for indices (of an `Embedding`): `cast` makes numbers of them, and an array of NumPy saved as float64 is \
             read as numbers"
        }
        met if met.contains(&DType::Bool) => "; `cast` makes numbers 0 and 1 of booleans",
        _ => "",
    };
    let met: Vec<&str> = met.iter().map(|dtype| dtype.name()).collect();
    Error::dtype(format!("needs {expected}, got {}{hint}", met.join(", ")))
}
