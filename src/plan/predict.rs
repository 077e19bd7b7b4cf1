//! Predicting the cost of a plan.
//!
//! Everything is computed from values: a traced call (the work of each cell, and its sizes) and the [`Speeds`] of a
//! machine.

use std::collections::HashMap;

use precast_policy::host::{Costs, Takes, Timed};

use super::Region;
use crate::{
    DType, Op,
    cell::{AsCell, Child, Part, Trace, TracedOp, no_such_path},
    cost::Speeds,
    error::{Error, Result},
    precision::{OpRules, Treatment},
};

/// The work of a network in one traced call, by cell, with the speeds that give its cost.
struct OfCells<'a> {
    speeds: &'a Speeds,
    cells: Vec<CellCosts>,
}

/// The work of one cell, excluding the cells inside it.
#[derive(Default)]
struct CellCosts {
    /// Dtype and length of its own trained parameters.
    params: Vec<(DType, usize)>,
    /// Number of input and output elements of each call.
    crossings: Vec<(usize, usize)>,
    /// Number of elements kept for the backward pass that are inputs of its ops.
    came_in: usize,
    /// Cost of its ops in each dtype.
    fixed: [Takes; 3],
    /// Cost of its ops under the op lists of the level.
    listed: Takes,
    /// `true` when the op lists lower one of its ops.
    lists_lower: bool,
    /// Time of its ops with weights, in each dtype.
    weighted: [f64; 3],
}

const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// Returns the index of a dtype in [`DTYPES`].
fn index(dtype: DType) -> usize {
    DTYPES.iter().position(|d| *d == dtype).unwrap_or(0)
}

impl<'a> OfCells<'a> {
    /// Computes the costs.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when the trace is of another network,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when it is empty or the speeds are invalid.
    fn new<C: ?Sized + AsCell>(
        net: &Child<C>,
        trace: &Trace,
        rules: Option<&OpRules>,
        speeds: &'a Speeds,
    ) -> Result<Self> {
        speeds.check()?;
        let (mut cells, mut paths) = (Vec::<CellCosts>::new(), HashMap::new());
        let mut kinds = Vec::new();
        net.walk(&mut |entry| {
            let mut params = Vec::new();
            entry.slot.cell.visit(&mut |_, node| {
                if let Part::Param(param) = node
                    && param.is_trained()
                {
                    let value = param.value();
                    params.push((value.dtype(), value.len()));
                }
            });
            let i = cells.len();
            paths.insert(entry.path.to_string(), i);
            kinds.push(entry.slot.cell.kind().to_string());
            cells.push(CellCosts { params, ..CellCosts::default() });
        });
        let mut costs = OfCells { speeds, cells };
        let at =
            |path: &str| paths.get(path).copied().ok_or_else(|| no_such_path(path, paths.keys().map(String::as_str)));
        for call in &trace.cells {
            // A cell that is missing from the outline has no decision either.
            let Some(path) = &call.path else { continue };
            let i = at(path).map_err(|error| error.context("the trace is of another network"))?;
            if kinds[i] != call.kind {
                let (met, kind) = (call.kind, &kinds[i]);
                return Err(Error::value(format!(
                    "the trace is of another network: at `{path}` it has a {met}, this one a {kind}"
                )));
            }
            costs.cells[i].crossings.push((call.inputs, call.outputs));
        }
        let ops = || trace.ops.iter().filter(|ran| ran.op != Op::Cast && !ran.backward);
        if ops().next().is_none() {
            return Err(Error::value(
                "the trace has no op: trace a call of the network, `net.trace(|net| net.call(&x))`",
            ));
        }
        // With lists, an op passes its dtype on to ops that take their inputs as they come. Results that are cast to
        // another dtype keep it only within their cell; the outputs of the cell have the usual dtype again.
        let back = rules.and_then(|rules| rules.back);
        let usual = back.unwrap_or(DType::F32);
        let (mut came, mut last) = (usual, (0, 0));
        for ran in ops() {
            let cell = at(&ran.path)?;
            if back.is_some() && cell != last.0 {
                costs.cells[last.0].listed.nanos += speeds.cast(came, usual, last.1);
                came = usual;
            }
            last = (cell, ran.sizes.output.iter().product());
            for (i, dtype) in DTYPES.into_iter().enumerate() {
                let sum = one(speeds, ran, dtype);
                let cell: &mut CellCosts = &mut costs.cells[cell];
                cell.fixed[i] += sum;
                cell.weighted[i] += if ran.op.has_weight() { sum.nanos } else { 0.0 };
            }
            let listed = rules.map_or(came, |rules| by_list(rules, ran.op, came));
            let first = ran.sizes.inputs.first().map_or(0, |shape| shape.iter().product());
            let cell = &mut costs.cells[cell];
            cell.came_in += ran.sizes.kept.iter().filter(|kept| kept.came_in).map(|kept| kept.len).sum::<usize>();
            cell.listed += one(speeds, ran, listed);
            cell.listed.nanos += speeds.cast(came, listed, first);
            cell.lists_lower |= listed.is_low();
            came = listed;
        }
        if back.is_some() {
            costs.cells[last.0].listed.nanos += speeds.cast(came, usual, last.1);
        }
        Ok(costs)
    }
}

