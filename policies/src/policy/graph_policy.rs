//! Policies for graphs: the four lists of a rewrite, and a low dtype.

use precast_base::{DType, Error, Result};

use super::{GraphLevel, GraphList, Keep, LossScaleSpec, Pack, Rule, RunAs, Scaler, check_low, lists::Reader};
use crate::{
    Op,
    catalogue::System,
    policy::{Entry, Lists, Origin},
};

/// Requested precision of a graph: the low dtype, and four lists of ops from which it spreads to their neighbours.
///
/// It has no level, since a graph has no cells; its rules are about nodes. In a file, `graph` is in place of `level`:
///
/// ```
/// use precast_policy::{DType, Op, policy::{GraphList, GraphPolicy}};
/// let text = "
/// version: 1
/// dtype: float16
/// pack: tensorflow-2.21-fp16
/// graph: { infer: { remove: [Tanh] }, deny: { add: [Tanh] } }
/// rules:
///   - { path: encoder.*.attention.**, run: float32 }
///   - { op: Resize, run: float32 }
/// ";
/// let policy = GraphPolicy::parse(text, "graph.yaml")?;
/// assert_eq!(policy.list("Tanh"), Some(GraphList::Deny));
/// assert_eq!(policy.list_of(Op::Linear), Some(GraphList::Allow));
///
/// let same = GraphPolicy::from_pack(DType::F16, precast_policy::policy::Pack::named("tensorflow-2.21-fp16")?)?;
/// let same = same.remove(GraphList::Infer, "Tanh")?.add(GraphList::Deny, "Tanh")?;
/// assert_eq!(same.list("Tanh"), policy.list("Tanh"));
/// # Ok::<(), precast_policy::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GraphPolicy {
    /// Human-readable name, `name:` in the file.
    pub name: Option<String>,
    /// Name of the pack with the lists, such as `tensorflow-2.21-fp16`. `None` for lists given in code. The ops of a
    /// graph have the names of the pack's system.
    pub pack: Option<String>,
    /// Low dtype: f16 or bf16.
    pub dtype: DType,
    /// The lists. Each op has at most one entry, with the [treatment](GraphList::treatment) of a graph list. Packs of
    /// converters that lower all ops but some have a treatment of unlisted ops.
    pub lists: Lists,
    /// Level that modifies the lists, `level:` of `graph:` in the file.
    pub level: GraphLevel,
    /// Rules for single nodes, by path or by op. A rule with the exact path counts first, then the first that matches.
    pub rules: Vec<Rule>,
    /// Numbers for whose sake nodes of an ONNX model stay f32.
    pub keep: Keep,
    /// Loss scale for training.
    pub loss_scale: LossScaleSpec,
    /// Response to f16 training without a loss scale.
    pub scaler: Scaler,
}

impl GraphPolicy {
    /// Creates a policy from a low dtype, with the lists of [`Pack::DEFAULT`].
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f16 or bf16.
    pub fn new(dtype: DType) -> Result<Self> {
        check_low(dtype)?;
        GraphPolicy::from_pack(dtype, Pack::named(Pack::DEFAULT)?)
    }

    /// Creates a policy from a low dtype and lists.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f16 or bf16;
    /// [`ErrorKind::List`](crate::ErrorKind::List) for an entry of a cell, or on a list that graphs do not have.
    pub fn with_lists(dtype: DType, lists: Lists) -> Result<Self> {
        let (level, loss_scale, scaler) = (GraphLevel::Usual, LossScaleSpec::of_dtype(dtype), Scaler::Advised);
        let (rules, keep) = (Vec::new(), Keep::default());
        let policy = GraphPolicy { name: None, pack: None, dtype, lists, level, rules, keep, loss_scale, scaler };
        policy.check().map(|()| policy)
    }

    /// Creates a policy from a low dtype, with the lists of a pack.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f16 or bf16 and supported by the pack;
    /// [`ErrorKind::List`](crate::ErrorKind::List) when the pack has no lists for graphs.
    pub fn from_pack(dtype: DType, pack: Pack) -> Result<Self> {
        check_low(dtype)?;
        pack.check_dtype(dtype)?;
        let policy = GraphPolicy::with_lists(dtype, pack.graph_lists()?.clone())?;
        Ok(GraphPolicy { pack: Some(pack.name.to_string()), ..policy })
    }

    /// Puts the ops with a name on a list.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when no op has that name, and when it is on another list: remove it
    /// from that list first.
    pub fn add(mut self, list: GraphList, name: &str) -> Result<Self> {
        for op in self.ops(name)? {
            if let Some(other) = self.entry(op).filter(|other| *other != list) {
                let words = format!("`{name}` is on the {other} list; it cannot be on the {list} list, too");
                return Err(Error::list(words));
            }
            self.lists.put_op(op, Entry::new(list.treatment(), Origin::Code));
        }
        Ok(self)
    }

