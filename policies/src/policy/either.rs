//! Content of a policy file, for code that accepts policies of both kinds.

use precast_base::{DType, Error, Result};

use super::{GraphPolicy, Level, Policy};

/// Policy of either kind: one for cells, with a level, or one for graphs.
///
/// [`Policy::load`] and [`GraphPolicy::load`] accept one kind and name the other in their errors.
///
/// ```
/// use precast_policy::policy::PolicyFile;
/// for name in PolicyFile::names() {
///     match PolicyFile::named(name)? {
///         PolicyFile::Cells(policy) => println!("{name}: level {}", policy.level),
///         PolicyFile::Graph(policy) => println!("{name}: {}", policy.lists.ops().len()),
///     }
/// }
/// # Ok::<(), precast_policy::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyFile {
    /// A policy for the cells of a network: the file has a `level`.
    Cells(Policy),
    /// A policy for graphs: the file has `graph`.
    Graph(GraphPolicy),
}

impl PolicyFile {
    /// Returns the level; `None` for graphs.
    pub fn level(&self) -> Option<Level> {
        match self {
            PolicyFile::Cells(policy) => Some(policy.level),
            PolicyFile::Graph(_) => None,
        }
    }

    /// Returns the low dtype.
    pub fn dtype(&self) -> DType {
        match self {
            PolicyFile::Cells(policy) => policy.dtype,
            PolicyFile::Graph(policy) => policy.dtype,
        }
    }

    /// Returns the policy for cells.
    ///
    /// # Errors
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) for one for graphs.
    pub fn cells(self) -> Result<Policy> {
        match self {
            PolicyFile::Cells(policy) => Ok(policy),
            PolicyFile::Graph(_) => Err(Error::policy(
                "a policy for graphs, where one with a level is expected, such as o2; a network is rewritten as a graph by \
                 `precast graph`, or `precast_graph::rewrite` with `GraphPolicy`",
            )),
        }
    }

    /// Returns the policy for graphs.
    ///
    /// # Errors
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) for one for cells.
    pub fn graph(self) -> Result<GraphPolicy> {
        match self {
            PolicyFile::Graph(policy) => Ok(policy),
            PolicyFile::Cells(_) => Err(Error::policy(
                "a policy with a level, where one for graphs is expected; `Policy` reads it, and \
                 `policy.apply(&mut net)` applies it",
            )),
        }
    }
}

impl From<Policy> for PolicyFile {
    fn from(policy: Policy) -> Self {
        PolicyFile::Cells(policy)
    }
}

impl From<GraphPolicy> for PolicyFile {
    fn from(policy: GraphPolicy) -> Self {
        PolicyFile::Graph(policy)
    }
}
