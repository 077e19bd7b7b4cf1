//! Drawings of graphs.

mod dot;
mod drawing;
mod drawn;
mod layout;
mod page;
mod svg;

use self::drawing::Drawing;
use super::{graph::Graph, rewrite::Rewritten};

pub(crate) use dot::dot;
pub(crate) use drawn::{Drawn, Form};

/// Draws nodes, each of which reads only nodes before it.
pub(crate) fn svg(nodes: &[Drawn]) -> String {
    Drawing::new(nodes).svg()
}

impl Graph {
    /// Draws the graph: blue nodes run in 16 bits, casts are orange, and the nodes of a cell are surrounded by its
    /// frame. Parameters are drawn to the left of their readers.
    pub fn to_svg(&self) -> String {
        svg(&drawn::drawn(self, None))
    }

    /// Returns the graph in the DOT language of Graphviz, coloured as in [`to_svg`](Graph::to_svg).
    pub fn to_dot(&self) -> String {
        dot(&drawn::drawn(self, None))
    }
}

impl Rewritten {
    /// Draws the graph, as [`Graph::to_svg`] does, with the list of each op as the colour of its border, and its reason
    /// as a tooltip.
    pub fn to_svg(&self) -> String {
        svg(&drawn::drawn(&self.graph, Some(&self.painting)))
    }
}
