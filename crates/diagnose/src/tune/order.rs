//! The order in which a search lowers cells.

use super::score::Shared;

/// Sorts cells for lowering, those that cost least for their gain in front, and returns along with them the cost that each
/// adds to those before it. `errors` and `gains` are those of the cells, by their indices; cells in `shared` are found by
/// `index`.
///
/// Beginning with all of them lowered, the cell is taken out whose cost is largest for its gain, again and again. So
/// neighbours that share a rounding stay together.
pub(super) fn order(
    errors: &[f64],
    gains: &[f64],
    shared: &[Shared],
    index: impl Fn(usize) -> Option<usize>,
) -> (Vec<usize>, Vec<f64>) {
    let mut low: Vec<usize> = (0..errors.len()).filter(|&i| errors[i].is_finite() && gains[i] > 0.0).collect();
    let mut costs = errors.to_vec();
    let mut neighbours = vec![Vec::new(); errors.len()];
    for Shared { writer, reader, error } in shared {
        if let (Some(writer), Some(reader)) = (index(*writer), index(*reader))
            && low.contains(&writer)
            && low.contains(&reader)
        {
            neighbours[writer].push((reader, *error));
            neighbours[reader].push((writer, *error));
            costs[writer] -= error;
            costs[reader] -= error;
        }
    }
    let mut order = Vec::new();
    // A cell that only repeats the roundings of its neighbours costs little, but not less than nothing.
    let cost = |costs: &[f64], i: usize| costs[i].max(LEAST * errors[i]);
    while let Some(at) = (0..low.len()).max_by(|&a, &b| {
        let of = |at: usize| cost(&costs, low[at]) / gains[low[at]];
        of(a).total_cmp(&of(b))
    }) {
        let cell = low.remove(at);
        order.push(cell);
        for (other, error) in std::mem::take(&mut neighbours[cell]) {
            costs[other] += error;
        }
        costs[cell] = cost(&costs, cell);
        // Its own cost is fixed now.
        neighbours.iter_mut().for_each(|of| of.retain(|(other, _)| *other != cell));
    }
    order.reverse();
    (order, costs)
}

/// Smallest share of its own error that a cell costs next to cells that share its roundings: the difference of two scores is
/// no more exact than they are.
const LEAST: f64 = 0.1;
