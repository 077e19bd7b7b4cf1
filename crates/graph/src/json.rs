//! Graphs as JSON.

use std::{collections::HashMap, fmt::Display};

use precast_base::names::did_you_mean;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use serde_json::{Value, json};

use super::graph::{Dim, Graph, Kind, Node, Output, Port, Update, dim_of, dim_value};
use precast::{
    DType, Op, Param, Tensor,
    catalogue::{Attribute, Attributes},
    error::{Error, Result},
    io::json,
    recording::check_attributes,
};

/// The version of the format.
const VERSION: u64 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a graph as `Graph::to_json` writes it")]
struct Written {
    precast_graph: u64,
    batch: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    only_batch: Option<String>,
    inputs: Vec<String>,
    outputs: Vec<String>,
    nodes: Vec<WrittenNode>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    updates: Vec<WrittenUpdate>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenNode {
    name: String,
    op: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    cell: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    inputs: Vec<String>,
    #[serde(default, skip_serializing_if = "Attributes::is_empty")]
    attributes: Attributes,
    outputs: Vec<Output>,
    /// For a parameter; `false` for a buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trained: Option<bool>,
    /// For a constant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<WrittenTensor>,
    #[serde(default, skip_serializing_if = "is_zero")]
    draws: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTensor {
    dtype: DType,
    shape: Vec<usize>,
    data: Vec<Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenUpdate {
    buffer: String,
    by: String,
    momentum: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<Dim>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Serialize for Dim {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.each {
            0 => serializer.serialize_i64(self.plus),
            _ => dim_value(*self).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Dim {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let fixed = value.as_i64().map(|plus| Dim { each: 0, plus });
        let wrong =
            || de::Error::custom(format!(r#"a length is a whole number or {{"each": 1, "plus": 0}}, not {value}"#));
        fixed.or_else(|| dim_of(&value)).ok_or_else(wrong)
    }
}

impl Serialize for Graph {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written().map_err(ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Graph {
    /// Parameters are 0 until weights are loaded.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Graph::of_written(Written::deserialize(deserializer)?, &|_| None).map_err(de::Error::custom)
    }
}

impl Graph {
    /// Writes the graph as JSON: nodes, edges, attributes, dtypes and shapes, with the paths of the parameters but
    /// without their values.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](precast::ErrorKind::Unsupported) for a custom op, which only code can run.
    pub fn to_json(&self) -> Result<String> {
        let written = self.written()?;
        serde_json::to_string_pretty(&written).map_err(|e| Error::value(e.to_string()))
    }

    /// Reads a graph from JSON. Its parameters are 0; [`load`](precast::storage::weights::load) fills those of a
    /// [`GraphCell`](super::GraphCell).
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value), with the line and column of invalid JSON, or the node that does
    /// not fit.
    pub fn from_json(text: &str) -> Result<Graph> {
        let not_a_graph = |e: &dyn Display| Error::value(format!("not a graph of precast: {e}"));
        let written = json::read(text.as_bytes()).map_err(|e| not_a_graph(&e))?;
        Graph::of_written(written, &|name| line_of_node(text, name)).map_err(|e| not_a_graph(&e))
    }

    fn written(&self) -> Result<Written> {
        let name = |port: &Port| self.port_name(*port);
        let nodes = self.nodes.iter().map(|node| {
            if let (Some(_), Kind::Op(op)) = (&node.again, &node.kind) {
                let words =
                    format!("`{}` is the custom op {op}: its options are code, and no file holds them", node.name);
                return Err(Error::unsupported(words));
            }
            Ok(WrittenNode {
                name: node.name.clone(),
                op: node.op_name().into(),
                cell: node.cell.clone(),
                inputs: node.inputs.iter().map(name).collect(),
                attributes: node.attributes.clone(),
                outputs: node.outputs.clone(),
                trained: if let Kind::Parameter(param) = &node.kind { Some(param.is_trained()) } else { None },
                value: if let Kind::Constant(value) = &node.kind { Some(WrittenTensor::of(value)?) } else { None },
                draws: node.draws,
            })
        });
        let updates = self.updates.iter().map(|update| WrittenUpdate {
            buffer: self.nodes[update.buffer].name.clone(),
            by: name(&update.by),
            momentum: update.momentum,
            count: update.count,
        });
        Ok(Written {
            precast_graph: VERSION,
            batch: self.batch,
            only_batch: self.only_batch.clone(),
            inputs: self.inputs.iter().map(|&node| self.nodes[node].name.clone()).collect(),
            outputs: self.outputs.iter().map(name).collect(),
            nodes: nodes.collect::<Result<_>>()?,
            updates: updates.collect(),
        })
    }

    /// Builds the graph. `line` returns the line of the text in which a node begins, if there is a text.
    fn of_written(written: Written, line: &dyn Fn(&str) -> Option<usize>) -> Result<Graph> {
        if written.precast_graph != VERSION {
            let words = format!("a graph of version {}; this precast reads version {VERSION}", written.precast_graph);
            return Err(Error::value(words));
        }
        let mut reader = Reader::default();
        for node in written.nodes {
            let name = node.name.clone();
            reader.add(node).map_err(|e| {
                let line = line(&name).map_or(String::new(), |line| format!(", line {line}"));
                e.context(format!("node `{name}`{line}"))
            })?;
        }
        let outputs = written.outputs.iter().map(|name| reader.port(name)).collect::<Result<Vec<_>>>()?;
        let mut inputs = Vec::new();
        for name in &written.inputs {
            let node = reader.port(name)?.node;
            if !matches!(reader.nodes[node].kind, Kind::Input) {
                return Err(Error::value(format!(
                    "`{name}` is listed as an input and is a {}",
                    reader.nodes[node].op_name()
                )));
            }
            inputs.push(node);
        }
        let of_kind = reader.nodes.iter().filter(|node| matches!(node.kind, Kind::Input)).count();
        if inputs.len() != of_kind || inputs.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(Error::value("the inputs are not all listed once, in the order of their nodes"));
        }
        let mut updates = Vec::new();
        for update in written.updates {
            let buffer = reader.port(&update.buffer)?.node;
            if !matches!(reader.nodes[buffer].kind, Kind::Parameter(_)) {
                return Err(Error::value(format!("`{}` is updated and is not a parameter", update.buffer)));
            }
            let (by, momentum, count) = (reader.port(&update.by)?, update.momentum, update.count);
            updates.push(Update { buffer, by, momentum, count });
        }
        let Written { batch, only_batch, .. } = written;
        Ok(Graph { nodes: reader.nodes, inputs, outputs, updates, batch, only_batch })
    }
}

/// Returns the line, from 1, in which the last node of a name is given that name.
fn line_of_node(text: &str, name: &str) -> Option<usize> {
    let quoted = serde_json::to_string(name).ok()?;
    let is_name =
        |before: &str| before.trim_end().strip_suffix(':').is_some_and(|key| key.trim_end().ends_with("\"name\""));
    let (at, _) = text.rmatch_indices(&quoted).find(|(at, _)| is_name(&text[..*at]))?;
    Some(text[..at].matches('\n').count() + 1)
}

#[derive(Default)]
struct Reader {
    nodes: Vec<Node>,
    places: HashMap<String, usize>,
}

impl Reader {
    fn port(&self, name: &str) -> Result<Port> {
        if let Some(&node) = self.places.get(name) {
            return Ok(Port { node, port: 0 });
        }
        let numbered =
            name.rsplit_once(':').and_then(|(node, port)| Some((*self.places.get(node)?, port.parse().ok()?)));
        match numbered {
            Some((node, port)) if port < self.nodes[node].outputs.len() => Ok(Port { node, port }),
            _ => {
                let near = did_you_mean(name, self.places.keys().map(String::as_str));
                Err(Error::value(format!("no node before it gives `{name}`{near}")))
            }
        }
    }

    fn add(&mut self, node: WrittenNode) -> Result<()> {
        let lengths = |output: &Output| -> Result<Vec<usize>> {
            let lengths = output.shape.iter().map(|dim| usize::try_from(dim.plus).ok().filter(|_| dim.each == 0));
            lengths.collect::<Option<_>>().ok_or_else(|| Error::shape(format!("has the shape {:?}", output.shape)))
        };
        let one = || node.outputs.first().ok_or_else(|| Error::value("has no output"));
        let kind = match &node.op[..] {
            "Input" => Kind::Input,
            "Parameter" => {
                let zeros = Tensor::zeros(&lengths(one()?)?, one()?.dtype);
                Kind::Parameter(if node.trained == Some(false) { Param::buffer(zeros) } else { Param::new(zeros) })
            }
            "Constant" => match &node.value {
                Some(value) => Kind::Constant(value.tensor()?),
                None => return Err(Error::value("is a constant without a value")),
            },
            "StopGradient" => Kind::StopGradient,
            name => match Op::by_own_name(name) {
                Some(Op::Custom(op)) => {
                    return Err(Error::unsupported(format!("is the custom op {op:?}, which only code can run")));
                }
                Some(op) if op.has_kernel() => Kind::Op(op),
                Some(op) => return Err(Error::unsupported(format!("{op} has no kernel"))),
                None => {
                    let near = did_you_mean(name, Op::ALL.iter().map(|op| op.name()));
                    return Err(Error::list(format!("no op is called `{name}`{near}")));
                }
            },
        };
        let takes = match kind {
            Kind::Input | Kind::Parameter(_) | Kind::Constant(_) => 0,
            Kind::StopGradient => 1,
            Kind::Op(_) => node.inputs.len(),
        };
        one()?;
        if let Kind::Op(op) = kind {
            check_attributes(op, &node.attributes)?;
        }
        if node.inputs.len() != takes {
            return Err(Error::value(format!("reads {} outputs; allowed: {takes}", node.inputs.len())));
        }
        let inputs = node.inputs.iter().map(|name| self.port(name)).collect::<Result<_>>()?;
        if self.places.insert(node.name.clone(), self.nodes.len()).is_some() {
            return Err(Error::value("another node has this name"));
        }
        self.nodes.push(Node {
            name: node.name,
            kind,
            attributes: node.attributes,
            cell: node.cell,
            inputs,
            outputs: node.outputs,
            draws: node.draws,
            again: None,
        });
        Ok(())
    }
}

impl WrittenTensor {
    fn of(x: &Tensor) -> Result<Self> {
        let data = match x.dtype() {
            DType::I64 => x.to_vec::<i64>()?.into_iter().map(|x| json!(x)).collect(),
            _ => x.to_f64().iter().map(Attribute::to_value).collect(),
        };
        Ok(WrittenTensor { dtype: x.dtype(), shape: x.shape().to_vec(), data })
    }

    fn tensor(&self) -> Result<Tensor> {
        let wrong = |value: &Value| Error::value(format!("{value} is not a number"));
        match self.dtype {
            DType::I64 => {
                let whole = |value: &Value| value.as_i64().ok_or_else(|| wrong(value));
                Tensor::from_vec(self.data.iter().map(whole).collect::<Result<Vec<i64>>>()?, &self.shape)
            }
            dtype => {
                let number = |value: &Value| f64::of_value(value).ok_or_else(|| wrong(value));
                let numbers = self.data.iter().map(number).collect::<Result<Vec<_>>>()?;
                Tensor::from_f64(&numbers, &self.shape, DType::F64)?
                    .check_range(dtype)
                    .map_err(|beyond| Error::value(format!("a constant {beyond}")))?;
                Tensor::from_f64(&numbers, &self.shape, dtype)
            }
        }
    }
}
