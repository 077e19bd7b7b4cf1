//! Gradients that stay on the tape, so that they can be differentiated.
//!
//! A gradient on the tape has the value that the op's backward pass computes, bit for bit. It is its own node, whose
//! inputs are the gradient of the op's output and the op's inputs. The gradient of that node is found by writing the
//! op's gradient with ops, on a separate tape. There are four ways to write it:
//!
//! - [`linear`]: ops that are linear in each input (products, convolutions, sums, shapes). Their gradients are the same
//!   ops with other tensors in place of their inputs, so nothing needs to be written;
//! - [`slopes`]: functions of one or two numbers, times the gradient;
//! - [`formulas`]: ops that are composed of others (softmax, norms, losses), whose gradient is that of the formula;
//! - [`Written`]: ops that supply it themselves (composed ops, pools, custom ops).
//!
//! All others have no second derivative.

mod chain;
mod formulas;
mod linear;
mod losses;
mod slopes;
mod walk;

use crate::{
    DType, Op, Tensor,
    error::{Error, Result},
    ops::{composed::inside, run_recorded},
    precision::Frame,
    tensor::{Backward, What, Written, context, with_recording},
};
pub(super) use formulas::formula;
use walk::walk;

/// Runs `f` so that its results can be differentiated twice or more: every op on the tape keeps its inputs and
/// arguments, for [`gradients_on_tape`](Tensor::gradients_on_tape). This uses memory until the tape is dropped, so wrap
/// only the forward pass whose gradients are to be differentiated.
///
/// ```
/// # use precast_tensor as precast;
/// use precast::{Tensor, twice_differentiable};
/// let x = Tensor::from_vec(vec![2f64], &[1])?.requires_grad();
/// let y = twice_differentiable(|| x.square()?.mul(&x))?; // x³
/// let slope = y.gradients_on_tape(&[&x])?[0].clone().expect("y depends on x"); // 3 x²
/// assert_eq!(slope.to_f64(), [12.0]);
/// let second = slope.sum_all()?.backward()?;
/// assert_eq!(second.of(&x).expect("the slope depends on x").to_f64(), [12.0]); // 6 x
/// # Ok::<(), precast::Error>(())
/// ```
pub fn twice_differentiable<R>(f: impl FnOnce() -> R) -> R {
    let _keep = context::keep_calls();
    f()
}

impl Tensor {
    /// Computes the gradients of this scalar with respect to each of `of`, on the tape: a loss made of them can be
    /// differentiated again. `None` where this scalar does not depend on the tensor. Each has the dtype, the shape and
    /// the bits of [`backward`](Tensor::backward).
    ///
    /// The ops between must have run within [`twice_differentiable`]. Call this within it as well, to differentiate the
    /// gradients more than once.
    ///
    /// `of` holds tensors that [require](Tensor::requires_grad) a gradient, [tensors](crate::Param::tensor) of
    /// parameters, or results of ops. If one of them was computed from another, the gradient of that other includes the
    /// path through both.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when this is not a floating scalar;
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a tensor in `of` that is not on the tape;
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), naming the op, for an op that ran outside
    /// [`twice_differentiable`] or has no second derivative.
    #[doc(alias = "grad")]
    #[doc(alias = "create_graph")]
    pub fn gradients_on_tape(&self, of: &[&Tensor]) -> Result<Vec<Option<Tensor>>> {
        self.check_scalar("a gradient starts from a floating scalar; this")?;
        if let Some(i) = of.iter().position(|x| !x.is_tracked()) {
            return Err(Error::value(format!(
                "tensor {i} is not on the tape, so nothing depends on it; call `requires_grad` before it is used"
            )));
        }
        let _off = context::enter(Frame::Off);
        let _phase = context::enter_backward();
        walk(self, &Tensor::full(self.shape(), 1.0, self.dtype()), of)
    }
}

/// Runs the backward pass of a gradient, off the tape. Returns the gradients of the gradient it was made of and of the
/// op's inputs.
fn backward(what: &What, back: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
    let exact = keeps_dtypes(what);
    let wide = |x: &Tensor| if x.dtype().is_low() && !exact { x.detach().cast(DType::F32) } else { x.detach() };
    let leaf = |x: &Tensor| if x.dtype().is_float() { wide(x).requires_grad() } else { x.clone() };
    inside(false, || {
        let _alone = context::enter_op();
        let inputs: Vec<Tensor> = back.saved.iter().map(leaf).collect();
        let grads = gradients(what, &inputs, back.needs, &wide(back.grad))?;
        let as_input = |(grad, x): (Option<Tensor>, &Tensor)| grad.map(|grad| grad.detach().cast(x.dtype()));
        Ok(grads.into_iter().zip(back.saved).map(as_input).collect())
    })
}

