//! Traversal of arrays by strides: copies of views, and arrays that are broadcast to one shape.

mod broadcast;
mod contiguous;

pub use broadcast::{Broadcast, broadcast_indices, zip, zip3};
pub use contiguous::row_major;
