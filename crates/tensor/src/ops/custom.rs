//! User-defined ops, which obey regions and lists and are visible to listeners like the ops of the catalogue.

use std::sync::Arc;

use crate::{
    DType, Op, Tensor,
    catalogue::{Custom, Precision},
    error::{Error, Result},
    ops::{Call, call, composed::inside, dispatch},
    tensor::{Backward, Forward, Written, recording::Again},
};

/// A user-defined op: a type that holds its options, with a forward pass, a backward pass and a precision.
///
/// [`apply`](CustomOp::apply) runs it like any other op. The surrounding region casts its inputs, it is one entry on
/// the tape, and listeners, traces and plans see one op of its name. Lists, in code and in files, can name it once it
/// is [registered](CustomOp::register).
///
/// An op of several inputs that saves a number for its backward pass and computes in f32 in every region:
///
/// ```
/// # use precast_tensor as precast;
/// use precast::{Backward, CustomOp, DType, Precision, Result, Tensor, gradcheck};
///
/// /// `exp(-|a - b|² / width)` of two tensors of one shape.
/// #[derive(Clone)]
/// struct RbfKernel {
///     width: f64,
/// }
///
/// impl CustomOp for RbfKernel {
///     const NAME: &'static str = "RbfKernel";
///     const PRECISION: Precision = Precision::Fixed(DType::F32);
///
///     fn forward(&self, inputs: &[Tensor], saved: &mut Vec<Tensor>) -> Result<Tensor> {
///         let difference = inputs[0].sub(&inputs[1])?;
///         let y = (difference.square()?.sum_all()? / -self.width)?.exp()?;
///         saved.extend([difference, y.clone()]);
///         Ok(y)
///     }
///
///     fn backward(&self, back: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
///         let [difference, y] = back.saved else { unreachable!("as saved") };
///         let a = (difference * (-2.0 / self.width))?.mul(y)?.mul(back.grad)?;
///         let b = a.neg()?;
///         Ok(vec![Some(a), Some(b)])
///     }
/// }
///
/// let x = Tensor::from_vec(vec![0.5, -1.0], &[2])?;
/// let y = Tensor::from_vec(vec![0.0, 2.0], &[2])?;
/// let op = RbfKernel { width: 4.0 };
/// assert!(gradcheck::gradients(&[x, y], |x| op.apply(&[&x[0], &x[1]]))?.relative < 1e-6);
/// # Ok::<(), precast::Error>(())
/// ```
pub trait CustomOp: Clone + Send + Sync + 'static {
    /// Name of the op, made of letters, digits and `_`. It must differ from the names of all other ops, here and in the
    /// four systems.
    const NAME: &'static str;

    /// Treatment of the inputs where a region casts and no list names the op.
    const PRECISION: Precision = Precision::AsIs;

    /// Computes the result. Tensors that the backward pass reads are pushed to `saved`.
    ///
    /// The inputs have the dtypes required by the region; floating inputs that still differ were promoted to the
    /// widest. Ops called here run outside every region, off the tape and hidden from listeners, so each of them rounds
    /// in the dtype of its inputs.
    ///
    /// # Errors
    /// Any error of the computation.
    fn forward(&self, inputs: &[Tensor], saved: &mut Vec<Tensor>) -> Result<Tensor>;

    /// Computes the gradients of the inputs. Each has the dtype and shape of its input in
    /// [`forward`](CustomOp::forward), or is `None` where the result does not depend on the input or `back.needs` is
    /// false.
    ///
    /// Ops called here run outside every region and off the tape, in the dtypes of the forward pass. An op without this
    /// method has no gradient.
    ///
    /// # Errors
    /// Any error of the computation.
    fn backward(&self, back: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
        let _ = back;
        Err(Error::gradient("the op has no backward pass; write `CustomOp::backward`, or detach its inputs"))
    }

    /// Computes the gradients of [`backward`](CustomOp::backward) with ops on the inputs of
    /// [`forward`](CustomOp::forward) and the gradient of its result. These ops run on the tape. Second derivatives,
    /// from [`gradients_on_tape`](Tensor::gradients_on_tape), differentiate this method; an op without it has none.
    ///
    /// # Errors
    /// Any error of the computation.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// use precast::{Backward, CustomOp, Result, Tensor, gradcheck};
    ///
    /// #[derive(Clone)]
    /// struct Cube;
    ///
    /// impl CustomOp for Cube {
    ///     const NAME: &'static str = "Cube";
    ///
    ///     fn forward(&self, inputs: &[Tensor], saved: &mut Vec<Tensor>) -> Result<Tensor> {
    ///         saved.push(inputs[0].clone());
    ///         inputs[0].square()?.mul(&inputs[0])
    ///     }
    ///
    ///     fn backward(&self, back: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
    ///         self.gradients(back.saved, back.grad, back.needs)
    ///     }
    ///
    ///     fn gradients(&self, inputs: &[Tensor], grad: &Tensor, _: &[bool]) -> Result<Vec<Option<Tensor>>> {
    ///         Ok(vec![Some((inputs[0].square()? * 3.0)?.mul(grad)?)])
    ///     }
    /// }
    ///
    /// let x = Tensor::from_vec(vec![0.5, -1.0], &[2])?;
    /// assert!(gradcheck::second(&[x], |x| Cube.apply(&[&x[0]]))?.relative < 1e-6);
    /// # Ok::<(), precast::Error>(())
    /// ```
    fn gradients(&self, inputs: &[Tensor], grad: &Tensor, needs: &[bool]) -> Result<Vec<Option<Tensor>>> {
        let _ = (inputs, grad, needs);
        Err(Error::unsupported("the op has no second derivative; write `CustomOp::gradients`"))
    }

    /// Registers the name for lists and files, and returns the op as the catalogue has it. [`apply`](CustomOp::apply)
    /// registers it too; call this at program start if a policy names the op before it first runs.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when the name is invalid or belongs to another op;
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for a [fixed](Precision::Fixed) precision that is not f32, f16 or
    /// bf16.
    fn register() -> Result<Op> {
        Custom::register::<Self>(Self::NAME, Self::PRECISION).map(Op::Custom)
    }

    /// Runs the op.
    ///
    /// # Errors
    /// Those of [`register`](CustomOp::register) and of [`forward`](CustomOp::forward). A backward pass that returns
    /// gradients of a wrong number, shape or dtype is an error of [`Tensor::backward`], which names the op.
    fn apply(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let op = Self::register()?;
        let again = || -> Again {
            let this = self.clone();
            Again(Arc::new(move |inputs: &[&Tensor]| this.apply(inputs)))
        };
        let call = Call { again: Some(&again), ..call!(op, inputs) };
        dispatch(call, |inputs| {
            // Pending widenings are computed here, where listeners see their cast.
            inputs.iter().for_each(|x| _ = x.array());
            let values: Vec<Tensor> = inputs.iter().map(Tensor::detach).collect();
            let mut saved = Vec::new();
            let value = inside(false, || Ok(self.forward(&values, &mut saved)?.array().clone()));
            let value = value.map_err(|e| e.within(Self::NAME))?;
            if !value.dtype().is_float() {
                return Ok(Forward::constant(value));
            }
            let this = Arc::new(self.clone());
            let expected: Arc<[_]> = values.iter().map(|x| (x.dtype(), x.shape().to_vec())).collect();
            let written = {
                let (this, expected) = (this.clone(), expected.clone());
                move |inputs: &[Tensor], grad: &Tensor, needs: &[bool]| {
                    let grads = this.gradients(inputs, grad, needs).map_err(|e| e.within(Self::NAME))?;
                    check(&grads, &expected)?;
                    Ok(grads)
                }
            };
            let forward = Forward::new(value, saved, move |back| {
                let grads = this.backward(back).map_err(|e| e.within(Self::NAME))?;
                check(&grads, &expected)?;
                Ok(grads)
            });
            Ok(forward.written(Written::Gradients(Arc::new(written))))
        })
    }
}

/// Checks that the gradients match inputs of these dtypes and shapes.
fn check(grads: &[Option<Tensor>], inputs: &[(DType, Vec<usize>)]) -> Result<()> {
    if grads.len() != inputs.len() {
        let words = format!(
            "{} gradients for {} inputs; return one for each, `None` where there is none",
            grads.len(),
            inputs.len()
        );
        return Err(Error::gradient(words));
    }
    for (i, (grad, (dtype, shape))) in grads.iter().zip(inputs).enumerate() {
        if let Some(grad) = grad
            && (grad.dtype() != *dtype || grad.shape() != shape)
        {
            let words = format!(
                "the gradient of input {i} is {} {:?}, the input {dtype} {shape:?}",
                grad.dtype(),
                grad.shape()
            );
            return Err(Error::gradient(words));
        }
    }
    Ok(())
}
