//! Gradients of weights in f32 for products that run low. torchao's recipes keep them high because they are summed over
//! all examples.

use crate::{
    DType, Op, Tensor,
    tensor::{Backward, Forward, Written},
};

/// Returns whether this is a lowered product of f32 weights.
pub(super) fn apply(op: Op, given: &[&Tensor], inputs: &[Tensor]) -> bool {
    op.has_weight() && inputs[0].dtype().is_low() && given[1..].iter().all(|weight| weight.dtype() == DType::F32)
}

/// Returns the same product with the gradients of weight and bias computed in f32, from the incoming gradient of the
/// output and from the first input before its cast. They are not rounded to the low dtype. The gradient of the first
/// input is unchanged.
pub(super) fn in_f32(mut forward: Forward, x: &Tensor) -> Forward {
    let Some(backward) = forward.backward.take() else { return forward };
    forward.saved[0] = x.clone();
    forward.written = Some(Written::Not("its gradient of the weight is computed in f32 (`weight_grad: float32`)"));
    forward.backward = Some(Box::new(move |b| {
        let mut needs = vec![false; b.needs.len()];
        needs[0] = b.needs[0];
        let mut grads = backward(&Backward { needs: &needs, ..*b })?;
        needs.copy_from_slice(b.needs);
        needs[0] = false;
        if needs.contains(&true) {
            let (grad, x) = (b.grad.cast(DType::F32), b.saved[0].cast(DType::F32));
            let saved = [x, b.saved[1].clone()];
            let wide = backward(&Backward { grad: &grad, saved: &saved, needs: &needs, narrows: false })?;
            for (grad, wide) in grads.iter_mut().zip(wide).skip(1) {
                *grad = wide;
            }
        }
        Ok(grads)
    }));
    forward
}
