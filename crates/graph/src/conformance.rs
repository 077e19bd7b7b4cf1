//! Access to painting for conformance tests and benches: graphs of any system by the names
//! of its ops, as TensorFlow's rewrite receives them. It is hidden and not part of the public interface: anything in it
//! may change or be removed in any release.

pub use super::{
    casts::{NewCast, casts},
    device::{Device, LowSupport, OpSupport},
    mark::Mark,
    paint::paint,
    painting::{Painted, Painting},
    type_graph::{TypeAttr, TypeGraph, TypeNode},
};
