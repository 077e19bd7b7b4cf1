//! Lists of kinds of cells and of ops: what is done with each, why, and where that was written.
//!
//! There is one type of lists for every level of a network and for every region of code. What a [`Level`] reads of its lists
//! stands in one table, [`Level::reads`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{GraphList, Level};
use crate::{
    DType, Op,
    document::{Place, Source},
    error::{Error, Result},
    precision::{OpRules, Treatment},
    printable::printable,
};

/// Where a rule or a list entry was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
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

impl Origin {
    /// A place in a file.
    pub(super) fn at(source: &Source<'_>, place: impl Into<Place>) -> Self {
        let Place { line, column } = place.into();
        Origin::File { file: source.name.clone(), line, column }
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

/// What a list says of a kind of cell or of an op.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What is done with it.
    pub treatment: Treatment,
    /// The low dtype for which the entry counts; `None` for both. For the other it is unlisted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<DType>,
    /// Why, in the words of the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<Arc<str>>,
    /// Where the entry was written.
    pub origin: Origin,
}

impl Entry {
    /// An entry for both low dtypes, without a reason.
    pub fn new(treatment: Treatment, origin: Origin) -> Self {
        Entry { treatment, only: None, because: None, origin }
    }

    fn counts(&self, low: DType) -> bool {
        self.only.is_none_or(|only| only == low)
    }
}

/// The lists of one level of a network, or of a region of code: each kind of cell and each op has one entry at most.
///
/// Kinds match exactly: `Dense` is not `MyDense`. Users of MindSpore and Paddle know three of the treatments by other names,
/// which policy files and the functions here use, too:
///
/// | treatment | name of the list |
/// | --- | --- |
/// | [`Treatment::Low`] | white |
/// | [`Treatment::Full`] | black |
/// | [`Treatment::Widest`] | promote |
///
/// ```
/// use precast_policy::{Op, policy::Lists, precision::Treatment};
/// let lists = Lists::new().white("Dense").white_op("MatMul")?;
/// assert_eq!(lists.cells()["Dense"].treatment, Treatment::Low);
/// assert_eq!(lists.ops()[&Op::MatMul].treatment, Treatment::Low);
/// # Ok::<(), precast_policy::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "lists do nothing until a policy has them"]
pub struct Lists {
    /// Whose lists these are, for messages.
    pub name: Arc<str>,
    /// What an op does that is on no list.
    pub unlisted: Treatment,
    /// What such an op does where promotion is switched off, for lists that have that switch (Paddle's O2).
    pub unlisted_unpromoted: Option<Treatment>,
    /// The dtypes that are cast.
    pub eligible: Vec<DType>,
    /// Ops of which the first input decides; see [`OpRules::by_first`].
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
    /// Empty lists, which are legal ones: every op takes its inputs as they come.
    pub fn new() -> Self {
        Lists::named("code")
    }

    /// Empty lists with a name for messages.
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

    /// Puts a kind of cell on the white list: it runs low. The lists of O1 have such entries.
    pub fn white(self, kind: impl Into<String>) -> Self {
        self.with_cell(kind.into(), Treatment::Low)
    }

    /// Puts a kind of cell on the black list: it stays f32. The lists of O2 have such entries.
    pub fn black(self, kind: impl Into<String>) -> Self {
        self.with_cell(kind.into(), Treatment::Full)
    }

    /// Puts the ops of a name on the white list: they run low. The name is one of this library or of another system.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when no op has that name.
    pub fn white_op(self, name: &str) -> Result<Self> {
        self.with_op(name, Treatment::Low)
    }

