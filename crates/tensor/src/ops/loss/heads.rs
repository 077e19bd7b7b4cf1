//! Losses whose input went through the wrong last op, or has another shape than the targets.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Op, Tensor, logging::warn, tensor::context};

/// A loss, the op before it that makes its values wrong, and the remedy.
const WRONG: [(Op, Op, &str); 5] = [
    (Op::CrossEntropy, Op::Softmax, "takes logits: leave the softmax out, which the loss computes itself"),
    (
        Op::CrossEntropy,
        Op::Sigmoid,
        "takes logits: leave the sigmoid out; classes that do not exclude each other have `bce_with_logits`",
    ),
    (Op::BceWithLogits, Op::Sigmoid, "takes logits: leave the sigmoid out, which the loss computes itself"),
    (
        Op::BceWithLogits,
        Op::Softmax,
        "takes logits: leave the softmax out; classes that exclude each other have `cross_entropy`",
    ),
    (
        Op::NllLoss,
        Op::Softmax,
        "takes log-probabilities: `log_softmax` in place of the softmax, or `cross_entropy` of the logits",
    ),
];

/// Warns, once for each pair, if the input of a loss is the result of an op that makes the loss another one.
pub(in crate::ops) fn check_head(loss: Op, x: &Tensor) {
    static WARNED: [AtomicBool; WRONG.len()] = [const { AtomicBool::new(false) }; WRONG.len()];
    let Some(made_by) = x.made_by() else { return };
    let Some(at) = WRONG.iter().position(|(of, before, _)| (*of, *before) == (loss, made_by)) else { return };
    if !WARNED[at].swap(true, Ordering::Relaxed) {
        let (_, _, remedy) = WRONG[at];
        tracing::warn!(target: "precast", loss = loss.name(), after = made_by.name(), "loss of another kind of number");
        warn(&format!("the input of {loss} is the result of {made_by}, and {loss} {remedy}"));
    }
}

/// Warns, once, if outputs `[n, 1]` and targets `[n]` are subtracted outside of every cell: the difference has `n * n` numbers.
pub(in crate::ops) fn check_difference(a: &Tensor, b: &Tensor) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let is_column =
        |column: &Tensor, row: &Tensor| matches!((column.shape(), row.shape()), (&[n, 1], &[m]) if n == m && n > 1);
    let is_mixed = a.is_tracked() != b.is_tracked() && context::is_recording() && context::slot().is_none();
    if is_mixed && (is_column(a, b) || is_column(b, a)) && !WARNED.swap(true, Ordering::Relaxed) {
        let n = a.shape()[0];
        tracing::warn!(target: "precast", n, "difference of a column and a row");
        warn(&format!(
            "the difference of {:?} and {:?} has the shape [{n}, {n}]: each output minus each target; `squeeze(1)` of the outputs, or \
             targets of [{n}, 1], pair them",
            a.shape(),
            b.shape()
        ));
    }
}
