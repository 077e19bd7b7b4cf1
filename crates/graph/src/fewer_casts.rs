//! Removal of redundant casts.

use std::collections::HashMap;

use super::graph::{Graph, Kind, Port};
use precast::{DType, Op};

impl Graph {
    /// Returns the graph without casts that cancel between neighbours: a cast of a cast reads the input of the first
    /// one, casts of one output to the same dtype are merged, and unread casts are removed.
    ///
    /// Results change where a rounding is removed: if f32 is cast to f16 and back, the f32 number is read. Gradients
    /// are summed before a shared cast, so they may be rounded once instead of twice.
    ///
    /// ```
    /// use precast::prelude::*;
    /// use precast_graph::Graph;
    /// let graph = Graph::trace_fn(&Default::default(), &[Tensor::ones(&[2], DType::F32)], |x| {
    ///     Ok(vec![x[0].cast(DType::F16).cast(DType::F32).relu()?])
    /// })?;
    /// assert_eq!((graph.casts(), graph.with_fewer_casts().casts()), (2, 0));
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn with_fewer_casts(&self) -> Graph {
        let mut graph = self.clone();
        // The replacement of each port.
        let mut same: HashMap<Port, Port> = HashMap::new();
        let mut known: HashMap<(Port, DType), Port> = HashMap::new();
        for place in 0..graph.nodes.len() {
            for input in 0..graph.nodes[place].inputs.len() {
                let port = graph.nodes[place].inputs[input];
                graph.nodes[place].inputs[input] = same.get(&port).copied().unwrap_or(port);
            }
            let (node, own) = (&graph.nodes[place], Port { node: place, port: 0 });
            if !node.is_cast() || !node.outputs[0].dtype.is_castable() {
                continue;
            }
            let to = node.outputs[0].dtype;
            // The first cast of a chain has already been shortened.
            let read = node.inputs[0];
            let from = match &graph.nodes[read.node].kind {
                Kind::Op(Op::Cast) if graph.output(graph.nodes[read.node].inputs[0]).dtype.is_castable() => {
                    graph.nodes[read.node].inputs[0]
                }
                _ => read,
            };
            graph.nodes[place].inputs[0] = from;
            if graph.output(from).dtype == to {
                same.insert(own, from);
            } else if let Some(other) = known.get(&(from, to)) {
                same.insert(own, *other);
            } else {
                known.insert((from, to), own);
            }
        }
        let instead = |port: &mut Port| *port = same.get(port).copied().unwrap_or(*port);
        graph.outputs.iter_mut().for_each(instead);
        graph.updates.iter_mut().for_each(|update| instead(&mut update.by));
        graph.without_unread_casts()
    }

    fn without_unread_casts(self) -> Graph {
        let mut read = vec![false; self.nodes.len()];
        let ends = self.outputs.iter().chain(self.updates.iter().map(|update| &update.by));
        ends.for_each(|port| read[port.node] = true);
        for place in (0..self.nodes.len()).rev() {
            if read[place] || !self.nodes[place].is_cast() {
                self.nodes[place].inputs.iter().for_each(|port| read[port.node] = true);
            }
        }
        let mut places = Vec::with_capacity(self.nodes.len());
        let mut kept = 0;
        for (place, node) in self.nodes.iter().enumerate() {
            places.push(kept);
            kept += usize::from(read[place] || !node.is_cast());
        }
        let moved = |port: &mut Port| port.node = places[port.node];
        let Graph { nodes, mut inputs, mut outputs, mut updates, batch, only_batch } = self;
        let nodes = nodes.into_iter().enumerate().filter(|(place, node)| read[*place] || !node.is_cast());
        let nodes = nodes.map(|(_, mut node)| {
            node.inputs.iter_mut().for_each(moved);
            node
        });
        let nodes = nodes.collect();
        inputs.iter_mut().for_each(|node| *node = places[*node]);
        outputs.iter_mut().for_each(moved);
        updates.iter_mut().for_each(|update| {
            update.buffer = places[update.buffer];
            moved(&mut update.by);
        });
        Graph { nodes, inputs, outputs, updates, batch, only_batch }
    }
}
