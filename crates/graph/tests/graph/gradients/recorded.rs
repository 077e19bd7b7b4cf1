//! Every op in a graph: recorded, written to JSON, read and run again, forward and backward, bit for bit.

use precast::{DType, Op, Result, Tensor};
use precast_graph::Graph;

/// Compares a call with its graph, after a round trip through a file, in f32 and in bf16.
pub fn same_in_a_graph(op: Op, inputs: &[Tensor], call: &dyn Fn(&[Tensor]) -> Result<Tensor>) -> Result<(), String> {
    for dtype in [DType::F32, DType::Bf16] {
        let leaf = |x: &Tensor| if x.dtype().is_float() { x.cast(dtype).requires_grad() } else { x.clone() };
        let inputs: Vec<Tensor> = inputs.iter().map(leaf).collect();
        let differs = |words: String| format!("in a graph in {dtype}: {words}");
        let graph = Graph::trace_fn(&Default::default(), &inputs, |x| Ok(vec![call(x)?]));
        let graph = graph.map_err(|e| differs(e.to_string()))?;
        if !graph.nodes().iter().any(|node| node.op_name() == op.name()) {
            return Err(differs(format!("{op} is not a node of\n{graph}")));
        }
        let json = graph.to_json().map_err(|e| differs(e.to_string()))?;
        let graph = Graph::from_json(&json).map_err(|e| differs(e.to_string()))?;
        let (y, found) = (call(&inputs), graph.run(&inputs));
        let y = y.map_err(|e| differs(e.to_string()))?;
        let found = &found.map_err(|e| differs(format!("{e} of\n{graph}")))?[0];
        if !same(&y, found) {
            return Err(differs(format!("{found:?}, not {y:?}, of\n{graph}")));
        }
        if !y.is_tracked() {
            continue;
        }
        let back =
            |y: &Tensor| y.backward_from(&Tensor::ones(y.shape(), y.dtype())).map_err(|e| differs(e.to_string()));
        let (wanted, found) = (back(&y)?, back(found)?);
        for (i, x) in inputs.iter().enumerate() {
            match (wanted.of(x), found.of(x)) {
                (None, None) => {}
                (Some(wanted), Some(found)) if same(&wanted, &found) => {}
                (wanted, found) => {
                    return Err(differs(format!(
                        "the gradient of input {i} is {found:?}, not {wanted:?}, of\n{graph}"
                    )));
                }
            }
        }
    }
    Ok(())
}

fn same(a: &Tensor, b: &Tensor) -> bool {
    let bits = |x: &Tensor| x.to_f64().into_iter().map(f64::to_bits).collect::<Vec<_>>();
    a.dtype() == b.dtype() && a.shape() == b.shape() && bits(a) == bits(b)
}
