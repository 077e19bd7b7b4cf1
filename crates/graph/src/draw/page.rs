//! Vertical positions of a drawing, and the frames around the boxes of a cell.

use std::collections::BTreeMap;

use super::{
    drawing::{Drawing, PILL, PILL_GAP},
    layout::Layout,
};

/// Minimum space between layers; width of a frame at its sides and, for its name, at its top.
const GAP: f64 = 30.0;
const FRAME: (f64, f64) = (7.0, 16.0);
pub(super) const MARGIN: f64 = 24.0;
const LEGEND: f64 = 50.0;

impl<'a> Drawing<'a> {
    /// Returns a frame for each cell with several boxes or parameters, unless boxes of another cell are among them. A
    /// cell that contains only another cell has none.
    pub(super) fn frames(&self, laid: &Layout) -> Vec<Frame<'a>> {
        let mut members: BTreeMap<&'a str, Vec<usize>> = BTreeMap::new();
        for at in 0..self.boxes.len() {
            let path = &self.node(at).cell[..];
            let paths = path.match_indices('.').map(|(end, _)| &path[..end]).chain([path]);
            paths.filter(|path| !path.is_empty()).for_each(|path| members.entry(path).or_default().push(at));
        }
        let known: Vec<(&str, usize)> = members.iter().map(|(path, members)| (*path, members.len())).collect();
        let mut frames: Vec<Frame<'_>> = Vec::new();
        // The innermost first.
        let mut by_depth: Vec<(&'a str, Vec<usize>)> = members.into_iter().collect();
        by_depth.sort_by_key(|(path, _)| std::cmp::Reverse(path.matches('.').count()));
        for (path, members) in by_depth {
            let same_inside =
                known.iter().any(|(other, n)| *n == members.len() && other != &path && is_inside(other, path));
            if same_inside
                || (members.len() == 1 && self.rows[members[0]].is_empty() && self.unread[members[0]].is_empty())
            {
                continue;
            }
            let ends = |at: usize| (laid.places[at].1 - self.sides(at).0, laid.places[at].1 + self.sides(at).1);
            let left = members.iter().map(|&at| ends(at).0).fold(f64::INFINITY, f64::min);
            let right = members.iter().map(|&at| ends(at).1).fold(f64::NEG_INFINITY, f64::max);
            let layers = members.iter().map(|&at| laid.places[at].0);
            let (first, last) = (layers.clone().min().unwrap_or(0), layers.max().unwrap_or(0));
            let stands_among =
                |at: usize| (first..=last).contains(&laid.places[at].0) && ends(at).1 > left && ends(at).0 < right;
            if (0..self.boxes.len()).any(|at| !is_inside(&self.node(at).cell, path) && stands_among(at)) {
                continue;
            }
            let inner = frames.iter().filter(|frame| is_inside(frame.path, path)).map(|frame| frame.height + 1).max();
            frames.push(Frame { path, members, left, right, first, last, height: inner.unwrap_or(0) });
        }
        frames.reverse();
        frames
    }
}

/// The frame of a cell.
pub(super) struct Frame<'a> {
    pub path: &'a str,
    pub members: Vec<usize>,
    pub left: f64,
    pub right: f64,
    first: usize,
    last: usize,
    /// The depth of the frames nested inside it.
    height: usize,
}

impl Frame<'_> {
    pub fn side(&self) -> f64 {
        FRAME.0 * (self.height + 1).min(4) as f64
    }

    pub fn above(&self) -> f64 {
        FRAME.1 * (self.height + 1) as f64
    }
}

/// The vertical positions of the layers.
pub(super) struct Page<'a> {
    drawing: &'a Drawing<'a>,
    places: &'a [(usize, f64)],
    /// The top and the height of each layer.
    pub layers: Vec<(f64, f64)>,
    pub height: f64,
}

impl<'a> Page<'a> {
    pub fn new(drawing: &'a Drawing<'_>, laid: &'a Layout, frames: &[Frame<'_>]) -> Page<'a> {
        let mut page = Page { drawing, places: &laid.places, layers: vec![(0.0, 0.0); laid.layers], height: 0.0 };
        for (at, &(layer, _)) in laid.places.iter().enumerate() {
            page.layers[layer].1 = page.layers[layer].1.max(page.tall(at));
        }
        // Space required by frames above their first layer and below their last one.
        let (mut above, mut below) = (vec![0.0; laid.layers], vec![0.0; laid.layers]);
        for frame in frames {
            above[frame.first] = f64::max(above[frame.first], frame.above());
            below[frame.last] = f64::max(below[frame.last], frame.side());
        }
        let mut top = MARGIN + LEGEND;
        for layer in 0..laid.layers {
            top += if layer == 0 { above[0] } else { f64::max(GAP, below[layer - 1] + above[layer] + 6.0) };
            page.layers[layer].0 = top;
            top += page.layers[layer].1;
        }
        page.height = top + below.last().unwrap_or(&0.0) + MARGIN;
        page
    }

    /// Returns the height of a box including its rows and unread casts.
    pub fn tall(&self, at: usize) -> f64 {
        let unread = self.drawing.unread[at].len() as f64 * (PILL.1 + PILL_GAP.1) - PILL_GAP.1;
        self.drawing.size(at).1.max(self.drawing.beside(at).1).max(unread)
    }

    pub fn middle(&self, at: usize) -> f64 {
        let (top, height) = self.layers[self.places[at].0];
        top + height / 2.0
    }
}

fn is_inside(cell: &str, path: &str) -> bool {
    cell == path || cell.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
}
