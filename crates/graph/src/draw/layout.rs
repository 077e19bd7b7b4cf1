//! Positions of the nodes of a drawing: in layers from top to bottom, each node below all its inputs, neighbours close
//! to each other (K. Sugiyama, S. Tagawa, M. Toda, "Methods for visual understanding of hierarchical system
//! structures", 1981).

use std::collections::BTreeMap;

/// The number of downward and upward sweeps that improve the order within layers, and then the positions.
const SWEEPS: usize = 8;
/// An edge across more layers than this is drawn straight, regardless of what it crosses.
const LONGEST: usize = 200;
/// Space between neighbours.
const GAP: f64 = 34.0;

/// The nodes of a drawing: for each its layer, and its position in the layer.
pub(super) struct Layout {
    pub places: Vec<(usize, f64)>,
    pub layers: usize,
    pub width: f64,
    /// For each edge, the positions at which it crosses the layers between its ends.
    pub ways: Vec<Vec<f64>>,
}

/// An operation on a row, given the neighbours of each node in the previous row.
type Step<'a> = dyn FnMut(&mut Vec<usize>, &[Vec<usize>]) + 'a;

/// Lays out nodes with edges from earlier to later ones. `sides` is the extent of each node to the left and right of
/// its position.
pub(super) fn layout(sides: &[(f64, f64)], edges: &[(usize, usize)]) -> Layout {
    let count = sides.len();
    let mut layer = layers(count, edges);
    let mut sides = sides.to_vec();
    let mut longest = longest_paths(count, edges);
    // A long edge crosses each layer between its ends at a position of its own.
    let (mut links, mut passes) = (Vec::new(), Vec::new());
    for &(from, to) in edges {
        let mut passed = Vec::new();
        if layer[to] - layer[from] <= LONGEST {
            let mut last = from;
            for between in layer[from] + 1..layer[to] {
                layer.push(between);
                sides.push((0.0, 0.0));
                longest.push(0);
                links.push((last, layer.len() - 1));
                last = layer.len() - 1;
                passed.push(last);
            }
            links.push((last, to));
        }
        passes.push(passed);
    }
    let layers = layer.iter().max().map_or(0, |last| last + 1);
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); layers];
    (0..layer.len()).for_each(|node| rows[layer[node]].push(node));
    let (mut above, mut below) = (vec![Vec::new(); layer.len()], vec![Vec::new(); layer.len()]);
    for &(from, to) in &links {
        above[to].push(from);
        below[from].push(to);
    }
    let mut x = vec![0.0; layer.len()];
    for row in &rows {
        row.iter().enumerate().for_each(|(i, &node)| x[node] = i as f64);
    }
    let mut sweep = |step: &mut Step<'_>| {
        for sweep in 0..SWEEPS {
            match sweep % 2 {
                0 => rows.iter_mut().for_each(|row| step(row, &above)),
                _ => rows.iter_mut().rev().for_each(|row| step(row, &below)),
            }
        }
    };
    sweep(&mut |row, near| {
        let mean = |&node: &usize| match &near[node][..] {
            [] => x[node],
            near => near.iter().map(|&n| x[n]).sum::<f64>() / near.len() as f64,
        };
        let mut wishes: Vec<(f64, usize)> = row.iter().map(|node| (mean(node), *node)).collect();
        // Nodes on longer paths go to the left of those that end earlier.
        wishes.sort_by(|a, b| a.0.total_cmp(&b.0).then(longest[b.1].cmp(&longest[a.1])));
        for (i, (_, node)) in wishes.into_iter().enumerate() {
            (row[i], x[node]) = (node, i as f64);
        }
    });
    sweep(&mut |row, near| place(row, near, &longest, &sides, &mut x));
    let left = (0..x.len()).map(|node| x[node] - sides[node].0).fold(f64::INFINITY, f64::min);
    x.iter_mut().for_each(|x| *x -= left);
    Layout {
        places: (0..count).map(|node| (layer[node], x[node])).collect(),
        layers,
        width: (0..x.len()).map(|node| x[node] + sides[node].1).fold(0.0, f64::max),
        ways: passes.iter().map(|passed| passed.iter().map(|&node| x[node]).collect()).collect(),
    }
}

/// Places each node one layer below its lowest input, and a node without inputs just above its first reader.
fn layers(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut layer = vec![0; count];
    let mut sorted = edges.to_vec();
    sorted.sort_unstable_by_key(|&(_, to)| to);
    for &(from, to) in &sorted {
        layer[to] = layer[to].max(layer[from] + 1);
    }
    let mut first = vec![usize::MAX; count];
    for &(from, to) in edges {
        first[from] = first[from].min(layer[to]);
    }
    for (layer, first) in layer.iter_mut().zip(first).filter(|(layer, first)| **layer == 0 && *first != usize::MAX) {
        *layer = first - 1;
    }
    layer
}