    /// Puts the ops of a name on the black list: they run in f32. The name is one of this library or of another system.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when no op has that name.
    pub fn black_op(self, name: &str) -> Result<Self> {
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

    /// Sets the entry of a kind of cell; returns the one that stood there.
    pub fn put_cell(&mut self, kind: String, entry: Entry) -> Option<Entry> {
        self.cells.insert(kind, entry)
    }

    /// Sets the entry of an op; returns the one that stood there.
    pub fn put_op(&mut self, op: Op, entry: Entry) -> Option<Entry> {
        self.ops.insert(op, entry)
    }

    /// Takes a kind of cell off its list; returns the entry that stood there.
    pub fn remove_cell(&mut self, kind: &str) -> Option<Entry> {
        self.cells.remove(kind)
    }

    /// Takes an op off its list; returns the entry that stood there.
    pub fn remove_op(&mut self, op: Op) -> Option<Entry> {
        self.ops.remove(&op)
    }

    /// Every entry for a kind of cell, in order.
    pub fn cells(&self) -> &BTreeMap<String, Entry> {
        &self.cells
    }

    /// Every entry for an op, in order.
    pub fn ops(&self) -> &BTreeMap<Op, Entry> {
        &self.ops
    }

    /// The entry of a kind of cell that counts for a low dtype.
    pub fn cell(&self, kind: &str, low: DType) -> Option<&Entry> {
        self.cells.get(kind).filter(|entry| entry.counts(low))
    }

    /// The entry of an op that counts for a low dtype.
    pub fn op(&self, op: Op, low: DType) -> Option<&Entry> {
        self.ops.get(&op).filter(|entry| entry.counts(low))
    }

    /// The ops that are treated so, for either low dtype.
    pub fn ops_with(&self, treatment: Treatment) -> impl Iterator<Item = Op> {
        self.ops.iter().filter(move |(_, entry)| entry.treatment == treatment).map(|(op, _)| *op)
    }

    /// The op lists, prepared for a region of this low dtype.
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

/// What a list is of.
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

/// The lists by the names that policy files have for them.
pub(super) const COLORS: [(&str, Treatment); 3] =
    [("white", Treatment::Low), ("black", Treatment::Full), ("promote", Treatment::Widest)];

/// The lists of level graph likewise.
const GRAPH_LISTS: [(&str, Treatment); 4] = [
    (GraphList::Allow.name(), GraphList::Allow.treatment()),
    (GraphList::Infer.name(), GraphList::Infer.treatment()),
    (GraphList::Deny.name(), GraphList::Deny.treatment()),
    (GraphList::Clear.name(), GraphList::Clear.treatment()),
];

/// The color of a treatment, or its name where it has none.
pub(crate) fn color(treatment: Treatment) -> &'static str {
    COLORS.iter().find(|(_, of)| *of == treatment).map_or(treatment.name(), |(color, _)| color)
}

impl Level {
    /// The lists of ops that policy files change at this level, by name.
    pub(super) fn named_lists(self) -> &'static [(&'static str, Treatment)] {
        if self == Level::Graph { &GRAPH_LISTS } else { &COLORS }
    }

    /// The treatments that lists of this level may give: the whole of what a level reads. Everything else is refused where it
    /// is written.
    pub(crate) fn reads(self, listed: Listed) -> &'static [Treatment] {
        match (self, listed) {
            (Level::O1, _) => &[Treatment::Low],
            (Level::O2, _) => &[Treatment::Full],
            (Level::Auto, Listed::Ops) => &Treatment::ALL,
            (Level::Graph, Listed::Ops) => &[Treatment::Low, Treatment::Infer, Treatment::Full, Treatment::Clear],
            (Level::O0 | Level::O3, _) | (Level::Auto | Level::Graph, Listed::Cells) => &[],
        }
    }

    /// Whether lists of this level may say that.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List), with what the level reads.
    pub(super) fn check_reads(self, listed: Listed, treatment: Treatment) -> Result<()> {
        if self.reads(listed).contains(&treatment) {
            return Ok(());
        }
        let lists = |listed: Listed| {
            let read = self.named_lists().iter().filter(move |(_, of)| self.reads(listed).contains(of));
            read.map(move |(name, _)| format!("the {name} list of {listed}"))
        };
        let read: Vec<String> = lists(Listed::Cells).chain(lists(Listed::Ops)).collect();
        let read = if read.is_empty() { "no list".to_string() } else { read.join(", ") };
        let list = color(treatment);
        Err(Error::list(format!("level {self} does not read the {list} list of {listed}; it reads {read}")))
    }

    /// Whether a level reads all that the lists say.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) for an entry that it does not read, with the entry and its origin.
    pub(super) fn check_lists(self, lists: &Lists) -> Result<()> {
        let cells = lists.cells.iter().map(|(kind, entry)| (Listed::Cells, kind.as_str(), entry));
        let ops = lists.ops.iter().map(|(op, entry)| (Listed::Ops, op.name(), entry));
        for (listed, name, entry) in cells.chain(ops) {
            self.check_reads(listed, entry.treatment)
                .map_err(|error| error.context(format!("the entry of `{name}` ({})", entry.origin)))?;
        }
        Ok(())
    }
}
