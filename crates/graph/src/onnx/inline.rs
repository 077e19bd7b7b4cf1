//! Calls of the model's functions, replaced by the functions' nodes, as runtimes replace them: decisions and facts then
//! reach the nodes inside. The new nodes are bytes behind those of the file.
//!
//! A round replaces every call; the next one replaces the calls among the new nodes. A function whose ops have other
//! versions than in the model stays a call.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{
    graph::{Attribute, Function, Graph, GraphField, Node},
    model::OnnxModel,
    schema::Schema,
    wire::{Field, Source, Span, put_bytes},
};
use precast::error::{Error, Result};

/// Nodes that calls become, at most: functions that call functions multiply.
const MOST: usize = 1 << 20;

/// Functions that an error about a circle names, at most.
const NAMED: usize = 4;

impl OnnxModel {
    /// Replaces the calls of functions.
    ///
    /// # Errors
    /// [`ErrorKind::Model`](precast::ErrorKind::Model) for functions that call each other in a circle, have one name or that
    /// of an op, calls with too many inputs or outputs, and calls that become more than 2^20 nodes.
    pub(super) fn inline(&mut self) -> Result<()> {
        if self.functions.is_empty() {
            return Ok(());
        }
        self.check_names()?;
        let sizes = sizes(&self.functions)?;
        let calls = calls(&self.graph.nodes, &self.functions);
        if calls.into_iter().map(|called| sizes[called]).fold(0, usize::saturating_add) > MOST {
            return Err(Error::model(format!("calls of functions become more than {MOST} nodes")));
        }
        let fits = |function: &&Function| has_versions_of(function, &self.functions, &self.opsets);
        let functions: Vec<&Function> = self.functions.iter().filter(fits).collect();
        // A function that stays may call any other one.
        let keeps = functions.len() < self.functions.len();
        let mut inliner = Inliner { functions, names: BTreeSet::new() };
        inliner.note(&self.graph);
        let mut files = self.files.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        while inliner.is_called(&self.graph) {
            inliner.round(&mut self.graph, &mut files.model)?;
            self.is_inlined = true;
        }
        drop(files);
        if !keeps {
            self.functions.clear();
        }
        Ok(())
    }

    /// Refuses two functions with one name, and nodes that could be an op or a function.
    fn check_names(&self) -> Result<()> {
        let mut names = HashSet::new();
        if let Some(twice) = self.functions.iter().find(|of| !names.insert((&of.domain, &of.name, &of.overload))) {
            let domain = if twice.domain.is_empty() { String::new() } else { format!("{}.", twice.domain) };
            let words = "two functions of the model have the name";
            return Err(Error::model(format!("{words} `{domain}{}`; expected one for each name", twice.name)));
        }
        let is_op = |of: &&Function| Schema::of(&of.domain, &of.name, i64::MAX).is_some();
        for function in self.functions.iter().filter(is_op) {
            let nodes = std::iter::once(&self.graph.nodes).chain(self.functions.iter().map(|of| &of.nodes));
            if let Some(node) = nodes.flat_map(|nodes| all_nodes(nodes)).find(|node| function.is_of(node)) {
                return Err(node.wrong(
                    "a function of the model has the name of this op, and runtimes differ in the one that a node means; \
                     rename the function",
                ));
            }
        }
        Ok(())
    }
}

/// Returns the number of nodes that a call of each function becomes.
///
/// # Errors
/// [`ErrorKind::Model`](precast::ErrorKind::Model) for a function that calls itself, also by others.
fn sizes(functions: &[Function]) -> Result<Vec<usize>> {
    let calls: Vec<Vec<usize>> = functions.iter().map(|function| calls(&function.nodes, functions)).collect();
    let mut sizes: Vec<Option<usize>> = vec![None; functions.len()];
    // The functions on the way, each with the number of its calls that were followed.
    let mut way: Vec<(usize, usize)> = Vec::new();
    for first in 0..functions.len() {
        way.push((first, 0));
        while let Some((at, followed)) = way.last_mut() {
            let at = *at;
            let next = calls[at].get(*followed).copied().filter(|_| sizes[at].is_none());
            *followed += 1;
            let Some(next) = next else {
                let inner = calls[at].iter().filter_map(|&called| sizes[called]);
                sizes[at] = Some(inner.fold(functions[at].nodes.len(), usize::saturating_add));
                way.pop();
                continue;
            };
            if let Some(start) = way.iter().position(|(on_way, _)| *on_way == next) {
                let circle: Vec<&str> = way[start..].iter().map(|(at, _)| &functions[*at].name[..]).collect();
                let named = circle[..circle.len().min(NAMED)].join(" > ");
                let more = if circle.len() > NAMED { " > ..." } else { "" };
                let words = format!("the function `{0}` calls itself: {named}{more} > {0}", circle[0]);
                return Err(Error::model(words));
            }
            way.push((next, 0));
        }
    }
    Ok(sizes.into_iter().flatten().collect())
}

