//! Containers of cells in a row, and the identity.

use precast_base::names::did_you_mean;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::SerializeSeq};

use super::spec::NoOptions;
use crate::{
    Cell, Tensor,
    cell::{AsCell, Child, Copies, Forward, Member, NamedSlot, Part, PartMut},
    error::{Error, Result},
};

/// A row of cells that run one after the other. The first takes all inputs, each other one what the cell before returned.
///
/// The cells are named by their index, as in torch and MindSpore: `net.0`, `net.1`; or by names of their own, as those of
/// torch's `OrderedDict`: `sequential![encoder: .., head: ..]`. To use one cell in two places, clone its [`Child`]: the two
/// share their parameters.
///
/// ```
/// use precast::prelude::*;
/// let mut rng = Rng::seed(0);
/// let net = Child::of(sequential![Dense::new(4, 8, &mut rng), ReLU, Dense::new(8, 2, &mut rng)]);
/// assert_eq!(net.call(&Tensor::ones(&[3, 4], DType::F32))?.shape(), [3, 2]);
/// assert_eq!(net.named_params()[2].0, "2.weight");
///
/// let named = Child::new(sequential![encoder: Dense::new(4, 8, &mut rng), act: ReLU, head: Dense::new(8, 2, &mut rng)]);
/// assert_eq!(named.named_params()[2].0, "head.weight");
/// assert_eq!(named.cell()["head"].cell().kind(), "Dense");
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

/// Cells, each with its name, which is its index unless another was given.
#[derive(Debug, Default)]
struct Row {
    cells: Vec<Child>,
    /// A name for each cell.
    names: Vec<String>,
}

impl Row {
    fn push(&mut self, cell: Child) {
        self.names.push(self.cells.len().to_string());
        self.cells.push(cell);
    }

    /// Appends a cell with a name of its own.
    fn push_named(&mut self, name: String, cell: Child) -> Result<()> {
        let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
        if is_number || name.contains(['.', '*', '?', '{', '}', '[', ']']) {
            let allowed =
                "letters, digits, `_` and `-`, and more than digits, which are the names of cells without one";
            return Err(Error::path(format!("the name `{name}` of a cell; allowed: {allowed}")));
        }
        if self.names.contains(&name) {
            return Err(Error::path(format!("two cells have the name `{name}`")));
        }
        self.names.push(name);
        self.cells.push(cell);
        Ok(())
    }

    fn index_of(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|other| other == name)
    }
}

impl Member for Row {
    fn visit(&self, _: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        for (name, cell) in self.names.iter().zip(&self.cells) {
            cell.visit(name, visitor);
        }
    }

    fn visit_mut(&mut self, _: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        for (name, cell) in self.names.iter().zip(&mut self.cells) {
            cell.visit_mut(name, visitor);
        }
    }

    fn copied(&self, copies: &mut Copies) -> Result<Self> {
        Ok(Row { cells: self.cells.copied(copies)?, names: self.names.clone() })
    }
}

/// The written form of a cell with a name: the name beside what the cell writes.
#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
    #[serde(flatten)]
    cell: &'a Child,
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut cells = serializer.serialize_seq(Some(self.cells.len()))?;
        for (i, (name, cell)) in self.names.iter().zip(&self.cells).enumerate() {
            match *name == i.to_string() {
                true => cells.serialize_element(cell)?,
                false => cells.serialize_element(&Named { name, cell })?,
            }
        }
        cells.end()
    }
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut row = Row::default();
        for NamedSlot { name, slot } in Vec::deserialize(deserializer)? {
            match name {
                None => row.push(slot),
                Some(name) => row.push_named(name, slot).map_err(D::Error::custom)?,
            }
        }
        Ok(row)
    }
}