/// Returns whether the gradients of a call are computed in the dtypes of its inputs, with one rounding: those of linear
/// ops. All others are written with several ops, in f32 or f64.
fn keeps_dtypes(what: &What) -> bool {
    match what {
        What::Op { written: Some(Written::Gradients(_)), .. } => true,
        What::Op { op, .. } => linear::factors(*op, 0).is_some(),
        What::Gradient { of, .. } => keeps_dtypes(of),
    }
}

/// Runs `f` on its own tape, twice differentiable.
fn on_own_tape<R>(f: impl FnOnce() -> Result<R>) -> Result<R> {
    let _keep = context::keep_calls();
    with_recording(true, f)
}

/// Computes the gradients of a call, written with ops. `inputs` are leaves of the tape. The gradients are on the tape
/// as well if recording is on.
fn gradients(what: &What, inputs: &[Tensor], needs: &[bool], grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
    match what {
        What::Op { written: Some(Written::Gradients(written)), .. } => on_own_tape(|| written(inputs, grad, needs)),
        What::Op { written: Some(Written::Op(formula)), .. } => {
            of_result(on_own_tape(|| formula(inputs))?, inputs, needs, grad)
        }
        What::Op { op, attributes, .. } => {
            let borrowed: Vec<&Tensor> = inputs.iter().collect();
            if linear::factors(*op, 0).is_some() {
                let y = on_own_tape(|| Ok(run_recorded(*op, attributes, &borrowed)?.swap_remove(0)))?;
                return of_result(y, inputs, needs, grad);
            }
            if let Some(slope) = slopes::slope(*op) {
                return on_own_tape(|| slopes::gradients(&slope, attributes, inputs, needs, grad));
            }
            let formula = formulas::formula(*op).ok_or_else(|| no_second(*op))?;
            of_result(on_own_tape(|| formula(attributes, inputs))?, inputs, needs, grad)
        }
        What::Gradient { of, input } => of_gradient(of, *input, inputs, needs, grad),
    }
}

/// Computes the gradients of a gradient, given its inputs: the gradient of the output of a call, and the call's inputs.
fn of_gradient(
    of: &What,
    input: usize,
    inputs: &[Tensor],
    needs: &[bool],
    grad: &Tensor,
) -> Result<Vec<Option<Tensor>>> {
    let (of_output, x) = inputs.split_first().expect("the gradient of the output");
    if let What::Op { op, attributes, written } = of
        && let Some(factors) = linear::factors(*op, input)
        && !matches!(written, Some(Written::Gradients(_)))
    {
        // An expression linear in x has a gradient that does not depend on x, and is linear in its other inputs.
        let x = linear::with(x, input, grad, &factors);
        let borrowed: Vec<&Tensor> = x.iter().collect();
        let y = on_own_tape(|| {
            Ok(run_recorded(*op, &linear::without_constant(*op, attributes), &borrowed)?.swap_remove(0))
        })?;
        let others: Vec<bool> = (0..x.len()).map(|i| needs[i + 1] && i != input && factors.contains(&i)).collect();
        let of_factors = of_result(y.clone(), &x, &others, of_output)?;
        return Ok([vec![needs[0].then_some(y)], of_factors].concat());
    }
    let only: Vec<bool> = (0..x.len()).map(|i| i == input).collect();
    match on_own_tape(|| gradients(of, x, &only, of_output))?.swap_remove(input) {
        Some(y) => of_result(y, inputs, needs, grad),
        None => Ok(vec![None; inputs.len()]),
    }
}

/// Computes the gradients of a result that ops computed from `inputs`.
fn of_result(y: Tensor, inputs: &[Tensor], needs: &[bool], grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
    let wanted = |i: &usize| needs[*i] && inputs[*i].is_tracked();
    let wanted: Vec<usize> = (0..inputs.len()).filter(wanted).collect();
    let targets: Vec<&Tensor> = wanted.iter().map(|&i| &inputs[i]).collect();
    let mut grads = vec![None; inputs.len()];
    for (i, grad) in wanted.into_iter().zip(walk(&y, &grad.cast(y.dtype()), &targets)?) {
        grads[i] = grad;
    }
    Ok(grads)
}

/// Checks that a gradient of the call can be differentiated.
fn has_second(what: &What) -> Result<()> {
    match what {
        What::Op { op, written: Some(Written::Not(why)), .. } => {
            Err(Error::unsupported(format!("has no second derivative here: {why}")).in_op(op.name()))
        }
        What::Gradient { .. } | What::Op { written: Some(_), .. } => Ok(()),
        What::Op { op, .. } => {
            let known =
                linear::factors(*op, 0).is_some() || slopes::slope(*op).is_some() || formulas::formula(*op).is_some();
            if known { Ok(()) } else { Err(no_second(*op)) }
        }
    }
}

fn no_second(op: Op) -> Error {
    let words = "has no second derivative; sampling by a grid and the CTC loss have none, all other ops of the catalogue have \
                 one";
    Error::unsupported(words).in_op(op.name())
}
