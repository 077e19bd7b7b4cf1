//! Lost digits: differences of nearly equal numbers, and sums that are rounded after every term.

use super::{
    edges::Edges,
    finding::{Finding, Rule, Severity},
    format::{norm, rounded, values},
};
use crate::{Op, cell::named};

/// Relative error above which digits are lost: fewer than about four bits are correct.
const LOST: f64 = 1.0 / 16.0;

/// Factor by which an op that loses digits enlarges the error of its operands.
const GROWTH: f64 = 4.0;

/// Number of additions, one after the other, from which they count as one sum. Eight adds lose at most three bits.
const DEPTH: usize = 8;

/// A sum as it would be computed in 16 bits.
struct Sum {
    numbers: Vec<f64>,
    error: f64,
    /// Number of additions in the same cell that led to it.
    depth: usize,
}

/// Finds sums and differences that lose digits. Each is computed again in its dtype, from operands rounded to it, along
/// chains of additions; the difference to f32 is the error.
pub(super) fn findings(edges: &Edges) -> Vec<Finding> {
    let mut sums: Vec<Option<Sum>> = edges.list.iter().map(|_| None).collect();
    let mut found: Vec<Finding> = Vec::new();
    for at in 0..edges.list.len() {
        let edge = &edges.list[at];
        let sign = match edge.forward_op() {
            Some(Op::Add) => 1.0,
            Some(Op::Sub) => -1.0,
            _ => continue,
        };
        if !edge.dtype.is_low() || edge.operands.len() != 2 {
            continue;
        }
        let before = [0, 1].map(|i| edges.origin(at, i).and_then(|from| sums[from].as_ref()));
        let operands = [0, 1].map(|i| match before[i] {
            Some(sum) => sum.numbers.clone(),
            None => rounded(&values(&edge.operands[i]), edge.dtype),
        });
        let Some([a, b]) = broadcast(edges, at, &operands) else { continue };
        let low: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a + sign * b).collect();
        let (low, exact) = (rounded(&low, edge.dtype), values(&edge.exact));
        let error = norm(low.iter().zip(&exact).map(|(low, exact)| low - exact)) / norm(exact.iter().copied());
        if !error.is_finite() {
            continue;
        }
        let same_cell = |i: usize| edges.origin(at, i).is_some_and(|from| edges.list[from].cell == edge.cell);
        let inside = |i: usize| before[i].filter(|_| same_cell(i)).map_or(0, |sum| sum.depth);
        let (entered, depth) =
            (before.iter().flatten().map(|sum| sum.error).fold(0.0, f64::max), inside(0).max(inside(1)));
        let deep = depth >= DEPTH && !before.iter().flatten().any(|sum| sum.error > LOST);
        if error > LOST && (error > GROWTH * entered || deep) {
            let constant = (0..2).any(|i| edges.constant(at, i).is_some());
            let rule = match () {
                () if depth >= DEPTH => Rule::Depth,
                () if constant || depth > 0 => Rule::Absorbed,
                () => Rule::Cancellation,
            };
            found.push(finding(edges, at, rule, error, depth));
        }
        sums[at] = Some(Sum { numbers: low, error, depth: depth + 1 });
    }
    found
}

fn finding(edges: &Edges, at: usize, rule: Rule, error: f64, depth: usize) -> Finding {
    let edge = &edges.list[at];
    let (place, cell) = (edge.place(), named(&edge.cell));
    let (why, write) = match rule {
        Rule::Depth => (
            format!("a sum that is rounded after each of {} terms", depth + 2),
            format!("one `sum` of all terms, which adds in f32, in {cell}"),
        ),
        Rule::Absorbed => (
            "small numbers are lost next to a large one, which is taken off again".to_string(),
            format!("code that does not add the large number, or run: float32 for {cell}"),
        ),
        _ => (
            "nearly equal numbers are subtracted".to_string(),
            format!("the difference before the squares and products, or run: float32 for {cell}"),
        ),
    };
    let what = format!("{place} is wrong by {:.0} % in {}: {why}", 100.0 * error, edge.dtype);
    Finding::at(rule, Severity::Warning, place, [error, LOST]).what(what).write(write)
}

/// Expands two operands to the shape of the result.
fn broadcast(edges: &Edges, at: usize, operands: &[Vec<f64>; 2]) -> Option<[Vec<f64>; 2]> {
    let edge = &edges.list[at];
    let shape = edge.exact.shape();
    let of = |i: usize| {
        let from = edge.operands[i].shape();
        if from == shape {
            return Some(operands[i].clone());
        }
        let skipped = shape.len().checked_sub(from.len())?;
        let mut strides = vec![0; shape.len()];
        let mut stride = 1;
        for axis in (0..from.len()).rev() {
            strides[skipped + axis] = if from[axis] == 1 { 0 } else { stride };
            stride *= from[axis];
        }
        let place = |mut index: usize| {
            let mut place = 0;
            for axis in (0..shape.len()).rev() {
                place += index % shape[axis] * strides[axis];
                index /= shape[axis];
            }
            place
        };
        (0..edge.exact.len()).map(|index| operands[i].get(place(index)).copied()).collect()
    };
    Some([of(0)?, of(1)?])
}
