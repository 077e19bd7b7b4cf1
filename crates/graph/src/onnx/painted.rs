//! A model as the graph that painting knows: nodes with type attributes, and edges through the bodies of `If`, `Loop`
//! and `Scan`.

use std::collections::{HashMap, HashSet};

use super::{
    keep::{Carried, Kept, Then},
    schema::{Kind, Schema},
    tensor::Elem,
    types::{edges, name},
    values::{Origin, Placed, Values},
};
use crate::{Device, LowSupport, OpSupport, Painting, Port, TypeAttr, TypeGraph, TypeNode};
use precast::{DType, error::Result, policy::GraphList};

/// The reader behind an input of a painted node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reader {
    /// The input of a node at a place.
    Node { node: usize, place: usize },
    /// The output of a body at a place.
    Body { scope: usize, place: usize },
    /// The output of the model at a place.
    Output { place: usize },
}

/// The type graph of a model, with the nodes, values and readers of the model behind its ports.
pub(super) struct Painted {
    pub graph: TypeGraph,
    pub lists: Vec<Option<GraphList>>,
    pub device: Device,
    /// For each painted node, the readers behind its inputs.
    pub readers: Vec<Vec<Reader>>,
    /// The output of a painted node that each value is.
    pub ports: Vec<Port>,
    /// The values behind each output of each painted node.
    pub values: HashMap<Port, usize>,
    /// The painted node of each node of the model.
    pub nodes: Vec<usize>,
}

/// Requests of a conversion that concern single nodes and values.
pub(super) struct Requests<'a> {
    pub lists: &'a [Option<GraphList>],
    /// Nodes that stay f32.
    pub kept: &'a HashMap<usize, Kept>,
    /// Values that bodies carry in f32.
    pub carried: &'a HashMap<usize, Carried>,
    /// Inputs and outputs of the model that become low.
    pub low_io: &'a dyn Fn(&str) -> bool,
    pub low: DType,
    pub paths: &'a [String],
}

struct Builder<'a> {
    painted: Painted,
    values: &'a Values<'a>,
    elems: &'a [Elem],
    ops: HashMap<String, OpSupport>,
    /// Inputs that are filled at the end: painted node, value.
    pending: Vec<Vec<usize>>,
}

/// Ports that nothing supplies: every value gets one.
const NOWHERE: Port = Port { node: usize::MAX, port: 0 };

impl Painted {
    pub fn of(values: &Values<'_>, elems: &[Elem], requests: &Requests<'_>) -> Result<Self> {
        let painted = Painted {
            graph: TypeGraph::default(),
            lists: Vec::new(),
            device: Device::of([]),
            readers: Vec::new(),
            ports: vec![NOWHERE; values.values.len()],
            values: HashMap::new(),
            nodes: Vec::with_capacity(values.nodes.len()),
        };
        let mut builder = Builder { painted, values, elems, ops: HashMap::new(), pending: Vec::new() };
        for (index, placed) in values.nodes.iter().enumerate() {
            builder.node(index, placed, requests);
        }
        for (index, placed) in values.nodes.iter().enumerate() {
            builder.control(index, placed, requests);
        }
        builder.sources(requests);
        builder.outputs(requests);
        let painted = builder.finish();
        painted.graph.check()?;
        Ok(painted)
    }
}

impl Painted {
    /// Returns whether a value becomes low.
    pub fn is_low(&self, painting: &Painting, value: usize) -> bool {
        let port = self.ports[value];
        painting.is_low(port.node, self.graph.nodes[port.node].out_types[port.port])
    }

    /// Returns the list of a node of the model.
    pub fn graph_list(&self, node: usize) -> Option<GraphList> {
        self.lists[self.nodes[node]]
    }
}

