//! What a library does whose networks run by these policies: it lists their cells, puts a plan into them, records their calls.
//!
//! [`Policy`](crate::Policy) and [`Plan`] call these traits. So `policy.plan(&net)` and `plan.apply(&mut net)` read the same
//! in every library.

use std::path::Path;

use crate::{
    DType, Op,
    error::Result,
    outline::Outline,
    plan::{Plan, Region},
    precision::OpRules,
};

/// A network whose cells can be listed: what [`Policy::plan`](crate::Policy::plan) takes.
pub trait Outlined {
    /// The tree of its cells.
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

/// A network that can be made to run as a plan says: what [`Plan::apply`] takes.
pub trait Wrap: Outlined {
    /// What was done.
    type Applied;

    /// Makes the network run as the plan says, or leaves it unchanged.
    ///
    /// # Errors
    /// Those of the library; [`ErrorKind::Path`](crate::ErrorKind::Path) for a plan of another network.
    fn wrap(&mut self, plan: Plan) -> Result<Self::Applied>;
}

/// A recorded call of a network: what [`Plan::check`] and [`Plan::ops`] take.
pub trait Recorded {
    /// The ops that ran, in order.
    fn ran_ops(&self) -> impl Iterator<Item = RanOp<'_>>;

    /// The cells that were called.
    fn called_cells(&self) -> impl Iterator<Item = CalledCell<'_>> {
        std::iter::empty()
    }

    /// The parameters that were read in the forward pass.
    fn read_params(&self) -> impl Iterator<Item = ReadParam<'_>> {
        std::iter::empty()
    }

    /// What to do with a cell that was called and that the outline of the network does not have, in words.
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
    /// Dtypes of the inputs as its kernel saw them.
    pub inputs: &'a [DType],
    /// Dtype of its result.
    pub output: DType,
    /// Whether it ran in a backward pass.
    pub backward: bool,
    /// Whether its precision was that of the cell, and not of a region that code entered inside of it.
    pub by_cell: bool,
}

/// A call of a cell.
#[derive(Clone, Copy, Debug)]
pub struct CalledCell<'a> {
    /// Its path; `None` for a cell that the outline of the network does not have.
    pub path: Option<&'a str>,
    /// Its kind.
    pub kind: &'a str,
    /// Whether it has parameters, or cells inside it have.
    pub has_params: bool,
}

/// A parameter that code read.
#[derive(Clone, Copy, Debug)]
pub struct ReadParam<'a> {
    /// Path of the cell whose code read it; `None` outside of every cell.
    pub by: Option<&'a str>,
    /// The cells that have it, by their paths, and the name that it has there.
    pub owners: &'a [(String, String)],
}

/// A network of which it can be predicted how long a call takes: what [`Policy::plan_for`](crate::Policy::plan_for) takes.
pub trait Timed: Outlined {
    /// A call: how large everything is.
    type Trace: ?Sized;
    /// A machine: how fast each kind of work is.
    type Speeds: ?Sized;

    /// What each cell takes. `rules` are the op lists of the level, where it treats ops by lists.
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

/// What the cells of a network take in a call, forward and backward. A cell is known by its number in the
/// [outline](Outlined::outline).
pub trait Costs {
    /// The machine.
    fn host(&self) -> &str;

    /// What a cell takes itself, without those inside it, when it runs in one region and another surrounds it.
    fn own(&self, cell: usize, run: Region, around: Region) -> Takes;

    /// What it takes more, in nanoseconds, to compute the gradients of its weights in f32.
    fn wide_weight_grads(&self, cell: usize, run: Region) -> u64;

    /// How many elements go into a cell that a cast would touch.
    fn inputs(&self, cell: usize) -> usize;
}

/// What something takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Takes {
    /// Nanoseconds.
    pub nanos: f64,
    /// Bytes of activations kept for the backward pass.
    pub kept: f64,
}

impl std::ops::AddAssign for Takes {
    fn add_assign(&mut self, other: Self) {
        self.nanos += other.nanos;
        self.kept += other.kept;
    }
}

/// Weights that can be written as a plan says: what [`Plan::convert`] and [`Plan::save_weights`] take.
pub trait Stored {
    /// How they are written.
    type Options;
    /// What was done.
    type Written;

    /// Writes them. `progress` is called with the number of bytes that were read since the last call.
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