/// Returns the number of edges in the longest path through each node. The longest of all is kept straight.
fn longest_paths(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let (mut down, mut up) = (vec![0; count], vec![0; count]);
    let mut sorted = edges.to_vec();
    sorted.sort_unstable_by_key(|&(_, to)| to);
    sorted.iter().for_each(|&(from, to)| down[to] = down[to].max(down[from] + 1));
    sorted.sort_unstable_by_key(|&(from, _)| from);
    sorted.iter().rev().for_each(|&(from, to)| up[from] = up[from].max(up[to] + 1));
    (0..count).map(|node| down[node] + up[node] + 1).collect()
}

/// Moves the nodes of a row, those on long paths first, to the positions of their neighbours on the longest paths,
/// preserving the order and leaving room for the nodes between.
fn place(row: &[usize], near: &[Vec<usize>], longest: &[usize], sides: &[(f64, f64)], x: &mut [f64]) {
    // Distance of each node from the first one, at the tightest spacing.
    let mut offset = vec![0.0; row.len()];
    for i in 1..row.len() {
        offset[i] = offset[i - 1] + sides[row[i - 1]].1 + GAP + sides[row[i]].0;
    }
    let wish = |node: usize, x: &[f64]| {
        let most = near[node].iter().map(|&n| longest[n]).max()?;
        let best: Vec<f64> = near[node].iter().filter(|&&n| longest[n] == most).map(|&n| x[n]).collect();
        Some(best.iter().sum::<f64>() / best.len() as f64)
    };
    let wishes: Vec<f64> = row.iter().map(|&node| wish(node, x).unwrap_or(x[node])).collect();
    // Neighbours with the same target are centred on it.
    let mut groups: Vec<std::ops::Range<usize>> = Vec::new();
    for i in 0..row.len() {
        match groups.last_mut() {
            Some(last) if longest[row[last.start]] == longest[row[i]] && wishes[last.start] == wishes[i] => {
                last.end += 1
            }
            _ => groups.push(i..i + 1),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(longest[row[group.start]]));
    let mut placed: BTreeMap<usize, f64> = BTreeMap::new();
    for group in groups {
        let middle = f64::midpoint(offset[group.start], offset[group.end - 1]);
        for i in group {
            let least = placed.range(..i).next_back().map_or(f64::NEG_INFINITY, |(j, x)| x + offset[i] - offset[*j]);
            let most = placed.range(i..).next().map_or(f64::INFINITY, |(j, x)| x - (offset[*j] - offset[i]));
            placed.insert(i, (wishes[i] + offset[i] - middle).min(most).max(least));
        }
    }
    placed.into_iter().for_each(|(i, at)| x[row[i]] = at);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIDES: (f64, f64) = (30.0, 20.0);

    #[test]
    fn nodes_stand_below_what_they_read_and_apart() {
        // A residual: 0 -> 1 -> 2 -> 3, and 0 -> 3.
        let laid = layout(&[SIDES; 4], &[(0, 1), (1, 2), (2, 3), (0, 3)]);
        assert_eq!(laid.places.iter().map(|place| place.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(laid.ways[3].len(), 2);
        for (layer, passed) in [(1, laid.ways[3][0]), (2, laid.ways[3][1])] {
            let (_, x) = laid.places[layer];
            assert!(passed <= x - SIDES.0 - GAP || passed >= x + SIDES.1 + GAP, "{x} {passed}");
        }
        assert_eq!(layout(&[], &[]).layers, 0);
    }

    #[test]
    fn the_longest_path_is_straight() {
        // A path of six nodes; each of the first four also has an unread output.
        let path = [(0, 2), (2, 4), (4, 6), (6, 8), (8, 9)];
        let ends = [(0, 1), (2, 3), (4, 5), (6, 7)];
        let laid = layout(&[SIDES; 10], &[&path[..], &ends].concat());
        let on_path: Vec<f64> = [0, 2, 4, 6, 8, 9].map(|node| laid.places[node].1).to_vec();
        assert!(on_path.iter().all(|x| *x == on_path[0]), "{on_path:?}");
        assert!(laid.width <= 2.0 * (SIDES.0 + SIDES.1 + GAP), "{}", laid.width);
    }

    #[test]
    fn a_node_that_reads_nothing_stands_above_its_first_reader() {
        let laid = layout(&[SIDES; 5], &[(0, 2), (2, 3), (3, 4), (1, 4)]);
        assert_eq!(laid.places[1].0, 2);
    }

    #[test]
    fn long_edges_take_no_space_of_their_own() {
        let path = (0..1000).map(|i| (i, i + 1));
        let edges: Vec<(usize, usize)> = path.chain((500..1000).map(|i| (0, i))).collect();
        let laid = layout(&[SIDES; 1001], &edges);
        assert!(laid.ways[1000..].iter().all(Vec::is_empty) && laid.layers == 1001);
    }
}