impl Builder<'_> {
    fn attr(&self, name: &str, elem: Elem, fixed: bool) -> TypeAttr {
        let dtype = if elem == Elem::F32 { "float32".into() } else { self::name(elem) };
        TypeAttr { name: name.into(), dtype, fixed }
    }

    fn push(&mut self, node: TypeNode, list: Option<GraphList>, reads: Vec<usize>, readers: Vec<Reader>) -> usize {
        self.painted.graph.nodes.push(node);
        self.painted.lists.push(list);
        self.painted.readers.push(readers);
        self.pending.push(reads);
        self.painted.graph.nodes.len() - 1
    }

    fn supply(&mut self, value: usize, port: Port) {
        self.painted.ports[value] = port;
        self.painted.values.insert(port, value);
    }

    /// Adds a node of the model.
    fn node(&mut self, index: usize, placed: &Placed<'_>, requests: &Requests<'_>) {
        let node = placed.node;
        let is_cast = node.op == "Cast" && node.domain.is_empty();
        let kept = requests.kept.get(&index);
        let own = placed.schema.and_then(Schema::own).filter(|_| !is_cast && placed.bodies.is_empty());
        let mut types: Vec<TypeAttr> = Vec::new();
        let op = if node.domain.is_empty() { node.op.clone() } else { format!("{}::{}", node.domain, node.op) };
        // The type in which it computes comes first and is called `T`, whatever its schema calls it.
        if let Some(own) = own {
            let schema = placed.schema;
            let of_own = |port: Option<&super::schema::Port>| port.is_some_and(|port| port.kind == Kind::Variable(own));
            let ins = placed.inputs.iter().enumerate().filter(|(i, _)| of_own(schema.and_then(|s| s.input(*i))));
            let outs = placed.outputs.iter().enumerate().filter(|(i, _)| of_own(schema.and_then(|s| s.output(*i))));
            let value = ins.chain(outs).find_map(|(_, value)| *value);
            let elem = value.map_or(Elem::UNDEFINED, |value| self.elems[value]);
            types.push(self.attr("T", elem, false));
            let defined = schema.is_some_and(|schema| schema.allows(own, requests.low));
            let support = || OpSupport {
                attrs: [("T".to_string(), LowSupport { defined, kernel: defined })].into(),
                may_be_forced: true,
            };
            self.ops.entry(op.clone()).or_insert_with(support);
        }
        let mut place = |builder: &Self, port: Option<&super::schema::Port>, value: usize, is_input: bool| -> usize {
            let elem = builder.elems[value];
            if let (Some(own), Some(port)) = (own, port)
                && (port.kind == Kind::Variable(own)
                    || elem == Elem::F32 && placed.schema.is_some_and(|schema| schema.is_own(port)))
            {
                return 0;
            }
            let name = match (is_cast, is_input) {
                (true, true) => "SrcT".to_string(),
                // A cast that must stay has another name for its type, so that it is not made low.
                (true, false) if kept.is_none() => "DstT".to_string(),
                _ => name(elem),
            };
            let attr = builder.attr(&name, elem, !is_cast);
            match types.iter().position(|known| known.name == attr.name) {
                Some(known) => known,
                None => {
                    types.push(attr);
                    types.len() - 1
                }
            }
        };
        let reads: Vec<(usize, usize)> =
            placed.inputs.iter().enumerate().filter_map(|(i, value)| Some((i, (*value)?))).collect();
        // What goes into a body goes through its own nodes.
        let through: Vec<usize> = match placed.bodies.is_empty() {
            true => Vec::new(),
            false => edges(self.values, placed).iter().filter_map(|e| e.outside_in.map(|_| e.input)).collect(),
        };
        let reads: Vec<_> = reads.into_iter().filter(|(place, _)| !through.contains(place)).collect();
        let in_types = reads
            .iter()
            .map(|&(i, value)| place(self, placed.schema.and_then(|schema| schema.input(i)), value, true))
            .collect();
        let outs: Vec<(usize, usize)> =
            placed.outputs.iter().enumerate().filter_map(|(i, value)| Some((i, (*value)?))).collect();
        let out_types = outs
            .iter()
            .map(|&(i, value)| place(self, placed.schema.and_then(|schema| schema.output(i)), value, false))
            .collect();
        let may_change = own.is_some() && kept.is_none_or(|kept| matches!(kept.then, Then::Denied | Then::Infinite));
        let list = match kept.map(|kept| kept.then) {
            Some(Then::Denied | Then::Infinite) => Some(GraphList::Deny),
            Some(Then::Free) => None,
            Some(Then::Listed) | None => requests.lists[index],
        };
        if types.is_empty() {
            types.push(self.attr("none", Elem::UNDEFINED, true));
        }
        let painted = TypeNode {
            name: requests.paths[index].clone(),
            op,
            may_change,
            types,
            inputs: Vec::new(),
            in_types,
            out_types,
        };
        let readers = reads.iter().map(|&(place, _)| Reader::Node { node: index, place }).collect();
        let at = self.push(painted, list, reads.iter().map(|&(_, value)| value).collect(), readers);
        self.painted.nodes.push(at);
        for (port, (_, value)) in outs.into_iter().enumerate() {
            self.supply(value, Port { node: at, port });
        }
    }

    /// Adds the nodes that carry values through the bodies of a node. They follow their neighbours.
    fn control(&mut self, index: usize, placed: &Placed<'_>, requests: &Requests<'_>) {
        let allowed = placed.schema.is_some_and(|schema| schema.allows("V", requests.low));
        let allowed = allowed && !requests.kept.contains_key(&index);
        let low = LowSupport { defined: true, kernel: true };
        let path = &requests.paths[index];
        let node =
            |name: String, op: &str, (elem, may_change): (Elem, bool), ins: usize, outs: usize, builder: &mut Self| {
                let support = || OpSupport { attrs: [("T".to_string(), low)].into(), may_be_forced: true };
                builder.ops.entry(op.into()).or_insert_with(support);
                TypeNode {
                    name,
                    op: op.into(),
                    may_change,
                    types: vec![builder.attr("T", elem, false)],
                    inputs: Vec::new(),
                    in_types: vec![0; ins],
                    out_types: vec![0; outs],
                }
            };
        // The results of the branches of an `If`, by output.
        let mut branches: HashMap<usize, usize> = HashMap::new();
        for (i, edge) in edges(self.values, placed).into_iter().enumerate() {
            let outside = edge.outside_in.map(|value| (value, edge.input));
            let body = edge.body_out.map(|value| (value, Reader::Body { scope: edge.body, place: edge.place }));
            let any = edge.outside_in.or(edge.body_in).or(edge.body_out).or(edge.outside_out);
            let elem = any.map_or(Elem::UNDEFINED, |value| self.elems[value]);
            let ends = [edge.body_in, edge.outside_out].into_iter().flatten();
            let carried = ends.clone().find_map(|value| requests.carried.get(&value));
            let may_change = allowed && carried.is_none();
            let list = match carried {
                Some(Carried::Sum) => Some(GraphList::Deny),
                Some(Carried::Exact) => None,
                None => Some(GraphList::Clear).filter(|_| may_change),
            };
            let elem = (elem, may_change);
            if let (Some(out), Some((value, reader)), false) = (edge.outside_out, body, edge.carried)
                && let Some(&at) = branches.get(&out)
            {
                self.painted.graph.nodes[at].in_types.push(0);
                self.painted.readers[at].push(reader);
                self.pending[at].push(value);
                continue;
            }
            let mut reads = Vec::new();
            let mut readers = Vec::new();
            if let Some((value, place)) = outside {
                reads.push(value);
                readers.push(Reader::Node { node: index, place });
            }
            let op = if edge.carried { "Merge" } else { "Body" };
            if let (Some((value, reader)), false) = (body, edge.carried) {
                reads.push(value);
                readers.push(reader);
            }
            let outs: Vec<usize> = ends.collect();
            let merge = node(format!("{path}/{i}"), op, elem, reads.len(), outs.len(), self);
            let at = self.push(merge, list, reads, readers);
            for (port, &value) in outs.iter().enumerate() {
                self.supply(value, Port { node: at, port });
            }
            if let (Some((value, reader)), true) = (body, edge.carried) {
                let next = node(format!("{path}/{i}/next"), "NextIteration", elem, 1, 1, self);
                let next = self.push(next, list.filter(|_| may_change), vec![value], vec![reader]);
                // It feeds the merge alone.
                self.painted.graph.nodes[at].in_types.push(0);
                self.painted.graph.nodes[at].inputs.push(Port { node: next, port: 0 });
            }
            if let (Some(out), false) = (edge.outside_out, edge.carried) {
                branches.insert(out, at);
            }
        }
    }

    /// Adds what no node makes: inputs and initialisers.
    fn sources(&mut self, requests: &Requests<'_>) {
        for (index, value) in self.values.values.iter().enumerate() {
            if self.painted.ports[index] != NOWHERE {
                continue;
            }
            let is_low = value.scope == 0 && value.origin == Origin::Input && (requests.low_io)(value.name);
            let at = self.edge(format!("value {index}"), self.elems[index], is_low, true);
            self.supply(index, Port { node: at, port: 0 });
        }
    }

    /// Adds the readers of outputs of the model, and of outputs of bodies that no node hands on.
    fn outputs(&mut self, requests: &Requests<'_>) {
        let of_body = |reader: &Reader| match reader {
            Reader::Body { scope, place } => Some((*scope, *place)),
            _ => None,
        };
        let met: HashSet<_> = self.painted.readers.iter().flatten().filter_map(of_body).collect();
        for (scope, of) in self.values.scopes.iter().enumerate() {
            for (place, &value) in of.outputs.iter().enumerate().filter(|(place, _)| !met.contains(&(scope, *place))) {
                let is_low = scope == 0 && (requests.low_io)(self.values.values[value].name);
                let at = self.edge(format!("output {scope} {place}"), self.elems[value], is_low, false);
                self.painted.graph.nodes[at].in_types.push(0);
                self.pending[at].push(value);
                let reader = if scope == 0 { Reader::Output { place } } else { Reader::Body { scope, place } };
                self.painted.readers[at].push(reader);
            }
        }
    }

    /// Adds the border of a graph, which is low only on request.
    fn edge(&mut self, name: String, elem: Elem, is_low: bool, gives: bool) -> usize {
        let low = LowSupport { defined: true, kernel: true };
        let support = || OpSupport { attrs: [("T".to_string(), low)].into(), may_be_forced: false };
        self.ops.entry("border".into()).or_insert_with(support);
        let border = TypeNode {
            name,
            op: "border".into(),
            may_change: is_low,
            types: vec![self.attr("T", elem, !is_low)],
            inputs: Vec::new(),
            in_types: Vec::new(),
            out_types: if gives { vec![0] } else { Vec::new() },
        };
        self.push(border, is_low.then_some(GraphList::Allow), Vec::new(), Vec::new())
    }

    fn finish(self) -> Painted {
        let mut painted = self.painted;
        for (at, reads) in self.pending.into_iter().enumerate() {
            let mut ports: Vec<Port> = reads.into_iter().map(|value| painted.ports[value]).collect();
            // The round of a loop comes after what goes into it.
            ports.append(&mut painted.graph.nodes[at].inputs);
            painted.graph.nodes[at].inputs = ports;
        }
        painted.device = Device::of(self.ops);
        painted
    }
}
