//! The element type of every value, found from what is certain: inputs, initialisers, constants and the operators
//! between them. Declared types of inner values count last, since tools leave wrong ones behind.

use std::collections::HashMap;

use super::{
    graph::{Type, ValueInfo},
    model::OnnxModel,
    schema::{Kind, elem},
    tensor::Elem,
    values::{Origin, Placed, Values},
};
use precast::{DType, error::Result};

/// Element types of sequences and optional values are those of their tensors plus this number.
const NESTED: i32 = 1000;

/// Returns the element type of each value; [`Elem::UNDEFINED`] where nothing says it.
///
/// # Errors
/// [`ErrorKind::Model`](precast::ErrorKind::Model) for a node whose inputs do not fit together.
pub(super) fn infer(values: &Values<'_>) -> Result<Vec<Elem>> {
    let mut types = Types::of(values)?;
    for placed in &values.nodes {
        types.node(values, placed)?;
    }
    types.nest();
    let declared = |value: &ValueInfo| match value.kind {
        Type::Tensor(elem) if elem != Elem::UNDEFINED => Some(elem),
        Type::Nested(elem) if elem != Elem::UNDEFINED => Some(Elem(elem.0 + NESTED)),
        _ => None,
    };
    for scope in &values.scopes {
        let outputs = scope.graph.outputs.iter().zip(&scope.outputs).map(|(info, &value)| (info, value));
        let inner = scope.graph.values.iter().filter_map(|info| Some((info, *scope.names.get(&info.name[..])?)));
        for (info, value) in outputs.chain(inner) {
            let root = types.root(value);
            if let (None, Some(elem)) = (types.classes[root].1, declared(info)) {
                types.classes[root].1 = Some(elem);
            }
        }
    }
    types.nest();
    Ok((0..values.values.len()).map(|value| types.elem(value).unwrap_or(Elem::UNDEFINED)).collect())
}

/// Returns whether a type is that of a sequence or an optional value.
pub(super) fn is_nested(elem: Elem) -> bool {
    elem.0 >= NESTED
}

/// Classes of values and type variables with one element type, as a forest: each has a parent, and the root knows the
/// type.
struct Types {
    classes: Vec<(usize, Option<Elem>)>,
    /// Pairs of a sequence and a tensor in it.
    nested: Vec<(usize, usize)>,
}

impl Types {
    fn of(values: &Values<'_>) -> Result<Self> {
        let mut types = Types { classes: Vec::with_capacity(values.values.len() * 2), nested: Vec::new() };
        for value in &values.values {
            let graph = values.scopes[value.scope].graph;
            let known = match (value.initialiser, value.origin) {
                (Some(index), _) => Some(graph.initialisers[index].elem),
                (_, Origin::Sparse) => {
                    graph.sparse.iter().find(|known| known.name == value.name).map(|known| known.elem)
                }
                _ => None,
            };
            types.add(known);
        }
        // Inputs of bodies are often declared without a type.
        let main = &values.scopes[0];
        for (info, &value) in main.graph.inputs.iter().zip(&main.inputs) {
            match info.kind {
                Type::Tensor(elem) if elem != Elem::UNDEFINED => types
                    .set(value, elem)
                    .map_err(|words| precast::Error::model(format!("the input `{}` is {elem}: {words}", info.name)))?,
                Type::Nested(elem) if elem != Elem::UNDEFINED => types.classes[value].1 = Some(Elem(elem.0 + NESTED)),
                _ => {}
            }
        }
        Ok(types)
    }

    fn add(&mut self, known: Option<Elem>) -> usize {
        self.classes.push((self.classes.len(), known.filter(|elem| *elem != Elem::UNDEFINED)));
        self.classes.len() - 1
    }

    fn root(&mut self, mut class: usize) -> usize {
        while self.classes[class].0 != class {
            let above = self.classes[self.classes[class].0].0;
            self.classes[class].0 = above;
            class = above;
        }
        class
    }

    fn elem(&mut self, class: usize) -> Option<Elem> {
        let root = self.root(class);
        self.classes[root].1
    }

    fn set(&mut self, class: usize, elem: Elem) -> Result<(), String> {
        let root = self.root(class);
        match self.classes[root].1 {
            Some(known) if known != elem => Err(format!("{} and {} meet", name(known), name(elem))),
            _ => {
                self.classes[root].1 = Some(elem);
                Ok(())
            }
        }
    }

    fn join(&mut self, a: usize, b: usize) -> Result<(), String> {
        let (a, b) = (self.root(a), self.root(b));
        if let Some(elem) = self.classes[b].1 {
            self.set(a, elem)?;
        }
        self.classes[b].0 = a;
        Ok(())
    }

