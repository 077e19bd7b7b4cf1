//! One function of each element, or of each pair of elements.

pub(in crate::ops) mod addc;
pub(in crate::ops) mod arithmetic;
pub(in crate::ops) mod compare;
pub(in crate::ops) mod dropout;
pub(in crate::ops) mod pairwise;
pub(in crate::ops) mod prelu;
pub(in crate::ops) mod unary;

/// How 16-bit numbers reach a function: the column of the tables of functions here that sets
/// [`Unary::DIRECT`](crate::kernels::elementwise::Unary::DIRECT).
enum Path {
    /// From memory through registers to memory: for light functions, and those of which networks are full.
    Direct,
    /// Through blocks in the nearest cache, widened.
    Blocks,
}
