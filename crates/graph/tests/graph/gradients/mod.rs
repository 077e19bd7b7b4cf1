//! Every op of the table of gradients, as a graph and as an ONNX model. The tests of the files of the table check here what
//! [`row`] says.

mod exported;
mod recorded;
mod row;

#[path = "../../../../../tests/laws/gradients/conv.rs"]
mod conv;
#[path = "../../../../../tests/laws/gradients/elementwise.rs"]
mod elementwise;
#[path = "../../../../../tests/laws/gradients/index.rs"]
mod index;
#[path = "../../../../../tests/laws/gradients/inputs.rs"]
mod inputs;
#[path = "../../../../../tests/laws/gradients/loss.rs"]
mod loss;
#[path = "../../../../../tests/laws/gradients/norm.rs"]
mod norm;
#[path = "../../../../../tests/laws/gradients/pairwise.rs"]
mod pairwise;
#[path = "../../../../../tests/laws/gradients/products.rs"]
mod products;
#[path = "../../../../../tests/laws/gradients/recurrent.rs"]
mod recurrent;
#[path = "../../../../../tests/laws/gradients/reduce.rs"]
mod reduce;
#[allow(dead_code, reason = "the tests of the library use more of it")]
#[path = "../../../../../tests/laws/gradients/reference.rs"]
mod reference;
#[path = "../../../../../tests/laws/gradients/sampling.rs"]
mod sampling;
#[path = "../../../../../tests/laws/gradients/shape.rs"]
mod shape;
#[path = "../../../../../tests/laws/gradients/vectors.rs"]
mod vectors;

fn all_rows() -> Vec<row::Row> {
    let families = [
        conv::rows(),
        elementwise::rows(),
        index::rows(),
        loss::rows(),
        norm::rows(),
        pairwise::rows(),
        products::rows(),
        recurrent::rows(),
        reduce::rows(),
        sampling::rows(),
        shape::rows(),
        vectors::rows(),
    ];
    families.into_iter().flatten().collect()
}
