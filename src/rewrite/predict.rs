//! What a plan is predicted to take.
//!
//! All is computed from values: a traced call (what each cell does, and how large it is) and the [`Speeds`] of a machine.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{
    Decision, Region,
    decide::{Choice, Prepared},
};
use crate::{
    DType, Op,
    cell::{AsCell, Child, Node, Trace, TracedOp, no_such_path},
    cost::Speeds,
    error::{Error, Result},
    precision::{OpRules, Treatment},
};

/// What something is predicted to take in a forward and a backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predicted {
    /// Nanoseconds; those of the update of parameters are not among them.
    pub nanos: u64,
    /// Bytes of activations kept for the backward pass.
    pub kept: u64,
}

/// What a plan is predicted to take, beside what it could.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prediction {
    /// The machine whose speeds it rests on.
    pub host: String,
    /// This plan.
    pub planned: Predicted,
    /// The same level without regard to time.
    pub lowered: Predicted,
    /// All in f32.
    pub full: Predicted,
}

/// What a network does in one traced call, by cell, and what that takes.
pub(super) struct Costs<'a> {
    speeds: &'a Speeds,
    pub cells: Vec<CellCosts>,
}

/// What one cell does itself; the cells inside it have their own.
#[derive(Default)]
pub(super) struct CellCosts {
    /// The cell in which it stands.
    pub above: Option<usize>,
    /// The cells that stand in it.
    pub inside: Vec<usize>,
    /// Dtype and length of its own trained parameters.
    params: Vec<(DType, usize)>,
    /// How many elements went in and came out, by call.
    crossings: Vec<(usize, usize)>,
    /// How much of what is kept of its ops came into them.
    came_in: usize,
    /// Its ops in each dtype.
    fixed: [Sum; 3],
    /// Its ops by the op lists of the level.
    listed: Sum,
    /// Whether the op lists lower one of its ops.
    lists_lower: bool,
    /// Time of its ops that have weights, in each dtype.
    weighted: [f64; 3],
}

/// A [`Predicted`] while it is summed up.
#[derive(Clone, Copy, Default)]
pub(super) struct Sum {
    pub nanos: f64,
    kept: f64,
}

impl std::ops::AddAssign for Sum {
    fn add_assign(&mut self, other: Self) {
        self.nanos += other.nanos;
        self.kept += other.kept;
    }
}

impl From<Sum> for Predicted {
    fn from(sum: Sum) -> Self {
        Predicted { nanos: sum.nanos.round() as u64, kept: sum.kept.round() as u64 }
    }
}

const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// The number of a dtype among [`DTYPES`].
fn index(dtype: DType) -> usize {
    DTYPES.iter().position(|d| *d == dtype).unwrap_or(0)
}

