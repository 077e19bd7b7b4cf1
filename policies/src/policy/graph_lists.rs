//! The four lists of a graph rewrite: allow, infer, deny, clear.

use std::collections::HashMap;

use crate::{
    DType, Level, Op, Policy,
    catalogue::System,
    error::{Error, Result},
    policy::{GraphLevel, GraphList, Lists, Pack},
};

/// Graph lists for one low dtype. An op is on at most one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphLists {
    low: DType,
    /// Naming system of the ops in the graph.
    system: Option<System>,
    lists: HashMap<Op, GraphList>,
    level: GraphLevel,
}

impl GraphLists {
    /// Returns the graph lists of a pack. The ops of a graph have the names of the pack's system.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the pack does not support the dtype;
    /// [`ErrorKind::Level`](crate::ErrorKind::Level) when it has no lists for graphs.
    pub fn of_pack(pack: &Pack, low: DType) -> Result<Self> {
        pack.check_dtype(low)?;
        Ok(GraphLists::of(&pack.lists(Level::Graph)?, low, pack.system))
    }

    fn of(lists: &Lists, low: DType, system: Option<System>) -> Self {
        let listed = lists.ops().keys().filter_map(|op| Some((*op, GraphList::of(lists.op(*op, low)?.treatment)?)));
        GraphLists { low, system, lists: listed.collect(), level: GraphLevel::Usual }
    }

    /// Puts the ops with a name on a list.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when no op has that name, and when it is on another list: remove it
    /// from that list first.
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

    /// Removes the ops with a name from a list.
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

    /// Sets the level. [`GraphLevel::TensorCoresOnly`] concerns f16: with bf16 the lists are unchanged.
    ///
    /// # Errors
    /// [`ErrorKind::Level`](crate::ErrorKind::Level) for [`GraphLevel::ForceAll`] with bf16, as in TensorFlow.
    pub fn level(mut self, level: GraphLevel) -> Result<Self> {
        level.check(self.low)?;
        self.level = level;
        Ok(self)
    }

    /// Returns the low dtype.
    pub fn low(&self) -> DType {
        self.low
    }

    /// Returns the list of an op by its name in the graph, as modified by the level. An unknown op is on none.
    pub fn list(&self, name: &str) -> Option<GraphList> {
        self.list_of(*Op::known_as(name, self.system).first()?)
    }

    /// Returns the list of an op, as modified by the level.
    pub fn list_of(&self, op: Op) -> Option<GraphList> {
        let list = *self.lists.get(&op)?;
        match (self.level, list) {
            (GraphLevel::TensorCoresOnly, list) if self.low == DType::F16 && list != GraphList::Allow => None,
            (GraphLevel::TreatInferAsDeny, GraphList::Infer) => Some(GraphList::Deny),
            _ => Some(list),
        }
    }

    /// Returns a name that identifies only this op in these lists.
    #[doc(hidden)]
    pub fn name_of(&self, op: Op) -> String {
        op.unambiguous_name(self.system)
    }

    #[doc(hidden)]
    pub fn forces_all(&self) -> bool {
        self.level == GraphLevel::ForceAll
    }

    fn ops(&self, name: &str) -> Result<Vec<Op>> {
        match self.system {
            Some(system) => Op::named_in(system, name),
            None => Op::named(name),
        }
    }
}

impl Policy {
    /// Returns the lists of a policy of level graph, for rewriting a graph.
    ///
    /// # Errors
    /// [`ErrorKind::Level`](crate::ErrorKind::Level) for a policy of another level; the errors of a plan when its
    /// fields are inconsistent or it names an unknown pack.
    ///
    /// ```
    /// use precast_policy::{Op, Policy, policy::GraphList};
    /// let text = "
    /// version: 1
    /// level: graph
    /// dtype: float16
    /// pack: tensorflow-2.21-fp16
    /// graph: { infer: { remove: [Tanh] }, deny: { add: [Tanh] } }
    /// ";
    /// let lists = Policy::parse(text, "graph.yaml")?.graph_lists()?;
    /// assert_eq!((lists.list("Tanh"), lists.list_of(Op::Linear)), (Some(GraphList::Deny), Some(GraphList::Allow)));
    /// assert!(Policy::named("o2")?.graph_lists().is_err());
    /// # Ok::<(), precast_policy::Error>(())
    /// ```
    pub fn graph_lists(&self) -> Result<GraphLists> {
        self.check()?;
        if self.level != Level::Graph {
            let words = format!(
                "a policy of level {} has no lists for graphs; take one of level graph, such as `Policy::named(\"graph\")`",
                self.level
            );
            return Err(Error::level(words));
        }
        let system = self.pack.as_deref().map(Pack::named).transpose()?.and_then(|pack| pack.system);
        GraphLists::of(&self.lists, self.dtype, system).level(self.graph_level)
    }
}
