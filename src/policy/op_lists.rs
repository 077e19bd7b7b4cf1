//! What ops do in a region that runs under lists: each op on one list at most.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::Origin;
use crate::{
    DType, Op,
    precision::{OpRules, Treatment},
};

/// An op's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpEntry {
    /// What is done with the op.
    pub treatment: Treatment,
    /// The low dtype for which the entry counts; `None` for both. For the other the op is unlisted.
    pub only: Option<DType>,
    /// Why, in words.
    pub because: Option<Arc<str>>,
    /// Where the entry is from.
    pub origin: Origin,
}

/// The op lists of one level of a [`Pack`](super::Pack).
#[derive(Clone, Debug, PartialEq)]
pub struct OpLists {
    /// Whose lists they are, for messages.
    pub name: Arc<str>,
    /// The level of the pack, as `auto` or Paddle's `OD`.
    pub level: Arc<str>,
    /// What an op does that is on no list.
    pub unlisted: Treatment,
    /// What such an op does where promotion is switched off, if the level has that switch (Paddle's O2).
    pub unlisted_unpromoted: Option<Treatment>,
    /// The dtypes that are cast.
    pub eligible: Vec<DType>,
    /// Ops of which the first input decides; see [`OpRules::by_first`].
    pub by_first: BTreeSet<Op>,
    entries: BTreeMap<Op, OpEntry>,
}

impl OpLists {
    /// Empty lists: every op takes its inputs as they come.
    pub fn new(name: impl Into<Arc<str>>, level: impl Into<Arc<str>>) -> Self {
        OpLists {
            name: name.into(),
            level: level.into(),
            unlisted: Treatment::AsIs,
            unlisted_unpromoted: None,
            eligible: vec![DType::F32, DType::F16, DType::Bf16],
            by_first: BTreeSet::new(),
            entries: BTreeMap::new(),
        }
    }

    /// Whether no op is listed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Every entry, in the order of the catalogue.
    pub fn entries(&self) -> &BTreeMap<Op, OpEntry> {
        &self.entries
    }

    /// The ops that are treated so.
    pub fn list(&self, treatment: Treatment) -> impl Iterator<Item = (Op, &OpEntry)> {
        self.entries.iter().filter(move |(_, entry)| entry.treatment == treatment).map(|(op, entry)| (*op, entry))
    }

    /// An op's entry that counts for a low dtype.
    pub fn entry(&self, op: Op, low: DType) -> Option<&OpEntry> {
        self.entries.get(&op).filter(|entry| entry.only.is_none_or(|only| only == low))
    }

    /// Puts an op on a list, and so takes it off any other. For both low dtypes.
    pub fn put(&mut self, op: Op, treatment: Treatment, origin: Origin) {
        self.insert(op, OpEntry { treatment, only: None, because: None, origin });
    }

    /// Puts an op on a list; returns the entry that stood there.
    pub fn insert(&mut self, op: Op, entry: OpEntry) -> Option<OpEntry> {
        self.entries.insert(op, entry)
    }

    /// Takes an op off its list; says whether it was on one.
    pub fn remove(&mut self, op: Op) -> bool {
        self.entries.remove(&op).is_some()
    }

    /// The rules for a region of this low dtype.
    pub fn rules(&self, low: DType) -> OpRules {
        let counting = || self.entries.keys().filter_map(|op| Some((*op, self.entry(*op, low)?)));
        OpRules {
            low,
            back: false,
            eligible: self.eligible.clone(),
            ops: counting().map(|(op, entry)| (op, entry.treatment)).collect(),
            unlisted: self.unlisted,
            by_first: self.by_first.clone(),
            because: counting()
                .filter(|(_, entry)| entry.treatment == Treatment::Banned)
                .filter_map(|(op, entry)| Some((op, entry.because.clone()?)))
                .collect(),
            name: self.name.clone(),
        }
    }
}
