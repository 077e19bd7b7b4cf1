//! The changes of a model that its plan asks for: casts, copies of weights, names.

use std::collections::{HashMap, HashSet};

use super::{
    painted::{Painted, Reader},
    plan::{OnnxPlan, after},
    schema,
    tensor::Elem,
    values::{Origin, Values},
};
use crate::{NewCast, Painting, Port};
use precast::DType;

/// A cast to be inserted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cast {
    pub name: String,
    pub from: String,
    pub into: String,
    pub to: Elem,
}

/// The new form of an initialiser or a constant.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Lowered {
    /// It becomes low under its name.
    InPlace,
    /// It stays, and a low copy with this name is put next to it.
    Copy(String),
    /// It becomes low under its name, which is that of an output, and a copy in float32 with this name is put next to it.
    Wide(String),
}

/// All changes.
#[derive(Default)]
pub(super) struct Edits {
    /// New names of what a node reads, by node and place.
    pub inputs: HashMap<(usize, usize), String>,
    /// New names of what nodes make, by value.
    pub made: HashMap<usize, String>,
    /// New names of the outputs of bodies, by scope and place.
    pub body_outputs: HashMap<(usize, usize), String>,
    /// Element types of the outputs of bodies.
    pub body_types: HashMap<(usize, usize), Elem>,
    pub before: HashMap<usize, Vec<Cast>>,
    pub after: HashMap<usize, Vec<Cast>>,
    /// Casts at the end of a graph, by scope.
    pub at_end: HashMap<usize, Vec<Cast>>,
    /// By scope and index.
    pub initialisers: HashMap<(usize, usize), Lowered>,
    /// Constants, by node.
    pub constants: HashMap<usize, Lowered>,
    /// Casts and constants of the model that become low, by node.
    pub retyped: HashSet<usize>,
    /// Element types of values, where they are known.
    pub types: HashMap<usize, Elem>,
}

impl Edits {
    /// Returns the number of casts.
    pub fn casts(&self) -> usize {
        let casts = |lists: &HashMap<usize, Vec<Cast>>| lists.values().map(Vec::len).sum::<usize>();
        casts(&self.before) + casts(&self.after) + casts(&self.at_end)
    }
}

/// Names that are in use.
struct Names<'a> {
    values: HashSet<&'a str>,
    nodes: HashSet<&'a str>,
    given: HashSet<String>,
}

impl Names<'_> {
    fn fresh(&mut self, base: &str, elem: Elem, of_values: bool) -> String {
        let taken = |name: &str| match of_values {
            true => self.values.contains(name) || self.given.contains(name),
            false => self.nodes.contains(name) || self.given.contains(name),
        };
        let first = format!("{base}_{elem}");
        let name = match taken(&first) {
            false => first,
            true => (2..).map(|n| format!("{first}_{n}")).find(|name| !taken(name)).unwrap_or(first),
        };
        self.given.insert(name.clone());
        name
    }
}

/// Derives the changes from a plan. With `explicit`, low ops compute in float32 and their results are rounded by a pair
/// of casts.
pub(super) fn edits(plan: &OnnxPlan<'_>, explicit: bool) -> Edits {
    let OnnxPlan { painted, painting, casts, .. } = plan;
    let values = &plan.values;
    let names = Names {
        values: values.values.iter().map(|value| value.name).collect(),
        nodes: values.nodes.iter().map(|placed| &placed.node.name[..]).collect(),
        given: HashSet::new(),
    };
    let consumers = painted.graph.consumers();
    let mut editor =
        Editor { values, painted, painting, low: plan.dtype, explicit, consumers, names, edits: Edits::default() };
    if explicit {
        editor.round_results();
    } else {
        editor.retype();
        editor.types(plan);
    }
    for cast in casts {
        editor.cast(cast);
    }
    editor.edits
}

fn is_output(reader: &Reader) -> bool {
    matches!(reader, Reader::Output { .. })
}

struct Editor<'a> {
    values: &'a Values<'a>,
    painted: &'a Painted,
    painting: &'a Painting,
    low: DType,
    explicit: bool,
    consumers: HashMap<Port, Vec<Port>>,
    names: Names<'a>,
    edits: Edits,
}

