//! Making an optimizer from its options.

use super::Optimizer;
use crate::{Param, cell::Params};

/// Options from which an optimizer is made.
pub(super) trait Makes {
    /// Creates the optimizer for some parameters; `is_table` identifies embedding tables.
    fn optimizer(&self, params: Params, lr: f64, is_table: &dyn Fn(&Param) -> bool) -> Box<dyn Optimizer>;
}
