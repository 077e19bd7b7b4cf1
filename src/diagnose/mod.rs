//! Finding the place where a training step breaks: [`Child::record`](crate::Child::record) runs a step and looks at
//! every number that it rounds, forward and backward, from the casts of the inputs to the update of the parameters.

mod edge;
mod record;
mod recorder;
mod reference;

pub use edge::{Edge, EdgeOp, Numbers, Phase, Subject};
pub use record::{Fault, FaultKind, Record};
