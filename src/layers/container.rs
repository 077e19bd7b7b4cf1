//! Containers of cells in a row, and the identity.

use serde::{Deserialize, Serialize};

use super::spec::NoOptions;
use crate::{
    Cell, Tensor,
    cell::{Child, Copies, Forward, Member, Part, PartMut},
    error::{Error, Result},
};

/// A row of cells that run one after the other. The first takes all inputs, each other one what the cell before returned.
///
/// The cells are named by their index, as in torch and MindSpore: `net.0`, `net.1`. To use one cell in two places,
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

/// A list of cells run by its parent in any way.
///
/// It has no `forward` of its own. Run the list through its slot, so that its adapter is not bypassed: all cells in
/// order, or cells chosen at run time, as in a mixture of experts.
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

/// Cells named by their index.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Row(Vec<Child>);

impl Member for Row {
    fn visit(&self, _: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        for (i, cell) in self.0.iter().enumerate() {
            cell.visit(&i.to_string(), visitor);
        }
    }

    fn visit_mut(&mut self, _: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        for (i, cell) in self.0.iter_mut().enumerate() {
            cell.visit_mut(&i.to_string(), visitor);
        }
    }

    fn copied(&self, copies: &mut Copies) -> Result<Self> {
        Ok(Row(self.0.copied(copies)?))
    }
}

macro_rules! row_of_cells {
    ($name:ident) => {
        impl $name {
            /// Creates the container from cells in order.
            pub fn new(cells: Vec<Child>) -> Self {
                $name { cells: Row(cells) }
            }

            /// Appends a cell.
            pub fn push(&mut self, cell: impl Into<Child>) {
                self.cells.0.push(cell.into());
            }

            /// Iterates over the slots in order.
            pub fn iter(&self) -> std::slice::Iter<'_, Child> {
                self.cells.0.iter()
            }

            /// Returns the slot at an index, if there is one; use `cells[i]` for an index known to be valid.
            pub fn get(&self, i: usize) -> Option<&Child> {
                self.cells.0.get(i)
            }

            /// Returns the number of cells.
            pub fn len(&self) -> usize {
                self.cells.0.len()
            }

            /// Returns whether there are none.
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
            /// When the index is out of range, as for a `Vec`.
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

    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        match inputs {
            [x] => Ok(vec![self.forward(x)?]),
            _ => self.iter().try_fold(inputs.to_vec(), |inputs, cell| cell.call_many(&inputs)),
        }
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

/// A cell that returns its input unchanged. In place of a layer that another network has, it keeps the paths equal.
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

/// Creates a [`Sequential`](crate::layers::Sequential) of the listed cells; see there for an example.
#[macro_export]
macro_rules! sequential {
    ($($cell:expr),* $(,)?) => { $crate::layers::Sequential::new(vec![$($crate::Child::from($cell)),*]) };
}

/// Creates a [`CellList`](crate::layers::CellList) of the listed cells, of any kinds.
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
