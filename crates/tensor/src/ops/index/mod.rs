//! Shapes, views, and selection of elements by position.

pub(in crate::ops) mod found;
pub(in crate::ops) mod order;
pub(in crate::ops) mod pick;
pub(in crate::ops) mod rearrange;
pub(in crate::ops) mod scatter;
pub(in crate::ops) mod shape;
pub(in crate::ops) mod slice_concat;
pub(in crate::ops) mod sort;