impl<C: ?Sized + AsCell> Timed for Child<C> {
    type Speeds = Speeds;
    type Trace = Trace;

    fn costs<'a>(&self, trace: &Trace, speeds: &'a Speeds, rules: Option<&OpRules>) -> Result<Box<dyn Costs + 'a>> {
        Ok(Box::new(OfCells::new(self, trace, rules, speeds)?))
    }
}

impl Costs for OfCells<'_> {
    fn host(&self) -> &str {
        &self.speeds.host
    }

    fn own(&self, i: usize, run: Region, around: Region) -> Takes {
        let cell = &self.cells[i];
        let (mut sum, inside) = match run {
            Region::Lists(low) | Region::Except(low) => (cell.listed, if cell.lists_lower { low } else { DType::F32 }),
            Region::Fixed(dtype) => (cell.fixed[index(dtype)], dtype),
            _ => (cell.fixed[0], DType::F32),
        };
        // A low copy is made once; the gradients of a parameter used in several calls are added.
        let again = cell.crossings.len().saturating_sub(1) as f64;
        for (dtype, len) in &cell.params {
            sum.nanos += self.speeds.cast(*dtype, inside, *len) + again * self.speeds.sum(inside, *len);
        }
        if let (Some(dtype), true) = (run.dtype(), run != around) {
            let outside = around.dtype().unwrap_or(DType::F32);
            for (inputs, outputs) in &cell.crossings {
                sum.nanos += self.speeds.cast(outside, dtype, *inputs) + self.speeds.cast(dtype, outside, *outputs);
            }
            // For an input that was widened, the original is kept.
            let widened = cell.crossings.iter().map(|(inputs, _)| inputs).sum::<usize>().min(cell.came_in);
            sum.kept -= (widened * dtype.bytes().saturating_sub(outside.bytes())) as f64;
        }
        sum
    }

    /// One of the three matrix products of the forward and backward pass runs in f32.
    fn wide_weight_grads(&self, i: usize, run: Region) -> u64 {
        let at = |dtype| self.cells[i].weighted[index(dtype)];
        let more = (at(DType::F32) - at(run.dtype().unwrap_or(DType::F32))) / 3.0;
        more.max(0.0).round() as u64
    }

    fn inputs(&self, i: usize) -> usize {
        self.cells[i].crossings.iter().map(|(inputs, _)| inputs).sum()
    }
}

/// Returns the cost of one call of an op in a dtype.
fn one(speeds: &Speeds, ran: &TracedOp, dtype: DType) -> Takes {
    let kept = ran.sizes.kept.iter().map(|kept| {
        let bytes = if kept.dtype.is_castable() { dtype.bytes() } else { kept.dtype.bytes() };
        (kept.len * bytes) as f64
    });
    Takes { nanos: speeds.op(ran.op, &ran.sizes, dtype), kept: kept.sum() }
}

/// Returns the dtype in which an op runs under the lists, given the dtype of its inputs.
fn by_list(rules: &OpRules, op: Op, came: DType) -> DType {
    match (rules.treatment(op), rules.back) {
        (Treatment::Low, _) => rules.low,
        (Treatment::Full | Treatment::Banned, _) => DType::F32,
        // Results of listed ops have this dtype again.
        (_, Some(back)) => back,
        _ => came,
    }
}
