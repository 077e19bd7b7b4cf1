//! Edges between vertices, indexed by source vertex.

/// The successors of each vertex, in the order in which the edges were given.
pub(super) struct Edges {
    /// The start of each vertex's edges in `to`, followed by the total number.
    first: Vec<usize>,
    to: Vec<usize>,
}

impl Edges {
    /// Creates the edges `(from, to)` of a number of vertices.
    pub fn new(vertices: usize, edges: impl Iterator<Item = (usize, usize)> + Clone) -> Self {
        let mut first = vec![0; vertices + 1];
        edges.clone().for_each(|(from, _)| first[from + 1] += 1);
        (0..vertices).for_each(|v| first[v + 1] += first[v]);
        let (mut next, mut to) = (first.clone(), vec![0; first[vertices]]);
        for (from, vertex) in edges {
            to[next[from]] = vertex;
            next[from] += 1;
        }
        Edges { first, to }
    }

    pub fn of(&self, vertex: usize) -> &[usize] {
        &self.to[self.first[vertex]..self.first[vertex + 1]]
    }
}

/// Walks from the roots along `next`. `enter(is a root, from where, vertex)` returns whether a vertex is entered, so
/// that its neighbours are visited. It is called again each time a vertex is reached again.
pub(super) fn walk<N: Iterator<Item = usize>>(
    roots: impl IntoIterator<Item = usize>,
    next: impl Fn(usize) -> N,
    mut enter: impl FnMut(bool, usize, usize) -> bool,
) {
    let mut pending = Vec::new();
    for root in roots {
        if !enter(true, root, root) {
            continue;
        }
        pending.extend(next(root).map(|v| (root, v)));
        while let Some((from, v)) = pending.pop() {
            if enter(false, from, v) {
                pending.extend(next(v).map(|next| (v, next)));
            }
        }
    }
}
