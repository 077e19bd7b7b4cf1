//! Facts about numbers, followed to the node that needs more than a low dtype holds. Results have closed forms.

mod bodies;
mod bounds;
mod exact;
mod near_one;
mod sizes;
mod squares;
mod states;
mod sums;

use precast::{DType, Tensor, policy::GraphPolicy};
use precast_graph::onnx::{OnnxConvertOptions, OnnxModel};

use super::build::{self, BOOL, FLOAT, INT64, Message, body, float, floats, graph, int, ints, text, value};

/// A node with a name, which is that of its output.
fn node(op: &str, inputs: &[&str], name: &str, attributes: &[Message]) -> Message {
    nodes(op, inputs, &[name], attributes)
}

fn nodes(op: &str, inputs: &[&str], outputs: &[&str], attributes: &[Message]) -> Message {
    let node = inputs.iter().fold(Message::default(), |node, name| node.bytes(1, name));
    let node = outputs.iter().fold(node, |node, name| node.bytes(2, name));
    let node = node.bytes(3, outputs[0]).bytes(4, op);
    attributes.iter().fold(node, |node, attribute| node.message(5, attribute))
}

fn scalar(name: &str, number: f32) -> Message {
    floats(name, &[], &[number])
}

/// A constant of float64.
fn double(name: &str, number: f64) -> Message {
    Message::default().int(2, 11).bytes(8, name).bytes(9, number.to_le_bytes())
}

fn truths(name: &str, shape: &[i64], numbers: &[u8]) -> Message {
    let truths = shape.iter().fold(Message::default(), |truths, axis| truths.int(1, *axis));
    truths.int(2, BOOL).bytes(8, name).bytes(9, numbers)
}

fn axes(numbers: &[i64]) -> Message {
    numbers.iter().fold(Message::default().bytes(1, "axes"), |axes, axis| axes.int(8, *axis)).int(20, 7)
}

/// A model between two products with the identity: `h` is the first one, and `u` is read by the last one.
fn between(middle: &[Message], constants: &[Message], opset: i64) -> OnnxModel {
    let first = node("MatMul", &["x", "eye"], "h", &[]);
    let last = node("MatMul", &["u", "eye"], "y", &[]);
    let eye = floats("eye", &[2, 2], &[1.0, 0.0, 0.0, 1.0]);
    let all: Vec<Message> = std::iter::once(first).chain(middle.to_vec()).chain([last]).collect();
    let constants: Vec<Message> = std::iter::once(eye).chain(constants.to_vec()).collect();
    let io = |name| value(name, FLOAT, &["2", "2"]);
    build::model(&graph(&all, &constants, &[io("x")], &[io("y")]), opset)
}

fn policy(name: &str) -> GraphPolicy {
    GraphPolicy::named(name).unwrap()
}

/// Checks which nodes run low and which do not, and the first output of both forms of the converted model.
fn check(
    name: &str,
    model: &OnnxModel,
    x: &[(&str, Tensor)],
    wanted: &[f64],
    low: &[&str],
    full: &[&str],
    policy: &GraphPolicy,
) {
    let plan = model.plan(policy).unwrap();
    for (nodes, is_low) in [(low, true), (full, false)] {
        for node in nodes {
            let met = plan.decision(node).unwrap();
            assert_eq!(met.dtype.is_low(), is_low, "{name}: {node} {met}");
        }
    }
    for explicit in [false, true] {
        let bytes = plan.to_bytes(&OnnxConvertOptions::new().explicit(explicit)).unwrap();
        let met = OnnxModel::from_bytes(bytes).unwrap().run(x).unwrap()[0].1.to_f64();
        let near = |(met, wanted): (&f64, &f64)| (met - wanted).abs() <= 0.01 * wanted.abs() + 1e-3;
        assert!(met.len() == wanted.len() && met.iter().zip(wanted).all(near), "{name}: {met:?}, wanted {wanted:?}");
    }
}

fn rows(numbers: [f32; 4]) -> Vec<(&'static str, Tensor)> {
    vec![("x", Tensor::from_vec(numbers.to_vec(), &[2, 2]).unwrap())]
}
