//! A model made ready to run: nodes with their attributes read, functions resolved, constants loaded.

use std::collections::{HashMap, HashSet};

use super::{
    data::{Sparse, load},
    ops,
    step::{Action, Attr, Body, Step},
    value::Item,
};
use crate::onnx::{
    OnnxModel,
    graph::{Attribute, Function, Graph, GraphField, Node},
    values::Values,
    wire::{Field, Source},
};
use precast::error::{Error, Result};

/// Nodes of all bodies together, at most: functions that call functions multiply.
const MOST: usize = 1 << 20;
/// Graphs and functions within each other, at most.
const DEEPEST: usize = 80;

/// Returns the graph of a model, ready to run.
pub(super) fn compile(model: &OnnxModel) -> Result<Body> {
    // Refuses names that nothing makes, or that are made too late.
    Values::of(model)?;
    let compiler = Compiler { model, left: std::cell::Cell::new(MOST) };
    compiler.graph(&model.graph, &Scope { opsets: &model.opsets, given: &HashMap::new(), depth: 0 })
}

/// Returns a node of a model, ready to run.
pub(super) fn step(model: &OnnxModel, node: &Node) -> Result<Step> {
    let scope = Scope { opsets: &model.opsets, given: &HashMap::new(), depth: 0 };
    Compiler { model, left: std::cell::Cell::new(MOST) }.step(node, &scope)
}

struct Compiler<'a> {
    model: &'a OnnxModel,
    left: std::cell::Cell<usize>,
}

/// The place in which a node is read.
#[derive(Clone, Copy)]
struct Scope<'a> {
    opsets: &'a HashMap<String, i64>,
    /// The attributes of a function's call.
    given: &'a HashMap<String, Attr>,
    depth: usize,
}

impl Scope<'_> {
    fn deeper(&self) -> Result<Self> {
        match self.depth {
            DEEPEST => Err(Error::unsupported(format!("more than {DEEPEST} graphs and functions within each other"))),
            depth => Ok(Scope { depth: depth + 1, ..*self }),
        }
    }
}

impl Compiler<'_> {
    fn graph(&self, graph: &Graph, scope: &Scope<'_>) -> Result<Body> {
        let scope = &scope.deeper()?;
        let mut body = Body::default();
        for stored in &graph.initialisers {
            body.initialisers.insert(stored.name.clone());
            body.constants.push((stored.name.clone(), load(self.model, stored)?));
        }
        for sparse in self.sparse(graph)? {
            let (name, item) = sparse.dense(self.model)?;
            body.initialisers.insert(name.clone());
            body.constants.push((name, item));
        }
        let inputs = graph.inputs.iter().filter(|input| !body.initialisers.contains(&input.name));
        body.inputs = inputs.map(|input| input.name.clone()).collect();
        body.outputs = graph.outputs.iter().map(|output| output.name.clone()).collect();
        self.steps(&graph.nodes, scope, &mut body)?;
        Ok(body)
    }

    fn sparse(&self, graph: &Graph) -> Result<Vec<Sparse>> {
        let mut found = Vec::new();
        let others = graph.fields.iter().filter(|(field, _)| *field == GraphField::Other);
        let mut files = self.model.files();
        for (_, span) in others.filter(|_| !graph.sparse.is_empty()) {
            files.model.fields(*span, |source, f| {
                if f.number == 15 {
                    found.push(Sparse::read(source, f.bytes()?)?);
                }
                Ok(())
            })?;
        }
        Ok(found)
    }

    fn function(&self, function: &Function, node: &Node, scope: &Scope<'_>) -> Result<Body> {
        let mut given: HashMap<String, Attr> = HashMap::new();
        let outside = Scope { given: &HashMap::new(), ..*scope };
        for usual in &function.attributes {
            given.extend(self.attribute(usual, &outside)?);
        }
        for attribute in &node.attributes {
            given.extend(self.attribute(attribute, scope)?);
        }
        let mut body = Body { inputs: function.inputs.clone(), outputs: function.outputs.clone(), ..Body::default() };
        let opsets = if function.opsets.is_empty() { scope.opsets } else { &function.opsets };
        self.steps(&function.nodes, &Scope { opsets, given: &given, ..scope.deeper()? }, &mut body)?;
        Ok(body)
    }

    fn steps(&self, nodes: &[Node], scope: &Scope<'_>, body: &mut Body) -> Result<()> {
        let mut made: HashSet<&str> = HashSet::new();
        for node in nodes {
            for name in node.outputs.iter().filter(|name| !name.is_empty()) {
                if !made.insert(name) || body.inputs.contains(name) || body.initialisers.contains(name) {
                    return Err(node.wrong(format!("it makes `{name}`, which is an input or made before")));
                }
            }
            let Some(left) = self.left.get().checked_sub(1) else {
                return Err(Error::unsupported(format!("more than {MOST} nodes, with those of functions")));
            };
            self.left.set(left);
            let step =
                self.step(node, scope).map_err(|e| e.context(format!("node `{}` ({})", node.label(), node.op)))?;
            if let Some((name, item)) = copy_of(&step, body) {
                body.initialisers.insert(name.clone());
                body.constants.push((name, item));
                continue;
            }
            match ops::constant_of(&step).map_err(|e| step.at(e))? {
                Some(item) => body.constants.extend(step.outputs.into_iter().take(1).map(|name| (name, item.clone()))),
                None => body.steps.push(step),
            }
        }
        Ok(())
    }

    fn step(&self, node: &Node, scope: &Scope<'_>) -> Result<Step> {
        let function = self.model.functions.iter().find(|function| function.is_of(node));
        let mut attributes = Vec::new();
        for attribute in node.attributes.iter().filter(|_| function.is_none()) {
            attributes.extend(self.attribute(attribute, scope)?);
        }
        let action = match (function, &node.domain[..], &node.op[..]) {
            (Some(function), ..) => Action::Function(Box::new(self.function(function, node, scope)?)),
            (None, "", "If") => Action::If,
            (None, "", "Loop") => Action::Loop,
            (None, "", "Scan") => Action::Scan,
            (None, "", "SequenceMap") => Action::Map,
            (None, "", op) => match ops::find(op) {
                Some(run) => Action::Op(run),
                None => Action::Refused("this op has no counterpart here".into()),
            },
            (None, domain, _) => {
                Action::Refused(format!("the domain `{domain}` is unknown, and the model has no such function"))
            }
        };
        Ok(Step {
            label: node.label().to_string(),
            name: node.name.clone(),
            op: node.op.clone(),
            scope: node.scope.clone(),
            opset: scope.opsets.get(&node.domain).copied().unwrap_or(1),
            inputs: node.inputs.clone(),
            outputs: node.outputs.clone(),
            attributes,
            action,
            cell: None,
            wide: false,
            last: vec![],
        })
    }

    /// Returns an attribute; `None` for one that a function's caller leaves out.
    fn attribute(&self, attribute: &Attribute, scope: &Scope<'_>) -> Result<Option<(String, Attr)>> {
        let raw = self.raw(attribute)?;
        let name = attribute.name.clone();
        if let Some(of) = raw.of_function {
            return Ok(scope.given.get(&of).map(|attr| (name, attr.clone())));
        }
        let [first, ..] = &attribute.graphs[..] else {
            let value = match &attribute.tensor {
                Some(stored) if raw.kind == 0 || raw.kind == 4 => match load(self.model, stored) {
                    Ok(item) => Attr::Tensor(item),
                    Err(e) if e.kind() == precast::ErrorKind::Unsupported => Attr::Other,
                    Err(e) => return Err(e),
                },
                _ => match &raw.sparse {
                    Some(sparse) => Attr::Tensor(sparse.dense(self.model)?.1),
                    None => raw.value(),
                },
            };
            return Ok(Some((name, value)));
        };
        Ok(Some((name, Attr::Body(Box::new(self.graph(first, scope)?)))))
    }

    fn raw(&self, attribute: &Attribute) -> Result<Raw> {
        let mut raw = Raw::default();
        self.model.files().model.fields(attribute.span, |source, f| raw.read(source, f))?;
        Ok(raw)
    }
}

