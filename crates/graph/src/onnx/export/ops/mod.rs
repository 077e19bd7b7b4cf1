//! The nodes of ONNX for each op, by family.

mod attention;
mod elementwise;
mod index;
mod layout;
mod loss;
mod norm;
mod pairwise;
mod pool;
mod product;
mod recurrent;
mod reduce;
mod resize;

use super::call::Emit;
use precast::Op;

/// Returns the function that writes an op; `None` for one that is written with others, or not at all.
pub(super) fn find(op: Op) -> Option<Emit> {
    let families = [
        attention::find,
        elementwise::find,
        elementwise::same,
        index::find,
        layout::find,
        loss::find,
        norm::find,
        pairwise::find,
        pool::find,
        product::find,
        recurrent::find,
        reduce::find,
        resize::find,
    ];
    families.iter().find_map(|find| find(op))
}
