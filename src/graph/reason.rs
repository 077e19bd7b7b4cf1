//! The reason for the painting of a vertex.

use std::collections::HashMap;

use super::{GraphList, Painting};
use crate::error::{Error, Result, did_you_mean};

/// The reason why a vertex runs low, or must not. Other vertices are given by their index in the painting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Because {
    /// Its op is on the allow list.
    Allowed,
    /// Every op that can run low does.
    Forced,
    /// Its op is on the deny list.
    Denied,
    /// It follows a denied vertex.
    AfterDenied(usize),
    /// It is between two vertices on the allow list.
    Between {
        /// The allowed vertex upstream.
        above: usize,
        /// The allowed vertex downstream.
        below: usize,
    },
    /// It is on the infer list, and reads a vertex that runs low.
    After(usize),
    /// It is on the clear list, and this neighbour runs low.
    Beside(usize),
    /// It reads or writes the same tensor list as this vertex.
    SameTensorList(usize),
    /// Its tensor list comes from or goes to code that cannot be changed.
    EscapingTensorList,
    /// A loop carries it from one iteration to the next, and everything that it feeds there runs low.
    SameLoop,
    /// It is a cast to f32 whose consumers all run low.
    CastForLow,
}

impl Painting {
    /// Explains in a sentence why a node runs as it does.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when no node has that name, with the nearest one.
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
            format!("{what} is {}: {}", if vertex.low.is_some() { "low" } else { "f32" }, self.why(v))
        });
        Ok(said.collect::<Vec<_>>().join("\n"))
    }

    /// Returns the reason for each node's output, by node name. For a node with several types, that of its activations
    /// counts.
    pub(super) fn reasons(&self) -> HashMap<&str, String> {
        let mut of_node: HashMap<&str, usize> = HashMap::new();
        for (v, vertex) in self.vertices.iter().enumerate() {
            let known = of_node.entry(&vertex.node).or_insert(v);
            if *self.vertices[*known].attr != *"T" {
                *known = v;
            }
        }
        of_node.into_iter().map(|(name, v)| (name, self.why(v))).collect()
    }

    fn why(&self, v: usize) -> String {
        let vertex = &self.vertices[v];
        let name = |v: usize| &self.vertices[v].node;
        match vertex.low.or(vertex.denied) {
            Some(Because::Allowed) => "on the allow list".into(),
            Some(Because::Forced) => "every op that can run low does".into(),
            Some(Because::Denied) => "on the deny list".into(),
            Some(Because::AfterDenied(from)) => format!("after {}, which is denied", name(from)),
            Some(Because::Between { above, below }) => {
                format!("between {} and {}, which are on the allow list", name(above), name(below))
            }
            Some(Because::After(from)) => format!("on the infer list, after {}, which is low", name(from)),
            Some(Because::Beside(other)) => format!("on the clear list, beside {}, which is low", name(other)),
            Some(Because::SameTensorList(other)) => format!("shares a tensor list with {}", name(other)),
            Some(Because::EscapingTensorList) => "its tensor list is used outside of the graph".into(),
            Some(Because::SameLoop) => "all that the loop feeds with it is low".into(),
            Some(Because::CastForLow) => "a cast whose consumers are all low".into(),
            None if !vertex.is_f32 => format!("it is {}, which is not changed", vertex.dtype),
            None if !vertex.may_change => "it is not to be changed".into(),
            None => match vertex.list {
                None => "on no list".into(),
                Some(GraphList::Allow) => "on the allow list, but the op is not defined for the low dtype".into(),
                Some(_) if !vertex.runs_low => "the device cannot run it low".into(),
                Some(list) => format!("on the {list} list, and no neighbour makes it low"),
            },
        }
    }
}
