//! Drawings as standalone SVG.

use std::{collections::HashSet, fmt::Write};

use super::{
    drawing::{CAST, Drawing, PILL, PILL_CAST, PILL_GAP},
    drawn::{Drawn, Form},
    layout::layout,
    page::{Frame, MARGIN, Page},
};
use precast::policy::GraphList;
use precast_base::printable::{printable, printable_lines};

fn border(list: Option<GraphList>) -> &'static str {
    match list {
        Some(GraphList::Allow) => "#2b8a3e",
        Some(GraphList::Infer) => "#7048e8",
        Some(GraphList::Deny) => "#c92a2a",
        Some(GraphList::Clear) => "#868e96",
        None => "#adb5bd",
    }
}

/// Escapes text for XML; a title may have several lines.
fn escaped(text: &str) -> String {
    printable_lines(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Shortens text to one line of at most `most` characters.
fn short(text: &str, most: usize) -> String {
    let text = printable(text);
    match text.char_indices().nth(most.saturating_sub(1)) {
        Some((at, _)) if text.chars().count() > most => format!("{}…", &text[..at]),
        _ => text.into(),
    }
}

/// Returns the last segment of a path.
fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or_default()
}

impl Drawing<'_> {
    pub(super) fn svg(&self) -> String {
        let sides: Vec<(f64, f64)> = (0..self.boxes.len()).map(|at| self.sides(at)).collect();
        let laid = layout(&sides, &self.edges);
        let frames = self.frames(&laid);
        let page = Page::new(self, &laid, &frames);
        let legend = self.legend();
        let width = (laid.width + 2.0 * MARGIN).max(legend.1);
        let mut svg = String::new();
        let _ = writeln!(
            svg,
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}" width="{width:.0}" height="{height:.0}" font-family="Helvetica, Arial, sans-serif" font-size="11">
<rect width="100%" height="100%" fill="#ffffff"/>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#868e96"/></marker></defs>"##,
            height = page.height
        );
        svg.push_str(&legend.0);
        let left = MARGIN + (width - 2.0 * MARGIN - laid.width) / 2.0;
        let _ = writeln!(svg, r#"<g transform="translate({left:.1},0)">"#);
        frames.iter().for_each(|frame| self.one_frame(&mut svg, frame, &page));
        for (&(from, to), way) in self.edges.iter().zip(&laid.ways) {
            let ((first, x0), (_, x1)) = (laid.places[from], laid.places[to]);
            // Within a layer a line is vertical, so that it passes the rows at its ends.
            let end_of = |(top, height): (f64, f64)| top + height;
            let mut points = vec![(x0, page.middle(from) + self.size(from).1 / 2.0), (x0, end_of(page.layers[first]))];
            for (i, &x) in way.iter().enumerate() {
                let (top, height) = page.layers[first + 1 + i];
                points.extend([(x, top), (x, top + height)]);
            }
            points.extend([(x1, page.layers[laid.places[to].0].0), (x1, page.middle(to) - self.size(to).1 / 2.0)]);
            curve(&mut svg, &points, self.node(from).is_low());
        }
        let framed: HashSet<&str> = frames.iter().map(|frame| frame.path).collect();
        for at in 0..self.boxes.len() {
            let (x, y) = (laid.places[at].1, page.middle(at));
            self.rows_of(&mut svg, at, x, y);
            self.unread_of(&mut svg, at, x, y);
            self.one_box(&mut svg, at, x, y, framed.contains(&self.node(at).cell[..]));
        }
        svg.push_str("</g>\n</svg>\n");
        svg
    }

    /// Draws the legend of the colours in use, and returns its width.
    fn legend(&self) -> (String, f64) {
        let (mut svg, mut x) = (String::new(), MARGIN);
        let mut item = |colour: &str, border: &str, words: &str| {
            let _ = writeln!(
                svg,
                r##"<rect x="{x:.0}" y="14" width="14" height="14" rx="3" fill="{colour}" stroke="{border}" stroke-width="2"/><text x="{:.0}" y="25" font-size="12">{words}</text>"##,
                x + 20.0
            );
            x += 36.0 + 6.5 * words.len() as f64;
        };
        item("#ffffff", border(None), "f32");
        item("#a5d8ff", border(None), "16 bit");
        item("#ffd8a8", border(None), "cast");
        for list in GraphList::ALL.into_iter().filter(|list| self.nodes.iter().any(|node| node.list == Some(*list))) {
            item("#ffffff", border(Some(list)), &format!("{list} list"));
        }
        let count = |form| self.nodes.iter().filter(|node| node.form == form).count();
        let (ops, casts) = (count(Form::Op), count(Form::Cast));
        let _ = writeln!(
            svg,
            r##"<text x="{MARGIN}" y="46" font-size="12" fill="#495057">{ops} ops, {casts} casts</text>"##
        );
        (svg, x + MARGIN)
    }

    fn one_frame(&self, svg: &mut String, frame: &Frame<'_>, page: &Page<'_>) {
        let top = frame.members.iter().map(|&at| page.middle(at) - page.tall(at) / 2.0).fold(f64::INFINITY, f64::min);
        let end = frame.members.iter().map(|&at| page.middle(at) + page.tall(at) / 2.0).fold(0.0, f64::max);
        let (side, above) = (frame.side(), frame.above());
        let _ = writeln!(
            svg,
            r##"<rect x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}" rx="8" fill="#868e96" fill-opacity="0.07" stroke="#ced4da"/><text x="{:.1}" y="{:.1}" fill="#868e96">{}</text>"##,
            frame.left - side,
            top - above,
            frame.right - frame.left + 2.0 * side,
            end - top + above + side,
            frame.left - side + 7.0,
            top - above + 12.0,
            escaped(&short(frame.path, 40))
        );
    }

    fn rows_of(&self, svg: &mut String, at: usize, x: f64, y: f64) {
        let (width, height) = self.beside(at);
        let edge = x - self.size(at).0 / 2.0;
        let casts = self.rows[at].iter().any(|(_, cast)| cast.is_some());
        for (i, &(read, cast)) in self.rows[at].iter().enumerate() {
            let top = y - height / 2.0 + i as f64 * (PILL.1 + PILL_GAP.1);
            let middle = top + PILL.1 / 2.0;
            let (left, start) = (edge - width, if read.is_some() { edge - width + PILL.0 } else { edge - PILL_GAP.0 });
            let _ = writeln!(
                svg,
                r##"<path d="M{start:.1},{middle:.1} L{:.1},{middle:.1} L{edge:.1},{:.1}" fill="none" stroke="#adb5bd"/>"##,
                edge - PILL_GAP.0,
                middle.clamp(y - self.size(at).1 / 2.0 + 4.0, y + self.size(at).1 / 2.0 - 4.0)
            );
            if let Some(read) = read {
                let node = &self.nodes[read];
                let words = format!("{} {}", last(&node.label), node.shape);
                pill(svg, node, (left, top), PILL.0, &short(words.trim_end(), 20));
            }
            if let (Some(cast), true) = (cast, casts) {
                let node = &self.nodes[cast];
                let words = node.dtype.map_or(String::new(), |dtype| dtype.to_string());
                pill(svg, node, (left + PILL.0 + PILL_GAP.1, top), PILL_CAST, &words);
            }
        }
    }

    fn unread_of(&self, svg: &mut String, at: usize, x: f64, y: f64) {
        let edge = x + self.size(at).0 / 2.0;
        let height = self.unread[at].len() as f64 * (PILL.1 + PILL_GAP.1) - PILL_GAP.1;
        for (i, &cast) in self.unread[at].iter().enumerate() {
            let node = &self.nodes[cast];
            let top = y - height / 2.0 + i as f64 * (PILL.1 + PILL_GAP.1);
            let (middle, left) = (top + PILL.1 / 2.0, edge + 2.0 * PILL_GAP.0);
            let from = middle.clamp(y - self.size(at).1 / 2.0 + 4.0, y + self.size(at).1 / 2.0 - 4.0);
            line(svg, &format!("M{edge:.1},{from:.1} L{left:.1},{middle:.1}"), self.node(at).is_low());
            let words = node.dtype.map_or(String::new(), |dtype| format!("to {dtype} · unread"));
            pill(svg, node, (left, top), CAST.0, &words);
        }
    }

    fn one_box(&self, svg: &mut String, at: usize, x: f64, y: f64, is_framed: bool) {
        let (node, (width, height)) = (self.node(at), self.size(at));
        let returned = if node.returned { " · returned" } else { "" };
        let what = node.outputs.join(", ");
        let told = &node.attributes;
        // Attributes of an op are shown in the box if there is room, otherwise in the tooltip.
        let with_told = format!("{what} · {told}{returned}");
        let what = match told.is_empty() || with_told.chars().count() > 32 {
            true => format!("{what}{returned}"),
            false => with_told,
        };
        let is_cast = node.is_cast();
        let _ = writeln!(
            svg,
            r##"<g><title>{}</title><rect x="{:.1}" y="{:.1}" width="{width}" height="{height}" rx="{}" fill="{}" stroke="{}" stroke-width="{}"/>"##,
            escaped(&says(node)),
            x - width / 2.0,
            y - height / 2.0,
            if is_cast || !node.is_op() { height / 2.0 } else { 5.0 },
            node.fill(),
            border(node.list),
            if node.list.is_some() { 2.5 } else { 1.0 },
        );
        let mut text = |y: f64, style: &str, words: &str| {
            let _ = writeln!(
                svg,
                r##"<text x="{x:.1}" y="{y:.1}" text-anchor="middle" {style}>{}</text>"##,
                escaped(words)
            );
        };
        if is_cast {
            let dtype = node.dtype.map_or(String::new(), |dtype| dtype.to_string());
            text(y + 4.0, "", &format!("to {dtype}{returned}"));
        } else {
            text(y - 4.0, r#"font-weight="bold""#, &short(&node.label, 30));
            text(y + 11.0, r##"fill="#495057""##, &short(&what, 34));
        }
        svg.push_str("</g>\n");
        if !is_framed && !is_cast && !node.cell.is_empty() {
            let (x, y) = (x - width / 2.0 + 4.0, y - height / 2.0 - 5.0);
            // The arrow enters at the middle.
            let cell: Vec<char> = node.cell.chars().collect();
            let cell = match cell.len() {
                0..=16 => node.cell.clone(),
                n => format!("…{}", cell[n - 15..].iter().collect::<String>()),
            };
            let cell = escaped(&short(&cell, 16));
            let _ = writeln!(
                svg,
                r##"<text x="{x:.1}" y="{y:.1}" fill="#868e96" stroke="#ffffff" stroke-width="3" paint-order="stroke">{cell}</text>"##
            );
        }
    }
}

/// Draws a smooth line through points, from top to bottom.
fn curve(svg: &mut String, points: &[(f64, f64)], low: bool) {
    let mut path = format!("M{:.1},{:.1}", points[0].0, points[0].1);
    for pair in points.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        let middle = f64::midpoint(y0, y1);
        if (x0, y0) == (x1, y1) {
            continue;
        }
        let _ = match x0 == x1 {
            true => write!(path, " L{x1:.1},{y1:.1}"),
            false => write!(path, " C{x0:.1},{middle:.1} {x1:.1},{middle:.1} {x1:.1},{y1:.1}"),
        };
    }
    line(svg, &path, low);
}

fn line(svg: &mut String, path: &str, low: bool) {
    let colour = if low { "#4dabf7" } else { "#868e96" };
    let _ = writeln!(
        svg,
        r##"<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.4" marker-end="url(#tip)"/>"##
    );
}

/// Draws a node in one line beside a box.
fn pill(svg: &mut String, node: &Drawn, (x, y): (f64, f64), width: f64, words: &str) {
    let _ = writeln!(
        svg,
        r##"<g><title>{}</title><rect x="{x:.1}" y="{y:.1}" width="{width}" height="{}" rx="10" fill="{}" stroke="#adb5bd"/><text x="{:.1}" y="{:.1}" text-anchor="middle" font-size="10.5">{}</text></g>"##,
        escaped(&says(node)),
        PILL.1,
        node.fill(),
        x + width / 2.0,
        y + 14.0,
        escaped(words)
    );
}

/// Returns the text of the tooltip.
fn says(node: &Drawn) -> String {
    let mut words = format!("{} {}({})", node.name, node.op, node.attributes);
    node.outputs.iter().for_each(|output| _ = write!(words, "\n{output}"));
    if !node.cell.is_empty() {
        let _ = write!(words, "\nin {}", node.cell);
    }
    if let Some(why) = &node.why {
        let _ = write!(words, "\n{why}");
    }
    words
}
