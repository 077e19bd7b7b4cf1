//! Lost digits: differences of nearly equal numbers, and sums that are rounded after every term.

use precast::Op;
use precast_base::path::named;

use super::{
    edges::{Edge, Edges},
    finding::{Finding, Rule, Severity},
    format::{rounded, short},
};
use crate::measure::{GROWTH, LOST, norm, relative, values};

/// Number of additions, one after the other, from which they count as one sum. Eight adds lose at most three bits.
const DEPTH: usize = 8;

/// A result as it would be computed in 16 bits, from sums.
struct Low {
    numbers: Vec<f64>,
    error: f64,
    /// The longest chain of additions that led to it.
    chain: Chain,
}

/// Additions in one cell, each of which reads the one before.
#[derive(Clone, Copy, Default)]
struct Chain {
    depth: usize,
    /// The last one, with its error.
    last: Option<(usize, f64)>,
}

/// Finds sums and differences that lose digits. Each is computed again in its dtype, from operands rounded to it, along
/// chains of additions and of products that read these; the difference to f32 is the error.
pub(super) fn findings(edges: &Edges) -> Vec<Finding> {
    let mut known: Vec<Option<Low>> = edges.list.iter().map(|_| None).collect();
    let mut found: Vec<Finding> = Vec::new();
    for at in 0..edges.list.len() {
        let Some(low) = again(edges, at, &known) else { continue };
        let edge = &edges.list[at];
        let before = || (0..2).filter_map(|i| known[edges.origin(at, i)?].as_ref());
        let entered = before().map(|low| low.error).fold(0.0, f64::max);
        let is_sum = matches!(edge.forward_op(), Some(Op::Add | Op::Sub));
        // More than the error of one rounding: the additions lost it, and what follows only shows it.
        let deep = low.chain.last.filter(|(_, error)| low.chain.depth > DEPTH && *error > edge.dtype.epsilon());
        if is_sum && low.error > LOST && before().all(|before| before.error <= LOST) {
            let constant = (0..2).any(|i| edges.constant(at, i).is_some());
            match deep {
                Some((last, _)) => found.push(finding(edges, last, Rule::Depth, &low)),
                None if low.error <= GROWTH * entered => {}
                None if constant || low.chain.depth > 1 => found.push(finding(edges, at, Rule::Absorbed, &low)),
                None => found.push(finding(edges, at, Rule::Cancellation, &low)),
            }
        }
        known[at] = Some(low);
    }
    found
}

/// Number of examples from which the differences between them are judged.
const EXAMPLES: usize = 4;

/// Finds casts of the network's inputs that lose the differences between examples: in one column of numbers, the error
/// of the rounding is compared with the distance from the mean. A constant has no differences.
pub(super) fn of_inputs(edges: &Edges) -> Option<Finding> {
    let cast = |edge: &&Edge| edge.forward_op() == Some(Op::Cast) && edge.dtype.is_low();
    let inputs = edges.list.iter().filter(cast).filter(|edge| edges.is_given(edge));
    let worst = inputs.flat_map(|edge| columns(edge).map(move |lost| (edge, lost)));
    let (edge, lost) = worst.max_by(|(_, a), (_, b)| a.share.total_cmp(&b.share)).filter(|(_, at)| at.share > LOST)?;
    let (place, share) = (edge.place(), 100.0 * lost.share);
    let what = format!(
        "{place} loses {share:.0} % of the differences between examples: number {} of an example is {} with a spread of {}",
        lost.column,
        short(lost.mean),
        short(lost.spread)
    );
    let finding = Finding::at(Rule::InputDigits, Severity::Warning, place, [lost.share, LOST]);
    Some(finding.what(what).write("inputs without their mean, or f32 for the root"))
}

/// A column of the inputs, and the share of its spread that rounding loses.
struct Column {
    column: usize,
    mean: f64,
    spread: f64,
    share: f64,
}

