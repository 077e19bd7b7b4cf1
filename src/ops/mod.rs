//! Every op, forward and backward, each through one [`dispatch`] that asks precision first and tells observers after.

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
    error::{Error, Result},
    kernels::{elementwise::Saved, memory::Elements},
    observe, precision,
    tensor::{self, Array, Forward, Stored, recording},
};

/// Runs one op: casts the inputs as the innermost frame demands, runs the kernel, records it on the tape, tells the
/// observers, and casts the result back where the frame says so.
///
/// `kernel` reads the cast inputs and must not call other ops on them.
pub(crate) fn dispatch(
    op: Op,
    inputs: &[&Tensor],
    kernel: impl FnOnce(&[Tensor]) -> Result<Forward>,
) -> Result<Tensor> {
    let given = inputs;
    let (inputs, cast_back) = prepare(op, given)?;
    let mut forward = {
        let _paused = recording::pause();
        kernel(&inputs).map_err(|e| e.in_op(op.name()))?
    };
    if precision::wide_weight_grads() && weight_grads::apply(op, given, &inputs) {
        forward = weight_grads::in_f32(forward, given[0]);
    }
    Ok(finish(op, &inputs, forward, cast_back))
}

/// The inputs as the innermost frame demands them, and the dtype to which it wants the result cast.
fn prepare(op: Op, inputs: &[&Tensor]) -> Result<(Vec<Tensor>, Option<DType>)> {
    let dtypes: Vec<DType> = inputs.iter().map(|x| x.dtype()).collect();
    observe::emit_reads(inputs.iter().filter_map(|x| Some(x.place().leaf()?.0)));
    let (casts, cached) =
        precision::with_current(|frame, cached| Ok::<_, Error>((precision::resolve(frame, op, &dtypes)?, cached)))?;
    let cast = |(x, to): (&&Tensor, &Option<DType>)| match to {
        Some(to) if cached => x.cast_as(observe::Cast::IntoOp(op), *to),
        Some(to) => x.cast_anew(observe::Cast::IntoOp(op), *to),
        None => (*x).clone(),
    };
    Ok((inputs.iter().zip(&casts.inputs).map(cast).collect(), casts.output))
}

fn finish(op: Op, inputs: &[Tensor], forward: Forward, cast_back: Option<DType>) -> Tensor {
    let output = tensor::record(op, inputs, forward, || recording::announced(op));
    recording::call(op, inputs, &output);
    let finite = |x: &Tensor| x.has_only_finite();
    observe::look(op, None, precision::slot, || inputs.iter().all(finite), || finite(&output));
    observe::emit(op, inputs.iter().map(Tensor::dtype), output.dtype(), || observe::Sizes {
        inputs: inputs.iter().map(|x| x.shape().to_vec()).collect(),
        output: output.shape().to_vec(),
        needs: inputs.iter().map(Tensor::is_tracked).collect(),
        kept: output.kept(inputs),
    });
    match cast_back {
        Some(to) if output.dtype().is_castable() => output.cast(to),
        _ => output,
    }
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
