//! Drawings of graphs for Graphviz.

use std::{collections::BTreeMap, fmt::Write};

use super::{
    draw::fill,
    graph::{Graph, Node, described},
};

impl Graph {
    /// Returns the graph in the DOT language of Graphviz, coloured as in [`to_svg`](Graph::to_svg).
    pub fn to_dot(&self) -> String {
        dot(self)
    }
}

fn dot(graph: &Graph) -> String {
    fn quoted(text: &str) -> String {
        format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
    }
    let mut cells: BTreeMap<&str, Vec<&Node>> = BTreeMap::new();
    graph.nodes.iter().for_each(|node| cells.entry(&node.cell).or_default().push(node));
    let mut dot = String::from("digraph {\n  node [shape=box, style=filled, fontname=\"sans-serif\", fontsize=10];\n");
    for (i, (cell, nodes)) in cells.iter().enumerate() {
        if !cell.is_empty() {
            let _ = writeln!(dot, "  subgraph cluster_{i} {{\n    label={}; color=gray;", quoted(cell));
        }
        for node in nodes {
            let outputs: Vec<String> = node.outputs.iter().map(described).collect();
            let words = format!("{}\n{}\n{}", node.name, node.op_name(), outputs.join(", "));
            let shape = if node.is_cast() { ", shape=ellipse" } else { "" };
            let label = quoted(&words).replace('\n', "\\n");
            let _ = writeln!(dot, "    {} [label={label}, fillcolor=\"{}\"{shape}];", quoted(&node.name), fill(node));
        }
        if !cell.is_empty() {
            dot.push_str("  }\n");
        }
    }
    for node in &graph.nodes {
        for port in &node.inputs {
            let _ = writeln!(dot, "  {} -> {};", quoted(&graph.nodes[port.node].name), quoted(&node.name));
        }
    }
    dot.push_str("}\n");
    dot
}
