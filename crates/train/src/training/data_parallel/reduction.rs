//! Check of a loss in code: shards are weighed by their targets, which is right for a mean over these alone.

use std::collections::HashSet;

use precast::{
    Op, Reduction, Tensor,
    error::{Error, Result},
    observe::{Listener, OpCall, listen},
};

use crate::data::IGNORED;

/// Listener for losses that are not means over the targets that are not ignored.
#[derive(Default)]
struct Reductions {
    /// The first such loss, in words.
    other: Option<String>,
    /// Identities of the results that are sums.
    sums: HashSet<usize>,
}

impl Listener for Reductions {
    fn op(&mut self, call: &OpCall<'_>) {
        let (attributes, result) = (call.attributes, call.output.identity());
        match call.op {
            Op::Sum => self.sums.insert(result),
            _ => self.sums.remove(&result),
        };
        if call.backward || self.other.is_some() || !attributes.has("reduction") {
            return;
        }
        let other = match attributes.get::<i64>("ignore_index") {
            _ if attributes.get("reduction") == Ok(Reduction::Sum) => "is a sum".to_string(),
            _ if attributes.has("weight") => "has weights of classes".to_string(),
            Ok(class) if class != IGNORED => format!("ignores class {class}"),
            _ => return,
        };
        self.other = Some(format!("{} {other}", call.op));
    }
}

/// Computes the loss of a shard, and refuses one that is not a mean over its targets that are not ignored.
pub(super) fn mean_over_targets(loss: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
    let (loss, Reductions { mut other, sums }) = listen(Reductions::default(), loss);
    let loss = loss?;
    if sums.contains(&loss.identity()) {
        other.get_or_insert("is a sum".into());
    }
    match other {
        None => Ok(loss),
        Some(other) => Err(Error::value(format!(
            "the loss of a shard {other}, and a shard weighs as much as its targets that are not {IGNORED}, each counted \
             alike; allowed: a mean over these, or `step_weighted` with a mean and its weight"
        ))),
    }
}
