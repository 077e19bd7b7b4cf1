//! Boxes of a drawing, the rows to their left, and the edges between them.

use std::collections::{BTreeSet, HashSet};

use super::drawn::{Drawn, Form};

/// Sizes in pixels.
pub(super) const BOX: (f64, f64) = (208.0, 40.0);
pub(super) const CAST: (f64, f64) = (92.0, 22.0);
/// A parameter, its adjacent cast, and the horizontal and vertical gaps.
pub(super) const PILL: (f64, f64) = (126.0, 20.0);
pub(super) const PILL_CAST: f64 = 36.0;
pub(super) const PILL_GAP: (f64, f64) = (12.0, 4.0);

/// One row to the left of a box: a node that depends on no input, such as a parameter, and its cast.
pub(super) type Row = (Option<usize>, Option<usize>);

pub(super) struct Drawing<'a> {
    pub nodes: &'a [Drawn],
    /// Nodes with a box: those that depend on inputs, and those that are returned.
    pub boxes: Vec<usize>,
    /// The rows to the left of each box.
    pub rows: Vec<Vec<Row>>,
    /// Unread casts of each box, drawn to its right.
    pub unread: Vec<Vec<usize>>,
    /// Edges between boxes.
    pub edges: Vec<(usize, usize)>,
}

impl<'a> Drawing<'a> {
    pub fn new(nodes: &'a [Drawn]) -> Self {
        let mut follows = vec![false; nodes.len()];
        for (i, node) in nodes.iter().enumerate() {
            follows[i] = node.form == Form::Input || node.inputs.iter().any(|&read| follows[read]);
        }
        let read: HashSet<usize> = nodes.iter().flat_map(|node| node.inputs.iter().copied()).collect();
        let is_unread =
            |node: usize| nodes[node].is_cast() && !read.contains(&node) && !nodes[node].returned && follows[node];
        let boxes: Vec<usize> =
            (0..nodes.len()).filter(|&i| (follows[i] || nodes[i].returned) && !is_unread(i)).collect();
        let mut place = vec![None; nodes.len()];
        boxes.iter().enumerate().for_each(|(at, &node)| place[node] = Some(at));
        let mut edges = Vec::new();
        for (to, &node) in boxes.iter().enumerate() {
            let from: BTreeSet<usize> = nodes[node].inputs.iter().filter_map(|&read| place[read]).collect();
            edges.extend(from.into_iter().map(|from| (from, to)));
        }
        let mut unread = vec![Vec::new(); boxes.len()];
        for node in (0..nodes.len()).filter(|&node| is_unread(node)) {
            if let Some(at) = place[nodes[node].inputs[0]] {
                unread[at].push(node);
            }
        }
        // Nodes computed from parameters are drawn at their first reader; a parameter is drawn at each box that reads
        // it.
        let mut seen = HashSet::new();
        let rows = boxes.iter().map(|&node| rows_beside(nodes, node, &place, &mut seen)).collect();
        Drawing { nodes, boxes, rows, unread, edges }
    }

    pub fn node(&self, at: usize) -> &'a Drawn {
        &self.nodes[self.boxes[at]]
    }

    pub fn size(&self, at: usize) -> (f64, f64) {
        let is_small = self.node(at).is_cast() && self.rows[at].is_empty();
        match (is_small, self.node(at).returned) {
            (true, true) => (CAST.0 + 24.0, CAST.1),
            (true, false) => CAST,
            (false, _) => BOX,
        }
    }

    /// Returns the extent of a box from its centre: to the left with its rows, to the right with unread casts.
    pub fn sides(&self, at: usize) -> (f64, f64) {
        let half = self.size(at).0 / 2.0;
        (half + self.beside(at).0, half + if self.unread[at].is_empty() { 0.0 } else { CAST.0 + 2.0 * PILL_GAP.0 })
    }

    /// Returns the width and height of the rows of a box.
    pub fn beside(&self, at: usize) -> (f64, f64) {
        let rows = &self.rows[at];
        let casts = rows.iter().any(|(_, cast)| cast.is_some());
        match rows.len() as f64 {
            0.0 => (0.0, 0.0),
            n => {
                let width = PILL.0 + PILL_GAP.0 + if casts { PILL_CAST + PILL_GAP.1 } else { 0.0 };
                (width, n * (PILL.1 + PILL_GAP.1) - PILL_GAP.1)
            }
        }
    }
}

/// Returns the inputs of a box that have no box of their own, each with the cast through which it is read.
fn rows_beside(nodes: &[Drawn], node: usize, place: &[Option<usize>], seen: &mut HashSet<usize>) -> Vec<Row> {
    let unboxed = |node: usize| {
        let mut read: Vec<usize> = Vec::new();
        for &input in nodes[node].inputs.iter().filter(|&&input| place[input].is_none()) {
            if !read.contains(&input) {
                read.push(input);
            }
        }
        read
    };
    let mut rows = Vec::new();
    let mut pending = unboxed(node);
    pending.reverse();
    while let Some(read) = pending.pop() {
        let is_new = seen.insert(read);
        let (shown, row) = match &unboxed(read)[..] {
            [of] if nodes[read].is_cast() => (*of, (Some(*of), Some(read))),
            _ => (read, (Some(read), None)),
        };
        rows.push(row);
        if is_new {
            pending.extend(unboxed(shown));
        }
    }
    rows
}