impl Editor<'_> {
    fn low(&self) -> Elem {
        schema::elem(self.low)
    }

    /// Marks the casts and constants of the model that become low, and initialisers of inputs that do.
    fn retype(&mut self) {
        for (value, of) in self.values.values.iter().enumerate() {
            if !self.painted.is_low(self.painting, value) {
                continue;
            }
            match (of.origin, of.initialiser) {
                (Origin::Node { node }, _) => {
                    let op = &self.values.nodes[node].node.op[..];
                    if ["Cast", "ConstantOfShape"].contains(&op) {
                        self.edits.retyped.insert(node);
                    }
                }
                (Origin::Input, Some(index)) => {
                    self.edits.initialisers.insert((of.scope, index), Lowered::InPlace);
                }
                _ => {}
            }
        }
    }

    fn types(&mut self, plan: &OnnxPlan<'_>) {
        for value in 0..self.values.values.len() {
            let elem = after(plan, value);
            if elem != Elem::UNDEFINED && elem.bits().is_some() {
                self.edits.types.insert(value, elem);
            }
        }
        for (node, readers) in self.painted.readers.iter().enumerate() {
            for (port, reader) in readers.iter().enumerate() {
                let Reader::Body { scope, place } = *reader else { continue };
                let attr = self.painted.graph.nodes[node].in_types[port];
                let value = self.values.scopes[scope].outputs[place];
                let elem = if self.painting.is_low(node, attr) { self.low() } else { plan.elems[value] };
                if elem.bits().is_some() {
                    self.edits.body_types.insert((scope, place), elem);
                }
            }
        }
    }

    /// Rounds the results of low nodes by a pair of casts.
    fn round_results(&mut self) {
        for (index, placed) in self.values.nodes.iter().enumerate() {
            if !placed.bodies.is_empty() {
                continue;
            }
            for &value in placed.outputs.iter().flatten() {
                if !self.painted.is_low(self.painting, value) {
                    continue;
                }
                let name = self.values.values[value].name;
                let made = self.names.fresh(name, Elem::F32, true);
                let pair = self.pair(&made, name);
                self.edits.made.insert(value, made);
                self.edits.after.entry(index).or_default().extend(pair);
            }
        }
    }

    /// Returns the casts that round a value.
    fn pair(&mut self, from: &str, into: &str) -> Vec<Cast> {
        let low = self.low();
        let between = self.names.fresh(into, low, true);
        vec![self.one(from, &between, low), self.one(&between, into, Elem::F32)]
    }

    fn one(&mut self, from: &str, into: &str, to: Elem) -> Cast {
        let name = self.names.fresh(&format!("Cast_{from}"), to, false);
        Cast { name, from: from.into(), into: into.into(), to }
    }

    fn make(&mut self, from: &str, into: &str, to: Elem) -> Vec<Cast> {
        match self.explicit {
            true => self.pair(from, into),
            false => vec![self.one(from, into, to)],
        }
    }

    fn cast(&mut self, cast: &NewCast) {
        let Some(&value) = self.painted.values.get(&cast.of) else { return };
        let readers: Vec<(Reader, bool)> = self.readers(cast.of, &cast.consumers);
        let wanted: Vec<Reader> = readers.iter().filter(|(_, wanted)| *wanted).map(|(reader, _)| *reader).collect();
        match cast.to {
            DType::F32 if self.explicit => {}
            DType::F32 => self.widen(value, wanted, &readers),
            _ => self.lower(value, wanted, &readers),
        }
    }

    /// Returns the readers of an output of the painted graph, each with whether it is among the given ones.
    fn readers(&self, of: Port, wanted: &[Port]) -> Vec<(Reader, bool)> {
        let wanted: HashSet<Port> = wanted.iter().copied().collect();
        let all = self.consumers.get(&of).map_or(&[][..], Vec::as_slice);
        let reader = |port: &Port| Some((*self.painted.readers[port.node].get(port.port)?, wanted.contains(port)));
        all.iter().filter_map(reader).collect()
    }

    /// Makes a float32 value low for some of its readers.
    fn lower(&mut self, value: usize, wanted: Vec<Reader>, readers: &[(Reader, bool)]) {
        let of = &self.values.values[value];
        if let (Origin::Node { node }, true) = (of.origin, wanted.iter().any(is_output)) {
            return self.cast_output(value, node, readers, &wanted, self.low());
        }
        let constant = match of.origin {
            // A sparse one is cast, as a sparse initialiser is.
            Origin::Node { node } => Some(node).filter(|&node| {
                let maker = self.values.nodes[node].node;
                maker.op == "Constant" && maker.attribute("sparse_value").is_none()
            }),
            _ => None,
        };
        let is_weight = of.origin == Origin::Initialiser || constant.is_some();
        if !is_weight || self.explicit {
            return self.insert(value, &wanted, of.name, self.low());
        }
        // A body cannot give a value of the graph around it.
        let (inside, ends): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|reader| self.may_share(value, reader));
        let lowered = match inside.len() == readers.len() {
            true => Lowered::InPlace,
            false if inside.is_empty() => return self.insert(value, &ends, of.name, self.low()),
            // An output keeps its name, so the readers in float32 get another one.
            false if of.initialiser.is_some() && inside.iter().any(is_output) => {
                let name = self.names.fresh(of.name, Elem::F32, true);
                let wide = readers.iter().filter(|(_, wanted)| !wanted).map(|(reader, _)| *reader);
                wide.for_each(|reader| self.rename(&reader, &name));
                Lowered::Wide(name)
            }
            false => Lowered::Copy(self.names.fresh(of.name, self.low(), true)),
        };
        if let Lowered::Copy(name) = &lowered {
            inside.iter().for_each(|reader| self.rename(reader, name));
        } else {
            self.edits.types.insert(value, self.low());
        }
        match (constant, of.initialiser) {
            (Some(node), _) => drop(self.edits.constants.insert(node, lowered)),
            (None, Some(index)) => drop(self.edits.initialisers.insert((of.scope, index), lowered)),
            (None, None) => {}
        }
        self.insert(value, &ends, of.name, self.low());
    }

    /// Casts an output of the model: the cast gets the name of the output, and what the node makes another one, which
    /// all readers but those of the cast read.
    fn cast_output(&mut self, value: usize, node: usize, readers: &[(Reader, bool)], cast: &[Reader], to: Elem) {
        let name = self.values.values[value].name;
        let was = if to == Elem::F32 { self.low() } else { Elem::F32 };
        let made = self.names.fresh(name, was, true);
        for (reader, _) in readers.iter().filter(|(reader, _)| !cast.contains(reader)) {
            self.rename(reader, &made);
        }
        let inserted = self.one(&made, name, to);
        self.edits.after.entry(node).or_default().push(inserted);
        self.edits.made.insert(value, made);
        self.edits.types.insert(value, to);
    }

    /// Makes a low value float32 for some of its readers.
    fn widen(&mut self, value: usize, wanted: Vec<Reader>, readers: &[(Reader, bool)]) {
        // A cast of the model reads the low value as well as the wide one.
        let is_cast = |reader: &Reader| match reader {
            Reader::Node { node, .. } => self.values.nodes[*node].node.op == "Cast",
            _ => false,
        };
        let wanted: Vec<Reader> = wanted.into_iter().filter(|reader| !is_cast(reader)).collect();
        let of = &self.values.values[value];
        let Origin::Node { node } = of.origin else { return self.insert(value, &wanted, of.name, Elem::F32) };
        if !wanted.iter().any(is_output) {
            return self.insert(value, &wanted, of.name, Elem::F32);
        }
        self.cast_output(value, node, readers, &wanted, Elem::F32);
    }

    /// Inserts a cast of a value for some readers: one for all of them, but for those that need one in their body.
    fn insert(&mut self, value: usize, readers: &[Reader], from: &str, to: Elem) {
        let (shared, ends): (Vec<_>, Vec<_>) =
            readers.iter().copied().partition(|reader| self.may_share(value, reader));
        if !shared.is_empty() {
            let into = self.names.fresh(from, to, true);
            shared.iter().for_each(|reader| self.rename(reader, &into));
            let casts = self.make(from, &into, to);
            let of = &self.values.values[value];
            let place = match of.origin {
                Origin::Node { node } => self.edits.after.entry(node).or_default(),
                _ => match shared.iter().filter_map(|reader| self.first(of.scope, reader)).min() {
                    Some(node) => self.edits.before.entry(node).or_default(),
                    None => self.edits.at_end.entry(of.scope).or_default(),
                },
            };
            place.extend(casts);
        }
        for reader in ends {
            let Reader::Body { scope, place } = reader else { continue };
            let into = self.names.fresh(from, to, true);
            let casts = self.make(from, &into, to);
            self.edits.at_end.entry(scope).or_default().extend(casts);
            self.edits.body_outputs.insert((scope, place), into);
        }
    }

    /// Returns whether a reader may read the cast behind the maker of a value: a body gives what it makes itself.
    fn may_share(&self, value: usize, reader: &Reader) -> bool {
        let of = &self.values.values[value];
        match reader {
            Reader::Body { scope, .. } => *scope == of.scope && matches!(of.origin, Origin::Node { .. }),
            _ => true,
        }
    }

    /// Returns the node of a scope in which a reader is, or that it is.
    fn first(&self, scope: usize, reader: &Reader) -> Option<usize> {
        let mut node = match reader {
            Reader::Node { node, .. } => *node,
            Reader::Body { scope: body, .. } if *body != scope => self.values.scopes[*body].owner?,
            _ => return None,
        };
        while self.values.nodes[node].scope != scope {
            node = self.values.scopes[self.values.nodes[node].scope].owner?;
        }
        Some(node)
    }

    fn rename(&mut self, reader: &Reader, name: &str) {
        match *reader {
            Reader::Node { node, place } => drop(self.edits.inputs.insert((node, place), name.into())),
            Reader::Body { scope, place } => drop(self.edits.body_outputs.insert((scope, place), name.into())),
            Reader::Output { .. } => {}
        }
    }
}
