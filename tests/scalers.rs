//! The loss scale compared with recordings of other systems, one file per system; and under load.
//!
//! A case is compared with the recording. Where COMPARE.md lists an intentional difference, the test computes the
//! required result by that rule, in plain arithmetic, and compares with that.

#[path = "scalers/deepspeed.rs"]
mod deepspeed;
#[path = "common/golden.rs"]
mod golden;
#[path = "scalers/mindspore.rs"]
mod mindspore;
#[path = "scalers/model.rs"]
mod model;
#[path = "scalers/numbers.rs"]
mod numbers;
#[path = "scalers/paddle.rs"]
mod paddle;
#[path = "scalers/sequences.rs"]
mod sequences;
#[path = "scalers/storms.rs"]
mod storms;
#[path = "common/tally.rs"]
mod tally;
#[path = "scalers/tensorflow.rs"]
mod tensorflow;
#[path = "scalers/torch.rs"]
mod torch;
#[path = "scalers/torch_events.rs"]
mod torch_events;
#[path = "scalers/torch_rule.rs"]
mod torch_rule;