/// Returns the functions that some nodes call, once for each call.
fn calls(nodes: &[Node], functions: &[Function]) -> Vec<usize> {
    let called = |node: &Node| functions.iter().position(|function| function.is_of(node));
    all_nodes(nodes).into_iter().filter_map(called).collect()
}

/// Returns the nodes of a list, and those in their bodies.
fn all_nodes(nodes: &[Node]) -> Vec<&Node> {
    let mut all: Vec<&Node> = nodes.iter().collect();
    let mut at = 0;
    while let Some(&node) = all.get(at) {
        all.extend(node.bodies().flat_map(|(_, graph)| &graph.nodes));
        at += 1;
    }
    all
}

/// Returns whether the ops of a function are the same in the model.
fn has_versions_of(function: &Function, functions: &[Function], opsets: &HashMap<String, i64>) -> bool {
    all_nodes(&function.nodes).into_iter().all(|node| {
        let here = opsets.get(&node.domain).copied();
        let there = function.opsets.get(&node.domain).copied().or(here);
        let schema = |version: Option<i64>| Schema::of(&node.domain, &node.op, version?).map(std::ptr::from_ref);
        let is_same = here == there || schema(here).is_some() && schema(here) == schema(there);
        is_same || functions.iter().any(|function| function.is_of(node))
    })
}

struct Inliner<'a> {
    functions: Vec<&'a Function>,
    /// All names of values.
    names: BTreeSet<String>,
}

impl<'a> Inliner<'a> {
    fn note(&mut self, graph: &Graph) {
        let infos = [&graph.inputs, &graph.outputs, &graph.values];
        self.names.extend(infos.into_iter().flatten().map(|info| info.name.clone()));
        let tensors = graph.initialisers.iter().chain(&graph.sparse);
        self.names.extend(tensors.map(|tensor| tensor.name.clone()));
        for node in &graph.nodes {
            self.names.extend(node.outputs.iter().cloned());
            node.bodies().for_each(|(_, body)| self.note(body));
        }
    }

