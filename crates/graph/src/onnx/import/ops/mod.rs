//! The ops, by family. Each family has a table from names to functions.

mod arithmetic;
mod attention;
mod boxes;
mod convolution;
mod elementwise;
mod index;
mod layout;
mod loss;
mod make;
mod norm;
mod pool;
mod product;
mod quantize;
mod recurrent;
mod reduce;
mod resize;
mod sample;
mod scatter;
mod sequence;
mod shape;
mod taps;
mod tools;

use std::{collections::HashMap, sync::OnceLock};

pub(super) use make::constant_of;

use super::step::Run;

/// The ops of a family.
type Table = &'static [(&'static str, Run)];

const TABLES: [Table; 21] = [
    arithmetic::OPS,
    attention::OPS,
    boxes::OPS,
    convolution::OPS,
    elementwise::OPS,
    elementwise::PLAIN,
    index::OPS,
    layout::OPS,
    loss::OPS,
    make::OPS,
    norm::OPS,
    pool::OPS,
    product::OPS,
    quantize::OPS,
    recurrent::OPS,
    reduce::OPS,
    resize::OPS,
    sample::OPS,
    scatter::OPS,
    sequence::OPS,
    shape::OPS,
];

/// Returns the function of an op of the default domain.
pub(super) fn find(op: &str) -> Option<Run> {
    static ALL: OnceLock<HashMap<&'static str, Run>> = OnceLock::new();
    let all = ALL.get_or_init(|| TABLES.into_iter().flatten().copied().collect());
    all.get(op).copied()
}
