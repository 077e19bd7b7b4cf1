//! Drawings of graphs for Graphviz.

use std::{collections::BTreeMap, fmt::Write};

use super::drawn::Drawn;

/// Returns nodes in the DOT language of Graphviz.
pub(crate) fn dot(nodes: &[Drawn]) -> String {
    fn quoted(text: &str) -> String {
        format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
    }
    let mut cells: BTreeMap<&str, Vec<&Drawn>> = BTreeMap::new();
    nodes.iter().for_each(|node| cells.entry(&node.cell).or_default().push(node));
    let mut dot = String::from("digraph {\n  node [shape=box, style=filled, fontname=\"sans-serif\", fontsize=10];\n");
    for (i, (cell, nodes)) in cells.iter().enumerate() {
        if !cell.is_empty() {
            let _ = writeln!(dot, "  subgraph cluster_{i} {{\n    label={}; color=gray;", quoted(cell));
        }
        for node in nodes {
            let words = format!("{}\n{}\n{}", node.name, node.op, node.outputs.join(", "));
            let shape = if node.is_cast() { ", shape=ellipse" } else { "" };
            let label = quoted(&words).replace('\n', "\\n");
            let _ = writeln!(dot, "    {} [label={label}, fillcolor=\"{}\"{shape}];", quoted(&node.name), node.fill());
        }
        if !cell.is_empty() {
            dot.push_str("  }\n");
        }
    }
    for node in nodes {
        for &read in &node.inputs {
            let _ = writeln!(dot, "  {} -> {};", quoted(&nodes[read].name), quoted(&node.name));
        }
    }
    dot.push_str("}\n");
    dot
}
