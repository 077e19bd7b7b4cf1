//! Every op, forward and backward, each through one [`dispatch`] that asks precision first and lets listeners hear of it after.

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

pub use custom::CustomOp;
pub use gradient::twice_differentiable;
pub use loss::cross_entropy::CrossEntropy;
pub use loss::elementwise::Reduction;
pub use recurrent::RecurrentWeights;
pub(crate) use run::{check_attributes, method_of, run_recorded};
pub use run::{run, run_with};
pub use spatial::conv::{ConvOptions, ConvTransposeOptions};
pub use spatial::grid_sample::GridPadding;
pub use spatial::interpolate::{Interpolation, Resize};
pub use spatial::pool::PoolOptions;
pub use spatial::windows::Padding;

use crate::{
    DType, Op, Tensor,
    catalogue::Attributes,
    error::{Error, Result},
    kernels::{elementwise::Saved, memory::Elements},
    precision,
    tensor::{
        self, Array, Forward, Stored,
        context::{self, Hidden},
        listener::{CastRole, OpCall},
        recording::Again,
    },
};

/// One call of an op.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub op: Op,
    pub inputs: &'a [&'a Tensor],
    /// Makes the attributes, where somebody asks for them.
    pub attributes: &'a dyn Fn() -> Attributes,
    /// Of a custom op, makes the way to run it again.
    pub again: Option<&'a dyn Fn() -> Again>,
}

/// A call of an op with these inputs and, after a semicolon, attributes by the names of variables.
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

/// Runs one op: casts the inputs as the innermost frame demands, runs the kernel, puts the result on the tape, lets listeners
/// hear of it, and casts the result back where the frame says so.
///
/// `kernel` reads the cast inputs and must not call other ops on them.
pub(crate) fn dispatch(call: Call<'_>, kernel: impl FnOnce(&[Tensor]) -> Result<Forward>) -> Result<Tensor> {
    let op = call.op;
    let (inputs, cast_back) = cast_inputs(call)?;
    let mut forward = {
        let _hidden = context::hide(Hidden::Recorders);
        kernel(&inputs).map_err(|e| e.in_op(op.name()))?
    };
    if context::wide_weight_grads() && weight_grads::apply(op, call.inputs, &inputs) {
        forward = weight_grads::in_f32(forward, call.inputs[0]);
    }
    let more = std::mem::take(&mut forward.more);
    let output = tensor::record(op, &inputs, forward, call.attributes);
    if context::is_heard() {
        tell(call, &inputs, &output, &more);
    }
    Ok(match cast_back {
        Some(to) if output.dtype().is_castable() => output.cast(to),
        _ => output,
    })
}

/// The inputs as the innermost frame demands them, and the dtype to which it wants the result cast.
fn cast_inputs(call: Call<'_>) -> Result<(Vec<Tensor>, Option<DType>)> {
    let Call { op, inputs, .. } = call;
    let dtypes: Vec<DType> = inputs.iter().map(|x| x.dtype()).collect();
    let (casts, cached) =
        context::with_current(|frame, cached| Ok::<_, Error>((precision::resolve(frame, op, &dtypes)?, cached)))?;
    let cast = |(x, to): (&&Tensor, &Option<DType>)| match to {
        Some(to) if cached => x.cast_as(CastRole::IntoOp(op), *to),
        Some(to) => x.cast_anew(CastRole::IntoOp(op), *to),
        None => (*x).clone(),
    };
    Ok((inputs.iter().zip(&casts.inputs).map(cast).collect(), casts.output))
}

/// Lets listeners hear of an op call.
fn tell(call: Call<'_>, inputs: &[Tensor], output: &Tensor, more: &[Tensor]) {
    let again = call.again.map(|again| again());
    let heard = OpCall {
        op: call.op,
        attributes: &(call.attributes)(),
        inputs,
        output,
        more,
        slot: context::slot(),
        backward: context::in_backward(),
        in_code: context::in_code(),
        given: call.inputs,
        again: again.as_ref(),
    };
    context::tell(|listener| listener.op(&heard));
}

/// What is saved of an op of one input, for a backward pass that reads no more.
fn saved(kept: Saved, x: &Tensor, value: &Array) -> Vec<Tensor> {
    match kept {
        Saved::Nothing => vec![],
        Saved::Input => vec![x.clone()],
        Saved::Output => vec![Tensor::from_array(value.clone())],
    }
}

/// A kernel over contiguous slices of one floating dtype, its result in the same dtype and of the given shape.
macro_rules! float_kernel {
    ($x:expr, $shape:expr, |$slice:ident: $t:ident| $body:expr) => {{
        let contiguous = $x.array().contiguous();
        $crate::tensor::with_float!(&contiguous, a: $t => {
            let $slice: &[$t] = a.as_slice().expect("contiguous");
            $crate::tensor::Array::from_vec::<$t>($body, $shape)
        }, else Err($crate::Error::dtype(format!("needs a floating tensor, got {}", $x.dtype()))))
    }};
}
pub(crate) use float_kernel;

/// Opens the dtype of a floating tensor: `$t` is its element type in the body, which is a `Result`.
macro_rules! by_float {
    ($x:expr, $t:ident => $body:expr) => {
        $crate::tensor::with_float!($x.array(), array: $t => { let _ = array; $body },
            else Err($crate::Error::dtype(format!("needs a floating tensor, got {}", $x.dtype()))))
    };
}
pub(crate) use by_float;

/// For ops that mix no dtypes: integers and booleans beside floating tensors pass `resolve`, but not this.
pub(crate) fn one_float_dtype(inputs: &[Tensor]) -> Result<()> {
    match inputs.iter().find(|x| !x.dtype().is_float() || x.dtype() != inputs[0].dtype()) {
        None => Ok(()),
        Some(_) => {
            let met: Vec<&str> = inputs.iter().map(|x| x.dtype().name()).collect();
            Err(Error::dtype(format!("needs floating tensors of one dtype, got {}", met.join(", "))))
        }
    }
}

/// The elements of a tensor that is known to have the element type `T`, in row-major order.
pub(crate) fn elements<T: Stored>(x: &Tensor) -> Elements<'_, T> {
    match x.array().slice::<T>() {
        Some(slice) => Elements::Borrowed(slice),
        None => Elements::Pooled(x.to_buffer::<T>()),
    }
}
