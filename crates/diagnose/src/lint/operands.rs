//! Hazards of quantized operands: numbers that become 0, the ends of a network, and formats with few digits.

use std::collections::HashMap;

use precast::{
    Child, Op, Tensor,
    cell::AsCell,
    policy::{Format, Granularity, Operands},
};
use precast_base::path::named;
use precast_lowbit::{Matrix, Operand, Stream};

use super::{
    edges::{Edge, Edges},
    finding::{Finding, Rule, Severity},
};
use crate::measure::values;

/// Share of the numbers other than 0 that may become 0.
const FLUSHED: f64 = 0.01;

/// Finds hazards of the products whose operands a plan quantizes.
pub(super) fn findings<C: ?Sized + AsCell>(edges: &Edges, net: &Child<C>) -> Vec<Finding> {
    let mut operands = HashMap::new();
    net.walk(&mut |visited| {
        operands.extend(visited.slot.planned.operands.map(|operands| (visited.path.to_string(), operands)));
    });
    if operands.is_empty() {
        return Vec::new();
    }
    let is_product = |edge: &Edge| edge.forward_op().is_some_and(Op::has_weight);
    let products: Vec<usize> = (0..edges.list.len()).filter(|&at| is_product(&edges.list[at])).collect();
    let mut found = Vec::new();
    for (nth, &at) in products.iter().enumerate() {
        let edge = &edges.list[at];
        let Some(of) = operands.get(&edge.cell) else { continue };
        let end = match nth {
            0 => Some("first"),
            _ if nth + 1 == products.len() => Some("last"),
            _ => None,
        };
        found.extend(end.filter(|_| products.len() > 2).map(|end| of_end(edge, *of, end)));
        found.extend(few_digits(edge, *of));
        found.extend(flushed(edge, *of));
    }
    found
}

/// Returns the cure: the exception for a cell.
fn exception(cell: &str) -> String {
    let path = if cell.is_empty() { "**" } else { cell };
    format!("rules: [{{ path: {path:?}, operands: none }}]")
}

/// Finds a quantized product at an end of the network.
fn of_end(edge: &Edge, operands: Operands, end: &str) -> Finding {
    let what = format!(
        "the {end} product, {}, has quantized operands ({operands}): the ends of a network bear it least, and cost least",
        edge.place()
    );
    Finding::of_cell(Rule::QuantizedEnd, Severity::Information, &edge.cell, [0.0, 0.0])
        .what(what)
        .write(exception(&edge.cell))
}

/// Finds inputs and weights in a format of two bits of mantissa.
fn few_digits(edge: &Edge, operands: Operands) -> Option<Finding> {
    let output = operands.recipe()?.output;
    [output.left, output.right].iter().any(|of| of.format == Format::E5M2).then(|| {
        let what = format!(
            "inputs or weights of {} are e5m2, which rounds by up to an eighth; e4m3 rounds by a sixteenth, and the scales make up \
             for its range",
            named(&edge.cell)
        );
        Finding::of_cell(Rule::FewDigits, Severity::Warning, &edge.cell, [0.125, 0.0625])
            .what(what)
            .write("`forward: e4m3`, and e5m2 for gradients alone")
    })
}

/// Finds an input or a weight of which many numbers become 0: a few large ones take the range of their scale.
fn flushed(edge: &Edge, operands: Operands) -> Option<Finding> {
    let output = operands.recipe()?.output;
    let of = [("the input", &output.left), ("the weight", &output.right)].into_iter().zip(&edge.operands);
    let shares = of.filter_map(|((name, operand), x)| Some((name, operand, share(edge, operand, x)?)));
    let (name, operand, share) = shares.max_by(|a, b| a.2.total_cmp(&b.2)).filter(|(.., share)| *share > FLUSHED)?;
    let what = format!(
        "{:.1} % of the numbers other than 0 of {name} of {} become 0 ({operand}), beyond {:.0} %",
        100.0 * share,
        named(&edge.cell),
        100.0 * FLUSHED
    );
    let finding = Finding::at(Rule::FlushedCodes, Severity::Warning, edge.place(), [share, FLUSHED]);
    Some(finding.what(what).write(exception(&edge.cell)))
}

/// Returns the share of the numbers other than 0 that are 0 as codes. The groups of scales of a convolution are those of its
/// patches, which are not looked at: only scales of a whole tensor are.
fn share(edge: &Edge, operand: &Operand, x: &Tensor) -> Option<f64> {
    let is_known = edge.forward_op() == Some(Op::Linear) || operand.granularity == Granularity::Tensor;
    let width = x.shape().last().copied().filter(|width| is_known && *width > 0)?;
    let numbers: Vec<f32> = values(x).iter().map(|x| *x as f32).collect();
    let matrix = Matrix::new(&numbers, numbers.len() / width, width).ok()?;
    let codes = operand.quantize(matrix, Stream::new(0, "", 0)).ok()?.decode();
    let other = numbers.iter().zip(&codes).filter(|(x, _)| **x != 0.0);
    let (count, lost) = other.fold((0, 0), |(count, lost), (_, code)| (count + 1, lost + usize::from(*code == 0.0)));
    (count > 0).then(|| lost as f64 / count as f64)
}