    fn called(&self, node: &Node) -> Option<&'a Function> {
        self.functions.iter().find(|function| function.is_of(node)).copied()
    }

    fn is_called(&self, graph: &Graph) -> bool {
        all_nodes(&graph.nodes).into_iter().any(|node| self.called(node).is_some())
    }

    /// Replaces the calls in the graph of a model by nodes behind the file.
    fn round(&mut self, graph: &mut Graph, source: &mut Source) -> Result<()> {
        let (nodes, fields) = (std::mem::take(&mut graph.nodes), std::mem::take(&mut graph.fields));
        let mut nodes: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
        for (field, span) in fields {
            let node = match field {
                GraphField::Node(index) => nodes[index].take(),
                _ => None,
            };
            let Some(node) = node else {
                graph.fields.push((field, span));
                continue;
            };
            let new = self.node(&node, source)?;
            let Some(new) = new else {
                graph.fields.push((GraphField::Node(graph.nodes.len()), span));
                graph.nodes.push(node);
                continue;
            };
            for bytes in new {
                let mut field = Vec::new();
                put_bytes(&mut field, 1, &bytes);
                let whole = source.add(&field);
                let node = Node::read_alone(source, whole.after(whole.len - bytes.len() as u64))?;
                graph.fields.push((GraphField::Node(graph.nodes.len()), whole));
                graph.nodes.push(node);
            }
        }
        Ok(())
    }

    /// Returns the nodes that take the place of one; `None` for one that stays.
    fn node(&mut self, node: &Node, source: &mut Source) -> Result<Option<Vec<Vec<u8>>>> {
        if let Some(function) = self.called(node) {
            return self.expanded(function, node, source).map(Some);
        }
        if !node.bodies().any(|(_, body)| self.is_called(body)) {
            return Ok(None);
        }
        let mut attributes = node.attributes.iter();
        let new = rewritten(source, node.span, &mut |source, f, out| {
            let graphs = match f.number {
                5 => attributes.next().map_or(&[][..], |attribute| &attribute.graphs),
                _ => &[],
            };
            if graphs.is_empty() {
                return Ok(false);
            }
            let mut graphs = graphs.iter();
            let attribute = rewritten(source, f.bytes()?, &mut |source, f, out| {
                let graph = if matches!(f.number, 6 | 11) { graphs.next() } else { None };
                if let Some(graph) = graph {
                    put_bytes(out, f.number, &self.body(graph, source)?);
                }
                Ok(graph.is_some())
            })?;
            put_bytes(out, 5, &attribute);
            Ok(true)
        })?;
        Ok(Some(vec![new]))
    }

    /// Returns the message of a body without calls.
    fn body(&mut self, graph: &Graph, source: &mut Source) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for (field, span) in &graph.fields {
            let new = match field {
                GraphField::Node(index) => self.node(&graph.nodes[*index], source)?,
                _ => None,
            };
            match new {
                Some(new) => new.iter().for_each(|node| put_bytes(&mut bytes, 1, node)),
                None => source.append(*span, &mut bytes)?,
            }
        }
        Ok(bytes)
    }

    /// Returns the nodes of a function for a call.
    fn expanded(&mut self, function: &'a Function, call: &Node, source: &mut Source) -> Result<Vec<Vec<u8>>> {
        for (what, given, taken) in
            [("inputs", &call.inputs, &function.inputs), ("outputs", &call.outputs, &function.outputs)]
        {
            if given.len() > taken.len() {
                let words = format!("it has {} {what}, and the function has {}", given.len(), taken.len());
                return Err(call.wrong(words));
            }
        }
        let given = call.inputs.iter().map(String::as_str).chain(std::iter::repeat(""));
        let mut names: HashMap<&str, String> =
            function.inputs.iter().map(|name| &name[..]).zip(given.map(str::to_string)).collect();
        // An output that is an input, or is given twice, needs a node.
        let mut copies = Vec::new();
        for (own, outer) in function.outputs.iter().zip(&call.outputs).filter(|(_, outer)| !outer.is_empty()) {
            match names.get(&own[..]) {
                Some(made) => copies.push((made.clone(), outer)),
                None => drop(names.insert(own, outer.clone())),
            }
        }
        let first = call.outputs.iter().find(|name| !name.is_empty()).map_or(&function.name[..], |name| name);
        let prefix = self.prefix(first);
        let mut scope = Inside { function, call, names, prefix, new: &mut self.names };
        let mut nodes = Vec::new();
        for node in &function.nodes {
            nodes.push(scope.node(node.span, source)?);
        }
        nodes.extend(copies.into_iter().map(|(from, into)| {
            let mut node = Vec::new();
            put_bytes(&mut node, 1, from.as_bytes());
            put_bytes(&mut node, 2, into.as_bytes());
            put_bytes(&mut node, 4, b"Identity");
            node
        }));
        Ok(nodes)
    }

    /// Returns the start of the names inside a call, with which no name in use starts.
    fn prefix(&self, base: &str) -> String {
        let is_free = |prefix: &String| {
            self.names.range(prefix.clone()..).next().is_none_or(|name| !name.starts_with(&prefix[..]))
        };
        let first = format!("{base}/");
        if is_free(&first) {
            return first;
        }
        (2..).map(|n| format!("{base}_{n}/")).find(is_free).unwrap_or(first)
    }
}

/// A function's message as one call has it.
struct Inside<'a> {
    function: &'a Function,
    call: &'a Node,
    /// The names of inputs and outputs at the call.
    names: HashMap<&'a str, String>,
    prefix: String,
    new: &'a mut BTreeSet<String>,
}

