//! Scores: an estimate, from one pass in f32, of the error of the output that each cell alone causes when lowered.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    rc::Rc,
};

use precast::{
    Child, DType, Tensor,
    cell::AsCell,
    error::Result,
    layers::Rng,
    observe::{Distance, GradientCall, Observer, add_projections, observed_by},
};

use super::dry::{DryCell, DryResult, DryRun, Lowering, dry_run};

/// Scores of the cells of a network.
pub(crate) struct Scores {
    /// The output of the network in f32.
    pub output: Tensor,
    /// Facts about each cell.
    pub cells: Vec<DryCell>,
    /// Estimate of the squared error of the output that each cell causes; infinite if its results are not finite.
    pub errors: Vec<f64>,
    /// Relative error of the results of each cell when it alone is lowered.
    pub local: Vec<f64>,
    /// Roundings that two cells share.
    pub shared: Vec<Shared>,
}

/// The rounding of a result that one cell writes and another reads: if both are lowered, it is in the errors of both and
/// happens once.
pub(crate) struct Shared {
    pub writer: usize,
    pub reader: usize,
    /// Estimate of the squared error of the output that it causes.
    pub error: f64,
}

/// Number of independent samples, rows times probes, whose mean is a score in a search. Each is the square of a nearly
/// normal number, so the standard deviation of a score is `sqrt(2 / 512)`, a sixteenth, of its expectation.
pub(super) const SAMPLES: usize = 512;

/// The most probes: a network that sees few rows at a time is scored less exactly.
const PROBES: usize = 8;

/// Draws a vector with which the Jacobian of the output is multiplied. The mean of the squares of its products with
/// errors of the output must be the error that is to be estimated.
pub(crate) type Probe<'a> = &'a dyn Fn(&Tensor, &mut Rng) -> Result<Tensor>;

/// The probes of a network.
pub(crate) struct Probes<'a> {
    pub probe: Probe<'a>,
    /// Number of samples, rows times probes.
    pub samples: usize,
    /// The dtype to which results are rounded, if roundings that cells share are scored as well.
    pub shared: Option<DType>,
}

/// Runs `f`, which calls the network in f32, and scores its cells: the errors of a cell's results, found by a dry
/// lowering, are multiplied with the gradients of random projections of the output. The signed products of a row are
/// added before they are squared, so errors that cancel count as such, and those that agree do not.
pub(crate) fn scores<C: ?Sized + AsCell>(
    net: &Child<C>,
    lowerings: &[Lowering],
    probes: &Probes<'_>,
    f: impl FnOnce() -> Result<Tensor>,
) -> Result<Scores> {
    let DryRun { output, cells, results } = dry_run(net, lowerings, f)?;
    let rows = output.shape().first().copied().unwrap_or(1).max(1);
    let mut errors = vec![0.0; cells.len()];
    let mut local = vec![Distance::default(); cells.len()];
    let mut nodes = HashMap::<u64, Vec<usize>>::new();
    for (at, result) in results.iter().enumerate() {
        let distance = Distance::between(&result.lowered, &result.exact);
        local[result.cell] += distance;
        if !distance.apart.is_finite() {
            errors[result.cell] = f64::INFINITY;
        } else if let Some(node) = result.node.filter(|_| distance.apart > 0.0 || probes.shared.is_some()) {
            nodes.entry(node).or_default().push(at);
        }
    }
    let sources = |result: DryResult| {
        let by_row = result.exact.shape().first() == Some(&rows);
        let rounded = probes.shared.filter(|_| !result.readers.is_empty()).map(|low| result.exact.detach().cast(low));
        let DryResult { cell, exact, lowered, readers, .. } = result;
        Source { cell, by_row, exact, lowered, rounded, readers }
    };
    let sources: Vec<Source> = results.into_iter().map(sources).collect();
    let mut shared = vec![0.0; sources.len()];
    let ends: HashSet<u64> = nodes.keys().copied().collect();
    let listener = Rc::new(Products { nodes, sources, sums: RefCell::default() });
    let (count, rng) = (probes.samples.div_ceil(rows).min(PROBES), &mut Rng::seed(0));
    for _ in 0..if ends.is_empty() { 0 } else { count } {
        let empty = |count: usize| vec![vec![0.0; rows]; count];
        listener.sums.replace(Sums { cells: empty(errors.len()), roundings: empty(shared.len()) });
        let probe = (probes.probe)(&output, rng)?;
        observed_by(listener.clone(), || output.backward_to(&ends, Some(&probe)))?;
        let Sums { cells, roundings } = listener.sums.take();
        let square = |sums: &[f64]| sums.iter().map(|sum| sum * sum).sum::<f64>() / count as f64;
        errors.iter_mut().zip(cells).for_each(|(error, sums)| *error += square(&sums));
        shared.iter_mut().zip(roundings).for_each(|(error, sums)| *error += square(&sums));
    }
    let of_source = |(source, error): (&Source, f64)| {
        let error = error / source.readers.len().max(1) as f64;
        let (writer, readers) = (source.cell, source.readers.clone());
        readers.into_iter().map(move |reader| Shared { writer, reader, error })
    };
    let shared = listener.sources.iter().zip(shared).flat_map(of_source).collect();
    let local = local.into_iter().map(Distance::relative).collect();
    Ok(Scores { output, cells, errors, local, shared })
}

/// A result of a cell.
struct Source {
    cell: usize,
    /// `true` when the first axis counts the rows of the output.
    by_row: bool,
    exact: Tensor,
    /// The result of the cell alone, lowered.
    lowered: Tensor,
    /// The exact one, rounded.
    rounded: Option<Tensor>,
    readers: Vec<usize>,
}

/// Adds the products of errors and gradients, by row.
struct Products {
    /// The results by the number of their node on the tape.
    nodes: HashMap<u64, Vec<usize>>,
    sources: Vec<Source>,
    sums: RefCell<Sums>,
}

/// Sums of each row.
#[derive(Default)]
struct Sums {
    cells: Vec<Vec<f64>>,
    roundings: Vec<Vec<f64>>,
}

impl Observer for Products {
    fn gradient(&self, call: &GradientCall<'_>) {
        for &at in self.nodes.get(&call.node).into_iter().flatten() {
            let Source { cell, by_row, exact, lowered, rounded, .. } = &self.sources[at];
            let add = |sums: &mut [f64], found: &Tensor| {
                let rows = if *by_row { sums.len() } else { 1 };
                add_projections(found, exact, call.grad, &mut sums[..rows]);
            };
            let sums = &mut *self.sums.borrow_mut();
            add(&mut sums.cells[*cell], lowered);
            rounded.iter().for_each(|rounded| add(&mut sums.roundings[at], rounded));
        }
    }
}
