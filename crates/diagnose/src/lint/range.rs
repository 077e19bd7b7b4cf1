//! Numbers beyond the range of their dtype: overflow and underflow, forward and backward.

use precast::{
    DType, Op,
    catalogue::Family,
    observe::{EdgeOp, Phase},
    policy::LossScaleSpec,
};
use precast_base::printable::number;

use super::{
    edges::{Edge, Edges},
    finding::{Finding, Place, Rule, Severity},
    format::{overflows_at, short, smallest},
    masks,
};
use crate::measure::{HEADROOM, LOST, ROOM_BELOW, largest, values};

/// Share of the gradient that is read below which a sum of gradients is only its rounding error in f32: √n ulps for
/// sums of n = 10⁴ terms. The gradient of a bias before a batch norm is 0, and computed as such a number.
const NOISE: f64 = 1.0 / 65536.0;

/// The range of one edge.
struct Range {
    amax: f64,
    finite: bool,
    /// Share of the norm that becomes 0.
    lost: f64,
    /// Share of the numbers other than 0 that become 0.
    flushed: f64,
    /// Least factor by which the numbers must grow to keep their norm.
    need: f64,
}

impl Range {
    fn of(edge: &Edge) -> Range {
        let mut range = Range { amax: 0.0, finite: true, lost: 0.0, flushed: 0.0, need: 0.0 };
        let (low, limit) = (edge.dtype.is_low(), smallest(edge.dtype) / 2.0);
        // Sums of squares by exponent.
        let mut squares = [0.0; 1 << 11];
        let (mut nonzero, mut flushed, mut lost) = (0usize, 0usize, 0.0);
        for x in values(&edge.exact) {
            let (x, square) = (x.abs(), x * x);
            range.finite &= x.is_finite();
            if x == 0.0 || !x.is_finite() {
                continue;
            }
            range.amax = range.amax.max(x);
            squares[(x.to_bits() >> 52) as usize] += square;
            nonzero += 1;
            if x <= limit {
                (flushed, lost) = (flushed + 1, lost + square);
            }
        }
        let whole: f64 = squares.iter().sum();
        if !low || nonzero == 0 || whole == 0.0 {
            return range;
        }
        range.flushed = flushed as f64 / nonzero as f64;
        range.lost = (lost / whole).sqrt();
        let mut sum = 0.0;
        let kept = squares.iter().position(|square| {
            sum += square;
            sum > LOST * LOST * whole
        });
        let least = kept.map_or(f64::INFINITY, |exponent| f64::from_bits((exponent as u64) << 52));
        range.need = 2.0 * limit / least;
        range
    }
}

/// Returns the ranges of all edges. Gradients that are rounding errors in f32 count as 0.
fn ranges_of(edges: &Edges) -> Vec<Range> {
    let mut ranges: Vec<Range> = edges.list.iter().map(Range::of).collect();
    let mut noise = vec![false; ranges.len()];
    for (at, edge) in edges.list.iter().enumerate() {
        if edge.phase != Phase::Backward {
            continue;
        }
        let read = edges.sources(at).map(|from| ranges[from].amax).fold(0.0, f64::max);
        noise[at] = edges.sources(at).any(|from| noise[from])
            || adds_gradients(edges, at) && ranges[at].finite && ranges[at].amax < NOISE * read;
        if noise[at] {
            ranges[at] = Range { amax: 0.0, finite: true, lost: 0.0, flushed: 0.0, need: 0.0 };
        }
    }
    ranges
}

/// Returns whether a gradient is a sum, whose terms may cancel.
fn adds_gradients(edges: &Edges, at: usize) -> bool {
    let edge = &edges.list[at];
    let shorter = || edges.sources(at).any(|from| edge.exact.len() < edges.list[from].exact.len());
    match edge.op {
        EdgeOp::Accumulate => true,
        EdgeOp::Op(Op::Softmax | Op::LogSoftmax) => true,
        EdgeOp::Op(op) => op.family() == Some(Family::Norm) || shorter(),
        _ => false,
    }
}

/// Loss scales that fit.
struct Window {
    least: f64,
    most: f64,
}

