//! Finding the place where a training step breaks: a [`Monitor`] is cheap enough for every step, and names the first
//! result that is not finite; [`Child::record`](crate::Child::record) looks at every number that a step rounds, forward
//! and backward, from the casts of the inputs to the update of the parameters.

mod cure;
pub(crate) mod distance;
pub(crate) mod edge;
mod fault;
mod headroom;
pub(crate) mod measure;
mod monitor;
pub(crate) mod names;
mod peaks;
mod record;
mod recorder;
mod reference;
mod steps;
mod watcher;

pub use cure::Cure;
pub(crate) use cure::rules_keeping;
pub use edge::{Edge, EdgeOp, Numbers, Phase, Subject};
pub use fault::{Fault, FaultKind, Origin};
pub use headroom::Headroom;
pub use monitor::Monitor;
pub use peaks::Peaks;
pub use record::Record;
#[doc(hidden)]
pub use record::recorded;
