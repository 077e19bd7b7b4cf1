//! The parameters of an imported network, and the cells that hold them.

use crate::onnx::tensor::Elem;

use precast::{
    Cell, Child, Param,
    cell::{Copies, Forward, Member, Part, PartMut},
    error::Result,
};

use super::step::Place;

/// Parameters under names.
#[derive(Clone, Debug, Default)]
pub(super) struct Named(pub Vec<(String, Param)>);

impl Member for Named {
    fn visit(&self, _: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        self.0.iter().for_each(|(name, param)| visitor(name, Part::Param(param)));
    }

    fn visit_mut(&mut self, _: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        self.0.iter_mut().for_each(|(name, param)| visitor(name, PartMut::Param(param)));
    }

    fn copied(&self, copies: &mut Copies) -> Result<Self> {
        Ok(copies.of_clone(self))
    }
}

/// The parameters and cells of a network, with their paths.
#[derive(Debug, Default)]
pub(super) struct Weights {
    /// Parameters of nodes that are not cells.
    pub own: Named,
    pub cells: Vec<(String, Child)>,
    /// The element types of the model: of `own`, and of the parameters of each cell.
    pub elems: Vec<Elem>,
    pub cell_elems: Vec<Vec<Elem>>,
}

impl Member for Weights {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        self.own.visit(name, visitor);
        self.cells.iter().for_each(|(path, cell)| visitor(path, Part::Cell(cell.slot())));
    }

    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        self.own.visit_mut(name, visitor);
        self.cells.iter_mut().for_each(|(path, cell)| visitor(path, PartMut::Cell(cell.slot_mut())));
    }

    fn copied(&self, copies: &mut Copies) -> Result<Self> {
        let own = self.own.copied(copies)?;
        let cells = self.cells.iter().map(|(path, cell)| Ok((path.clone(), cell.copied(copies)?)));
        Ok(Weights {
            own,
            cells: cells.collect::<Result<_>>()?,
            elems: self.elems.clone(),
            cell_elems: self.cell_elems.clone(),
        })
    }
}

impl Weights {
    /// Returns a parameter, and its element type in the model.
    pub fn param(&self, place: Place) -> (Param, Elem) {
        match place {
            Place::Own(index) => (self.own.0[index].1.clone(), self.elems[index]),
            Place::Cell(cell, index) => {
                let (mut found, mut at) = (None, 0);
                self.cells[cell].1.slot().cell.visit(&mut |_, part| {
                    if let Part::Param(param) = part {
                        if at == index {
                            found = Some(param.clone());
                        }
                        at += 1;
                    }
                });
                (found.expect("a place is one of a parameter"), self.cell_elems[cell][index])
            }
        }
    }

    pub fn cell(&self, index: usize) -> &Child {
        &self.cells[index].1
    }
}

/// A node that reads parameters, as a cell. The network runs it in its slot.
#[derive(Cell, Clone, Debug)]
#[cell(kinds(
    Dense,
    Conv1d,
    Conv2d,
    Conv3d,
    Conv1dTranspose,
    Conv2dTranspose,
    Conv3dTranspose,
    BatchNorm2d,
    LayerNorm,
    GroupNorm,
    InstanceNorm2d,
    RmsNorm,
    Embedding,
    PReLU,
    LSTM,
    GRU,
    RNN
))]
pub(super) struct NodeCell<const KIND: usize> {
    params: Named,
}

impl<const KIND: usize> Forward for NodeCell<KIND> {}

macro_rules! kinds {
    ($($number:literal $kind:ident;)*) => {
        $(
            #[allow(clippy::upper_case_acronyms, reason = "the names of kinds")]
            type $kind = NodeCell<$number>;
        )*

        /// Returns a cell of a kind with its parameters; `None` for another kind.
        pub(super) fn cell_of(kind: &str, params: Named) -> Option<Child> {
            match kind {
                $(stringify!($kind) => Some(Child::of(NodeCell::<$number> { params })),)*
                _ => None,
            }
        }
    };
}

kinds! {
    0 Dense;
    1 Conv1d;
    2 Conv2d;
    3 Conv3d;
    4 Conv1dTranspose;
    5 Conv2dTranspose;
    6 Conv3dTranspose;
    7 BatchNorm2d;
    8 LayerNorm;
    9 GroupNorm;
    10 InstanceNorm2d;
    11 RmsNorm;
    12 Embedding;
    13 PReLU;
    14 LSTM;
    15 GRU;
    16 RNN;
}