impl<'a> Costs<'a> {
    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when the trace is of another network,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when it is empty or the speeds are none.
    pub fn new<C: ?Sized + AsCell>(
        net: &Child<C>,
        trace: &Trace,
        rules: Option<&OpRules>,
        speeds: &'a Speeds,
    ) -> Result<Self> {
        speeds.check()?;
        let (mut cells, mut paths, mut above) = (Vec::<CellCosts>::new(), HashMap::new(), Vec::new());
        let mut kinds = Vec::new();
        net.walk(&mut |entry| {
            above.truncate(entry.depth);
            let mut params = Vec::new();
            entry.slot.cell.visit(&mut |_, node| {
                if let Node::Param(param) = node
                    && param.is_trained()
                {
                    let value = param.value();
                    params.push((value.dtype(), value.len()));
                }
            });
            let i = cells.len();
            paths.insert(entry.path.to_string(), i);
            let parent = above.last().copied();
            if let Some(parent) = parent {
                let parent: &mut CellCosts = &mut cells[parent];
                parent.inside.push(i);
            }
            kinds.push(entry.slot.cell.kind().to_string());
            cells.push(CellCosts { above: parent, params, ..CellCosts::default() });
            above.push(i);
        });
        let mut costs = Costs { speeds, cells };
        let at =
            |path: &str| paths.get(path).copied().ok_or_else(|| no_such_path(path, paths.keys().map(String::as_str)));
        for call in &trace.cells {
            // A cell that the network does not show has no decision either.
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
        // By lists an op leaves its dtype to those that take their inputs as they come. Where results return to another
        // dtype, they do so inside their cell only; what leaves the cell has that dtype again.
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

    /// What a cell takes itself in a region, that stands in another.
    pub fn own(&self, i: usize, run: Region, around: Region) -> Sum {
        let cell = &self.cells[i];
        let (mut sum, inside) = match run {
            Region::Lists(low) | Region::Except(low) => (cell.listed, if cell.lists_lower { low } else { DType::F32 }),
            Region::AsIs => (cell.fixed[0], DType::F32),
            Region::Fixed(dtype) => (cell.fixed[index(dtype)], dtype),
        };
        // A low copy is made once; the gradients of a parameter that is used in each of several calls are added up.
        let again = cell.crossings.len().saturating_sub(1) as f64;
        for (dtype, len) in &cell.params {
            sum.nanos += self.speeds.cast(*dtype, inside, *len) + again * self.speeds.sum(inside, *len);
        }
        if let (Some(dtype), true) = (run.dtype(), run != around) {
            let outside = around.dtype().unwrap_or(DType::F32);
            for (inputs, outputs) in &cell.crossings {
                sum.nanos += self.speeds.cast(outside, dtype, *inputs) + self.speeds.cast(dtype, outside, *outputs);
            }
            // Of an input that was widened, what it was before is kept.
            let widened = cell.crossings.iter().map(|(inputs, _)| inputs).sum::<usize>().min(cell.came_in);
            sum.kept -= (widened * dtype.bytes().saturating_sub(outside.bytes())) as f64;
        }
        sum
    }

    /// What it takes more to compute the gradients of weights in f32, in nanoseconds: of the three products of forward and
    /// backward pass, one runs in f32.
    fn wide_weight_grads(&self, i: usize, run: Region) -> u64 {
        let at = |dtype| self.cells[i].weighted[index(dtype)];
        let more = (at(DType::F32) - at(run.dtype().unwrap_or(DType::F32))) / 3.0;
        more.max(0.0).round() as u64
    }

    /// Recomputed cells run forward twice, a third of forward and backward pass, and keep what comes in alone.
    fn recompute(&self, decisions: &mut [Decision], planned: &mut Predicted) {
        let mut inside = vec![false; decisions.len()];
        for i in 0..decisions.len() {
            let within = self.cells[i].above.is_some_and(|above| inside[above]);
            inside[i] = within || decisions[i].recompute.is_some();
            let (true, Some(before)) = (inside[i], decisions[i].predicted) else { continue };
            let width = decisions[i].run.dtype().unwrap_or(DType::F32).bytes();
            let came_in: usize = self.cells[i].crossings.iter().map(|(inputs, _)| inputs).sum();
            let kept = if within { 0 } else { (came_in * width) as u64 };
            let after = Predicted { nanos: before.nanos + before.nanos / 3, kept };
            planned.nanos += after.nanos - before.nanos;
            planned.kept = (planned.kept + after.kept).saturating_sub(before.kept);
            decisions[i].predicted = Some(after);
        }
    }

    /// What each cell takes itself, and all together.
    fn of(&self, runs: &[Region]) -> (Vec<Predicted>, Predicted) {
        let mut total = Sum::default();
        let around = |i: usize| self.cells[i].above.map_or(Region::AsIs, |above| runs[above]);
        let cells = (0..self.cells.len()).map(|i| {
            let own = self.own(i, runs[i], around(i));
            total += own;
            own.into()
        });
        (cells.collect(), total.into())
    }

    /// What is predicted, of these decisions, or of the fastest where choices say which cells may run in f32 instead.
    pub fn decide(
        &self,
        prepared: &Prepared<'_>,
        plain: Vec<Decision>,
        choices: Option<&[Choice]>,
    ) -> (Vec<Decision>, Prediction) {
        let runs = |decisions: &[Decision]| decisions.iter().map(|d| d.run).collect::<Vec<Region>>();
        let (_, lowered) = self.of(&runs(&plain));
        let (_, full) = self.of(&vec![Region::AsIs; plain.len()]);
        let mut decisions = match choices {
            Some(choices) => self.fastest(prepared, plain, choices),
            None => plain,
        };
        let (cells, mut planned) = self.of(&runs(&decisions));
        for (i, (decision, mut predicted)) in decisions.iter_mut().zip(cells).enumerate() {
            let more = if decision.wide_weight_grads { self.wide_weight_grads(i, decision.run) } else { 0 };
            predicted.nanos += more;
            planned.nanos += more;
            decision.predicted = Some(predicted);
        }
        self.recompute(&mut decisions, &mut planned);
        (decisions, Prediction { host: self.speeds.host.clone(), planned, lowered, full })
    }
}

/// One op call in a dtype.
fn one(speeds: &Speeds, ran: &TracedOp, dtype: DType) -> Sum {
    let kept = ran.sizes.kept.iter().map(|kept| {
        let bytes = if kept.dtype.is_castable() { dtype.bytes() } else { kept.dtype.bytes() };
        (kept.len * bytes) as f64
    });
    Sum { nanos: speeds.op(ran.op, &ran.sizes, dtype), kept: kept.sum() }
}

/// The dtype in which an op runs by lists, when its inputs came in one.
fn by_list(rules: &OpRules, op: Op, came: DType) -> DType {
    match (rules.treatment(op), rules.back) {
        (Treatment::Low, _) => rules.low,
        (Treatment::Full | Treatment::Banned, _) => DType::F32,
        // What a listed op returned has this dtype again.
        (_, Some(back)) => back,
        _ => came,
    }
}
