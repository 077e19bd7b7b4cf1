//! Comparing a lowered network with itself: [`Shadow`] runs it in f32 as well, and finds the cells that cause the error of
//! its output; [`Digits`] runs it twice with stochastic rounding, and finds the place where digits are lost without any
//! reference.

mod cells;
mod digits;
mod passes;

pub use cells::{Shadow, ShadowCell};
pub use digits::{Digits, LostDigits};
