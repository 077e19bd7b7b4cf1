//! Code that is known to be fragile in 16 bits, in the order of the ops of a pass.

use precast::Op;
use precast_base::path::named;

use super::{
    edges::Edges,
    finding::{Finding, Rule, Severity},
    format::{amax, rounded, short, smallest},
};
use crate::measure::{largest, values};

/// Finds fragile code. Sums, softmaxes and variances by hand are reported where a number is out of range, or a
/// difference loses digits: where `before` has a finding.
pub(super) fn findings(edges: &Edges, before: &[Finding]) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut counts = vec![false; edges.list.len()];
    for (at, edge) in edges.list.iter().enumerate() {
        let Some(op) = edge.forward_op() else { continue };
        counts[at] = is_count(edges, at, &counts);
        if !edge.dtype.is_low() {
            continue;
        }
        found.extend(match op {
            Op::Add | Op::Maximum | Op::Clamp => eps_too_small(edges, at),
            Op::Mul | Op::Div => sum_before_div(edges, at, before).or_else(|| softmax_by_hand(edges, at, before)),
            Op::Sub => variance_by_hand(edges, at, before),
            _ => None,
        });
        if counts[at] && !edges.sources(at).any(|from| counts[from] && edges.list[from].dtype.is_low()) {
            found.extend(counts_in_float(edges, at));
        }
    }
    found
}

/// Returns whether there is a finding about this edge.
fn is_found(edges: &Edges, at: usize, before: &[Finding]) -> bool {
    let place = edges.list[at].place();
    before.iter().any(|finding| finding.place.iter().chain(&finding.then).any(|met| *met == place))
}

/// Returns the edge of an operand if this op wrote it.
fn by(edges: &Edges, at: usize, operand: usize, op: Op) -> Option<usize> {
    edges.origin(at, operand).filter(|from| edges.list[*from].forward_op() == Some(op))
}

/// Finds an epsilon that is 0, or another number, in its dtype, before a root, a logarithm or a division. The epsilon
/// of a norm is not among them: its inside is f32.
fn eps_too_small(edges: &Edges, at: usize) -> Option<Finding> {
    let edge = &edges.list[at];
    let eps = match edge.forward_op() {
        Some(Op::Clamp) => edge.attributes.get::<f64>("min").ok()?,
        _ => (0..2).find_map(|i| edges.constant(at, i))?,
    };
    let smallest = smallest(edge.dtype);
    let singular = |reader: &usize| match edges.list[*reader].forward_op() {
        Some(Op::Sqrt | Op::Rsqrt | Op::Reciprocal | Op::Log | Op::Pow) => true,
        Some(Op::Div) => edges.origin(*reader, 1) == Some(at),
        _ => false,
    };
    let mut readers = edges.readers[at].iter().flat_map(|&reader| match edges.list[reader].forward_op() {
        Some(Op::Cast) => edges.readers[reader].clone(),
        _ => vec![reader],
    });
    if eps <= 0.0 || eps >= smallest || !readers.any(|reader| singular(&reader)) {
        return None;
    }
    let severity = if rounded(&[eps], edge.dtype)[0] == 0.0 { Severity::Error } else { Severity::Warning };
    let what = format!(
        "{} has an epsilon of {}, below {}, the smallest {}: on zeros, the next op is infinite or NaN",
        edge.place(),
        short(eps),
        short(smallest),
        edge.dtype
    );
    let write = format!("an epsilon of at least {}, or run: float32 for {}", short(smallest), named(&edge.cell));
    Some(Finding::at(Rule::EpsTooSmall, severity, edge.place(), [eps, smallest]).what(what).write(write))
}

/// Finds a sum that is out of range and is divided by a constant.
fn sum_before_div(edges: &Edges, at: usize, before: &[Finding]) -> Option<Finding> {
    let edge = &edges.list[at];
    let (sum, by) = match edge.forward_op()? {
        Op::Div => (by(edges, at, 0, Op::Sum)?, edges.constant(at, 1)?),
        _ => (0..2).find_map(|i| Some((by(edges, at, i, Op::Sum)?, 1.0 / edges.constant(at, 1 - i)?)))?,
    };
    if by.abs() <= 1.0 || !is_found(edges, sum, before) {
        return None;
    }
    let place = edges.list[sum].place();
    let (reached, limit) = (place.amax, largest(edge.dtype));
    let what = format!("{place} is divided by {} only afterwards", short(by));
    let finding = Finding::at(Rule::SumBeforeDiv, Severity::Warning, place, [reached, limit]);
    Some(finding.what(what).write("`mean`, or the division before the sum"))
}

