//! Drawings of graphs: SVG that opens by itself, and DOT for Graphviz.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use super::{
    Graph, GraphList, Painting, Rewritten,
    graph::{Kind, Node, described, shown},
    layout::layout,
};
use crate::DType;

/// Sizes in pixels.
const BOX: (f64, f64) = (210.0, 46.0);
const PILL: (f64, f64) = (150.0, 20.0);
const GAP: (f64, f64) = (46.0, 44.0);
const MARGIN: f64 = 24.0;
const LEGEND: f64 = 54.0;

impl Graph {
    /// The graph as a drawing: what runs in 16 bits is blue, casts are orange, and the nodes of a cell stand in its frame.
    /// Parameters stand to the left of what reads them.
    pub fn to_svg(&self) -> String {
        Drawing::new(self, None).svg()
    }

    /// The graph for Graphviz, coloured as in [`to_svg`](Graph::to_svg).
    pub fn to_dot(&self) -> String {
        dot(self)
    }
}

impl Rewritten {
    /// As [`Graph::to_svg`], with the list of each op as the colour of its border, and why it runs as it does where the
    /// pointer rests on it.
    pub fn to_svg(&self) -> String {
        Drawing::new(&self.graph, Some(&self.painting)).svg()
    }
}

/// What the colour of a node says.
fn fill(node: &Node) -> &'static str {
    match (&node.kind, node.outputs.first().map(|output| output.dtype)) {
        _ if node.is_cast() => "#ffd8a8",
        (Kind::Input, _) => "#e9ecef",
        (_, Some(dtype)) if dtype.is_low() => "#a5d8ff",
        (_, Some(DType::I64 | DType::Bool)) => "#e9ecef",
        _ => "#ffffff",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// At most so many letters.
fn short(text: &str, most: usize) -> String {
    match text.char_indices().nth(most.saturating_sub(1)) {
        Some((at, _)) if text.chars().count() > most => format!("{}…", &text[..at]),
        _ => text.into(),
    }
}

fn told(node: &Node) -> String {
    let attribute = |(name, value): (&str, &serde_json::Value)| format!("{name} {}", shown(value));
    node.attributes.iter().map(attribute).collect::<Vec<_>>().join(", ")
}

struct Drawing<'a> {
    graph: &'a Graph,
    painting: Option<&'a Painting>,
    /// Nodes with a box: ops on what follows from inputs.
    boxes: Vec<usize>,
    /// The place of each node in `boxes`.
    place: Vec<Option<usize>>,
    /// Parameters, constants and their casts, by the box to the left of which they stand.
    pills: BTreeMap<usize, Vec<usize>>,
}

impl<'a> Drawing<'a> {
    fn new(graph: &'a Graph, painting: Option<&'a Painting>) -> Self {
        let mut follows = vec![false; graph.nodes.len()];
        for (i, node) in graph.nodes.iter().enumerate() {
            follows[i] = matches!(node.kind, Kind::Input) || node.inputs.iter().any(|port| follows[port.node]);
        }
        let boxes: Vec<usize> = (0..graph.nodes.len()).filter(|&i| follows[i] || returns(graph, i)).collect();
        let mut place = vec![None; graph.nodes.len()];
        boxes.iter().enumerate().for_each(|(at, &node)| place[node] = Some(at));
        // A chain of casts stands where its end is read first.
        let mut first_reader: Vec<Option<usize>> = place.clone();
        for node in (0..graph.nodes.len()).rev() {
            if let Some(reader) = first_reader[node] {
                for port in &graph.nodes[node].inputs {
                    if place[port.node].is_none() {
                        let known = first_reader[port.node].get_or_insert(reader);
                        *known = (*known).min(reader);
                    }
                }
            }
        }
        let mut pills: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (node, reader) in first_reader.iter().enumerate().filter(|(node, _)| place[*node].is_none()) {
            if let Some(reader) = reader {
                pills.entry(*reader).or_default().push(node);
            }
        }
        Drawing { graph, painting, boxes, place, pills }
    }