/// Returns the copy of an initialiser under another name. torch writes equal weights once, although they are trained
/// apart, with a copy for each of the others; tied weights have one name.
fn copy_of(step: &Step, body: &Body) -> Option<(String, Item)> {
    let ([input], [output], "Identity") = (&step.inputs[..], &step.outputs[..], &step.op[..]) else { return None };
    if !body.initialisers.contains(input) {
        return None;
    }
    let (_, item) = body.constants.iter().find(|(name, item)| name == input && item.is_float())?;
    Some((output.clone(), item.clone()))
}

/// The fields of an attribute.
#[derive(Default)]
struct Raw {
    kind: i64,
    float: Option<f32>,
    int: Option<i64>,
    text: Option<String>,
    floats: Vec<f32>,
    ints: Vec<i64>,
    texts: Vec<String>,
    of_function: Option<String>,
    sparse: Option<Sparse>,
}

impl Raw {
    fn read(&mut self, source: &mut Source, f: &Field) -> Result<()> {
        match f.number {
            2 => self.float = source.floats(f)?.pop(),
            3 => self.int = Some(f.int()?),
            4 => self.text = Some(lossy(source, f)?),
            7 => self.floats.extend(source.floats(f)?),
            8 => source.ints(f, |number| self.ints.push(number))?,
            9 => self.texts.push(lossy(source, f)?),
            22 => self.sparse = Some(Sparse::read(source, f.bytes()?)?),
            20 => self.kind = f.int()?,
            21 => self.of_function = Some(source.text(f)?).filter(|name| !name.is_empty()),
            _ => {}
        }
        Ok(())
    }

    fn value(self) -> Attr {
        match self.kind {
            1 => Attr::Float(self.float.unwrap_or(0.0)),
            2 => Attr::Int(self.int.unwrap_or(0)),
            3 => Attr::Text(self.text.unwrap_or_default()),
            6 => Attr::Floats(self.floats),
            7 => Attr::Ints(self.ints),
            8 => Attr::Texts(self.texts),
            // Files of the first versions leave the type out.
            0 => match self {
                Raw { float: Some(number), .. } => Attr::Float(number),
                Raw { int: Some(number), .. } => Attr::Int(number),
                Raw { text: Some(text), .. } => Attr::Text(text),
                Raw { floats, .. } if !floats.is_empty() => Attr::Floats(floats),
                Raw { texts, .. } if !texts.is_empty() => Attr::Texts(texts),
                Raw { ints, .. } => Attr::Ints(ints),
            },
            _ => Attr::Other,
        }
    }
}

/// Returns a string of bytes, which need not be text.
fn lossy(source: &mut Source, f: &Field) -> Result<String> {
    Ok(String::from_utf8_lossy(&source.bytes(f.bytes()?)?).into_owned())
}
