//! Walks over a tree of cells in a fixed order: a cell, then its children in the order of its `visit`.

pub use precast_base::path::join;

use super::{AsCell, Cell, Child, Params, Slot, SlotMut, no_such_path};
use crate::{Param, error::Result};

/// A child in its slot, or a parameter, as passed to visitors.
#[derive(Debug)]
#[non_exhaustive]
pub enum Part<'a> {
    /// A child cell in its slot.
    Cell(Slot<'a>),
    /// A parameter or buffer.
    Param(&'a Param),
}

/// Mutable form of [`Part`].
#[derive(Debug)]
#[non_exhaustive]
pub enum PartMut<'a> {
    /// A child cell in its slot.
    Cell(SlotMut<'a>),
    /// A parameter or buffer.
    Param(&'a mut Param),
}

/// One cell reached on a walk.
#[derive(Debug)]
#[non_exhaustive]
pub struct Visited<'a> {
    /// Path from the root, such as `encoder.layers.3.fc1`; empty for the root itself.
    pub path: &'a str,
    /// The number of cells above it.
    pub depth: usize,
    /// The cell in its slot.
    pub slot: Slot<'a>,
}

impl<C: ?Sized + AsCell> Child<C> {
    /// Visits every cell in order, starting with this one, whose path is empty.
    pub fn walk(&self, visitor: &mut dyn FnMut(Visited<'_>)) {
        self.slot().walk(visitor);
    }

    /// Visits every slot mutably, in the order of [`walk`](Child::walk).
    pub fn walk_mut(&mut self, visitor: &mut dyn FnMut(&str, &mut SlotMut<'_>)) {
        fn go(slot: &mut SlotMut<'_>, path: &mut String, visitor: &mut dyn FnMut(&str, &mut SlotMut<'_>)) {
            visitor(path, slot);
            slot.cell.visit_mut(&mut |name, node| {
                if let PartMut::Cell(mut slot) = node {
                    below(path, name, |path| go(&mut slot, path, visitor));
                }
            });
        }
        go(&mut self.slot_mut(), &mut String::new(), visitor);
    }

    /// Returns every parameter and buffer with its path, in order. A tied one appears under each of its paths.
    #[doc(alias = "named_parameters")]
    pub fn named_params(&self) -> Vec<(String, Param)> {
        self.slot().named_params()
    }

    /// Returns the trained parameters with their paths, each once.
    #[doc(alias = "parameters")]
    pub fn params(&self) -> Params {
        self.named_params().into_iter().collect()
    }

    /// Switches every cell between training (`true`) and evaluation. Networks start in evaluation.
    #[doc(alias = "train")]
    #[doc(alias = "eval")]
    pub fn set_train(&mut self, training: bool) {
        self.walk_mut(&mut |_, slot| slot.cell.on_train(training));
    }

    /// Runs `f` on the cell at a path and returns its result.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when there is no cell at the path, with the nearest path.
    pub fn at<R>(&self, path: &str, f: impl FnOnce(Slot<'_>) -> R) -> Result<R> {
        let (mut f, mut answer, mut paths) = (Some(f), None, Vec::new());
        self.walk(&mut |entry| {
            if entry.path == path
                && let Some(f) = f.take()
            {
                answer = Some(f(entry.slot));
            } else if answer.is_none() {
                paths.push(entry.path.to_string());
            }
        });
        answer.ok_or_else(|| no_such_path(path, paths.iter().map(String::as_str)))
    }

    /// Returns the path of a slot reported to a [listener](crate::observe::Listener); `None` for one outside of this
    /// tree.
    pub fn path_of(&self, id: usize) -> Option<String> {
        self.slot().path_of(id)
    }
}

impl Slot<'_> {
    pub(super) fn walk(self, visitor: &mut dyn FnMut(Visited<'_>)) {
        fn go(slot: Slot<'_>, path: &mut String, depth: usize, visitor: &mut dyn FnMut(Visited<'_>)) {
            visitor(Visited { path, depth, slot });
            slot.cell.visit(&mut |name, node| {
                if let Part::Cell(slot) = node {
                    below(path, name, |path| go(slot, path, depth + 1, visitor));
                }
            });
        }
        go(self, &mut String::new(), 0, visitor);
    }

    pub(super) fn named_params(self) -> Vec<(String, Param)> {
        let mut found = Vec::new();
        self.walk(&mut |entry| {
            entry.slot.cell.visit(&mut |name, node| {
                if let Part::Param(param) = node {
                    found.push((join(entry.path, name), param.clone()));
                }
            });
        });
        found
    }

    pub(super) fn path_of(self, id: usize) -> Option<String> {
        let mut found = None;
        self.walk(&mut |entry| {
            if entry.slot.id == id {
                found = Some(entry.path.to_string());
            }
        });
        found
    }
}

/// Runs `f` with `name` appended to the path, and takes it off again.
pub(super) fn below(path: &mut String, name: &str, f: impl FnOnce(&mut String)) {
    let len = path.len();
    if len > 0 {
        path.push('.');
    }
    path.push_str(name);
    f(path);
    path.truncate(len);
}

impl dyn Cell {
    /// Returns whether this cell contains no other cells.
    pub fn is_leaf(&self) -> bool {
        let mut leaf = true;
        self.visit(&mut |_, node| leaf &= matches!(node, Part::Param(_)));
        leaf
    }
}
