//! Results in f64 of ops that ran in fewer bits: those of one op on the numbers it read, and those of the whole pass.

use precast::{
    DType, Tensor, enable_grad,
    error::Result,
    no_grad,
    observe::OpCall,
    precision::{self, Frame},
    recording::Repeatable,
};

/// A call that can be repeated on its inputs.
pub(super) struct Repeated {
    call: Repeatable,
    pub inputs: Vec<Tensor>,
}

impl Repeated {
    /// Keeps a call.
    pub fn new(call: &OpCall<'_>) -> Self {
        Repeated { call: call.repeatable(), inputs: call.inputs.iter().map(Tensor::to_keep).collect() }
    }

    /// Runs the op on these inputs, widened to f64. `None` if it cannot be repeated.
    pub fn on(&self, inputs: &[Tensor]) -> Option<Tensor> {
        let _off = precision::enter(Frame::Off);
        no_grad(|| self.run(&inputs.iter().map(wide).collect::<Vec<_>>()).ok())
    }

    /// Computes the gradients of the inputs in f64, given that of the output.
    pub fn gradients(&self, grad: &Tensor) -> Option<Vec<Option<Tensor>>> {
        let _off = precision::enter(Frame::Off);
        let leaf = |x: &Tensor| if x.dtype().is_float() { wide(x).requires_grad() } else { x.clone() };
        let inputs: Vec<Tensor> = self.inputs.iter().map(leaf).collect();
        let output = enable_grad(|| self.run(&inputs)).ok()?;
        let grads = output.backward_from(&wide(grad)).ok()?;
        Some(inputs.iter().map(|x| grads.of(x)).collect())
    }

    fn run(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        Ok(self.call.run(&inputs)?.swap_remove(0))
    }
}

/// Returns a floating tensor in f64, off the tape.
pub(super) fn wide(x: &Tensor) -> Tensor {
    if x.dtype().is_float() { x.least().detach().cast(DType::F64) } else { x.to_keep() }
}

/// Returns whether all numbers are finite in f32.
pub(super) fn fits_f32(x: &Tensor) -> bool {
    x.to_f64().iter().all(|x| x.abs() <= f64::from(f32::MAX))
}
