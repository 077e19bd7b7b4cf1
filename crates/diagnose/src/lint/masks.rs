//! Masks: large negative numbers added before a softmax, which may be infinite in 16 bits.

use precast::Op;
use precast_base::path::named;

use super::{
    edges::Edges,
    finding::{Finding, Rule, Severity},
    format::{overflows_at, short},
};
use crate::measure::{largest, values};

/// Returns whether an op turns negative infinity into 0.
fn swallows(op: Option<Op>) -> bool {
    matches!(op, Some(Op::Softmax | Op::LogSoftmax | Op::ScaledDotProductAttention))
}

/// Finds masks that become negative infinity. Also returns, for each edge, whether all its numbers beyond the range are
/// those of a mask.
pub(super) fn findings(edges: &Edges) -> (Vec<bool>, Vec<Finding>) {
    let mut masked = vec![false; edges.list.len()];
    for (at, edge) in edges.list.iter().enumerate().rev() {
        let readers = &edges.readers[at];
        let softmax = |reader: &usize| swallows(edges.list[*reader].forward_op());
        masked[at] = adds_masks(edge.forward_op())
            && !readers.is_empty()
            && readers.iter().all(|reader| softmax(reader) || masked[*reader])
            && is_mask(&values(&edge.exact))
            && edges.sources(at).all(|from| adds_masks(edges.list[from].forward_op()) || !is_large(edges, from));
    }
    let mut found = Vec::new();
    for (at, edge) in edges.list.iter().enumerate() {
        let becomes_inf = |at: usize| {
            let edge = &edges.list[at];
            edge.dtype.is_low() && values(&edge.exact).iter().any(|x| *x <= -overflows_at(edge.dtype))
        };
        if !masked[at] || !becomes_inf(at) || edges.sources(at).any(|from| masked[from] && becomes_inf(from)) {
            continue;
        }
        let numbers = values(&edge.exact);
        let least = numbers.iter().copied().fold(0.0, f64::min);
        let planes = edge.forward_op() == Some(Op::Add) && edges.sources(at).filter(|from| masked[*from]).count() == 2;
        let rows = full_rows(edges, at);
        let (severity, why) = match (rows, planes) {
            (1.., _) => (Severity::Error, format!("; {rows} rows of the softmax are masked whole, and become NaN")),
            (0, true) => (Severity::Error, "; it is the sum of two masks".to_string()),
            _ => (Severity::Warning, "; a row that is masked whole would become NaN".to_string()),
        };
        let place = edge.place();
        let what = format!("{place} holds {}, which is -inf in {}{why}", short(least), edge.dtype);
        let limit = -overflows_at(edge.dtype);
        let write = format!(
            "a mask of {}, or booleans (`where`), and no softmax of rows that are masked whole: cell {}",
            short(largest(edge.dtype) / -2.0),
            named(&edge.cell)
        );
        found.push(Finding::at(Rule::MaskConstant, severity, place, [least, limit]).what(what).write(write));
    }
    (masked, found)
}

/// Returns whether an op may write a mask, or add one to scores.
fn adds_masks(op: Option<Op>) -> bool {
    let views = [Op::Reshape, Op::Flatten, Op::Squeeze, Op::Unsqueeze, Op::Transpose, Op::Broadcast, Op::Slice];
    let adds = [Op::Cast, Op::Add, Op::Sub, Op::Mul, Op::Where, Op::MaskedFill];
    op.is_some_and(|op| adds.contains(&op) || views.contains(&op))
}

/// Magnitude from which negative numbers are those of a mask: half of the largest f16. Scores of half that size would
/// be an overflow of their own.
const MASK: f64 = 32752.0;

fn is_large(edges: &Edges, at: usize) -> bool {
    values(&edges.list[at].exact).iter().any(|x| x.abs() >= MASK)
}

/// Returns whether numbers are as large as those of a mask, and all these negative.
fn is_mask(numbers: &[f64]) -> bool {
    numbers.iter().any(|x| *x <= -MASK) && numbers.iter().all(|x| *x < MASK)
}

/// Returns the number of rows of the softmax after a mask that hold nothing else.
fn full_rows(edges: &Edges, mut at: usize) -> usize {
    let limit = -overflows_at(edges.list[at].dtype);
    loop {
        let Some(&next) = edges.readers[at].first() else { return 0 };
        let edge = &edges.list[next];
        match edge.forward_op() {
            Some(Op::Softmax | Op::LogSoftmax) => {
                let x = &edge.operands[0];
                let axis = edge.attributes.get::<isize>("axis").unwrap_or(-1);
                let rank = x.rank() as isize;
                let axis = if axis < 0 { axis + rank } else { axis };
                let Ok(axis) = usize::try_from(axis) else { return 0 };
                let (length, inner) = (x.shape()[axis], x.shape()[axis + 1..].iter().product::<usize>());
                let numbers = values(x);
                let rows = numbers.len() / length.max(1);
                let row = |row: usize| (0..length).map(move |i| (row / inner * length + i) * inner + row % inner);
                return (0..rows).filter(|r| row(*r).all(|i| numbers[i] <= limit)).count();
            }
            Some(Op::ScaledDotProductAttention) | None => return 0,
            Some(_) => at = next,
        }
    }
}
