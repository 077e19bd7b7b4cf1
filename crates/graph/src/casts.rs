//! The casts that a painted graph needs.

use std::collections::HashSet;

use super::{graph::Port, painting::Painting, type_graph::TypeGraph};
use precast::DType;

/// A cast to insert.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewCast {
    /// Name made of the source and the target dtype, with the first free number: `conv1-0-CastToFp16-0`.
    pub name: String,
    /// The output that it reads.
    pub of: Port,
    /// The target dtype.
    pub to: DType,
    /// The inputs that read the cast instead of the output.
    pub consumers: Vec<Port>,
}

/// Returns one cast for each output that is read in a dtype other than its own, shared by all inputs that read it in
/// that dtype, in the order of the producers.
pub fn casts(graph: &TypeGraph, painting: &Painting) -> Vec<NewCast> {
    let nodes = &graph.nodes;
    let mut reads: Vec<(Port, Port)> = Vec::new();
    for (node, n) in nodes.iter().enumerate() {
        for (port, (input, &own)) in n.inputs.iter().zip(&n.in_types).enumerate() {
            let produced = nodes[input.node].out_types[input.port];
            let is_f32 = nodes[input.node].types[produced].is_f32();
            if is_f32 && painting.is_low(input.node, produced) != painting.is_low(node, own) {
                reads.push((*input, Port { node, port }));
            }
        }
    }
    reads.sort_by_key(|(of, _)| *of);
    let taken: HashSet<&str> = nodes.iter().map(|n| &n.name[..]).collect();
    let of_output = |reads: &[(Port, Port)]| {
        let of = reads[0].0;
        let producer = &nodes[of.node];
        let is_low = painting.is_low(of.node, producer.out_types[of.port]);
        let to = if is_low { DType::F32 } else { painting.dtype };
        let mut names = (0..).map(|n| format!("{}-{}-{}-{n}", producer.name, of.port, word(to)));
        let name = names.find(|name| !taken.contains(&name[..])).expect("there is no last number");
        NewCast { name, of, to, consumers: reads.iter().map(|(_, consumer)| *consumer).collect() }
    };
    reads.chunk_by(|a, b| a.0 == b.0).map(of_output).collect()
}

/// Returns TensorFlow's word for such a cast.
fn word(to: DType) -> &'static str {
    match to {
        DType::F16 => "CastToFp16",
        DType::Bf16 => "CastToBf16",
        _ => "CastToFp32",
    }
}
