//! PaddlePaddle 3.3's recorded behaviour compared with ours, case by case.
//!
//! A folder may lack cases; a case that is present but not recognized fails. `PRECAST_GOLDENS_VERBOSE=1` prints a line
//! for each case.

#[path = "common/golden.rs"]
mod common;

#[path = "paddle/call.rs"]
mod call;
#[path = "paddle/context.rs"]
mod context;
#[path = "paddle/decorate.rs"]
mod decorate;
#[path = "paddle/examples.rs"]
mod examples;
#[path = "paddle/forms.rs"]
mod forms;
#[path = "paddle/made_up.rs"]
mod made_up;
#[path = "paddle/misuse.rs"]
mod misuse;
#[path = "paddle/names.rs"]
mod names;
#[path = "paddle/networks.rs"]
mod networks;
#[path = "paddle/on_purpose.rs"]
mod on_purpose;
#[path = "paddle/ops.rs"]
mod ops;
#[path = "paddle/rule.rs"]
mod rule;
#[path = "common/tally.rs"]
mod tally;
#[path = "paddle/verdict.rs"]
mod verdict;
