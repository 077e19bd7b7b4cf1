//! Ops of a user's own, which obey regions, lists and observers as those of the catalogue do.

use std::sync::Arc;

use crate::{
    DType, Op, Tensor,
    catalogue::{Custom, Precision},
    error::{Error, Result},
    ops::{composed::inside, dispatch},
    tensor::{Backward, Forward, Written, recording},
};

/// An op of your own: a type that holds its options, with the forward pass, the backward pass and the precision.
///
/// [`apply`](CustomOp::apply) runs it as any op runs. The region around it casts its inputs, it is one entry of the tape, and
/// observers, traces and plans see one op of its name. Lists, in code and in files, name it once it is
/// [registered](CustomOp::register).
///
/// An op of several inputs that saves a number for its backward pass and works in f32 whatever the region:
///
/// ```
/// use precast::{Backward, CustomOp, gradcheck, prelude::*};
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
///
/// let low = Tensor::ones(&[3], DType::Bf16);
/// let y = autocast(Autocast::new("torch-2.15-cpu")?, || op.apply(&[&low, &low]))?;
/// assert_eq!(y.dtype(), DType::F32);
/// # Ok::<(), precast::Error>(())
/// ```
pub trait CustomOp: Clone + Send + Sync + 'static {
    /// The name of the op: of letters, digits and `_`. No other op has it, here or in a system whose ops the [catalogue](crate::catalogue) has.
    const NAME: &'static str;

    /// What is done with the inputs where a region casts and no list names the op.
    const PRECISION: Precision = Precision::AsIs;

    /// Computes the result. What the backward pass will read is put into `saved`.
    ///
    /// The inputs have the dtypes that the region demands; floating inputs that still differ were promoted to the widest.
    /// The ops called here run in no region, on no tape and unseen by observers, so each of them rounds in the dtype of its
    /// inputs.
    ///
    /// # Errors
    /// Whatever keeps it from a result.
    fn forward(&self, inputs: &[Tensor], saved: &mut Vec<Tensor>) -> Result<Tensor>;

    /// The gradients of the inputs: for each one with the dtype and the shape that the input had in
    /// [`forward`](CustomOp::forward), or `None` where the result does not depend on it or `back.needs` is false.
    ///
    /// The ops called here run in no region and on no tape, in the dtypes of the forward pass. An op without this function
    /// has a result and no gradient.
    ///
    /// # Errors
    /// Whatever keeps it from the gradients.
    fn backward(&self, back: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
        let _ = back;
        Err(Error::gradient("the op has no backward pass; write `CustomOp::backward`, or detach its inputs"))
    }

    /// The gradients that [`backward`](CustomOp::backward) gives, written with ops of the inputs of
    /// [`forward`](CustomOp::forward) and of the gradient of its result. These ops run on the tape: a second derivative,
    /// of [`gradients_on_tape`](Tensor::gradients_on_tape), is that of this function. An op without it has none.
    ///
    /// # Errors
    /// Whatever keeps it from the gradients.
    ///
    /// ```
    /// use precast::{Backward, CustomOp, gradcheck, prelude::*};
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

    /// Makes the name known to lists and files, and returns the op as the catalogue has it. [`apply`](CustomOp::apply) does
    /// this, too; call it at the start of a program whose policy names the op before the op first runs.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when another op has the name, or it is no name;
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for a [fixed](Precision::Fixed) precision that is not f32, f16 or bf16.
    fn register() -> Result<Op> {
        Custom::register::<Self>(Self::NAME, Self::PRECISION).map(Op::Custom)
    }

    /// Runs the op.
    ///
    /// # Errors
    /// Those of [`register`](CustomOp::register) and of [`forward`](CustomOp::forward). A backward pass that returns gradients
    /// of a wrong number, shape or dtype is an error of [`Tensor::backward`], which names the op.
    fn apply(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let op = Self::register()?;
        recording::announce_custom(op, || {
            let this = self.clone();
            Arc::new(move |inputs| this.apply(inputs))
        });
        dispatch(op, inputs, |inputs| {
            // A widening that is still to be done is done here, where observers see its cast.
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

/// Whether gradients are those of inputs of these dtypes and shapes.
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
