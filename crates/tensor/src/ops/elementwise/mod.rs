//! Functions of single elements and of pairs of elements.

pub(in crate::ops) mod addc;
pub(in crate::ops) mod arithmetic;
pub(in crate::ops) mod compare;
pub(in crate::ops) mod dropout;
pub(in crate::ops) mod pairwise;
pub(in crate::ops) mod prelu;
mod relu;
pub(in crate::ops) mod unary;

/// Path of 16-bit numbers to a function: the column of the function tables here that sets
/// [`Unary::DIRECT`](precast_kernels::elementwise::Unary::DIRECT).
enum Path {
    /// From memory through registers to memory: for cheap functions and the most frequent ones.
    Direct,
    /// Through blocks in the nearest cache, widened.
    Blocks,
}
