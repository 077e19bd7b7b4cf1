//! Edges between vertices, by the vertex where each begins.

/// The vertices to which each vertex leads, in the order in which the edges were given.
pub(super) struct Edges {
    /// Where the edges of each vertex begin in `to`, and, last, where all end.
    first: Vec<usize>,
    to: Vec<usize>,
}

impl Edges {
    /// Edges `(from, to)` of so many vertices.
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

/// Walks from the roots to what `next` gives of each vertex. `enter(is a root, from where, vertex)` says whether a vertex is
/// entered, so that its neighbours are met. It is asked again for a vertex that is met again.
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