    /// Removes the ops with a name from a list.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when no op has that name, and when it is not on the list.
    pub fn remove(mut self, list: GraphList, name: &str) -> Result<Self> {
        for op in self.ops(name)? {
            if self.entry(op) != Some(list) {
                return Err(Error::list(format!("`{name}` is not on the {list} list")));
            }
            self.lists.remove_op(op);
        }
        Ok(self)
    }

    /// Adds a rule: the nodes with a path, or of an op, run in f32 or low whatever the lists say.
    ///
    /// # Errors
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) for a precision other than [`RunAs::Full`] and [`RunAs::Low`], and
    /// for a rule about recomputation or steps.
    pub fn rule(mut self, rule: Rule) -> Result<Self> {
        check_rule(&rule)?;
        self.rules.push(rule);
        Ok(self)
    }

    /// Returns the rule that decides a node.
    pub fn rule_of(&self, path: &str, op: &str) -> Option<&Rule> {
        let matching = || self.rules.iter().filter(|rule| rule.select.matches(path, op));
        matching().find(|rule| rule.select.is_exact_path()).or_else(|| matching().next())
    }

    /// Sets the level. [`GraphLevel::TensorCoresOnly`] concerns f16: with bf16 the lists are unchanged.
    ///
    /// # Errors
    /// [`ErrorKind::Level`](crate::ErrorKind::Level) for [`GraphLevel::ForceAll`] with bf16, as in TensorFlow.
    pub fn level(mut self, level: GraphLevel) -> Result<Self> {
        level.check(self.dtype)?;
        self.level = level;
        Ok(self)
    }

    /// Returns the list of an op by its name in the graph, as modified by the level. An unknown op is unlisted.
    pub fn list(&self, name: &str) -> Option<GraphList> {
        let known = Op::known_as(name, self.system()).first().copied();
        known.map_or_else(|| self.unlisted(), |op| self.list_of(op))
    }

    /// Returns the list of an op, as modified by the level.
    pub fn list_of(&self, op: Op) -> Option<GraphList> {
        self.entry(op).map_or_else(|| self.unlisted(), |list| self.modified(list))
    }

    /// Returns the list that serves the ops without an entry, as modified by the level. `None` in most packs.
    pub fn unlisted(&self) -> Option<GraphList> {
        self.modified(GraphList::of(self.lists.unlisted)?)
    }

    fn modified(&self, list: GraphList) -> Option<GraphList> {
        match (self.level, list) {
            (GraphLevel::TensorCoresOnly, list) if self.dtype == DType::F16 && list != GraphList::Allow => None,
            (GraphLevel::TreatInferAsDeny, GraphList::Infer) => Some(GraphList::Deny),
            _ => Some(list),
        }
    }

    /// Checks the invariants that public fields cannot enforce.
    ///
    /// # Errors
    /// As [`with_lists`](GraphPolicy::with_lists) and [`level`](GraphPolicy::level);
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) when a loss scale is required and missing.
    pub fn check(&self) -> Result<()> {
        check_low(self.dtype)?;
        Reader::Graph.check_lists(&self.lists)?;
        self.level.check(self.dtype)?;
        self.rules.iter().try_for_each(check_rule)?;
        self.scaler.check(&self.loss_scale, self.dtype)
    }

    /// Returns a name that identifies only this op in a graph.
    pub fn name_of(&self, op: Op) -> String {
        op.unambiguous_name(self.system())
    }

    /// Returns the list that the entry of an op names.
    fn entry(&self, op: Op) -> Option<GraphList> {
        GraphList::of(self.lists.op(op, self.dtype)?.treatment)
    }

    /// Returns the naming system of the ops in a graph.
    fn system(&self) -> Option<System> {
        self.pack.as_deref().and_then(|pack| Pack::shared(pack).ok()).and_then(|pack| pack.system)
    }

    fn ops(&self, name: &str) -> Result<Vec<Op>> {
        match self.system() {
            Some(system) => Op::named_in(system, name),
            None => Op::named(name),
        }
    }
}

/// Checks that a rule is one for a node.
fn check_rule(rule: &Rule) -> Result<()> {
    let run = rule.run.filter(|run| matches!(run, RunAs::Full | RunAs::Low));
    let of_cells =
        rule.checkpoint.is_some() || rule.operands.is_some() || rule.kept.is_some() || rule.raise_after_stall;
    match run.is_none() || of_cells || rule.until.is_some() {
        false => Ok(()),
        true => Err(Error::policy(format!(
            "a rule for nodes of a graph has `run: float32` or `run: low`, and nothing about steps, recomputation, operands or activations; met: {}",
            rule.select
        ))),
    }
}