/// Finds exponentials divided by their sum.
fn softmax_by_hand(edges: &Edges, at: usize, before: &[Finding]) -> Option<Finding> {
    let exp = by(edges, at, 0, Op::Exp)?;
    let sum = by(edges, at, 1, Op::Sum)?;
    if by(edges, sum, 0, Op::Exp) != Some(exp) || !(is_found(edges, exp, before) || is_found(edges, sum, before)) {
        return None;
    }
    let place = edges.list[exp].place();
    let (reached, limit) = (place.amax, largest(edges.list[exp].dtype));
    let what = format!("{place} is part of a softmax without the maximum taken off");
    let finding = Finding::at(Rule::SoftmaxByHand, Severity::Warning, place, [reached, limit]);
    Some(finding.what(what).write("`x.softmax(axis)`"))
}

/// Finds the mean of squares minus the square of the mean.
fn variance_by_hand(edges: &Edges, at: usize, before: &[Finding]) -> Option<Finding> {
    let square = |at: usize, i: usize| {
        let from = edges.origin(at, i)?;
        let op = edges.list[from].forward_op()?;
        (op == Op::Square || op == Op::Mul && edges.list[from].sources[0] == edges.list[from].sources[1])
            .then_some(from)
    };
    let mean = by(edges, at, 0, Op::Mean)?;
    let squares = square(mean, 0)?;
    let squared = square(at, 1)?;
    by(edges, squared, 0, Op::Mean)?;
    if ![at, mean, squares].into_iter().any(|at| is_found(edges, at, before)) {
        return None;
    }
    let place = edges.list[at].place();
    let numbers = [place.amax, edges.list[mean].place().amax];
    let what = format!("{place} is a variance of {}, from means of {}", short(numbers[0]), short(numbers[1]));
    let finding = Finding::at(Rule::VarianceByHand, Severity::Warning, place, numbers);
    Some(finding.what(what).write("`x.var(axes)`, or the mean of the squares of x minus its mean"))
}

/// Number up to which f32 has every integer: whole numbers beyond it are not taken as counts.
const COUNTABLE: f64 = 16_777_216.0;

/// Returns whether an edge counts or numbers something: a sum of zeros and ones, integers made floats, and arithmetic
/// and sums of these.
fn is_count(edges: &Edges, at: usize, counts: &[bool]) -> bool {
    let edge = &edges.list[at];
    let counted = |i: usize| edge.sources[i].is_some_and(|from| counts[from]) || !edge.operands[i].dtype().is_float();
    let counts = match edge.forward_op() {
        Some(Op::Sum | Op::CumSum) => counted(0) || values(&edge.operands[0]).iter().all(|x| *x == 0.0 || *x == 1.0),
        Some(Op::Cast) => counted(0),
        Some(Op::Add | Op::Sub | Op::Mul) => (0..2).any(counted),
        _ => false,
    };
    counts && values(&edge.exact).iter().all(|x| x.fract() == 0.0 && x.abs() <= COUNTABLE)
}

/// Finds counts that their dtype does not hold: whole numbers beyond 2048 in f16, 256 in bf16.
fn counts_in_float(edges: &Edges, at: usize) -> Option<Finding> {
    let edge = &edges.list[at];
    let numbers = values(&edge.exact);
    let (met, limit) = (amax(&numbers), 2.0 / edge.dtype.epsilon());
    if met <= limit || numbers == rounded(&numbers, edge.dtype) {
        return None;
    }
    let place = edge.place();
    let what = format!("{place} counts to {}, and {} holds whole numbers to {limit}", short(met), edge.dtype);
    let write = format!("integers, or f32 for {}", named(&edge.cell));
    Some(Finding::at(Rule::CountsInFloat, Severity::Warning, place, [met, limit]).what(what).write(write))
}
