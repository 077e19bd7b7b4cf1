//! A tree of cells without the cells: what a plan is made of.

use std::borrow::Cow;

use super::{AsCell, Cell, Child, Node};
use crate::DType;

/// A tree of cells without the cells: where each stands, and of which kind it is. That is all that a
/// [plan](crate::Policy::plan_outline) is made of.
///
/// [`Child::outline`] gives that of a network, [`StoredModel::outline`](crate::io::stored::StoredModel::outline) one
/// that is inferred from the tensors of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    /// The cells in the order of a walk, the root first.
    pub(crate) cells: Vec<OutlinedCell>,
    /// The names of tensors of a stored model that can be stored low, which rules may name, too.
    pub(crate) tensors: Vec<String>,
}

/// What a plan has to know of one cell.
#[derive(Clone, Debug, PartialEq)]
pub struct OutlinedCell {
    /// Path from the root, whose own path is empty.
    pub path: String,
    /// How many cells stand above it.
    pub depth: usize,
    /// Its kind.
    pub kind: Cow<'static, str>,
    /// The dtype that the user asked for in code.
    pub to_float: Option<DType>,
    /// Whether it has weights of its own, which biases and the parameters of norms are not.
    pub has_matrices: bool,
    /// Tensors of a stored cell, by their names in it, that could be stored low and are not known as weights of its kind.
    pub keeps: Vec<String>,
}

impl Outline {
    /// The cells in the order of a walk, the root first.
    pub fn cells(&self) -> &[OutlinedCell] {
        &self.cells
    }
}

impl<C: ?Sized + AsCell> Child<C> {
    /// The tree without the cells.
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
            cells.push(OutlinedCell {
                path: entry.path.to_string(),
                depth: entry.depth,
                kind: Cow::Borrowed(cell.kind()),
                to_float: entry.slot.to_float,
                has_matrices: has_matrices(&**cell),
                keeps: Vec::new(),
            });
        });
        Outline { cells, tensors: Vec::new() }
    }
}

/// Whether a cell has weights of its own.
fn has_matrices(cell: &dyn Cell) -> bool {
    let mut found = false;
    cell.visit(&mut |_, node| {
        found |= matches!(node, Node::Param(param) if param.is_trained() && param.shape().len() > 1);
    });
    found
}
