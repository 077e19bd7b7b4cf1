//! PaddlePaddle 3.3's recorded behaviour against ours, case by case.
//!
//! A folder may lack cases; a case that is present and not understood fails. `PRECAST_GOLDENS_VERBOSE=1` prints a line for
//! each case.

#[path = "common/golden.rs"]
mod common;

#[path = "paddle/decorate.rs"]
mod decorate;
#[path = "paddle/networks.rs"]
mod networks;
#[path = "common/tally.rs"]
mod tally;