impl Window {
    fn of(edges: &Edges, ranges: &[Range], scale: f64) -> Window {
        let mut window = Window { least: 0.0, most: f64::INFINITY };
        for (edge, range) in edges.list.iter().zip(ranges) {
            if edge.phase == Phase::Backward && edge.dtype.is_low() && range.finite && range.amax > 0.0 {
                window.least = window.least.max(scale * range.need);
                window.most = window.most.min(scale * largest(edge.dtype) / HEADROOM / range.amax);
            }
        }
        window
    }

    /// Returns a loss scale that fits, in powers of 2, as a line of a policy file; otherwise the reason why none fits.
    fn cure(&self, spec: &LossScaleSpec) -> Result<String, String> {
        let (least, most) = (2f64.powf(self.least.log2().ceil()), 2f64.powf(self.most.log2().floor()));
        if self.least > most || least > most {
            let (least, most) = (short(self.least), short(self.most));
            return Err(format!("no loss scale fits: small gradients need {least}, large ones allow {most}"));
        }
        // The largest one leaves the most room for smaller gradients.
        let (scale, fit) = (number(most), format!("({} to {} fit)", number(least), number(most)));
        Ok(match spec {
            LossScaleSpec::Dynamic(dynamic) if most < f64::from(dynamic.min) => format!(
                "loss_scale: {{ kind: dynamic, init: {scale}, min: {} }} {fit}, or a smaller loss",
                number(most / f64::from(ROOM_BELOW))
            ),
            LossScaleSpec::Dynamic(_) => format!("loss_scale: {{ kind: dynamic, init: {scale} }} {fit}"),
            _ => format!("loss_scale: {{ kind: fixed, scale: {scale} }} {fit}"),
        })
    }

    /// Completes a finding by its cure: rules for its cells, or for gradients the loss scale that fits.
    fn cured(&self, finding: Finding, spec: &LossScaleSpec, forward: bool, cells: Vec<String>) -> Finding {
        match (forward, self.cure(spec)) {
            (true, _) => finding.keep(cells),
            (false, Ok(scale)) => finding.write(scale),
            (false, Err(why)) => {
                let what = format!("{}; {why}", finding.what);
                finding.what(what).keep(cells)
            }
        }
    }

    /// Returns whether a dynamic loss scale finds one that fits by itself.
    fn is_reached_by(&self, spec: &LossScaleSpec) -> bool {
        let LossScaleSpec::Dynamic(dynamic) = spec else { return false };
        let (most, least) = (self.most.min(dynamic.max.into()), self.least.max(dynamic.min.into()));
        least <= most
    }
}

/// Finds gradients in f16 that no loss scale keeps from becoming 0, unless a finding has them.
pub(super) fn unscaled(edges: &Edges, before: &[Finding]) -> Option<Finding> {
    if before.iter().any(|finding| finding.rule == Rule::GradUnderflow) {
        return None;
    }
    let backward = |edge: &&Edge| edge.phase == Phase::Backward && edge.dtype == DType::F16;
    let edge = edges.list.iter().find(backward)?;
    let smallest = smallest(edge.dtype);
    let what = format!(
        "gradients are {} from {} on, and the policy has no loss scale: those below {} become 0",
        edge.dtype,
        edge.place(),
        short(smallest)
    );
    let finding = Finding::at(Rule::GradUnderflow, Severity::Warning, edge.place(), [1.0, smallest]);
    Some(finding.what(what).write("loss_scale: { kind: dynamic }"))
}

/// Finds the edges that are out of range, each with the later ones that follow from it.
fn chains(edges: &Edges, flagged: &[bool]) -> Vec<(usize, Vec<usize>)> {
    let mut seen = vec![false; flagged.len()];
    let mut chains = Vec::new();
    for at in 0..flagged.len() {
        if !flagged[at] || seen[at] || edges.sources(at).any(|from| flagged[from]) {
            continue;
        }
        let (mut chain, mut pending) = (Vec::new(), vec![at]);
        while let Some(next) = pending.pop() {
            if flagged[next] && !std::mem::replace(&mut seen[next], true) {
                chain.push(next);
                pending.extend(&edges.readers[next]);
            }
        }
        chain.sort_unstable();
        chains.push((at, chain.split_off(1)));
    }
    chains
}