macro_rules! row_of_cells {
    ($name:ident) => {
        impl $name {
            /// Creates the container from cells in order.
            pub fn new(cells: Vec<Child>) -> Self {
                cells.into_iter().collect()
            }

            /// Appends a cell.
            pub fn push(&mut self, cell: impl Into<Child>) {
                self.cells.push(cell.into());
            }

            /// Appends a cell with a name, which is its part of paths in place of its index: a rule for `head` holds when a
            /// cell is added before it. In files: `{name: head, kind: Dense, ..}`.
            ///
            /// # Errors
            /// [`ErrorKind::Path`](crate::ErrorKind::Path) for a name that another cell has, that is a number, or that has a
            /// dot or a sign of patterns.
            pub fn push_named(&mut self, name: impl Into<String>, cell: impl Into<Child>) -> Result<()> {
                self.cells.push_named(name.into(), cell.into())
            }

            /// Iterates over the slots in order.
            pub fn iter(&self) -> std::slice::Iter<'_, Child> {
                self.cells.cells.iter()
            }

            /// Returns the slot at an index, if there is one; use `cells[i]` for an index known to be valid.
            pub fn get(&self, i: usize) -> Option<&Child> {
                self.cells.cells.get(i)
            }

            /// Returns the number of cells.
            pub fn len(&self) -> usize {
                self.cells.cells.len()
            }

            /// Returns whether there are none.
            pub fn is_empty(&self) -> bool {
                self.cells.cells.is_empty()
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
                &self.cells.cells[i]
            }
        }

        impl std::ops::IndexMut<usize> for $name {
            /// # Panics
            /// When the index is out of range, as for a `Vec`.
            fn index_mut(&mut self, i: usize) -> &mut Child {
                &mut self.cells.cells[i]
            }
        }

        impl std::ops::Index<&str> for $name {
            type Output = Child;
            /// # Panics
            /// When no cell has the name.
            fn index(&self, name: &str) -> &Child {
                match self.cells.index_of(name) {
                    Some(i) => &self.cells.cells[i],
                    None => {
                        panic!("no cell `{name}`{}", did_you_mean(name, self.cells.names.iter().map(String::as_str)))
                    }
                }
            }
        }

        impl<C: Into<Child>> FromIterator<C> for $name {
            fn from_iter<I: IntoIterator<Item = C>>(cells: I) -> Self {
                let mut row = Row::default();
                cells.into_iter().for_each(|cell| row.push(cell.into()));
                $name { cells: row }
            }
        }
    };
}
row_of_cells!(Sequential);
row_of_cells!(CellList);

impl<C: ?Sized + AsCell> Child<C> {
    /// Runs `f` on the slot of a cell in a [`Sequential`] or [`CellList`], whatever is around it, to replace the cell, and
    /// returns its result. A new cell has no adapter until a policy is applied again, and an optimizer of the old one does not
    /// train it.
    ///
    /// ```
    /// use precast::prelude::*;
    /// let rng = &mut Rng::seed(1);
    /// let mut net = Child::new(sequential![encoder: Dense::new(4, 8, rng), head: Dense::new(8, 2, rng)]);
    /// net.freeze("encoder")?;
    /// net.part_mut("head", |head| *head = Child::from(Dense::new(8, 5, rng)))?;
    /// auto_mixed_precision(&mut net, Level::O2, DType::Bf16)?;
    /// assert_eq!(net.call(&Tensor::ones(&[3, 4], DType::F32))?.shape(), [3, 5]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when there is no cell at the path, with the nearest path; or when it is a
    /// field of its cell, which is assigned through [`cell_mut`](Child::cell_mut).
    #[doc(alias = "set_submodule")]
    pub fn part_mut<R>(&mut self, path: &str, f: impl FnOnce(&mut Child) -> R) -> Result<R> {
        self.at(path, |_| ())?;
        let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
        let (mut f, mut answer) = (Some(f), None);
        self.walk_mut(&mut |at, slot| {
            if at == parent
                && let Some(place) = slot_in_row(&mut **slot.cell, name)
                && let Some(f) = f.take()
            {
                answer = Some(f(place));
            }
        });
        answer.ok_or_else(|| {
            let name = if path.is_empty() { "the network itself" } else { path };
            Error::path(format!(
                "`{name}` is in no Sequential or CellList; a field is assigned: `net.cell_mut().field = ..`"
            ))
        })
    }
}

/// Returns the slot of a name, if the cell is a row.
fn slot_in_row<'a>(cell: &'a mut dyn Cell, name: &str) -> Option<&'a mut Child> {
    let row = match cell.downcast_ref::<Sequential>() {
        Some(_) => &mut cell.downcast_mut::<Sequential>()?.cells,
        None => &mut cell.downcast_mut::<CellList>()?.cells,
    };
    let place = row.index_of(name)?;
    row.cells.get_mut(place)
}

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

/// Creates a [`Sequential`](crate::layers::Sequential) of the listed cells, with names or without; see there for an example.
///
/// # Panics
/// When two cells have one name.
#[macro_export]
macro_rules! sequential {
    ($($name:ident: $cell:expr),+ $(,)?) => {{
        let mut cells = $crate::layers::Sequential::default();
        $(cells.push_named(::core::stringify!($name), $cell).expect("each cell has another name");)+
        cells
    }};
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