    fn svg(&self) -> String {
        let mut edges = Vec::new();
        for (to, &node) in self.boxes.iter().enumerate() {
            let from: BTreeSet<usize> =
                self.graph.nodes[node].inputs.iter().filter_map(|port| self.place[port.node]).collect();
            edges.extend(from.into_iter().map(|from| (from, to)));
        }
        let laid = layout(self.boxes.len(), &edges);
        let rows = |at: usize| self.pills.get(&at).map_or(0, Vec::len) as f64;
        let mut heights = vec![BOX.1; laid.layers];
        let mut with_pills = false;
        for (at, &(layer, _)) in laid.places.iter().enumerate() {
            heights[layer] = f64::max(heights[layer], rows(at) * (PILL.1 + 4.0));
            with_pills |= rows(at) > 0.0;
        }
        let side = if with_pills { PILL.0 + 14.0 } else { 0.0 };
        let step = BOX.0 + GAP.0 + side;
        let top = |layer: usize| MARGIN + LEGEND + heights[..layer].iter().sum::<f64>() + layer as f64 * GAP.1;
        let left = |column: f64| MARGIN + side + column * step;
        let corner = |at: usize| {
            let (layer, column) = laid.places[at];
            (left(column), top(layer) + (heights[layer] - BOX.1) / 2.0)
        };
        let width = (left(laid.columns - 1.0) + BOX.0 + MARGIN).max(520.0);
        let height = top(laid.layers) + MARGIN;
        let mut svg = String::new();
        let _ = writeln!(
            svg,
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}" width="{width:.0}" height="{height:.0}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#ffffff"/>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#868e96"/></marker></defs>"##
        );
        self.legend(&mut svg);
        self.frames(&mut svg, &corner, side);
        for (&(from, to), way) in edges.iter().zip(&laid.ways) {
            let ((x0, y0), (x1, y1)) = (corner(from), corner(to));
            let mut points = vec![(x0 + BOX.0 / 2.0, y0 + BOX.1)];
            let (first, _) = laid.places[from];
            for (i, &column) in way.iter().enumerate() {
                let x = left(column) + BOX.0 / 2.0;
                let y = top(first + 1 + i);
                points.extend([(x, y), (x, y + heights[first + 1 + i])]);
            }
            points.push((x1 + BOX.0 / 2.0, y1));
            let dtype = self.graph.nodes[self.boxes[from]].outputs.first().map(|output| output.dtype);
            curve(&mut svg, &points, dtype.is_some_and(DType::is_low));
        }
        for (at, &node) in self.boxes.iter().enumerate() {
            let (x, y) = corner(at);
            self.pills_beside(&mut svg, at, x, y);
            self.one_box(&mut svg, &self.graph.nodes[node], x, y, returns(self.graph, node));
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn legend(&self, svg: &mut String) {
        let mut x = MARGIN;
        let mut item = |colour: &str, border: &str, words: &str| {
            let _ = writeln!(
                svg,
                r##"<rect x="{x:.0}" y="14" width="16" height="16" rx="3" fill="{colour}" stroke="{border}" stroke-width="2"/><text x="{:.0}" y="27">{words}</text>"##,
                x + 22.0
            );
            x += 40.0 + 7.0 * words.len() as f64;
        };
        item("#ffffff", "#868e96", "f32");
        item("#a5d8ff", "#868e96", "16 bit");
        item("#ffd8a8", "#868e96", "cast");
        if self.painting.is_some() {
            for list in GraphList::ALL {
                item("#ffffff", border(Some(list)), list.name());
            }
        }
        let casts = self.graph.casts();
        let nodes = self.graph.nodes.iter().filter(|node| node.is_op() && !node.is_cast()).count();
        let _ = writeln!(svg, r##"<text x="{MARGIN}" y="50" fill="#495057">{nodes} ops, {casts} casts</text>"##);
    }

    /// A frame around the nodes of a cell, where nothing else stands in it.
    fn frames(&self, svg: &mut String, corner: &dyn Fn(usize) -> (f64, f64), side: f64) {
        let cell = |at: usize| &self.graph.nodes[self.boxes[at]].cell[..];
        let inside =
            |cell: &str, path: &str| cell == path || cell.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
        let mut paths: BTreeSet<&str> = BTreeSet::new();
        for at in 0..self.boxes.len() {
            let path = cell(at);
            paths.extend(
                path.match_indices('.').map(|(end, _)| &path[..end]).chain([path]).filter(|path| !path.is_empty()),
            );
        }
        for path in paths {
            let members: Vec<usize> = (0..self.boxes.len()).filter(|&at| inside(cell(at), path)).collect();
            let depth = path.matches('.').count() as f64;
            let pad = (14.0 - 4.0 * depth).max(4.0);
            let bounds = |at: usize| {
                let (x, y) = corner(at);
                let pills = self.pills.get(&at).map_or(0.0, |pills| pills.len() as f64);
                let tall = (pills * (PILL.1 + 4.0)).max(BOX.1);
                let x0 = if pills > 0.0 { x - side } else { x };
                (x0, y + BOX.1 / 2.0 - tall / 2.0, x + BOX.0, y + BOX.1 / 2.0 + tall / 2.0)
            };
            let around = members
                .iter()
                .map(|&at| bounds(at))
                .reduce(|a, b| (a.0.min(b.0), a.1.min(b.1), a.2.max(b.2), a.3.max(b.3)));
            let Some((x0, y0, x1, y1)) = around else { continue };
            let meets = |at: usize| {
                let (a0, b0, a1, b1) = bounds(at);
                a0 < x1 + pad && a1 > x0 - pad && b0 < y1 + pad && b1 > y0 - pad
            };
            if (0..self.boxes.len()).any(|at| !inside(cell(at), path) && meets(at)) {
                continue;
            }
            let _ = writeln!(
                svg,
                r##"<rect x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}" rx="8" fill="#f8f9fa" fill-opacity="0.7" stroke="#ced4da" stroke-dasharray="4 3"/><text x="{:.1}" y="{:.1}" fill="#868e96" font-size="11">{}</text>"##,
                x0 - pad,
                y0 - pad,
                x1 - x0 + 2.0 * pad,
                y1 - y0 + 2.0 * pad,
                x0 - pad + 6.0,
                y0 - pad - 3.0,
                escaped(path)
            );
        }
    }

    fn pills_beside(&self, svg: &mut String, at: usize, x: f64, y: f64) {
        let Some(pills) = self.pills.get(&at) else { return };
        let tall = pills.len() as f64 * (PILL.1 + 4.0) - 4.0;
        for (i, &pill) in pills.iter().enumerate() {
            let node = &self.graph.nodes[pill];
            let (px, py) = (x - PILL.0 - 14.0, y + BOX.1 / 2.0 - tall / 2.0 + i as f64 * (PILL.1 + 4.0));
            let words = match (&node.kind, node.outputs.first()) {
                (Kind::Op(_), Some(output)) if node.is_cast() => {
                    let of = self.graph.nodes[node.inputs[0].node].name.rsplit('.').next().unwrap_or_default();
                    format!("{of} to {}", output.dtype)
                }
                (_, Some(output)) => format!("{} {:?}", node.name.rsplit('.').next().unwrap_or_default(), output.shape),
                _ => node.name.clone(),
            };
            let _ = writeln!(
                svg,
                r##"<g><title>{}</title><rect x="{px:.1}" y="{py:.1}" width="{}" height="{}" rx="10" fill="{}" stroke="#adb5bd"/><text x="{:.1}" y="{:.1}" text-anchor="middle" font-size="11">{}</text></g>"##,
                escaped(&self.says(node)),
                PILL.0,
                PILL.1,
                fill(node),
                px + PILL.0 / 2.0,
                py + 14.0,
                escaped(&short(&words, 23))
            );
            let _ = writeln!(
                svg,
                r##"<line x1="{:.1}" y1="{:.1}" x2="{x:.1}" y2="{:.1}" stroke="#adb5bd"/>"##,
                px + PILL.0,
                py + PILL.1 / 2.0,
                (py + PILL.1 / 2.0).clamp(y + 4.0, y + BOX.1 - 4.0)
            );
        }
    }

    fn one_box(&self, svg: &mut String, node: &Node, x: f64, y: f64, is_output: bool) {
        let list = self.painting.and_then(|painting| {
            painting.vertices.iter().find(|vertex| *vertex.node == node.name[..]).and_then(|vertex| vertex.list)
        });
        let outputs: Vec<String> = node.outputs.iter().map(described).collect();
        let what = match &node.kind {
            Kind::Op(_) if !node.is_cast() => {
                let told = told(node);
                if told.is_empty() { node.op_name().to_string() } else { format!("{} · {told}", node.op_name()) }
            }
            _ => node.op_name().to_string(),
        };
        let what = if is_output { format!("{what} · returned") } else { what };
        let round = if node.is_cast() || !node.is_op() { 20.0 } else { 5.0 };
        let _ = writeln!(
            svg,
            r##"<g><title>{}</title><rect x="{x:.1}" y="{y:.1}" width="{}" height="{}" rx="{round}" fill="{}" stroke="{}" stroke-width="{}"/>"##,
            escaped(&self.says(node)),
            BOX.0,
            BOX.1,
            fill(node),
            border(list),
            if list.is_some() { 2.5 } else { 1.0 },
        );
        let lines =
            [(what, 11, "#495057"), (format!("{}  {}", short(&node.name, 22), outputs.join(", ")), 11, "#212529")];
        for (i, (words, size, colour)) in lines.into_iter().rev().enumerate() {
            let _ = writeln!(
                svg,
                r##"<text x="{:.1}" y="{:.1}" text-anchor="middle" font-size="{size}" fill="{colour}">{}</text>"##,
                x + BOX.0 / 2.0,
                y + 19.0 + 16.0 * i as f64,
                escaped(&short(&words, 36))
            );
        }
        svg.push_str("</g>\n");
    }

    /// What is shown where the pointer rests.
    fn says(&self, node: &Node) -> String {
        let mut words = format!("{} {}({})", node.name, node.op_name(), told(node));
        node.outputs.iter().for_each(|output| _ = write!(words, "\n{}", described(output)));
        if !node.cell.is_empty() {
            let _ = write!(words, "\nin {}", node.cell);
        }
        if let Some(why) = self.painting.and_then(|painting| painting.explain(&node.name).ok()) {
            let _ = write!(words, "\n{why}");
        }
        words
    }
}

fn returns(graph: &Graph, node: usize) -> bool {
    graph.outputs.iter().any(|port| port.node == node)
}

fn border(list: Option<GraphList>) -> &'static str {
    match list {
        Some(GraphList::Allow) => "#2b8a3e",
        Some(GraphList::Infer) => "#1864ab",
        Some(GraphList::Deny) => "#c92a2a",
        Some(GraphList::Clear) => "#868e96",
        None => "#adb5bd",
    }
}

/// A smooth line from above to below through points.
fn curve(svg: &mut String, points: &[(f64, f64)], low: bool) {
    let mut path = format!("M{:.1},{:.1}", points[0].0, points[0].1);
    for pair in points.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        let middle = f64::midpoint(y0, y1);
        let _ = write!(path, " C{x0:.1},{middle:.1} {x1:.1},{middle:.1} {x1:.1},{y1:.1}");
    }
    let colour = if low { "#4dabf7" } else { "#868e96" };
    let _ = writeln!(
        svg,
        r##"<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.4" marker-end="url(#tip)"/>"##
    );
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
