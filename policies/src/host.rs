//! The traits of a library whose networks run by these policies: it lists their cells, applies plans to them, and
//! records their calls.
//!
//! [`Policy`](crate::Policy) and [`Plan`] call these traits, so that `policy.plan(&net)` and `plan.apply(&mut net)`
//! look the same in every library.

use std::path::Path;

use precast_base::{DType, Result};

pub use crate::plan::cost::{Costs, Takes};
use crate::{Op, outline::Outline, plan::plan::Plan, precision::OpRules};

/// A network whose cells can be listed, as taken by [`Policy::plan`](crate::Policy::plan).
pub trait Outlined {
    /// Returns the tree of its cells.
    fn outline(&self) -> Outline;
}

impl<T: ?Sized + Outlined> Outlined for &T {
    fn outline(&self) -> Outline {
        (**self).outline()
    }
}

impl<T: ?Sized + Outlined> Outlined for &mut T {
    fn outline(&self) -> Outline {
        (**self).outline()
    }
}

impl<T: ?Sized + Outlined> Outlined for Box<T> {
    fn outline(&self) -> Outline {
        (**self).outline()
    }
}

impl Outlined for Outline {
    fn outline(&self) -> Outline {
        self.clone()
    }
}

/// A network that can be made to run by a plan, as taken by [`Plan::apply`].
pub trait Wrap: Outlined {
    /// The changes made.
    type Applied;

    /// `true` when the network quantizes operands of products and kept activations, as those of precast do. Default: false, and a plan that
    /// has some is refused.
    const QUANTIZES: bool = false;

    /// Makes the network run by the plan, or leaves it unchanged.
    ///
    /// # Errors
    /// Those of the library; [`ErrorKind::Path`](crate::ErrorKind::Path) for a plan of another network.
    fn wrap(&mut self, plan: Plan) -> Result<Self::Applied>;
}

/// A recorded call of a network, as taken by [`Plan::check`] and [`Plan::ops`].
pub trait Recorded {
    /// Iterates over the ops that ran, in order.
    fn ran_ops(&self) -> impl Iterator<Item = RanOp<'_>>;

    /// Iterates over the cells that were called.
    fn called_cells(&self) -> impl Iterator<Item = CalledCell<'_>> {
        std::iter::empty()
    }

    /// Iterates over the parameters that were read in the forward pass.
    fn read_params(&self) -> impl Iterator<Item = ReadParam<'_>> {
        std::iter::empty()
    }

    /// Returns the advice, in words, for a cell that was called but is missing from the outline of the network.
    fn show_it(&self) -> &'static str {
        "list it in the outline"
    }
}

/// An op that ran.
#[derive(Clone, Copy, Debug)]
pub struct RanOp<'a> {
    /// Path of the innermost cell it ran in; the root's path is empty.
    pub path: &'a str,
    /// The op.
    pub op: Op,
    /// Dtypes of the inputs of its kernel.
    pub inputs: &'a [DType],
    /// Dtype of its result.
    pub output: DType,
    /// `true` when it ran in a backward pass.
    pub backward: bool,
    /// `true` when its precision was that of the cell, rather than of a region that code entered inside the cell.
    pub by_cell: bool,
}

/// A call of a cell.
#[derive(Clone, Copy, Debug)]
pub struct CalledCell<'a> {
    /// Its path; `None` for a cell that is missing from the outline of the network.
    pub path: Option<&'a str>,
    /// Its kind.
    pub kind: &'a str,
    /// `true` when it or a cell inside it has parameters.
    pub has_params: bool,
}

/// A parameter that code read.
#[derive(Clone, Copy, Debug)]
pub struct ReadParam<'a> {
    /// Path of the cell whose code read it; `None` outside of every cell.
    pub by: Option<&'a str>,
    /// The cells that own it, by path, with its name in each.
    pub owners: &'a [(String, String)],
}

/// A network whose time per call can be predicted, as taken by [`Policy::plan_for`](crate::Policy::plan_for).
pub trait Timed: Outlined {
    /// A recorded call, with the sizes of all work.
    type Trace: ?Sized;
    /// A machine, with its speed at each kind of work.
    type Speeds: ?Sized;

    /// Returns the cost of each cell. `rules` are the op lists of the level, if it uses op lists.
    ///
    /// # Errors
    /// Those of the library; [`ErrorKind::Path`](crate::ErrorKind::Path) for a call of another network.
    fn costs<'a>(
        &self,
        trace: &Self::Trace,
        speeds: &'a Self::Speeds,
        rules: Option<&OpRules>,
    ) -> Result<Box<dyn Costs + 'a>>;
}

/// Weights that can be written by a plan, as taken by [`Plan::convert`] and [`Plan::save_weights`].
pub trait Stored {
    /// The options for writing.
    type Options;
    /// The result of writing.
    type Written;

    /// Writes the weights. `progress` is called with the number of bytes read since the last call.
    ///
    /// # Errors
    /// Those of the library.
    fn store(
        &self,
        plan: &Plan,
        to: &Path,
        options: Self::Options,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self::Written>;
}
