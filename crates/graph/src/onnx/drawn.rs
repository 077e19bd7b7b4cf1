//! Drawings of a planned model: its nodes, the casts between them, and the reasons.

use std::collections::HashMap;

use super::{
    painted::Reader,
    plan::{OnnxPlan, after},
    schema::float,
    tensor::Elem,
    values::{Origin, Placed},
};
use crate::{Drawn, Form, NodeDecision, dot, svg};

impl OnnxPlan<'_> {
    /// Draws the nodes of the file as [`Graph::to_svg`](crate::Graph::to_svg) draws those of a graph, with their
    /// reasons as tooltips. Weights are drawn to the left of their readers, and a body in the frame of its node.
    pub fn to_svg(&self) -> String {
        svg(&self.drawn())
    }

    /// Returns the nodes of the file in the DOT language of Graphviz, coloured as in [`to_svg`](OnnxPlan::to_svg).
    pub fn to_dot(&self) -> String {
        dot(&self.drawn())
    }

    fn drawn(&self) -> Vec<Drawn> {
        let paths = self.values.paths();
        let decisions = self.decisions.iter().map(|decision| (&decision.node[..], decision)).collect();
        let (mut of_value, mut of_reader) = (HashMap::new(), HashMap::new());
        for (index, cast) in self.casts.iter().enumerate() {
            let Some(&value) = self.painted.values.get(&cast.of) else { continue };
            of_value.entry(value).or_insert_with(Vec::new).push(index);
            let readers = cast.consumers.iter().filter_map(|port| self.painted.readers[port.node].get(port.port));
            readers.for_each(|reader| _ = of_reader.insert(*reader, index));
        }
        let values = vec![None; self.values.values.len()];
        let casts = vec![None; self.casts.len()];
        let mut pen = Pen { plan: self, paths, decisions, of_value, of_reader, nodes: Vec::new(), values, casts };
        pen.scope(0);
        for place in 0..self.values.scopes[0].outputs.len() {
            let value = self.values.scopes[0].outputs[place];
            let read = pen.read(value, Reader::Output { place });
            pen.nodes[read].returned = true;
        }
        pen.nodes
    }
}

fn described(elem: &Elem) -> String {
    float(*elem).map_or(elem.to_string(), |dtype| dtype.to_string())
}

/// The nodes drawn so far.
struct Pen<'a> {
    plan: &'a OnnxPlan<'a>,
    paths: Vec<String>,
    decisions: HashMap<&'a str, &'a NodeDecision>,
    /// The casts of each value, and the one that a reader reads.
    of_value: HashMap<usize, Vec<usize>>,
    of_reader: HashMap<Reader, usize>,
    nodes: Vec<Drawn>,
    /// The drawn node of each value and of each cast.
    values: Vec<Option<usize>>,
    casts: Vec<Option<usize>>,
}

impl Pen<'_> {
    /// Draws a graph. The nodes of a body come before the node that has it, which reads their outputs.
    fn scope(&mut self, scope: usize) {
        let plan = self.plan;
        let scope = &plan.values.scopes[scope];
        for &value in &scope.inputs {
            self.source(value);
        }
        for &index in &scope.nodes {
            let placed = &plan.values.nodes[index];
            placed.bodies.iter().for_each(|(_, body)| self.scope(*body));
            let inputs = placed.inputs.iter().enumerate();
            let mut reads: Vec<usize> = inputs
                .filter_map(|(place, value)| Some(self.read((*value)?, Reader::Node { node: index, place })))
                .collect();
            for &(_, body) in &placed.bodies {
                for (place, &value) in plan.values.scopes[body].outputs.iter().enumerate() {
                    reads.push(self.read(value, Reader::Body { scope: body, place }));
                }
            }
            self.node(index, placed, reads);
        }
    }

    /// Returns the node that a reader of a value reads: its cast, or its maker.
    fn read(&mut self, value: usize, reader: Reader) -> usize {
        let made = match self.values[value] {
            Some(made) => made,
            None => self.source(value),
        };
        self.of_reader.get(&reader).and_then(|&cast| self.casts[cast]).unwrap_or(made)
    }

    /// Draws an input or an initialiser.
    fn source(&mut self, value: usize) -> usize {
        let of = &self.plan.values.values[value];
        let is_input = of.origin == Origin::Input && of.initialiser.is_none();
        let (form, op) = if is_input { (Form::Input, "Input") } else { (Form::Other, "Initialiser") };
        let cell = match self.plan.values.scopes[of.scope].owner {
            Some(owner) => self.paths[owner].clone(),
            None => String::new(),
        };
        self.push(of.name.into(), op.into(), cell, form, Vec::new(), &[value])
    }

    fn node(&mut self, index: usize, placed: &Placed<'_>, reads: Vec<usize>) {
        let path = self.paths[index].clone();
        let mut cell = path.rsplit_once('.').map_or("", |(scope, _)| scope).to_string();
        if let (true, Some(owner)) = (cell.is_empty(), self.plan.values.scopes[placed.scope].owner) {
            cell.clone_from(&self.paths[owner]);
        }
        let outputs: Vec<usize> = placed.outputs.iter().flatten().copied().collect();
        let form = match &placed.node.op[..] {
            "Constant" => Form::Other,
            "Cast" if self.decisions.contains_key(&path[..]) => Form::Cast,
            _ => Form::Op,
        };
        let decision = self.decisions.get(&path[..]).copied();
        let at = self.push(path, placed.node.op.clone(), cell, form, reads, &outputs);
        let drawn = &mut self.nodes[at];
        if let Some(decision) = decision {
            drawn.why = decision.because.as_ref().map(|because| format!("{}: {because}", decision.dtype));
            drawn.list = self.plan.painted.graph_list(index);
        }
        if !drawn.label.contains(&drawn.op) {
            drawn.attributes.clone_from(&drawn.op);
        }
    }

    /// Draws what makes some values, and then the casts of these.
    fn push(
        &mut self,
        name: String,
        op: String,
        cell: String,
        form: Form,
        inputs: Vec<usize>,
        outputs: &[usize],
    ) -> usize {
        let at = self.nodes.len();
        let elems: Vec<_> = outputs.iter().map(|&value| after(self.plan, value)).collect();
        let label = name.strip_prefix(&format!("{cell}.")).unwrap_or(&name).to_string();
        self.nodes.push(Drawn {
            label,
            cell,
            outputs: elems.iter().filter(|elem| **elem != Elem::UNDEFINED).map(described).collect(),
            dtype: elems.first().map(|&elem| float(elem).unwrap_or(precast::DType::I64)),
            ..Drawn::new(name, op, form, inputs)
        });
        for &value in outputs {
            self.values[value] = Some(at);
            for cast in self.of_value.get(&value).cloned().unwrap_or_default() {
                let to = self.plan.casts[cast].to;
                self.casts[cast] = Some(self.nodes.len());
                let name = format!("{}-{to}", self.plan.values.values[value].name);
                let cast = Drawn::new(name, "Cast".into(), Form::Cast, vec![at]);
                self.nodes.push(Drawn { outputs: vec![to.to_string()], dtype: Some(to), ..cast });
            }
        }
        at
    }
}
