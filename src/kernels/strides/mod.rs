//! Traversal of arrays by strides: copies of views, and arrays that are broadcast to one shape.

mod broadcast;
mod contiguous;

pub(crate) use broadcast::{Broadcast, broadcast_indices, zip, zip3};
pub(crate) use contiguous::row_major;
