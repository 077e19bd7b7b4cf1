//! The result of painting: the vertices of a graph that run low, with reasons.

use std::{collections::HashMap, sync::Arc};

use precast_base::names::did_you_mean;

use super::mark::Mark;
use precast::{
    DType,
    error::{Error, Result},
    plan::{Reason, RuleRef},
    policy::GraphList,
};

/// The decision for a vertex.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Painted {
    /// Its node.
    pub node: Arc<str>,
    /// Its type attribute.
    pub attr: Arc<str>,
    /// Its original dtype.
    pub dtype: Arc<str>,
    /// `true` when that is f32.
    pub is_f32: bool,
    /// The list of its op.
    pub list: Option<GraphList>,
    /// `true` when it may be changed at all.
    pub may_change: bool,
    /// `true` when the device can run it low.
    pub runs_low: bool,
    /// The reason why it runs low; `None` if it does not.
    pub low: Option<Mark>,
    /// The reason why it must not run low; `None` if it may.
    pub denied: Option<Mark>,
}

/// A painted graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Painting {
    /// The low dtype.
    pub dtype: DType,
    /// The vertices, in the order of the nodes and of their type attributes.
    pub vertices: Vec<Painted>,
    /// The first vertex of each node.
    pub(super) first: Vec<usize>,
    /// The rules that decided nodes, by name.
    pub(crate) rules: HashMap<String, Arc<RuleRef>>,
}

impl Painting {
    /// Returns whether a type attribute of a node, both given by index, runs low.
    pub fn is_low(&self, node: usize, attr: usize) -> bool {
        self.vertices[self.first[node] + attr].low.is_some()
    }

    /// Explains in a sentence why a node runs as it does.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) when no node has that name, with the nearest one.
    pub fn explain(&self, name: &str) -> Result<String> {
        let vertices: Vec<usize> = (0..self.vertices.len()).filter(|&v| *self.vertices[v].node == *name).collect();
        if vertices.is_empty() {
            let near = did_you_mean(name, self.vertices.iter().map(|vertex| &*vertex.node));
            return Err(Error::value(format!("no node is called `{name}`{near}")));
        }
        let several = vertices.len() > 1;
        let said = vertices.into_iter().map(|v| {
            let vertex = &self.vertices[v];
            let what = if several { format!("{name} ({})", vertex.attr) } else { name.to_string() };
            format!("{what} is {}: {}", if vertex.low.is_some() { "low" } else { "f32" }, self.reason(v))
        });
        Ok(said.collect::<Vec<_>>().join("\n"))
    }

    /// Returns the reason for each node's output, by node name. For a node with several types, that of its activations
    /// counts.
    pub(crate) fn reasons(&self) -> HashMap<&str, Reason> {
        let mut of_node: HashMap<&str, usize> = HashMap::new();
        for (v, vertex) in self.vertices.iter().enumerate() {
            let known = of_node.entry(&vertex.node).or_insert(v);
            if *self.vertices[*known].attr != *"T" {
                *known = v;
            }
        }
        of_node.into_iter().map(|(name, v)| (name, self.reason(v))).collect()
    }

    fn reason(&self, v: usize) -> Reason {
        let vertex = &self.vertices[v];
        if let Some(rule) = self.rules.get(&*vertex.node) {
            return Reason::Rule(rule.clone());
        }
        let name = |v: usize| self.vertices[v].node.clone();
        let words = |words: &'static str| Reason::Words(words.into());
        match vertex.low.or(vertex.denied) {
            Some(Mark::Allowed) => Reason::OnList(GraphList::Allow),
            Some(Mark::Denied) => Reason::OnList(GraphList::Deny),
            Some(Mark::AfterDenied(from)) => Reason::AfterDenied(name(from)),
            Some(Mark::Between { above, below }) => Reason::Between { above: name(above), below: name(below) },
            Some(Mark::After(from)) => Reason::Follows { list: GraphList::Infer, node: name(from) },
            Some(Mark::NextTo(other)) => Reason::Follows { list: GraphList::Clear, node: name(other) },
            Some(Mark::SameTensorList(other)) => {
                Reason::Words(format!("shares a tensor list with {}", name(other)).into())
            }
            Some(Mark::Forced) => words("every op that can run low does"),
            Some(Mark::EscapingTensorList) => words("its tensor list is used outside of the graph"),
            Some(Mark::SameLoop) => words("all that the loop feeds with it is low"),
            Some(Mark::CastForLow) => words("a cast whose consumers are all low"),
            None if !vertex.is_f32 => Reason::Words(format!("it is {}, which is not changed", vertex.dtype).into()),
            None if !vertex.may_change => words("it is not to be changed"),
            None => match vertex.list {
                None => words("on no list"),
                Some(GraphList::Allow) => words("on the allow list, but the op is not defined for the low dtype"),
                Some(_) if !vertex.runs_low => words("the device cannot run it low"),
                Some(list) => Reason::OnList(list),
            },
        }
    }
}
