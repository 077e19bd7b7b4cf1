//! Parameters and weights in 16 bits, and the files that hold them: [`decorate`] stores the parameters of a network low,
//! with or without f32 masters; [`weights`] saves and loads them; [`stored`] reads and converts models of other tools.

mod convert;
mod decorate;
mod save_weights;
pub mod stored;
pub mod weights;

pub use decorate::{Decorate, Decorated, KeptBecause, LowParam, Stored, decorate};
pub use save_weights::SaveMode;
