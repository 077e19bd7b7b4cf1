//! Cells that hold other cells in a row, and the cell that does nothing.

use serde::{Deserialize, Serialize};

use super::spec::NoOptions;
use crate::{
    Cell, Tensor,
    cell::{Child, Forward, Member, Node, NodeMut},
    error::{Error, Result},
};

/// Runs its cells one after the other.
///
/// The cells are named by their place, as in torch and MindSpore: `net.0`, `net.1`. To use one cell at two places,
/// clone its [`Child`]: the two share their parameters.
///
/// ```
/// use precast::prelude::*;
/// let mut rng = Rng::seed(0);
/// let net = Child::of(sequential![Dense::new(4, 8, &mut rng), ReLU, Dense::new(8, 2, &mut rng)]);
/// assert_eq!(net.call(&Tensor::ones(&[3, 4], DType::F32))?.shape(), [3, 2]);
/// assert_eq!(net.named_params()[2].0, "2.weight");
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Cell, Debug, Default, Serialize, Deserialize)]
#[cell(saved)]
#[serde(deny_unknown_fields)]
pub struct Sequential {
    cells: Row,
}

/// A list of cells that its parent runs as it likes.
///
/// It has no `forward` of its own. Run the list through its slot, so that an adapter put on the list is not slipped
/// past: all cells in order, or those that are chosen at run time, as in a mixture of experts.
///
/// ```
/// use precast::prelude::*;
/// let mut rng = Rng::seed(0);
/// let experts: CellList = (0..3).map(|_| Dense::new(4, 4, &mut rng)).collect();
/// let experts = Child::new(experts);
/// let x = Tensor::ones(&[3, 4], DType::F32);
/// let y = experts.with(&x, |cells, x| cells.iter().try_fold(x, |x, cell| cell.call(&x)?.add(&x)))?;
/// let chosen = 1; // by a router
/// let z = experts.with(&y, |cells, y| cells[chosen].call(&y))?;
/// assert_eq!(z.shape(), [3, 4]);
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Cell, Debug, Default, Serialize, Deserialize)]
#[cell(saved)]
#[serde(deny_unknown_fields)]
pub struct CellList {
    cells: Row,
}

/// Cells that are named by their place alone.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Row(Vec<Child>);

impl Member for Row {
    fn visit(&self, _: &str, visitor: &mut dyn FnMut(&str, Node<'_>)) {
        for (i, cell) in self.0.iter().enumerate() {
            cell.visit(&i.to_string(), visitor);
        }
    }

    fn visit_mut(&mut self, _: &str, visitor: &mut dyn FnMut(&str, NodeMut<'_>)) {
        for (i, cell) in self.0.iter_mut().enumerate() {
            cell.visit_mut(&i.to_string(), visitor);
        }
    }
}

macro_rules! row_of_cells {
    ($name:ident) => {
        impl $name {
            /// The cells in order.
            pub fn new(cells: Vec<Child>) -> Self {
                $name { cells: Row(cells) }
            }

            /// Appends a cell.
            pub fn push(&mut self, cell: impl Into<Child>) {
                self.cells.0.push(cell.into());
            }

            /// The slots in order.
            pub fn iter(&self) -> std::slice::Iter<'_, Child> {
                self.cells.0.iter()
            }

            /// The slot at a place, if there is one; `cells[i]` is a shorter word for one that is known to be there.
            pub fn get(&self, i: usize) -> Option<&Child> {
                self.cells.0.get(i)
            }

            /// How many cells there are.
            pub fn len(&self) -> usize {
                self.cells.0.len()
            }

            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.cells.0.is_empty()
            }
        }

        impl<'a> IntoIterator for &'a $name {
            type Item = &'a Child;
            type IntoIter = std::slice::Iter<'a, Child>;
            fn into_iter(self) -> Self::IntoIter {
                self.iter()
            }
        }

        impl std::ops::Index<usize> for $name {
            type Output = Child;
            /// # Panics
            /// When there is no such cell, as of a `Vec`.
            fn index(&self, i: usize) -> &Child {
                &self.cells.0[i]
            }
        }

        impl<C: Into<Child>> FromIterator<C> for $name {
            fn from_iter<I: IntoIterator<Item = C>>(cells: I) -> Self {
                $name::new(cells.into_iter().map(Into::into).collect())
            }
        }
    };
}
row_of_cells!(Sequential);
row_of_cells!(CellList);

impl Forward for Sequential {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.iter().try_fold(x.clone(), |x, cell| cell.call(&x))
    }
}

impl Forward for CellList {
    fn forward(&self, _: &Tensor) -> Result<Tensor> {
        Err(Error::unsupported(
            "a CellList has no forward of its own: its parent runs the cells, `list.with(&x, |cells, x| ..)`; a Sequential runs one after the other",
        ))
    }

    fn forward_many(&self, _: &[Tensor]) -> Result<Vec<Tensor>> {
        Err(Error::unsupported(
            "a CellList has no forward of its own: its parent runs the cells, `list.with(&x, |cells, x| ..)`; a Sequential runs one after the other",
        ))
    }
}

/// Hands its input on. At a place where another network has a layer, it keeps the paths alike.
#[derive(Cell, Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cell(saved)]
#[serde(from = "NoOptions", into = "NoOptions")]
pub struct Identity;

impl From<NoOptions> for Identity {
    fn from(_: NoOptions) -> Self {
        Identity
    }
}

impl From<Identity> for NoOptions {
    fn from(_: Identity) -> Self {
        NoOptions {}
    }
}

impl Forward for Identity {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.clone())
    }

    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(inputs.to_vec())
    }
}

/// A [`Sequential`](crate::layers::Sequential) of the cells listed; see there for an example.
#[macro_export]
macro_rules! sequential {
    ($($cell:expr),* $(,)?) => { $crate::layers::Sequential::new(vec![$($crate::Child::from($cell)),*]) };
}

/// A [`CellList`](crate::layers::CellList) of the cells listed, of any kinds.
///
/// ```
/// use precast::prelude::*;
/// let rng = &mut Rng::seed(0);
/// let branches = cell_list![Dense::new(4, 4, rng), sequential![Dense::new(4, 4, rng), ReLU]];
/// assert_eq!(branches.len(), 2);
/// ```
#[macro_export]
macro_rules! cell_list {
    ($($cell:expr),* $(,)?) => { $crate::layers::CellList::new(vec![$($crate::Child::from($cell)),*]) };
}
