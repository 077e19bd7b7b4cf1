//! The outline of a network: the tree of its cells, without the cells, from which a plan is made.

use std::borrow::Cow;

use precast_base::{DType, Error, Result, path::named, printable::printable};

use crate::catalogue::System;

/// A tree of cells without the cells: only their paths and kinds. A [plan](crate::Policy::plan) needs nothing else, so
/// a network of any library can have one.
///
/// ```
/// use precast_policy::{Outline, OutlinedCell, Policy};
/// let net = Outline::new([
///     OutlinedCell::new("", "Model"),
///     OutlinedCell::new("conv", "Conv2d").matrices(),
///     OutlinedCell::new("head", "Linear").matrices(),
///     OutlinedCell::new("head.norm", "LayerNorm"),
/// ])?;
/// let plan = Policy::named("o2")?.plan(&net)?;
/// assert_eq!(plan.decision("conv")?.run.to_string(), "f16");
/// assert_eq!(plan.decision("head.norm")?.because.to_string(), "full list, precast-1");
/// # Ok::<(), precast_policy::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    /// The cells in traversal order, the root first.
    pub(crate) cells: Vec<OutlinedCell>,
    /// Names of tensors of a stored model that can be stored low. Rules may name them as well.
    pub(crate) tensors: Vec<String>,
    /// Kinds that lists may name although no cell here has them.
    pub(crate) kinds: Vec<Cow<'static, str>>,
    /// The system whose names the kinds have.
    pub(crate) system: Option<System>,
}

/// The facts about one cell that a plan needs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OutlinedCell {
    /// Path from the root, whose own path is empty.
    pub path: String,
    /// Number of cells above it.
    pub depth: usize,
    /// Its kind.
    pub kind: Cow<'static, str>,
    /// Further kinds that it is, nearest first: the bases of its class, or names of its kind elsewhere. Rules and lists
    /// may name them as well.
    pub bases: Vec<Cow<'static, str>>,
    /// The dtype that the user requested in code.
    pub to_float: Option<DType>,
    /// `true` when it has weights of its own; biases and the parameters of norms do not count.
    pub has_matrices: bool,
    /// The least sizes of its weights, if they are known: the number of outputs, n, and of the numbers that are summed for
    /// each, k.
    pub sizes: Option<[usize; 2]>,
    /// Tensors of a stored cell, by their names in it, that could be stored low but are not known as weights of its
    /// kind.
    pub keeps: Vec<String>,
}

impl OutlinedCell {
    /// Creates a cell of a kind at a path, without weights. [`Outline::new`] determines its depth.
    pub fn new(path: impl Into<String>, kind: impl Into<Cow<'static, str>>) -> Self {
        let (path, kind) = (path.into(), kind.into());
        let (to_float, has_matrices, sizes) = (None, false, None);
        OutlinedCell { path, depth: 0, kind, bases: Vec::new(), to_float, has_matrices, sizes, keeps: Vec::new() }
    }

    /// Iterates over its kind and the further ones.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &str> + Clone {
        std::iter::once(&self.kind).chain(&self.bases).map(AsRef::as_ref)
    }

    /// Marks the cell as having weights of its own: trained parameters of two axes or more.
    pub fn matrices(mut self) -> Self {
        self.has_matrices = true;
        self
    }

    /// Sets the further kinds that the cell is, nearest first: the bases of its class, where a library has classes.
    ///
    /// ```
    /// use precast_policy::{Outline, OutlinedCell, Policy};
    /// let net = [OutlinedCell::new("", "Model"), OutlinedCell::new("norm", "MyNorm").bases(["LayerNorm"])];
    /// let plan = Policy::named("o2")?.plan(&Outline::new(net)?)?;
    /// assert_eq!(plan.decision("norm")?.because.to_string(), "full list, precast-1");
    /// # Ok::<(), precast_policy::Error>(())
    /// ```
    pub fn bases<S: Into<Cow<'static, str>>>(mut self, kinds: impl IntoIterator<Item = S>) -> Self {
        self.bases.extend(kinds.into_iter().map(Into::into));
        self
    }

    /// Adds a trained parameter of its own of this shape: the outputs of a weight, its inputs, and the axes of a kernel; inputs
    /// first in a transposed convolution. One with a single axis is not a weight.
    pub fn weight(mut self, shape: &[usize]) -> Self {
        if let [outputs, inputs, kernel @ ..] = shape {
            let transposed = self.kind.contains("Transpose");
            let (n, inputs) = if transposed { (*inputs, *outputs) } else { (*outputs, *inputs) };
            let k = kernel.iter().fold(inputs, |k, axis| k.saturating_mul(*axis));
            let [least_n, least_k] = self.sizes.unwrap_or([usize::MAX; 2]);
            self.sizes = Some([least_n.min(n), least_k.min(k)]);
            self.has_matrices = true;
        }
        self
    }

    /// Sets the dtype that code requested for the cell.
    pub fn to_float(mut self, dtype: DType) -> Self {
        self.to_float = Some(dtype);
        self
    }
}