impl Inside<'_> {
    fn name(&mut self, own: &str) -> String {
        match self.names.get(own) {
            _ if own.is_empty() => String::new(),
            Some(outer) => outer.clone(),
            None => {
                let name = format!("{}{own}", self.prefix);
                if !self.new.contains(&name) {
                    self.new.insert(name.clone());
                }
                name
            }
        }
    }

    fn node(&mut self, span: Span, source: &mut Source) -> Result<Vec<u8>> {
        let mut is_scoped = false;
        let mut node = rewritten(source, span, &mut |source, f, out| {
            match f.number {
                1 | 2 => put_bytes(out, f.number, self.name(&source.text(f)?).as_bytes()),
                3 => {
                    let own = source.text(f)?;
                    let name = if own.is_empty() { own } else { format!("{}/{own}", self.call.label()) };
                    put_bytes(out, 3, name.as_bytes());
                }
                5 => {
                    if let Some(attribute) = self.attribute(f.bytes()?, source)? {
                        put_bytes(out, 5, &attribute);
                    }
                }
                number => {
                    is_scoped |= number == 9;
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        // A node without notes has those of the call, such as the path of its module.
        source.fields(self.call.span, |source, f| match f.number {
            9 if !is_scoped => source.append(f.whole, &mut node),
            _ => Ok(()),
        })?;
        Ok(node)
    }

    /// Returns an attribute; `None` for one whose value the call leaves out.
    fn attribute(&mut self, span: Span, source: &mut Source) -> Result<Option<Vec<u8>>> {
        let (mut name, mut reference) = (String::new(), String::new());
        source.fields(span, |source, f| {
            match f.number {
                1 => name = source.text(f)?,
                21 => reference = source.text(f)?,
                _ => {}
            }
            Ok(())
        })?;
        if reference.is_empty() {
            return rewritten(source, span, &mut |source, f, out| {
                let is_graph = matches!(f.number, 6 | 11);
                if is_graph {
                    put_bytes(out, f.number, &self.graph(f.bytes()?, source)?);
                }
                Ok(is_graph)
            })
            .map(Some);
        }
        let is_meant = |attribute: &&Attribute| attribute.name == reference;
        let given = self.call.attributes.iter().find(is_meant).or(self.function.attributes.iter().find(is_meant));
        let Some(given) = given else { return Ok(None) };
        rewritten(source, given.span, &mut |_, f, out| {
            if f.number == 1 {
                put_bytes(out, 1, name.as_bytes());
            }
            Ok(f.number == 1)
        })
        .map(Some)
    }

    /// Returns a body with the names of the call.
    fn graph(&mut self, span: Span, source: &mut Source) -> Result<Vec<u8>> {
        rewritten(source, span, &mut |source, f, out| {
            let new = match f.number {
                1 => self.node(f.bytes()?, source)?,
                5 => self.renamed(f.bytes()?, 8, source)?,
                11..=13 => self.renamed(f.bytes()?, 1, source)?,
                15 => rewritten(source, f.bytes()?, &mut |source, f, out| {
                    if f.number == 1 {
                        put_bytes(out, 1, &self.renamed(f.bytes()?, 8, source)?);
                    }
                    Ok(f.number == 1)
                })?,
                _ => return Ok(false),
            };
            put_bytes(out, f.number, &new);
            Ok(true)
        })
    }

    /// Returns a message with another name in one of its fields.
    fn renamed(&mut self, span: Span, field: u32, source: &mut Source) -> Result<Vec<u8>> {
        rewritten(source, span, &mut |source, f, out| {
            if f.number == field {
                put_bytes(out, field, self.name(&source.text(f)?).as_bytes());
            }
            Ok(f.number == field)
        })
    }
}

type Change<'a> = dyn FnMut(&mut Source, &Field, &mut Vec<u8>) -> Result<bool> + 'a;

/// Returns a message whose fields `change` writes, or leaves as they are by returning `false`.
fn rewritten(source: &mut Source, message: Span, change: &mut Change<'_>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    source.fields(message, |source, f| match change(source, f, &mut out)? {
        true => Ok(()),
        false => source.append(f.whole, &mut out),
    })?;
    Ok(out)
}
