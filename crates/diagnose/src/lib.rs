//! Diagnoses of precision: the place where a training step breaks, hazards before training, the share of each cell in an
//! error, and the cells that can be lowered.
//!
//! A [`Monitor`] is cheap enough for every step, and names the first result that is not finite. [`Record::of`] looks at
//! every number that a step rounds, forward and backward, from the casts of the inputs to the update of the parameters.
//! [`lint`], [`shadow`] and [`tune`] answer before training.
//!
//! The package observes runs and never changes them: it runs ops again beside the network's own. Its invariants:
//!
//! - Parameters, buffers and counters of a diagnosed network have the same bits afterwards.
//! - A finding names its cell, its op, the number that was found, and the limit.
//! - A proposed rule is part of a policy that was run.
#![deny(missing_docs)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

mod beside;
mod cure;
mod fault;
mod headroom;
pub mod lint;
pub(crate) mod measure;
mod monitor;
pub(crate) mod names;
mod peaks;
mod record;
mod recorder;
mod reference;
pub mod shadow;
mod steps;
pub mod tune;
mod watcher;

pub use cure::Cure;
pub(crate) use cure::rules_keeping;
pub use fault::Fault;
pub use headroom::{Headroom, OperandCodes};
pub use monitor::Monitor;
pub use peaks::Peaks;
pub use record::Record;