    /// Carries types between sequences and their tensors until nothing changes.
    fn nest(&mut self) {
        let mut changed = true;
        while changed {
            changed = false;
            for (sequence, tensor) in self.nested.clone() {
                match (self.elem(sequence), self.elem(tensor)) {
                    (Some(known), None) if is_nested(known) => {
                        changed |= self.set(tensor, Elem(known.0 - NESTED)).is_ok()
                    }
                    (None, Some(known)) => changed |= self.set(sequence, Elem(known.0 + NESTED)).is_ok(),
                    _ => {}
                }
            }
        }
    }

    fn node(&mut self, values: &Values<'_>, placed: &Placed<'_>) -> Result<()> {
        let known = self.known(values.model, placed)?;
        let node = placed.node;
        let wrong = |words: String| node.wrong(format!("the types of its inputs and outputs differ: {words}"));
        if let (Some(elem), Some(Some(output))) = (known, placed.outputs.first()) {
            self.set(*output, elem).map_err(wrong)?;
        }
        self.control(values, placed).map_err(wrong)?;
        let Some(schema) = placed.schema else { return Ok(()) };
        let inputs = placed.inputs.iter().enumerate().map(|(i, value)| (schema.input(i), value, true));
        let outputs = placed.outputs.iter().enumerate().map(|(i, value)| (schema.output(i), value, false));
        let mut variables: HashMap<&str, usize> = HashMap::new();
        for (port, value, is_input) in inputs.chain(outputs) {
            let (Some(port), Some(value)) = (port, value) else { continue };
            match port.kind {
                // The type of a constant and the like is in an attribute.
                Kind::Variable(_) if !is_input && known.is_some() => {}
                Kind::Variable(name) if !port.mixed => match variables.get(name) {
                    Some(&class) => self.join(class, *value).map_err(wrong)?,
                    None => drop(variables.insert(name, *value)),
                },
                Kind::Float32 => self.set(*value, Elem::F32).map_err(wrong)?,
                _ => {}
            }
        }
        let sequence = variables.get("S").or_else(|| variables.get("O"));
        if let (Some(&sequence), Some(&tensor)) = (sequence, variables.get("T").or_else(|| variables.get("V"))) {
            self.nested.push((sequence, tensor));
        }
        Ok(())
    }

    /// Returns the element type of a node's first output, where an attribute says it.
    fn known(&mut self, model: &OnnxModel, placed: &Placed<'_>) -> Result<Option<Elem>> {
        let node = placed.node;
        if !node.domain.is_empty() || placed.schema.is_none() {
            return Ok(None);
        }
        let attribute = |name| -> Result<Option<Elem>> {
            let number = model.int(node, name)?;
            Ok(number.filter(|number| *number != 0).map(|number| Elem(number as i32)))
        };
        let value =
            |usual| node.attribute("value").and_then(|value| value.tensor.as_ref()).map_or(usual, |value| value.elem);
        Ok(match &node.op[..] {
            "Cast" => match node.attribute("to") {
                // Opset 1 has the name of the type.
                Some(_) if model.opset() < 6 => named(&model.text(node, "to")?.unwrap_or_default()),
                _ => attribute("to")?,
            },
            "Constant" => constant(placed),
            "ConstantOfShape" => Some(value(Elem::F32)),
            "Shape" | "Size" => Some(Elem::INT64),
            "RandomNormal" | "RandomUniform" | "HannWindow" | "HammingWindow" | "BlackmanWindow"
            | "MelWeightMatrix" => Some(attribute("dtype")?.or(attribute("output_datatype")?).unwrap_or(Elem::F32)),
            "Multinomial" => Some(attribute("dtype")?.unwrap_or(Elem::INT32)),
            "EyeLike" | "RandomNormalLike" | "RandomUniformLike" | "Bernoulli" => match attribute("dtype")? {
                Some(elem) => Some(elem),
                None => {
                    let input = placed.input(0);
                    input.and_then(|input| self.elem(input))
                }
            },
            "SequenceEmpty" => Some(Elem(attribute("dtype")?.unwrap_or(Elem::F32).0 + NESTED)),
            "DequantizeLinear" => match (attribute("output_dtype")?, placed.inputs.get(1)) {
                (Some(elem), _) => Some(elem),
                (None, Some(Some(scale))) => self.elem(*scale),
                _ => None,
            },
            _ => None,
        })
    }

