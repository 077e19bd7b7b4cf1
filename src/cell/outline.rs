//! The outline of a network: its tree of cells without the cells.

use std::borrow::Cow;

use precast_policy::host::Outlined;

use super::{AsCell, Cell, Child, Outline, OutlinedCell, Part, known_kinds};

impl<C: ?Sized + AsCell> Child<C> {
    /// Returns the tree without the cells.
    ///
    /// ```
    /// use precast::prelude::*;
    /// let net = Child::of(sequential![Dense::new(2, 3, &mut Rng::seed(1)), ReLU]);
    /// let outline = net.outline();
    /// let cells: Vec<(&str, &str)> = outline.cells().iter().map(|cell| (&*cell.path, &*cell.kind)).collect();
    /// assert_eq!(cells, [("", "Sequential"), ("0", "Dense"), ("1", "ReLU")]);
    /// ```
    pub fn outline(&self) -> Outline {
        let mut cells = Vec::new();
        self.walk(&mut |entry| {
            let cell = entry.slot.cell;
            let mut outlined = with_weights(&**cell, OutlinedCell::new(entry.path, Cow::Borrowed(cell.kind())));
            outlined.depth = entry.depth;
            outlined.to_float = entry.slot.to_float;
            cells.push(outlined);
        });
        Outline::walked(cells).kinds(known_kinds())
    }
}

impl<C: ?Sized + AsCell> Outlined for Child<C> {
    fn outline(&self) -> Outline {
        Child::outline(self)
    }
}

/// Adds the weights of a cell's own to its outline.
fn with_weights(cell: &dyn Cell, outlined: OutlinedCell) -> OutlinedCell {
    let mut shapes = Vec::new();
    cell.visit(&mut |_, node| match node {
        Part::Param(param) if !param.is_buffer() => shapes.push(param.shape()),
        _ => {}
    });
    shapes.iter().fold(outlined, |outlined, shape| outlined.weight(shape))
}