/// Returns the columns of an input that is cast.
fn columns(edge: &Edge) -> impl Iterator<Item = Column> {
    let exact = values(&edge.exact);
    let (n, low) = (edge.exact.shape().first().copied().unwrap_or(0), rounded(&exact, edge.dtype));
    let width = if n >= EXAMPLES { exact.len() / n } else { 0 };
    (0..width).filter_map(move |column| {
        let of = |numbers: &[f64]| (0..n).map(|row| numbers[row * width + column]).collect::<Vec<f64>>();
        let (exact, low) = (of(&exact), of(&low));
        let mean = exact.iter().sum::<f64>() / n as f64;
        let spread = norm(exact.iter().map(|x| x - mean));
        let share = norm(exact.iter().zip(&low).map(|(x, low)| x - low)) / spread;
        let spread = spread / (n as f64).sqrt();
        // What f32 does not tell apart are rounding errors of the data.
        let differs = spread > mean.abs() * f64::from(f32::EPSILON);
        (share.is_finite() && differs).then_some(Column { column, mean, spread, share })
    })
}

/// Computes a sum, a difference or a product of these in the dtype of its edge.
fn again(edges: &Edges, at: usize, known: &[Option<Low>]) -> Option<Low> {
    let edge = &edges.list[at];
    let run: fn(f64, f64) -> f64 = match edge.forward_op()? {
        Op::Add => |a, b| a + b,
        Op::Sub => |a, b| a - b,
        Op::Mul => |a, b| a * b,
        Op::Div => |a, b| a / b,
        _ => return None,
    };
    if !edge.dtype.is_low() || edge.operands.len() != 2 {
        return None;
    }
    let before = [0, 1].map(|i| edges.origin(at, i).and_then(|from| known[from].as_ref()));
    let is_sum = matches!(edge.forward_op(), Some(Op::Add | Op::Sub));
    if !is_sum && before.iter().all(Option::is_none) {
        return None;
    }
    let operands = [0, 1].map(|i| match before[i] {
        Some(low) => low.numbers.clone(),
        None => rounded(&values(&edge.operands[i]), edge.dtype),
    });
    let [a, b] = broadcast(edges, at, &operands)?;
    let numbers: Vec<f64> = a.iter().zip(&b).map(|(a, b)| run(*a, *b)).collect();
    let (numbers, exact) = (rounded(&numbers, edge.dtype), values(&edge.exact));
    let error = relative(&numbers, &exact);
    if !error.is_finite() {
        return None;
    }
    let in_cell = |i: &usize| edges.origin(at, *i).is_some_and(|from| edges.list[from].cell == edge.cell);
    let chains = (0..2).filter(in_cell).filter_map(|i| Some(before[i]?.chain));
    let longest = chains.max_by_key(|chain| chain.depth).unwrap_or_default();
    let chain = match edge.forward_op() {
        Some(Op::Add) => Chain { depth: longest.depth + 1, last: Some((at, error)) },
        Some(Op::Sub) => Chain { depth: longest.depth + 1, ..longest },
        _ => longest,
    };
    Some(Low { numbers, error, chain })
}

fn finding(edges: &Edges, at: usize, rule: Rule, low: &Low) -> Finding {
    let edge = &edges.list[at];
    let (place, cell) = (edge.place(), named(&edge.cell));
    let (why, write) = match rule {
        Rule::Depth => (
            format!("a sum that is rounded after each of {} terms", low.chain.depth),
            format!("one `sum` of all terms, which adds in f32, in {cell}"),
        ),
        Rule::Absorbed => (
            "small values lose their digits when a large value is added and later subtracted".to_string(),
            format!("code that does not add the large number, or run: float32 for {cell}"),
        ),
        _ => (
            "nearly equal numbers are subtracted".to_string(),
            format!("the difference before the squares and products, or run: float32 for {cell}"),
        ),
    };
    let what = format!("{place} is wrong by {:.0} % in {}: {why}", 100.0 * low.error, edge.dtype);
    Finding::at(rule, Severity::Warning, place, [low.error, LOST]).what(what).write(write)
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
