//! A user-defined op, as in torch's probes of `custom_fwd`: the dtypes in its forward and its backward pass.

use std::sync::{Arc, Mutex};

use precast::{Autocast, Backward, CustomOp, DType, Precision, Result, Tensor, autocast, precision::Frame};
use serde_json::{Map, Value, json};

/// A product that records its inputs, either declared f32 or in the dtype of its inputs.
#[derive(Clone, Default)]
struct Product<const IN_F32: bool>(Arc<Mutex<Map<String, Value>>>);

impl<const IN_F32: bool> Product<IN_F32> {
    fn note(&self, what: &str, met: impl Into<Value>) {
        self.0.lock().unwrap().insert(what.into(), met.into());
    }
}

fn lists_are_on() -> bool {
    matches!(precast::precision::current(), Some(Frame::Lists(_)))
}

impl<const IN_F32: bool> CustomOp for Product<IN_F32> {
    const NAME: &'static str = if IN_F32 { "ProductInF32" } else { "ProductAsItComes" };
    const PRECISION: Precision = if IN_F32 { Precision::Fixed(DType::F32) } else { Precision::AsIs };

    fn forward(&self, x: &[Tensor], saved: &mut Vec<Tensor>) -> Result<Tensor> {
        self.note("fwd_enabled", lists_are_on());
        self.note("fwd_in", x.iter().map(|x| x.dtype().name()).collect::<Vec<_>>());
        let y = x[0].matmul(&x[1])?;
        self.note("fwd_mm", y.dtype().name());
        saved.extend_from_slice(x);
        Ok(y)
    }

    fn backward(&self, back: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
        self.note("bwd_enabled", lists_are_on());
        self.note("bwd_gin", back.grad.dtype().name());
        let [p, q] = back.saved else { unreachable!("as saved") };
        let (p, q) = (back.grad.matmul(&q.t()?)?, p.t()?.matmul(back.grad)?);
        self.note("bwd_mm", p.dtype().name());
        Ok(vec![Some(p), Some(q)])
    }
}

/// Returns the dtypes seen by the passes for inputs of this dtype, in a region or outside, and the dtypes of the result
/// and of the gradients.
pub fn product<const IN_F32: bool>(region: Option<Autocast>, inputs: DType) -> Result<Value> {
    let op = Product::<IN_F32>::default();
    let [p, q] = [0, 1].map(|_| Tensor::ones(&[4, 4], inputs).requires_grad());
    let apply = || op.apply(&[&p, &q]);
    let y = region.map_or_else(apply, |region| autocast(region, apply))?;
    let grads = y.backward_from(&Tensor::ones(y.shape(), y.dtype()))?;
    op.note("y", y.dtype().name());
    for (what, input) in [("p_grad", &p), ("q_grad", &q)] {
        op.note(what, grads.of(input).map(|grad| grad.dtype().name()));
    }
    Ok(json!(*op.0.lock().unwrap()))
}

/// Returns the expected dtypes by our rule if everything is in one dtype.
pub fn all_in(dtype: &str) -> Value {
    json!({
        "fwd_enabled": false, "fwd_in": [dtype, dtype], "fwd_mm": dtype, "y": dtype,
        "bwd_enabled": false, "bwd_gin": dtype, "bwd_mm": dtype, "p_grad": dtype, "q_grad": dtype,
    })
}

#[test]
fn the_inside_of_a_custom_op_is_in_no_region() {
    for low in DType::LOW {
        let region = Autocast::new("torch-2.15-cpu").unwrap().dtype(low);
        assert_eq!(product::<false>(Some(region.clone()), DType::F32).unwrap(), all_in("f32"));
        assert_eq!(product::<false>(Some(region), low).unwrap(), all_in(low.name()));
    }
}
