//! Lists of cell kinds and ops, with the treatment of each, its reason and its origin.
//!
//! One type of lists serves every level of a network, every graph and every region of code. The entries that a level or a
//! graph reads are defined in one table, [`Reader::reads`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use precast_base::{
    DType, Error, Result,
    document::{Place, Source},
    printable::printable,
};
use serde::{Deserialize, Serialize};

use super::{GraphList, Level};
use crate::{
    Op,
    precision::{OpRules, Treatment},
};

/// Source of a rule or a list entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Origin {
    /// Program code.
    Code,
    /// Pack of lists, by name.
    Pack(Arc<str>),
    /// Position in a policy file.
    File {
        /// File name as given by the caller.
        file: Arc<str>,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
}

impl Origin {
    /// Returns the origin of a place in a file.
    pub(super) fn at(source: &Source<'_>, place: Place) -> Self {
        let Place { line, column } = place;
        Origin::File { file: source.name.clone(), line, column }
    }

    /// Adds the origin to an error about what it is the origin of.
    pub fn error(&self, error: Error) -> Error {
        match self {
            Origin::File { file, line, column } => error.at(file, *line, *column),
            Origin::Code | Origin::Pack(_) => error.context(self),
        }
    }
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

/// List entry of a cell kind or an op.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Entry {
    /// Treatment of the cell or op.
    pub treatment: Treatment,
    /// Low dtype to which the entry applies, or `None` for both. For the other dtype, the cell or op is unlisted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<DType>,
    /// Reason given by the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<Arc<str>>,
    /// Source of the entry.
    pub origin: Origin,
}

impl Entry {
    /// Creates an entry for both low dtypes, without a reason.
    pub fn new(treatment: Treatment, origin: Origin) -> Self {
        Entry { treatment, only: None, because: None, origin }
    }

    /// Sets the reason.
    #[must_use]
    pub fn because(mut self, reason: impl Into<Arc<str>>) -> Self {
        self.because = Some(reason.into());
        self
    }

    /// Limits the entry to one low dtype.
    #[must_use]
    pub fn only(mut self, low: DType) -> Self {
        self.only = Some(low);
        self
    }

    /// Returns whether the entry applies to a low dtype.
    pub(super) fn counts(&self, low: DType) -> bool {
        self.only.is_none_or(|only| only == low)
    }
}

/// Lists of one level of a network, or of a region of code. Each cell kind and each op has at most one entry.
///
/// Kinds match exactly: `Dense` does not match `MyDense`. Policy files also accept the names that lists have in MindSpore
/// and Paddle: `white` for low, `black` for full, `promote` for widest.
///
/// ```
/// use precast_policy::{Op, policy::Lists, precision::Treatment};
/// let lists = Lists::new().low("Dense").low_op("MatMul")?;
/// assert_eq!(lists.cells()["Dense"].treatment, Treatment::Low);
/// assert_eq!(lists.ops()[&Op::MatMul].treatment, Treatment::Low);
/// # Ok::<(), precast_policy::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "lists do nothing until a policy has them"]
pub struct Lists {
    /// Name of the lists, for messages.
    pub name: Arc<str>,
    /// Treatment of ops that are on no list.
    pub unlisted: Treatment,
    /// Treatment of unlisted ops with promotion switched off, for lists that have this switch (Paddle's O2).
    pub unlisted_unpromoted: Option<Treatment>,
    /// Dtypes that are cast.
    pub eligible: Vec<DType>,
    /// Ops decided by their first input; see [`OpRules::by_first`].
    pub by_first: BTreeSet<Op>,
    cells: BTreeMap<String, Entry>,
    ops: BTreeMap<Op, Entry>,
}

impl Default for Lists {
    fn default() -> Self {
        Lists::new()
    }
}

impl Lists {
    /// Creates empty lists, which are valid: every op takes its inputs as they are.
    pub fn new() -> Self {
        Lists::named("code")
    }

