//! The four lists of a graph rewrite: allow, infer, deny, clear.

use std::{collections::HashMap, fmt};

use crate::{
    DType, Op,
    catalogue::System,
    error::{Error, Result},
    policy::Pack,
    precision::Treatment,
};

/// A list of ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GraphList {
    /// These run low: products.
    Allow,
    /// These run low after or between ops that do.
    Infer,
    /// These stay f32, and so does what follows them, up to the next op that is not affected.
    Deny,
    /// These follow their neighbours: rounding spoils nothing in them.
    Clear,
}

impl GraphList {
    /// All four.
    pub const ALL: [GraphList; 4] = [GraphList::Allow, GraphList::Infer, GraphList::Deny, GraphList::Clear];

    /// `allow`, `infer`, `deny` or `clear`.
    pub fn name(self) -> &'static str {
        match self {
            GraphList::Allow => "allow",
            GraphList::Infer => "infer",
            GraphList::Deny => "deny",
            GraphList::Clear => "clear",
        }
    }

    fn of(treatment: Treatment) -> Option<GraphList> {
        match treatment {
            Treatment::Low => Some(GraphList::Allow),
            Treatment::Infer => Some(GraphList::Infer),
            Treatment::Full => Some(GraphList::Deny),
            Treatment::Clear => Some(GraphList::Clear),
            Treatment::Widest | Treatment::Banned | Treatment::AsIs | Treatment::Gray => None,
        }
    }
}

impl fmt::Display for GraphList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How much the lists say, as TensorFlow's `TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_LEVEL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GraphLevel {
    /// As they are.
    #[default]
    Usual,
    /// Only the allow list counts.
    TensorCoresOnly,
    /// Every op that can run low does. Unsafe: results may be far off.
    ForceAll,
    /// The infer list is denied, too.
    TreatInferAsDeny,
}

/// The lists for one low dtype. An op is on one of them at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphLists {
    low: DType,
    /// Whose names the ops of the graph have.
    system: Option<System>,
    lists: HashMap<Op, GraphList>,
    level: GraphLevel,
}

impl GraphLists {
    /// The lists of a pack for regions of code: `low` is allow, `full` is deny, `infer` and `clear` are these. Ops of a graph
    /// go by the names of the pack's system.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the pack is not made for the dtype,
    /// [`ErrorKind::Level`](crate::ErrorKind::Level) when it has no lists for regions.
    pub fn of_pack(pack: &Pack, low: DType) -> Result<Self> {
        pack.check_dtype(low)?;
        let listed = pack.region(None)?;
        let lists = listed.ops().keys().filter_map(|op| Some((*op, GraphList::of(listed.op(*op, low)?.treatment)?)));
        Ok(GraphLists { low, system: pack.system, lists: lists.collect(), level: GraphLevel::Usual })
    }

    /// Puts the ops of a name on a list.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when no op has that name, and when it is on another list: remove it there
    /// first.
    pub fn add(mut self, list: GraphList, name: &str) -> Result<Self> {
        for op in self.ops(name)? {
            match self.lists.insert(op, list) {
                Some(other) if other != list => {
                    return Err(Error::list(format!(
                        "`{name}` is on the {other} list; it cannot be on the {list} list, too"
                    )));
                }
                _ => {}
            }
        }
        Ok(self)
    }

    /// Takes the ops of a name off a list.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when no op has that name, and when it is not on the list.
    pub fn remove(mut self, list: GraphList, name: &str) -> Result<Self> {
        for op in self.ops(name)? {
            if self.lists.get(&op) != Some(&list) {
                return Err(Error::list(format!("`{name}` is not on the {list} list")));
            }
            self.lists.remove(&op);
        }
        Ok(self)
    }

    /// Sets the level. [`GraphLevel::TensorCoresOnly`] is about f16: with bf16 the lists stay as they are.
    ///
    /// # Errors
    /// [`ErrorKind::Level`](crate::ErrorKind::Level) for [`GraphLevel::ForceAll`] with bf16, as in TensorFlow.
    pub fn level(mut self, level: GraphLevel) -> Result<Self> {
        if level == GraphLevel::ForceAll && self.low == DType::Bf16 {
            return Err(Error::level("only float16 can be forced on all ops, not bfloat16"));
        }
        self.level = level;
        Ok(self)
    }

    /// The low dtype.
    pub fn low(&self) -> DType {
        self.low
    }

    /// The list of an op, by its name in the graph, as the level reads it. An op that nobody knows is on none.
    pub fn list(&self, name: &str) -> Option<GraphList> {
        self.list_of(*Op::known_as(name, self.system).first()?)
    }

    /// The list of an op, as the level reads it.
    pub fn list_of(&self, op: Op) -> Option<GraphList> {
        let list = *self.lists.get(&op)?;
        match (self.level, list) {
            (GraphLevel::TensorCoresOnly, list) if self.low == DType::F16 && list != GraphList::Allow => None,
            (GraphLevel::TreatInferAsDeny, GraphList::Infer) => Some(GraphList::Deny),
            _ => Some(list),
        }
    }

    pub(super) fn forces_all(&self) -> bool {
        self.level == GraphLevel::ForceAll
    }

    fn ops(&self, name: &str) -> Result<Vec<Op>> {
        match self.system {
            Some(system) => Op::named_in(system, name),
            None => Op::named(name),
        }
    }
}
