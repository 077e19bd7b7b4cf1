//! Facts about a network, learned by running its constructor once.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use candle_core::{DType, Tensor};
use precast_base::{
    names::{did_you_mean, did_you_mean_or_some},
    path::no_such_path,
    printable,
};
use precast_policy::{
    self as policy, Outline,
    catalogue::System,
    infer::{CONTAINER, NamedTensor, UNKNOWN},
    kinds,
    weights::cell_of,
};

use crate::{Result, dtype::from_candle};

/// A variable that a constructor asked for.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub name: String,
    pub shape: Vec<usize>,
    pub dtype: DType,
}

impl Variable {
    /// Returns whether it holds statistics that forward passes change, and no optimizer.
    pub fn is_statistic(&self) -> bool {
        matches!(cell_of(&self.name).1, "running_mean" | "running_var")
    }

    /// Returns whether it is `selected` or in the cell `selected`.
    pub fn is_in(&self, selected: &str) -> bool {
        let rest = self.name.strip_prefix(selected);
        selected.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// Facts about a network, and what its user says about it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Learned {
    /// Kind of the root.
    pub root: String,
    /// Variables in the order in which the constructor asked for them.
    pub variables: Vec<Variable>,
    /// Paths that have a wrapper, with the kind of the wrapped module.
    pub wrapped: BTreeMap<String, String>,
    /// Position of each path in the constructor: that of the first variable or wrapper in it.
    order: HashMap<String, usize>,
    /// Kinds that the user corrected, by path.
    pub kinds: BTreeMap<String, String>,
    /// Dtypes that code requests, by path.
    pub to_float: BTreeMap<String, policy::DType>,
    /// Cells whose inputs and outputs the user's code casts.
    pub by_hand: BTreeSet<String>,
    /// Variables and cells that are not trained.
    pub frozen: BTreeSet<String>,
    /// Variables and cells without a gradient in some steps.
    pub optional: BTreeSet<String>,
}

impl Learned {
    /// Creates the facts about a network of which only the type is known.
    pub fn new(root: &str) -> Self {
        Learned { root: root.to_string(), ..Learned::default() }
    }

    pub fn variable(&mut self, name: &str, variable: &Tensor) {
        if self.variables.iter().all(|met| met.name != name) {
            let (shape, dtype) = (variable.dims().to_vec(), variable.dtype());
            self.variables.push(Variable { name: name.to_string(), shape, dtype });
        }
        self.met(cell_of(name).0);
    }

    pub fn border(&mut self, path: &str, kind: &str) {
        self.wrapped.entry(path.to_string()).or_insert_with(|| kind.to_string());
        self.met(path);
    }

    fn met(&mut self, path: &str) {
        for prefix in prefixes(path) {
            let next = self.order.len();
            self.order.entry(prefix.to_string()).or_insert(next);
        }
    }

    /// Returns the outline: cells from the names of variables and the paths of wrappers; kinds from what the user said,
    /// else from names and shapes, else from the type of the wrapped module.
    pub fn outline(&self) -> Result<Outline> {
        // A wrapper without variables is a cell, too: an integer makes one without giving it a kind.
        let marks: Vec<String> = self.wrapped.keys().map(|path| format!("{path}.{CONTAINER}")).collect();
        let marks = marks.iter().map(|name| NamedTensor::new(name, &[], policy::DType::I64));
        let named = self.variables.iter().map(|variable| {
            let (dtype, is_float) = (from_candle(variable.dtype), variable.dtype.is_float());
            NamedTensor { name: &variable.name, shape: &variable.shape, dtype, is_float }
        });
        let inferred = Outline::inferred(marks.chain(named), Some(&self.root));
        let mut cells = inferred.cells().to_vec();
        for cell in &mut cells {
            if let Some(kind) = self.kinds.get(&cell.path) {
                cell.kind = kind.clone().into();
            } else if let (true, Some(kind)) =
                ([CONTAINER, UNKNOWN].contains(&&*cell.kind), self.wrapped.get(&cell.path))
            {
                cell.kind = kind.clone().into();
            }
            cell.to_float = self.to_float.get(&cell.path).copied();
            // All variables of a cell have its dtype: candle's layers take no others.
            cell.keeps.clear();
        }
        let position = |path: &str| prefixes(path).map(|prefix| self.order.get(prefix).copied()).collect::<Vec<_>>();
        cells.sort_by_cached_key(|cell| position(&cell.path));
        let here = kinds::of(System::Torch).into_iter().flat_map(|(_, here)| here);
        Ok(Outline::new(cells)?.kinds(here))
    }

    /// Checks that there is a cell at the path.
    pub fn check_cell(&self, path: &str) -> Result<()> {
        let outline = self.outline()?;
        let paths = || outline.cells().iter().map(|cell| cell.path.as_str());
        if paths().any(|cell| cell == path) { Ok(()) } else { Err(no_such_path(path, paths()).into()) }
    }

    /// Checks that a variable or a cell with variables has the name.
    pub fn check_selected(&self, selected: &str) -> Result<()> {
        if self.variables.iter().any(|variable| variable.is_in(selected)) {
            return Ok(());
        }
        let names = self.variables.iter().flat_map(|variable| [variable.name.as_str(), cell_of(&variable.name).0]);
        let (met, near) = (printable(selected), did_you_mean_or_some(selected, names));
        Err(policy::Error::path(format!("no variable and no cell with variables at `{met}`{near}")).into())
    }

    /// Returns whether a variable is among the selected ones.
    pub fn is_among(selected: &BTreeSet<String>, variable: &Variable) -> bool {
        selected.iter().any(|selected| variable.is_in(selected))
    }
}

/// Iterates over the paths that lead to a cell, from the outermost, and its own.
fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('.').map(|(dot, _)| dot).chain([path.len()]);
    ends.map(|end| &path[..end]).filter(|prefix| !prefix.is_empty())
}

/// Returns the kind of a cell under its name here: candle's `Linear` is `Dense`. Any other kind is the user's own.
pub(crate) fn kind_here(kind: &str) -> Result<String> {
    let known = kinds::of(System::Torch);
    if let Some((_, here)) = known.iter().find(|(there, _)| *there == kind) {
        return Ok(here[0].to_string());
    }
    let names = || known.iter().flat_map(|(there, here)| std::iter::once(*there).chain(here.iter().copied()));
    if names().all(|name| name != kind) && names().any(|name| name.eq_ignore_ascii_case(kind)) {
        let near = did_you_mean(kind, names());
        return Err(policy::Error::list(format!("no kind is called `{}`{near}", printable(kind))).into());
    }
    Ok(kind.to_string())
}