    /// Joins what the bodies of a node read and give with its inputs and outputs.
    fn control(&mut self, values: &Values<'_>, placed: &Placed<'_>) -> Result<(), String> {
        for edge in edges(values, placed) {
            let ends = [edge.outside_in, edge.body_in, edge.body_out, edge.outside_out];
            let mut ends = ends.into_iter().flatten();
            let Some(first) = ends.next() else { continue };
            ends.try_for_each(|end| self.join(first, end))?;
        }
        Ok(())
    }
}

fn constant(placed: &Placed<'_>) -> Option<Elem> {
    let attribute = placed.node.attributes.first()?;
    match &attribute.name[..] {
        "value" => attribute.tensor.as_ref().map(|tensor| tensor.elem),
        "sparse_value" => attribute.sparse.as_ref().map(|values| values.elem),
        "value_float" | "value_floats" => Some(Elem::F32),
        "value_int" | "value_ints" => Some(Elem::INT64),
        "value_string" | "value_strings" => Some(Elem::STRING),
        _ => None,
    }
}

/// Returns the element type that opset 1 names.
fn named(name: &str) -> Option<Elem> {
    Some(match name {
        "FLOAT" => elem(DType::F32),
        "FLOAT16" => elem(DType::F16),
        "DOUBLE" => elem(DType::F64),
        "INT32" => Elem::INT32,
        "INT64" => elem(DType::I64),
        "BOOL" => elem(DType::Bool),
        _ => return None,
    })
}

/// The way of one value through a node with bodies: into the node, into the body, out of the body, out of the node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Through {
    pub outside_in: Option<usize>,
    /// The place of that among the inputs of the node.
    pub input: usize,
    pub body_in: Option<usize>,
    pub body_out: Option<usize>,
    /// Its place among the outputs of the body.
    pub place: usize,
    /// The scope of the body.
    pub body: usize,
    pub outside_out: Option<usize>,
    /// `true` when a loop carries it to the next round.
    pub carried: bool,
}

/// Returns the ways of values through a node with bodies. Conditions, counters and lengths, which are not floats, are
/// left out.
pub(super) fn edges(values: &Values<'_>, placed: &Placed<'_>) -> Vec<Through> {
    let node = placed.node;
    let (input, output) = (|i: usize| placed.input(i), |i: usize| placed.output(i));
    match placed.op() {
        "If" => {
            let branch = |&(_, body): &(&str, usize)| {
                let outputs = values.scopes[body].outputs.iter().enumerate();
                let through = |(i, &out): (usize, &usize)| Through {
                    body_out: Some(out),
                    place: i,
                    body,
                    outside_out: output(i),
                    ..Through::default()
                };
                outputs.map(through).collect::<Vec<_>>()
            };
            placed.bodies.iter().flat_map(branch).collect()
        }
        "Loop" | "Scan" => {
            let Some(&(_, body)) = placed.bodies.first() else { return Vec::new() };
            let scope = &values.scopes[body];
            let scanned =
                values.model.int(node, "num_scan_inputs").ok().flatten().and_then(|n| usize::try_from(n).ok());
            // A loop has a count and a condition before its states, and its body a counter and a condition.
            let is_old_scan = node.op == "Scan" && values.model.opset() < 9;
            let (before, inside_before, out_before, states) = match &node.op[..] {
                "Loop" => (2, 2, 1, placed.inputs.len().saturating_sub(2)),
                _ => {
                    let before = usize::from(is_old_scan);
                    (before, 0, 0, placed.inputs.len().saturating_sub(before + scanned.unwrap_or(0)))
                }
            };
            let state = |i: usize| Through {
                outside_in: input(before + i),
                input: before + i,
                body_in: scope.inputs.get(inside_before + i).copied(),
                body_out: scope.outputs.get(out_before + i).copied(),
                place: out_before + i,
                body,
                outside_out: output(i),
                carried: true,
            };
            let scan_in = |i: usize| Through {
                outside_in: input(before + i),
                input: before + i,
                body_in: scope.inputs.get(inside_before + i).copied(),
                body,
                ..Through::default()
            };
            let scan_out = |i: usize| Through {
                body_out: scope.outputs.get(out_before + i).copied(),
                place: out_before + i,
                body,
                outside_out: output(i),
                ..Through::default()
            };
            let inputs = placed.inputs.len().saturating_sub(before);
            let outputs = scope.outputs.len().saturating_sub(out_before);
            let ins = (states..inputs).map(scan_in);
            (0..states).map(state).chain(ins).chain((states..outputs).map(scan_out)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns what messages call an element type.
pub(super) fn name(elem: Elem) -> String {
    match elem.0 {
        NESTED.. => format!("a sequence of {}", Elem(elem.0 - NESTED)),
        _ => elem.to_string(),
    }
}
