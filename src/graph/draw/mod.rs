//! Drawings of graphs.

mod drawing;
mod layout;
mod page;
mod svg;

use self::drawing::Drawing;
use super::{graph::Graph, rewrite::Rewritten};

pub(super) use svg::fill;

impl Graph {
    /// Draws the graph: blue nodes run in 16 bits, casts are orange, and the nodes of a cell are surrounded by its
    /// frame. Parameters are drawn to the left of their readers.
    pub fn to_svg(&self) -> String {
        Drawing::new(self, None).svg()
    }
}

impl Rewritten {
    /// Draws the graph, as [`Graph::to_svg`] does, with the list of each op as the colour of its border, and its reason
    /// as a tooltip.
    pub fn to_svg(&self) -> String {
        Drawing::new(&self.graph, Some(&self.painting)).svg()
    }
}
