//! placeholder
/// A plan.
#[derive(Debug)]
pub struct Plan;
