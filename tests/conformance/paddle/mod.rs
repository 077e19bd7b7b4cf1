//! PaddlePaddle 3.3's recorded behaviour compared with ours, case by case.
//!
//! A folder may lack cases; a case that is present but not recognized fails. `PRECAST_GOLDENS_VERBOSE=1` prints a line
//! for each case.

mod call;
mod context;
mod decorate;
mod examples;
mod forms;
mod made_up;
mod misuse;
mod names;
mod networks;
mod on_purpose;
mod ops;
mod rule;
