//! Small models, written field by field.

use precast_graph::onnx::OnnxModel;

fn varint(mut number: u64, into: &mut Vec<u8>) {
    while number >= 128 {
        into.push(number as u8 | 128);
        number >>= 7;
    }
    into.push(number as u8);
}

/// A message.
#[derive(Clone, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    pub fn int(mut self, number: u64, value: i64) -> Self {
        varint(number << 3, &mut self.0);
        varint(value as u64, &mut self.0);
        self
    }

    pub fn bytes(mut self, number: u64, value: impl AsRef<[u8]>) -> Self {
        varint(number << 3 | 2, &mut self.0);
        varint(value.as_ref().len() as u64, &mut self.0);
        self.0.extend_from_slice(value.as_ref());
        self
    }

    pub fn message(self, number: u64, value: &Message) -> Self {
        self.bytes(number, &value.0)
    }
}

pub const FLOAT: i64 = 1;
pub const INT64: i64 = 7;
pub const BOOL: i64 = 9;

/// A tensor of float32.
pub fn floats(name: &str, shape: &[i64], numbers: &[f32]) -> Message {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let dims = shape.iter().fold(Message::default(), |message, len| message.int(1, *len));
    dims.int(2, FLOAT).bytes(8, name).bytes(9, bytes)
}

/// A tensor of int64.
pub fn ints(name: &str, shape: &[i64], numbers: &[i64]) -> Message {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let dims = shape.iter().fold(Message::default(), |message, len| message.int(1, *len));
    dims.int(2, INT64).bytes(8, name).bytes(9, bytes)
}

/// A value with its element type. An axis is a number, or a symbol.
pub fn value(name: &str, elem: i64, axes: &[&str]) -> Message {
    let axis = |axis: &&str| match axis.parse::<i64>() {
        Ok(len) => Message::default().int(1, len),
        Err(_) => Message::default().bytes(2, axis),
    };
    let shape = axes.iter().map(axis).fold(Message::default(), |shape, axis| shape.message(1, &axis));
    let tensor = Message::default().int(1, elem).message(2, &shape);
    Message::default().bytes(1, name).message(2, &Message::default().message(1, &tensor))
}

/// A node, whose name is its op in lower case.
pub fn node(op: &str, inputs: &[&str], outputs: &[&str], attributes: &[Message]) -> Message {
    let node = inputs.iter().fold(Message::default(), |node, name| node.bytes(1, name));
    let node = outputs.iter().fold(node, |node, name| node.bytes(2, name));
    let node = node.bytes(3, format!("my_{}", op.to_lowercase())).bytes(4, op);
    attributes.iter().fold(node, |node, attribute| node.message(5, attribute))
}

pub fn int(name: &str, value: i64) -> Message {
    Message::default().bytes(1, name).int(3, value).int(20, 2)
}

pub fn float(name: &str, value: f32) -> Message {
    let mut attribute = Message::default().bytes(1, name);
    // Field 2, of four bytes.
    attribute.0.push(2 << 3 | 5);
    attribute.0.extend(value.to_le_bytes());
    attribute.int(20, 1)
}

pub fn text(name: &str, value: &str) -> Message {
    Message::default().bytes(1, name).bytes(4, value).int(20, 3)
}

pub fn body(name: &str, graph: &Message) -> Message {
    Message::default().bytes(1, name).message(6, graph).int(20, 5)
}

pub fn graph(nodes: &[Message], constants: &[Message], inputs: &[Message], outputs: &[Message]) -> Message {
    let graph = nodes.iter().fold(Message::default(), |graph, node| graph.message(1, node)).bytes(2, "graph");
    let graph = constants.iter().fold(graph, |graph, tensor| graph.message(5, tensor));
    let graph = inputs.iter().fold(graph, |graph, value| graph.message(11, value));
    outputs.iter().fold(graph, |graph, value| graph.message(12, value))
}

/// The bytes of a model.
pub fn bytes(graph: &Message, opset: i64) -> Vec<u8> {
    let opset = Message::default().bytes(1, "").int(2, opset);
    Message::default().int(1, 8).message(7, graph).message(8, &opset).0
}

pub fn model(graph: &Message, opset: i64) -> OnnxModel {
    OnnxModel::from_bytes(bytes(graph, opset)).expect("a model")
}
