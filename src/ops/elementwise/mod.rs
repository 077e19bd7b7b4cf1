//! One function of each element, or of each pair of elements.

pub(in crate::ops) mod addc;
pub(in crate::ops) mod arithmetic;
pub(in crate::ops) mod compare;
pub(in crate::ops) mod dropout;
pub(in crate::ops) mod pairwise;
pub(in crate::ops) mod prelu;
pub(in crate::ops) mod unary;