/// Finds what leaves the range of its dtype, under this loss scale.
pub(super) fn findings(edges: &Edges, spec: &LossScaleSpec, scale: f64) -> Vec<Finding> {
    let ranges = ranges_of(edges);
    let (masked, mut found) = masks::findings(edges);
    if let Some(finding) = not_finite(edges, &ranges, &masked) {
        found.push(finding);
        return found;
    }
    let window = Window::of(edges, &ranges, scale);
    let low = |at: usize| edges.list[at].dtype.is_low() && !masked[at];
    let list = |wanted: &dyn Fn(usize) -> bool| (0..ranges.len()).map(|at| low(at) && wanted(at)).collect::<Vec<_>>();
    let limit = |at: usize| largest(edges.list[at].dtype);
    // A dynamic loss scale adapts by itself, if it reaches one that fits.
    let reached = window.is_reached_by(spec);
    for (at, then) in chains(edges, &list(&|at| ranges[at].amax * HEADROOM > limit(at))) {
        let beyond = |at: &usize| ranges[*at].amax >= overflows_at(edges.list[*at].dtype);
        let edge = &edges.list[at];
        let forward = edge.phase == Phase::Forward;
        let broken = std::iter::once(&at).chain(&then).any(beyond);
        let adapts = !forward && reached;
        let severity = match (broken, adapts) {
            (_, true) => Severity::Information,
            (true, false) => Severity::Error,
            (false, false) => Severity::Warning,
        };
        let (rule, cells) = (if forward { Rule::Overflow } else { Rule::GradOverflow }, cells_of(edges, at, &then));
        let reach = if beyond(&at) { "beyond" } else { "near" };
        let place = edge.place();
        let what = format!(
            "{place} reaches {} in f32, {reach} {}, the largest {}",
            short(ranges[at].amax),
            short(limit(at)),
            edge.dtype
        );
        let finding = Finding::at(rule, severity, place, [ranges[at].amax, limit(at)]).what(what);
        found.push(window.cured(finding, spec, forward, cells).then(places(edges, &then)));
    }
    for (at, then) in chains(edges, &list(&|at| ranges[at].lost > LOST)) {
        let edge = &edges.list[at];
        let forward = edge.phase == Phase::Forward;
        let (rule, cells) = (if forward { Rule::Underflow } else { Rule::GradUnderflow }, cells_of(edges, at, &then));
        // A constant of the code that becomes 0 is judged by its effect.
        if forward && edge.forward_op() == Some(Op::Cast) && edges.is_constant(at, 0) {
            continue;
        }
        let severity = match ranges[at].flushed > 0.5 {
            _ if !forward && reached => Severity::Information,
            true => Severity::Error,
            false => Severity::Warning,
        };
        let (place, smallest) = (edge.place(), smallest(edge.dtype));
        let what = format!(
            "{:.0} % of the numbers of {place} become 0: the largest is {}, the smallest {} {}",
            100.0 * ranges[at].flushed,
            short(ranges[at].amax),
            edge.dtype,
            short(smallest)
        );
        let finding = Finding::at(rule, severity, place, [ranges[at].amax, smallest]).what(what);
        found.push(window.cured(finding, spec, forward, cells).then(places(edges, &then)));
    }
    found
}

/// Finds the first number that is not finite in f32 either.
fn not_finite(edges: &Edges, ranges: &[Range], masked: &[bool]) -> Option<Finding> {
    let at = (0..ranges.len()).find(|at| !ranges[*at].finite && !masked[*at])?;
    let place = edges.list[at].place();
    let what = format!("{place} is not finite in f32 either: no precision is to blame, and no more can be said");
    let finding = Finding::at(Rule::NotFinite, Severity::Error, place, [f64::INFINITY, f64::from(f32::MAX)]);
    Some(finding.what(what).write("smaller inputs, weights or loss scale"))
}

fn places(edges: &Edges, of: &[usize]) -> Vec<Place> {
    of.iter().map(|at| edges.list[*at].place()).collect()
}

/// Returns the cells of a chain, each once.
fn cells_of(edges: &Edges, at: usize, then: &[usize]) -> Vec<String> {
    let mut cells: Vec<String> = Vec::new();
    for at in std::iter::once(&at).chain(then) {
        let cell = &edges.list[*at].cell;
        if !cells.contains(cell) {
            cells.push(cell.clone());
        }
    }
    cells
}
