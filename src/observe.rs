//! Listeners, which observe the ops that a thread runs.
//!
//! [`listen`] runs your own [`Listener`]; [`watch`] and [`collect_op_stats`] are ready-made. Without a listener nothing
//! is recorded.

#[doc(inline)]
pub use precast_tensor::logging::warn;
pub use precast_tensor::observe::{
    Accumulation, Calls, CastCall, CastRole, CellCall, CellEntry, Codes, Distance, Edge, EdgeOp, Elsewhere, Event,
    FaultKind, GradientCall, Listener, Numbers, Observer, OpCall, OpStats, Origin, ParamStep, Phase, Sizes, Subject,
    add_projections, collect_op_stats, listen, observed_by, watch,
};
