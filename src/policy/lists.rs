//! Lists of cells and ops, each entry with where it comes from.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{Op, error::Result, printable::printable};

/// Where a rule or a list entry was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// In code.
    Code,
    /// In a pack of lists, by its name.
    Pack(Arc<str>),
    /// In a policy file.
    File {
        /// The file as it was named by the caller.
        file: Arc<str>,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Code => f.write_str("in code"),
            Origin::Pack(name) => f.write_str(&printable(name)),
            Origin::File { file, line, column } => write!(f, "{}:{line}:{column}", printable(file)),
        }
    }
}

/// A list of cell kinds and ops. Kinds match exactly: `Dense` is not `MyDense`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    cells: BTreeMap<String, Origin>,
    ops: BTreeMap<Op, Origin>,
}

impl List {
    /// The empty list, which is a legal one.
    pub fn new() -> Self {
        List::default()
    }

    /// Adds a kind of cell.
    pub fn cell(mut self, kind: impl Into<String>) -> Self {
        self.add_cell(kind.into(), Origin::Code);
        self
    }

    /// Adds the ops of a name, of this library or of MindSpore.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when no op has that name.
    pub fn op(mut self, name: &str) -> Result<Self> {
        for op in Op::named(name)? {
            self.add_op(op, Origin::Code);
        }
        Ok(self)
    }

    /// Adds a kind of cell with its origin.
    pub fn add_cell(&mut self, kind: String, origin: Origin) {
        self.cells.insert(kind, origin);
    }

    /// Adds an op with its origin.
    pub fn add_op(&mut self, op: Op, origin: Origin) {
        self.ops.insert(op, origin);
    }

    /// Takes a kind of cell out; says whether it was there.
    pub fn remove_cell(&mut self, kind: &str) -> bool {
        self.cells.remove(kind).is_some()
    }

    /// Takes an op out; says whether it was there.
    pub fn remove_op(&mut self, op: Op) -> bool {
        self.ops.remove(&op).is_some()
    }

    /// The kinds of cells, in order, with where each comes from.
    pub fn cells(&self) -> &BTreeMap<String, Origin> {
        &self.cells
    }

    /// The ops, in order, with where each comes from.
    pub fn ops(&self) -> &BTreeMap<Op, Origin> {
        &self.ops
    }

    /// Whether it lists nothing.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.ops.is_empty()
    }
}
