//! From a policy to a rewritten network: decide, plan, apply, undo, explain.

mod plan;
pub use plan::Plan;
