//! The messages of a model with the changes of a plan. A message that nothing changes keeps its bytes.

use std::collections::HashSet;

use super::{
    edits::{Cast, Edits, Lowered},
    exact::roots,
    graph::{Attribute, GraphField, Node, Type, ValueInfo},
    model::OnnxModel,
    numbers::{Constant, constant},
    pieces::{Body, Numbers},
    plan::OnnxPlan,
    schema,
    tensor::{Elem, field},
    values::{Placed, Values},
    wire::{Span, put_bytes, put_int},
};
use precast::{DType, error::Result};

/// Builder of changed messages.
pub(super) struct Rebuilder<'a> {
    values: &'a Values<'a>,
    edits: &'a Edits,
    pub low: DType,
    pub explicit: bool,
    pub external: Option<u64>,
    pub location: &'a str,
    /// Starts of the tensors from which lengths and conditions are read.
    pub lengths: HashSet<u64>,
    /// The tensors of the data file, with their places in it.
    pub outside: Vec<(Numbers<'a>, u64)>,
}

impl<'a> Rebuilder<'a> {
    pub fn new(
        plan: &'a OnnxPlan<'a>,
        edits: &'a Edits,
        explicit: bool,
        external: Option<u64>,
        location: &'a str,
    ) -> Self {
        let values = &plan.values;
        let lengths = values.nodes.iter().flat_map(|placed| roots(values, placed, &plan.elems));
        let lengths = lengths.filter_map(|value| Some(values.tensor(value)?.span.start)).collect();
        Rebuilder { values, edits, low: plan.dtype, explicit, external, location, lengths, outside: Vec::new() }
    }

