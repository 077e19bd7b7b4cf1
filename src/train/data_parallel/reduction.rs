//! Check of a loss in code: shards are weighed by their targets, which is right for a mean over these alone.

use crate::{
    Op, Tensor,
    error::{Error, Result},
    observe::{Listener, OpCall, listen},
    ops::Reduction,
    tensor::Place,
    train::data::IGNORED,
};

/// Listener for losses that are no mean over the targets that are not ignored.
#[derive(Default)]
struct Reductions {
    /// The first such loss, in words.
    other: Option<String>,
}

impl Listener for Reductions {
    fn op(&mut self, call: &OpCall<'_>) {
        let attributes = call.attributes;
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

/// Computes the loss of a shard, and refuses one that is no mean over its targets that are not ignored.
pub(super) fn mean_over_targets(loss: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
    let (loss, Reductions { mut other }) = listen(Reductions::default(), loss);
    let loss = loss?;
    if let Place::Node(node) = loss.place()
        && node.op == Some(Op::Sum)
    {
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