impl Outline {
    /// Builds the tree from its cells: first the root, whose path is empty, and each cell followed by all cells inside
    /// it. The parent of a cell is the nearest preceding cell whose path is a prefix of its own, up to a dot; so a name
    /// may contain a dot, as `layers.3`.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when the first cell is not the root, when there is a second root,
    /// and when a cell follows others that are not in its parent.
    pub fn new(cells: impl IntoIterator<Item = OutlinedCell>) -> Result<Self> {
        let mut cells: Vec<OutlinedCell> = cells.into_iter().collect();
        let is_in = |path: &str, parent: &str| {
            parent.is_empty() || path.strip_prefix(parent).is_some_and(|rest| rest.starts_with('.'))
        };
        let (mut open, mut closed) = (Vec::<String>::new(), Vec::<String>::new());
        for (i, cell) in cells.iter_mut().enumerate() {
            if (i == 0) != cell.path.is_empty() {
                let met = named(&cell.path);
                return Err(Error::path(format!(
                    "cell {} of an outline is {met}; the root, whose path is empty, is the first, and no other is",
                    i + 1
                )));
            }
            while open.last().is_some_and(|parent| !is_in(&cell.path, parent)) {
                closed.extend(open.pop());
            }
            // The longest closed path that is a prefix of this one would be nearer than the open one.
            let nearest = open.last().map_or(0, String::len);
            if let Some(parent) = closed.iter().find(|path| path.len() > nearest && is_in(&cell.path, path)) {
                return Err(Error::path(format!(
                    "`{}` is in `{}`, and a cell comes between them in the outline that does not; the cells of a tree come \
                     behind their parent",
                    printable(&cell.path),
                    printable(parent)
                )));
            }
            cell.depth = open.len();
            open.push(cell.path.clone());
        }
        Ok(Outline::walked(cells))
    }

    /// Creates an outline from the cells of a traversal, whose depths are known.
    pub fn walked(cells: Vec<OutlinedCell>) -> Self {
        Outline { cells, tensors: Vec::new(), kinds: Vec::new(), system: None }
    }

    /// Adds names of tensors of a stored model that can be stored low. Rules may name them as well.
    pub fn tensors<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.tensors.extend(names.into_iter().map(Into::into));
        self
    }

    /// Adds kinds that a list may name although no cell here has them: those of the library. Any other name is
    /// considered a typing error.
    pub fn kinds<S: Into<Cow<'static, str>>>(mut self, kinds: impl IntoIterator<Item = S>) -> Self {
        self.kinds.extend(kinds.into_iter().map(Into::into));
        self
    }

    /// Sets the system whose names the kinds have. An entry in a list of a pack then also applies to a kind under its
    /// name in that system: an entry for `Dense` to burn's `Linear`. Lists may also name kinds of the system as
    /// `burn::Linear`.
    ///
    /// ```
    /// use precast_policy::{Outline, OutlinedCell, Policy, catalogue::System};
    /// let net = [OutlinedCell::new("", "Model"), OutlinedCell::new("fc", "Linear").matrices()];
    /// let net = Outline::new(net)?.system(System::Burn);
    /// let plan = Policy::named("o1")?.plan(&net)?;
    /// assert_eq!(plan.decision("fc")?.because.to_string(), "low list, precast-1");
    /// # Ok::<(), precast_policy::Error>(())
    /// ```
    pub fn system(mut self, system: System) -> Self {
        self.system = Some(system);
        self
    }

    /// Returns the cells in traversal order, the root first.
    pub fn cells(&self) -> &[OutlinedCell] {
        &self.cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(paths: &[&str]) -> Result<Vec<usize>> {
        let outline = Outline::new(paths.iter().map(|path| OutlinedCell::new(*path, "Mine")))?;
        Ok(outline.cells().iter().map(|cell| cell.depth).collect())
    }

    #[test]
    fn depths_follow_from_paths() {
        assert_eq!(
            outline(&["", "a", "a.b", "a.b.c", "ab", "layers.0", "layers.0.fc", "layers.1"]).unwrap(),
            [0, 1, 2, 3, 1, 1, 2, 1]
        );
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        for (paths, words) in [
            (&["a"][..], "cell 1 of an outline is `a`; the root"),
            (&["", "a", ""], "cell 3 of an outline is the root cell; the root"),
            (&["", "a", "b", "a.c"], "`a.c` is in `a`, and a cell comes between them"),
        ] {
            let message = outline(paths).unwrap_err().to_string();
            assert!(message.starts_with(words), "{message}");
        }
    }
}
