//! The outline of a network of burn: paths and kinds of its modules.

use std::{borrow::Cow, collections::BTreeMap};

use burn::{
    module::{Flag, Module, ModuleDisplay, ModuleVisitor, Param, Reparameterization},
    tensor::{Bool, Int, Tensor},
};
use precast_base::path::join;
use precast_policy::{Outline, OutlinedCell, catalogue::System, host::Outlined, kinds};

use crate::{
    Amp,
    dtype::is_low,
    kinds::printed,
    walk::{self, Met},
    weight::CastOnRead,
};

/// Kind of a module that burn does not name: one without parameters inside a module that prints itself in a way of its
/// own.
const UNKNOWN: &str = "Unknown";

/// A floating parameter or buffer.
#[derive(Clone, Debug)]
pub(crate) struct FloatParam {
    pub path: String,
    /// Dtype in which it is stored; `None` for one that is not initialized yet.
    pub stored: Option<burn::tensor::DType>,
}

/// Everything that a walk finds.
pub(crate) struct Walked {
    pub outline: Outline,
    pub floats: Vec<FloatParam>,
    /// Paths of fields that are tensors without being parameters. burn lets nobody see or change them.
    pub constants: Vec<String>,
    /// Reparameterizations of burn's, such as `lora`, by the path of their parameter.
    pub reparameterized: BTreeMap<String, String>,
    pub met: Met,
}

impl Walked {
    /// Returns the number of parameters that are stored in 16 bits.
    pub fn stored_low(&self) -> usize {
        self.floats.iter().filter(|param| param.stored.is_some_and(is_low)).count()
    }
}

/// Returns the outline of any network, wrapped or not.
///
/// Each module is a cell, under the path that burn gives it in records: `blocks.0.norm`. Kinds are burn's names, such
/// as `Linear`; so lists of packs apply to burn's modules under these names. A module without parameters, such as an
/// activation, has the kind that burn prints.
pub fn outline<M: Module + ModuleDisplay>(net: &M) -> Outline {
    walked(net).outline
}

impl<M: Module + ModuleDisplay> Outlined for Amp<M> {
    fn outline(&self) -> Outline {
        outline(self)
    }
}

pub(crate) fn walked<M: Module + ModuleDisplay>(net: &M) -> Walked {
    let mut visitor = Visitor::default();
    visitor.nodes.push(Node::default());
    let ((), met) = walk::walk(None, || net.visit(&mut visitor));
    let printed = printed(net);
    let cells: Vec<OutlinedCell> = visitor.nodes.iter().filter_map(|node| node.cell(&printed, &met)).collect();
    let constants =
        visitor.nodes.iter().filter(|node| node.is_constant(&printed)).map(|node| node.path.clone()).collect();
    let known = kinds::of(System::Burn).into_iter().map(|(kind, _)| kind);
    let outline = Outline::new(cells).expect("a walk meets each module behind its parent");
    let (floats, reparameterized) = (visitor.floats, visitor.reparameterized);
    Walked { outline: outline.system(System::Burn).kinds(known), floats, constants, reparameterized, met }
}

#[derive(Default)]
struct Node {
    path: String,
    /// Path as it is printed, where the only field of an enum's variant is called `_0`.
    printed: String,
    /// Kind, as the children of the module tell it.
    kind: Option<String>,
    holds_value: bool,
    has_matrices: bool,
}

impl Node {
    fn is_constant(&self, printed: &BTreeMap<String, String>) -> bool {
        self.kind.is_none() && printed.get(&self.printed).is_some_and(|kind| kind == "Tensor")
    }

    /// Returns the cell; `None` for a parameter, a flag, a constant, and an absent module.
    fn cell(&self, printed: &BTreeMap<String, String>, met: &Met) -> Option<OutlinedCell> {
        if self.holds_value || self.is_constant(printed) {
            return None;
        }
        let kind = match (&self.kind, printed.get(&self.printed).map(String::as_str)) {
            (Some(kind), _) => Cow::Owned(kind.clone()),
            (None, Some("None")) => return None,
            // A module prints a name, a field that is not a module a value.
            (None, Some(kind)) if kind.starts_with(char::is_uppercase) => Cow::Owned(kind.to_string()),
            (None, _) => Cow::Borrowed(UNKNOWN),
        };
        let mut cell = OutlinedCell::new(self.path.clone(), kind);
        if self.has_matrices {
            cell = cell.matrices();
        }
        cell.to_float = met.to_float.get(&self.path).copied();
        Some(cell)
    }
}

#[derive(Default)]
struct Visitor {
    nodes: Vec<Node>,
    /// Indices of the nodes around the next one, the root excepted.
    open: Vec<usize>,
    /// Number of reparameterizations around the next module. Their own parameters are not part of the network's tree.
    inside_parameter: usize,
    floats: Vec<FloatParam>,
    reparameterized: BTreeMap<String, String>,
}

impl Visitor {
    fn holds_value(&mut self) -> usize {
        let at = self.open.last().copied().unwrap_or(0);
        self.nodes[at].holds_value = true;
        at
    }
}

impl ModuleVisitor for Visitor {
    fn enter_module(&mut self, name: &str, container: &str) {
        walk::enter(name);
        if container == "Reparameterization" || self.inside_parameter > 0 {
            let of = self.open.last().map(|at| self.nodes[*at].path.clone());
            if let Some(path) = of.filter(|_| self.inside_parameter == 0 && name != CastOnRead::NAME) {
                self.reparameterized.insert(path, name.to_string());
            }
            self.inside_parameter += 1;
            return;
        }
        let parent = self.open.last().copied().unwrap_or(0);
        let (family, kind) = container.split_once(':').unwrap_or((container, container));
        self.nodes[parent].kind = Some(kind.to_string());
        let printed = if family == "Enum" { "_0" } else { name };
        let (path, printed) = (join(&self.nodes[parent].path, name), join(&self.nodes[parent].printed, printed));
        self.open.push(self.nodes.len());
        self.nodes.push(Node { path, printed, ..Node::default() });
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        walk::exit();
        match self.inside_parameter {
            0 => drop(self.open.pop()),
            _ => self.inside_parameter -= 1,
        }
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.inside_parameter > 0 {
            return;
        }
        let at = self.holds_value();
        // A read would initialize it, and so change the order in which random numbers are drawn.
        let stored = param.is_initialized().then(|| param.base().dtype());
        self.floats.push(FloatParam { path: self.nodes[at].path.clone(), stored });
        let parent = self.open.iter().rev().nth(1).copied().unwrap_or(0);
        self.nodes[parent].has_matrices |= D > 1;
    }

    fn visit_int<const D: usize>(&mut self, _: &Param<Tensor<D, Int>>) {
        if self.inside_parameter == 0 {
            self.holds_value();
        }
    }

    fn visit_bool<const D: usize>(&mut self, _: &Param<Tensor<D, Bool>>) {
        if self.inside_parameter == 0 {
            self.holds_value();
        }
    }

    fn visit_flag(&mut self, _: &Param<Flag>) {
        if self.inside_parameter == 0 {
            self.holds_value();
        }
    }
}
