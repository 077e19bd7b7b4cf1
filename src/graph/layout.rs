//! Where the nodes of a drawing stand: in layers from the top to the bottom, each node below all that it reads, neighbours
//! near each other (K. Sugiyama, S. Tagawa, M. Toda, "Methods for visual understanding of hierarchical system structures", 1981).

use std::collections::HashMap;

/// How often the order within layers is improved, downwards and upwards.
const SWEEPS: usize = 8;

/// A drawing's nodes: for each its layer and its column, which may lie between two whole ones.
pub(super) struct Layout {
    pub places: Vec<(usize, f64)>,
    pub layers: usize,
    pub columns: f64,
    /// For each edge, the columns in which it passes the layers between its ends.
    pub ways: Vec<Vec<f64>>,
}

/// Lays out nodes `0..count` with edges from earlier to later ones.
pub(super) fn layout(count: usize, edges: &[(usize, usize)]) -> Layout {
    let mut layer = vec![0; count];
    let mut sorted = edges.to_vec();
    sorted.sort_unstable_by_key(|&(_, to)| to);
    for &(from, to) in &sorted {
        layer[to] = layer[to].max(layer[from] + 1);
    }
    // A long edge passes each layer between its ends in a place of its own.
    let mut all_layers = layer.clone();
    let (mut links, mut passes) = (Vec::new(), Vec::new());
    for &(from, to) in edges {
        let mut last = from;
        let mut passed = Vec::new();
        for between in layer[from] + 1..layer[to] {
            all_layers.push(between);
            let place = all_layers.len() - 1;
            links.push((last, place));
            passed.push(place);
            last = place;
        }
        links.push((last, to));
        passes.push(passed);
    }
    let layers = all_layers.iter().max().map_or(0, |last| last + 1);
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); layers];
    (0..all_layers.len()).for_each(|node| rows[all_layers[node]].push(node));
    let (mut above, mut below) = (HashMap::<usize, Vec<usize>>::new(), HashMap::<usize, Vec<usize>>::new());
    for &(from, to) in &links {
        above.entry(to).or_default().push(from);
        below.entry(from).or_default().push(to);
    }
    let mut column = vec![0.0; all_layers.len()];
    let place_row =
        |row: &[usize], column: &mut [f64]| row.iter().enumerate().for_each(|(i, &node)| column[node] = i as f64);
    rows.iter().for_each(|row| place_row(row, &mut column));
    for sweep in 0..SWEEPS {
        let down = sweep % 2 == 0;
        let neighbours = if down { &above } else { &below };
        let order: Vec<usize> = if down { (0..layers).collect() } else { (0..layers).rev().collect() };
        for row in order {
            let wish = |node: usize, column: &[f64]| match neighbours.get(&node) {
                Some(near) => near.iter().map(|&n| column[n]).sum::<f64>() / near.len() as f64,
                None => column[node],
            };
            let wishes: HashMap<usize, f64> = rows[row].iter().map(|&node| (node, wish(node, &column))).collect();
            rows[row].sort_by(|a, b| wishes[a].total_cmp(&wishes[b]));
            // As near to the wish as the neighbour to the left leaves.
            let mut least = f64::NEG_INFINITY;
            for &node in &rows[row] {
                column[node] = wishes[&node].max(least);
                least = column[node] + 1.0;
            }
        }
    }
    let left = column.iter().copied().fold(f64::INFINITY, f64::min).min(0.0);
    column.iter_mut().for_each(|column| *column -= left);
    Layout {
        places: (0..count).map(|node| (layer[node], column[node])).collect(),
        layers,
        columns: column.iter().copied().fold(0.0, f64::max) + 1.0,
        ways: passes.iter().map(|passed| passed.iter().map(|&node| column[node]).collect()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_stand_below_what_they_read_and_apart() {
        // A residual: 0 -> 1 -> 2 -> 3, and 0 -> 3.
        let laid = layout(4, &[(0, 1), (1, 2), (2, 3), (0, 3)]);
        assert_eq!(laid.places.iter().map(|place| place.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(laid.ways[3].len(), 2);
        for (layer, passed) in [(1, laid.ways[3][0]), (2, laid.ways[3][1])] {
            let (_, column) = laid.places[layer];
            assert!((column - passed).abs() >= 1.0, "{column} {passed}");
        }
        assert_eq!(layout(0, &[]).layers, 0);
    }
}
