//! Random draws of a shard, which depend on the step and the shard, and not on what ran before on the same rank.

use std::collections::HashMap;

use super::{CONTEXT, Of, Scope};

/// Room for the shards of a step, and for the calls of a layer in a shard.
const SHARDS: u64 = 1 << 20;
const CALLS: u64 = 1 << 20;

/// Draws of the shard being run.
pub(super) struct Draws {
    /// The number of a first call.
    first: u64,
    /// Calls of each layer so far.
    calls: HashMap<usize, u64>,
}

/// Runs `f` as one shard of a step: dropout draws by the numbers of the step and of the shard, in place of the number of its
/// call, so that draws are the same on any number of ranks.
pub fn drawing_in_shard<R>(step: u64, shard: usize, f: impl FnOnce() -> R) -> R {
    let _shard = enter_shard(step, shard);
    f()
}

/// Enters a shard of a step.
pub(super) fn enter_shard(step: u64, shard: usize) -> Scope {
    let first = step.wrapping_mul(SHARDS).wrapping_add(shard as u64).wrapping_mul(CALLS);
    let draws = Draws { first, calls: HashMap::new() };
    CONTEXT.with(|context| context.enter(Of::Shard, |number| context.shards.push(number, draws)))
}

/// Returns whether a shard is being run.
pub(super) fn is_in_shard() -> bool {
    CONTEXT.with(|context| context.shards.top(|draws| draws.is_some()))
}

/// Returns the number of a call of a layer that draws; `None` outside of a shard, where layers count their calls.
pub fn draw_in_shard(layer: usize) -> Option<u64> {
    CONTEXT.with(|context| {
        context.shards.top(|draws| {
            let Draws { first, calls } = draws?;
            let calls = calls.entry(layer).or_default();
            *calls += 1;
            Some(first.wrapping_add(*calls - 1))
        })
    })
}
