//! Scores: an estimate, from one pass in f32, of the error of the output that each cell alone causes when lowered.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use super::dry::{DryCell, DryResult, DryRun, Rounding, dry_run};
use crate::{
    Child, Tensor,
    cell::AsCell,
    error::Result,
    layers::Rng,
    observe::{GradientCall, Hears, heard_by},
};

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
}

/// Number of independent samples, rows times probes, whose mean is a score. Each is the square of a nearly
/// normal number, so the standard deviation of a score is `sqrt(2 / 512)`, a sixteenth, of its expectation.
const SAMPLES: usize = 512;

/// The most probes: a network that sees few rows at a time is scored less exactly.
const PROBES: usize = 8;

/// Draws a vector with which the Jacobian of the output is multiplied. The mean of the squares of its products with
/// errors of the output must be the error that is to be estimated.
pub(crate) type Probe<'a> = &'a dyn Fn(&Tensor, &mut Rng) -> Result<Tensor>;

/// Runs `f`, which calls the network in f32, and scores its cells: the errors of a cell's results, found by a dry
/// lowering, are multiplied with the gradients of random projections of the output. The signed products of a row are
/// added before they are squared, so errors that cancel count as such, and those that agree do not.
pub(crate) fn scores<C: ?Sized + AsCell>(
    net: &Child<C>,
    roundings: &[Rounding],
    probe: Probe<'_>,
    f: impl FnOnce() -> Result<Tensor>,
) -> Result<Scores> {
    let DryRun { output, cells, results } = dry_run(net, roundings, f)?;
    let rows = output.shape().first().copied().unwrap_or(1).max(1);
    let mut errors = vec![0.0; cells.len()];
    let local = local(&results, cells.len());
    let mut nodes = HashMap::<u64, Vec<usize>>::new();
    for (at, result) in results.iter().enumerate() {
        if result.error.iter().any(|error| !error.is_finite()) {
            errors[result.cell] = f64::INFINITY;
        } else if let Some(node) = result.node {
            nodes.entry(node).or_default().push(at);
        }
    }
    let results: Vec<Error> = results
        .into_iter()
        .map(|result| Error {
            cell: result.cell,
            by_row: result.exact.shape().first() == Some(&rows),
            error: result.error,
        })
        .collect();
    let listener = Rc::new(Products { rows, nodes, results, sums: RefCell::default() });
    let (probes, rng) = (SAMPLES.div_ceil(rows).min(PROBES), &mut Rng::seed(0));
    for _ in 0..if output.is_tracked() { probes } else { 0 } {
        listener.sums.replace(vec![vec![0.0; rows]; errors.len()]);
        heard_by(listener.clone(), || output.backward_from(&probe(&output, rng)?).map(drop))?;
        for (error, sums) in errors.iter_mut().zip(listener.sums.take()) {
            *error += sums.iter().map(|sum| sum * sum).sum::<f64>() / probes as f64;
        }
    }
    Ok(Scores { output, cells, errors, local })
}

/// Returns the relative error of the results of each cell.
fn local(results: &[DryResult], cells: usize) -> Vec<f64> {
    let mut squares = vec![(0.0, 0.0); cells];
    for DryResult { cell, exact, error, .. } in results {
        let (apart, whole) = &mut squares[*cell];
        *apart += error.iter().map(|error| f64::from(*error).powi(2)).sum::<f64>();
        *whole += exact.to_f64().iter().filter(|x| x.is_finite()).map(|x| x * x).sum::<f64>();
    }
    squares.into_iter().map(|(apart, whole)| if apart == 0.0 { 0.0 } else { (apart / whole).sqrt() }).collect()
}

/// The errors of a result of a cell.
struct Error {
    cell: usize,
    /// `true` when the first axis counts the rows of the output.
    by_row: bool,
    error: Vec<f32>,
}

/// Adds the products of errors and gradients, by cell and row.
struct Products {
    rows: usize,
    /// The results by the number of their node on the tape.
    nodes: HashMap<u64, Vec<usize>>,
    results: Vec<Error>,
    sums: RefCell<Vec<Vec<f64>>>,
}

impl Hears for Products {
    fn gradient(&self, call: &GradientCall<'_>) {
        for &at in self.nodes.get(&call.node).into_iter().flatten() {
            let Error { cell, by_row, error } = &self.results[at];
            let gradient = call.grad.to_f64();
            let length = if *by_row { error.len() / self.rows } else { error.len() }.max(1);
            let sums = &mut self.sums.borrow_mut()[*cell];
            for (row, (gradient, error)) in gradient.chunks(length).zip(error.chunks(length)).enumerate() {
                sums[row] += gradient.iter().zip(error).map(|(g, e)| g * f64::from(*e)).sum::<f64>();
            }
        }
    }
}