    fn model(&self) -> &'a OnnxModel {
        self.values.model
    }

    /// Returns the message of a graph; `None` when nothing in it changes.
    pub fn graph(&mut self, scope: usize) -> Result<Option<Body<'a>>> {
        let values = self.values;
        let of = &values.scopes[scope];
        let graph = of.graph;
        let mut body = Body::default();
        // Nodes that took the place of calls are not in the message.
        let mut changed = scope == 0 && self.model().is_inlined;
        let last = graph.fields.iter().rposition(|(field, _)| matches!(field, GraphField::Node(_)));
        for (at, (field, span)) in graph.fields.iter().enumerate() {
            let new = match *field {
                GraphField::Node(index) => {
                    let node = of.nodes[index];
                    let before = self.edits.before.get(&node);
                    changed |= before.is_some();
                    self.casts(&mut body, before);
                    match self.node(node)? {
                        Some(node) => {
                            body.message(1, node);
                            changed = true;
                        }
                        None => body.copy(*span),
                    }
                    let copy = self.constant_copy(node)?;
                    let after = self.edits.after.get(&node);
                    changed |= copy.is_some() || after.is_some();
                    if let Some(copy) = copy {
                        body.message(1, copy);
                    }
                    self.casts(&mut body, after);
                    if last == Some(at) {
                        let end = self.edits.at_end.get(&scope);
                        changed |= end.is_some();
                        self.casts(&mut body, end);
                    }
                    continue;
                }
                GraphField::Initialiser(index) => {
                    let tensor = &graph.initialisers[index];
                    match self.edits.initialisers.get(&(scope, index)) {
                        Some(Lowered::InPlace) => Some((5, self.tensor(tensor, &tensor.name, true)?)),
                        Some(Lowered::Wide(name)) => {
                            let wide = self.tensor(tensor, name, false)?;
                            body.message(5, wide);
                            Some((5, self.tensor(tensor, &tensor.name, true)?))
                        }
                        Some(Lowered::Copy(name)) => {
                            let copy = self.tensor(tensor, name, true)?;
                            body.message(5, copy);
                            changed = true;
                            self.moved(tensor)?.map(|tensor| (5, tensor))
                        }
                        None => self.moved(tensor)?.map(|tensor| (5, tensor)),
                    }
                }
                GraphField::Input(index) => {
                    self.value(&graph.inputs[index], Some(of.inputs[index]), None, None)?.map(|value| (11, value))
                }
                GraphField::Output(index) => {
                    let name = self.edits.body_outputs.get(&(scope, index)).map(|name| &name[..]);
                    let elem = self.edits.body_types.get(&(scope, index)).copied();
                    let value = Some(of.outputs[index]);
                    self.value(&graph.outputs[index], value, elem, name)?.map(|value| (12, value))
                }
                GraphField::Value(index) => {
                    let info = &graph.values[index];
                    self.value(info, of.names.get(&info.name[..]).copied(), None, None)?.map(|value| (13, value))
                }
                GraphField::Other => None,
            };
            match new {
                Some((number, message)) => {
                    body.message(number, message);
                    changed = true;
                }
                None => body.copy(*span),
            }
        }
        // A body without nodes may need casts as well.
        if last.is_none() && self.edits.at_end.contains_key(&scope) {
            self.casts(&mut body, self.edits.at_end.get(&scope));
            changed = true;
        }
        Ok(changed.then_some(body))
    }

    fn casts(&self, body: &mut Body<'_>, casts: Option<&Vec<Cast>>) {
        for cast in casts.into_iter().flatten() {
            let mut node = Vec::new();
            put_bytes(&mut node, 1, cast.from.as_bytes());
            put_bytes(&mut node, 2, cast.into.as_bytes());
            put_bytes(&mut node, 3, cast.name.as_bytes());
            put_bytes(&mut node, 4, b"Cast");
            put_bytes(&mut node, 5, &self.cast_to(cast.to));
            body.field(1, &node);
            let graphs = self.values.scopes.iter().map(|scope| scope.graph);
            let mut known = graphs.flat_map(|graph| graph.outputs.iter().chain(&graph.values));
            if self.model().opset() < 6 && !known.any(|value| value.name == cast.into) {
                body.field(13, &declared(cast));
            }
        }
    }

    /// Returns the attribute `to` of a cast: before opset 6 the name of the type, from then on its number.
    fn cast_to(&self, to: Elem) -> Vec<u8> {
        let mut attribute = Vec::new();
        put_bytes(&mut attribute, 1, b"to");
        if self.model().opset() < 6 {
            let name = if to == Elem::F32 { "FLOAT" } else { "FLOAT16" };
            put_bytes(&mut attribute, 4, name.as_bytes());
            put_int(&mut attribute, 20, 3);
        } else {
            put_int(&mut attribute, 3, i64::from(to.0));
            put_int(&mut attribute, 20, 2);
        }
        attribute
    }

    /// Returns the numbers of the fields of a message, with their bytes.
    pub fn fields(&self, message: Span) -> Result<Vec<(u32, Span)>> {
        let mut fields = Vec::new();
        self.model().files().model.fields(message, |_, f| {
            fields.push((f.number, f.whole));
            Ok(())
        })?;
        Ok(fields)
    }

    /// Returns the message of a node; `None` when nothing in it changes.
    fn node(&mut self, index: usize) -> Result<Option<Body<'a>>> {
        let values = self.values;
        let placed = &values.nodes[index];
        let node = placed.node;
        let renamed_output = |place: usize| {
            let value = placed.output(place)?;
            self.edits.made.get(&value)
        };
        let renames = (0..node.inputs.len()).any(|place| self.edits.inputs.contains_key(&(index, place)))
            || (0..node.outputs.len()).any(|place| renamed_output(place).is_some());
        let retyped = self.edits.retyped.contains(&index);
        let in_place = self.edits.constants.get(&index) == Some(&Lowered::InPlace);
        let mut attributes: Vec<Option<Body<'a>>> = Vec::new();
        let mut bodies = placed.bodies.iter().map(|(_, body)| *body);
        for attribute in &node.attributes {
            attributes.push(self.attribute(attribute, &mut bodies)?);
        }
        if !renames && !retyped && !in_place && attributes.iter().all(Option::is_none) {
            return Ok(None);
        }
        let parts = Parts { attributes, retyped, in_place, copy: None };
        self.node_of(index, placed, parts).map(Some)
    }

    fn node_of(&mut self, index: usize, placed: &'a Placed<'a>, mut parts: Parts<'a>) -> Result<Body<'a>> {
        let node = placed.node;
        let (mut input, mut output, mut attribute) = (0, 0, 0);
        let mut body = Body::default();
        let mut has_value = false;
        for (number, span) in self.fields(node.span)? {
            match number {
                1 => {
                    match self.edits.inputs.get(&(index, input)) {
                        Some(new) => body.field(1, new.as_bytes()),
                        None => body.copy(span),
                    }
                    input += 1;
                }
                2 => {
                    let value = placed.output(output);
                    match (&parts.copy, value.and_then(|value| self.edits.made.get(&value))) {
                        (Some(copy), _) => body.field(2, copy.as_bytes()),
                        (None, Some(new)) => body.field(2, new.as_bytes()),
                        (None, None) => body.copy(span),
                    }
                    output += 1;
                }
                3 if parts.copy.is_some() => {
                    body.field(3, format!("{}_{}", node.name, schema::elem(self.low)).as_bytes());
                }
                5 => {
                    let old = &node.attributes[attribute];
                    let is_value = ["value", "value_float", "value_floats"].contains(&&old.name[..]);
                    has_value |= is_value;
                    let new = match &old.name[..] {
                        "to" if parts.retyped && node.op == "Cast" => {
                            let mut new = Body::default();
                            new.bytes(&self.cast_to(schema::elem(self.low)));
                            Some(new)
                        }
                        _ if is_value && (parts.in_place || parts.copy.is_some() || parts.retyped) => {
                            Some(self.low_value(node)?)
                        }
                        _ => parts.attributes[attribute].take(),
                    };
                    match new {
                        Some(new) => body.message(5, new),
                        None => body.copy(span),
                    }
                    attribute += 1;
                }
                _ => body.copy(span),
            }
        }
        // A constant of zeros need not say so in float32.
        if parts.retyped && node.op == "ConstantOfShape" && !has_value {
            let mut tensor = Vec::new();
            put_int(&mut tensor, field::DIMS, 1);
            put_int(&mut tensor, field::DATA_TYPE, i64::from(schema::elem(self.low).0));
            put_bytes(&mut tensor, field::RAW_DATA, &[0, 0]);
            let mut value = Vec::new();
            put_bytes(&mut value, 1, b"value");
            put_bytes(&mut value, 5, &tensor);
            put_int(&mut value, 20, 4);
            let mut new = Body::default();
            new.bytes(&value);
            body.message(5, new);
        }
        Ok(body)
    }

    /// Returns the low copy of a constant that other nodes read in float32.
    fn constant_copy(&mut self, index: usize) -> Result<Option<Body<'a>>> {
        let Some(Lowered::Copy(name)) = self.edits.constants.get(&index) else { return Ok(None) };
        let values = self.values;
        let placed = &values.nodes[index];
        let attributes = placed.node.attributes.iter().map(|_| None).collect();
        let parts = Parts { attributes, retyped: false, in_place: false, copy: Some(name.clone()) };
        self.node_of(index, placed, parts).map(Some)
    }

    /// Returns the attribute `value` of a constant in the low dtype.
    fn low_value(&mut self, node: &'a Node) -> Result<Body<'a>> {
        let tensor = match constant(self.model(), node)? {
            Some(Constant::Tensor(tensor)) => self.tensor(tensor, &tensor.name, true)?,
            Some(Constant::Numbers { numbers, is_scalar }) => {
                let mut message = Vec::new();
                if !is_scalar {
                    put_int(&mut message, field::DIMS, numbers.len() as i64);
                }
                put_int(&mut message, field::DATA_TYPE, i64::from(schema::elem(self.low).0));
                let rounded = numbers.iter().flat_map(|&number| match self.low {
                    DType::F16 => half::f16::from_f32(number).to_le_bytes(),
                    _ => half::bf16::from_f32(number).to_le_bytes(),
                });
                put_bytes(&mut message, field::RAW_DATA, &rounded.collect::<Vec<u8>>());
                let mut tensor = Body::default();
                tensor.bytes(&message);
                tensor
            }
            None => Body::default(),
        };
        let mut value = Body::default();
        value.field(1, b"value");
        value.message(5, tensor);
        value.int(20, 4);
        Ok(value)
    }

    /// Returns the message of an attribute; `None` when nothing in it changes.
    fn attribute(
        &mut self,
        attribute: &'a Attribute,
        bodies: &mut dyn Iterator<Item = usize>,
    ) -> Result<Option<Body<'a>>> {
        let mut graphs = Vec::new();
        for _ in &attribute.graphs {
            let Some(scope) = bodies.next() else { break };
            graphs.push(self.graph(scope)?);
        }
        let tensor = match &attribute.tensor {
            Some(tensor) => self.moved(tensor)?,
            None => None,
        };
        if tensor.is_none() && graphs.iter().all(Option::is_none) {
            return Ok(None);
        }
        let (mut graphs, mut tensor, mut body) = (graphs.into_iter(), tensor, Body::default());
        for (number, span) in self.fields(attribute.span)? {
            let new = match number {
                5 => tensor.take(),
                6 | 11 => graphs.next().flatten(),
                _ => None,
            };
            match new {
                Some(new) => body.message(number, new),
                None => body.copy(span),
            }
        }
        Ok(Some(body))
    }

    /// Returns the declaration of a value with its type after the conversion; `None` when nothing in it changes.
    fn value(
        &self,
        info: &ValueInfo,
        value: Option<usize>,
        elem: Option<Elem>,
        name: Option<&str>,
    ) -> Result<Option<Body<'a>>> {
        let known = elem.or_else(|| self.edits.types.get(&value?).copied());
        let new = match info.kind {
            Type::Tensor(declared) => known.filter(|known| *known != declared),
            _ => None,
        };
        if new.is_none() && name.is_none() {
            return Ok(None);
        }
        let mut body = Body::default();
        let mut files = self.model().files();
        files.model.fields(info.span, |source, f| {
            match (f.number, name, new) {
                (1, Some(name), _) => {
                    body.field(1, name.as_bytes());
                }
                (2, _, Some(new)) => {
                    let mut of_type = Body::default();
                    source.fields(f.bytes()?, |source, f| {
                        if f.number != 1 {
                            of_type.copy(f.whole);
                            return Ok(());
                        }
                        let mut tensor = Body::default();
                        tensor.int(1, i64::from(new.0));
                        source.fields(f.bytes()?, |_, f| {
                            if f.number != 1 {
                                tensor.copy(f.whole);
                            }
                            Ok(())
                        })?;
                        of_type.message(1, tensor);
                        Ok(())
                    })?;
                    body.message(2, of_type);
                }
                _ => body.copy(f.whole),
            }
            Ok(())
        })?;
        Ok(Some(body))
    }
}

/// Returns the declaration of the value that a cast makes. ONNX infers no type from the name of one.
fn declared(cast: &Cast) -> Vec<u8> {
    let (mut tensor, mut kind, mut value) = (Vec::new(), Vec::new(), Vec::new());
    put_int(&mut tensor, 1, i64::from(cast.to.0));
    put_bytes(&mut kind, 1, &tensor);
    put_bytes(&mut value, 1, cast.into.as_bytes());
    put_bytes(&mut value, 2, &kind);
    value
}

/// The changed parts of a node.
struct Parts<'a> {
    attributes: Vec<Option<Body<'a>>>,
    retyped: bool,
    in_place: bool,
    /// The name of the low copy that it becomes.
    copy: Option<String>,
}
