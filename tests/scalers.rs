//! The loss scale beside those of other systems, by what was recorded of them, one file for each system; and under load.
//!
//! A case is compared with what was recorded. Where COMPARE.md has a difference on purpose, the test computes by
//! that rule what has to come out, in plain arithmetic, and compares with that.

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
