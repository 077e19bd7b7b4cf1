//! Recorded behaviour of other systems, replayed: one module for each system.
//!
//! A folder of recordings may lack cases; a case that is present but not recognized fails. `PRECAST_GOLDENS_VERBOSE=1`
//! prints a line for each case of MindSpore and Paddle.

#[path = "../common/mod.rs"]
mod common;
mod mindspore;
mod packs;
mod paddle;
mod replay;
mod scalers;
mod tensorflow;
mod torch;
