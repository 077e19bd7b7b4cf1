//! Functions in the form of other systems, for code that is ported from them.

pub mod mindspore;