    /// Creates empty lists with a name for messages.
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Lists {
            name: name.into(),
            unlisted: Treatment::AsIs,
            unlisted_unpromoted: None,
            eligible: vec![DType::F32, DType::F16, DType::Bf16],
            by_first: BTreeSet::new(),
            cells: BTreeMap::new(),
            ops: BTreeMap::new(),
        }
    }

    /// Adds a cell kind to the low list, to run low. Read at O1.
    pub fn low(self, kind: impl Into<String>) -> Self {
        self.with_cell(kind.into(), Treatment::Low)
    }

    /// Adds a cell kind to the full list, to stay f32. Read at O2.
    pub fn full(self, kind: impl Into<String>) -> Self {
        self.with_cell(kind.into(), Treatment::Full)
    }

    /// Adds the ops with a name to the low list, to run low. The name is one of this library or of another system.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when no op has that name.
    pub fn low_op(self, name: &str) -> Result<Self> {
        self.with_op(name, Treatment::Low)
    }

    /// Adds the ops with a name to the full list, to run in f32. The name is one of this library or of another system.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when no op has that name.
    pub fn full_op(self, name: &str) -> Result<Self> {
        self.with_op(name, Treatment::Full)
    }

    fn with_cell(mut self, kind: String, treatment: Treatment) -> Self {
        self.put_cell(kind, Entry::new(treatment, Origin::Code));
        self
    }

    fn with_op(mut self, name: &str, treatment: Treatment) -> Result<Self> {
        for op in Op::named(name)? {
            self.put_op(op, Entry::new(treatment, Origin::Code));
        }
        Ok(self)
    }

    /// Sets the entry of a cell kind and returns the previous one.
    pub fn put_cell(&mut self, kind: String, entry: Entry) -> Option<Entry> {
        self.cells.insert(kind, entry)
    }

    /// Sets the entry of an op and returns the previous one.
    pub fn put_op(&mut self, op: Op, entry: Entry) -> Option<Entry> {
        self.ops.insert(op, entry)
    }

    /// Removes the entry of a cell kind and returns it.
    pub fn remove_cell(&mut self, kind: &str) -> Option<Entry> {
        self.cells.remove(kind)
    }

    /// Removes the entry of an op and returns it.
    pub fn remove_op(&mut self, op: Op) -> Option<Entry> {
        self.ops.remove(&op)
    }

    /// Returns the entries of all cell kinds, in order.
    pub fn cells(&self) -> &BTreeMap<String, Entry> {
        &self.cells
    }

    /// Returns the entries of all ops, in order.
    pub fn ops(&self) -> &BTreeMap<Op, Entry> {
        &self.ops
    }

    /// Returns the entry of a cell kind that applies to a low dtype.
    pub fn cell(&self, kind: &str, low: DType) -> Option<&Entry> {
        self.cells.get(kind).filter(|entry| entry.counts(low))
    }

    /// Returns the entry of an op that applies to a low dtype.
    pub fn op(&self, op: Op, low: DType) -> Option<&Entry> {
        self.ops.get(&op).filter(|entry| entry.counts(low))
    }

    /// Returns the ops with a treatment, for either low dtype.
    pub fn ops_with(&self, treatment: Treatment) -> impl Iterator<Item = Op> {
        self.ops.iter().filter(move |(_, entry)| entry.treatment == treatment).map(|(op, _)| *op)
    }

    /// Returns the op lists prepared for a region of a low dtype.
    pub fn rules(&self, low: DType) -> OpRules {
        let counting = || self.ops.iter().filter(|(_, entry)| entry.counts(low));
        OpRules {
            low,
            back: None,
            eligible: self.eligible.clone(),
            ops: counting().map(|(op, entry)| (*op, entry.treatment)).collect(),
            unlisted: self.unlisted,
            by_first: self.by_first.clone(),
            because: counting()
                .filter(|(_, entry)| entry.treatment == Treatment::Banned)
                .filter_map(|(op, entry)| Some((*op, entry.because.clone()?)))
                .collect(),
            name: self.name.clone(),
        }
    }
}

/// Kind of items on a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    Cells,
    Ops,
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Listed::Cells => "cells",
            Listed::Ops => "ops",
        })
    }
}

/// Names of the lists in policy files.
pub(super) const LISTS: [(&str, Treatment); 3] =
    [("low", Treatment::Low), ("full", Treatment::Full), ("widest", Treatment::Widest)];

/// Names of the lists of a graph rewrite.
const GRAPH_LISTS: [(&str, Treatment); 4] = [
    (GraphList::Allow.name(), GraphList::Allow.treatment()),
    (GraphList::Infer.name(), GraphList::Infer.treatment()),
    (GraphList::Deny.name(), GraphList::Deny.treatment()),
    (GraphList::Clear.name(), GraphList::Clear.treatment()),
];

/// Reader of lists: a level of a network, or the rewrite of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    Level(Level),
    Graph,
}

impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reader::Level(level) => write!(f, "level {level}"),
            Reader::Graph => f.write_str("a policy for graphs"),
        }
    }
}

impl Reader {
    /// Returns the lists that policy files can change, by name.
    pub fn named_lists(self) -> &'static [(&'static str, Treatment)] {
        if self == Reader::Graph { &GRAPH_LISTS } else { &LISTS }
    }

    /// Returns the treatments that are read. An entry with another one is refused, pointing at its position.
    fn reads(self, listed: Listed) -> &'static [Treatment] {
        match (self, listed) {
            (Reader::Level(Level::O1), _) => &[Treatment::Low],
            (Reader::Level(Level::O2), _) => &[Treatment::Full],
            (Reader::Level(Level::Auto), Listed::Ops) => &Treatment::ALL,
            (Reader::Graph, Listed::Ops) => &[Treatment::Low, Treatment::Infer, Treatment::Full, Treatment::Clear],
            (Reader::Level(Level::O0 | Level::O3), _) | (_, Listed::Cells) => &[],
        }
    }

    /// Checks that a treatment is read.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when it is not, naming the lists that are read.
    pub fn check_reads(self, listed: Listed, treatment: Treatment) -> Result<()> {
        if self.reads(listed).contains(&treatment) {
            return Ok(());
        }
        let lists = |listed: Listed| {
            let read = self.named_lists().iter().filter(move |(_, of)| self.reads(listed).contains(of));
            read.map(move |(name, _)| format!("the {name} list of {listed}"))
        };
        let read: Vec<String> = lists(Listed::Cells).chain(lists(Listed::Ops)).collect();
        let read = if read.is_empty() { "no list".to_string() } else { read.join(", ") };
        let list = treatment.name();
        Err(Error::list(format!("{self} does not read the {list} list of {listed}; it reads {read}")))
    }

    /// Checks that every entry of the lists is read.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) for an entry that is not, naming the entry and its origin.
    pub fn check_lists(self, lists: &Lists) -> Result<()> {
        let cells = lists.cells.iter().map(|(kind, entry)| (Listed::Cells, kind.as_str(), entry));
        let ops = lists.ops.iter().map(|(op, entry)| (Listed::Ops, op.name(), entry));
        for (listed, name, entry) in cells.chain(ops) {
            self.check_reads(listed, entry.treatment)
                .map_err(|error| error.context(format!("the entry of `{name}` ({})", entry.origin)))?;
        }
        Ok(())
    }
}
