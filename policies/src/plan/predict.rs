//! Predicted costs of a plan, from the library's costs of each cell.

use precast_base::DType;

use super::{
    cost::{Costs, Forecast, Predicted, Takes},
    decide::{Choice, Prepared},
    decision::Decision,
    region::Region,
};
use crate::outline::OutlinedCell;

/// A tree of cells with their costs.
pub(super) struct Tree<'a> {
    pub costs: &'a dyn Costs,
    /// The parent of each cell.
    pub above: Vec<Option<usize>>,
    /// The children of each cell.
    pub inside: Vec<Vec<usize>>,
}

impl<'a> Tree<'a> {
    pub fn new(costs: &'a dyn Costs, cells: &[OutlinedCell]) -> Self {
        let (mut above, mut inside, mut open) = (Vec::new(), vec![Vec::new(); cells.len()], Vec::<usize>::new());
        for (i, cell) in cells.iter().enumerate() {
            open.truncate(cell.depth);
            let parent = open.last().copied();
            parent.into_iter().for_each(|parent| inside[parent].push(i));
            above.push(parent);
            open.push(i);
        }
        Tree { costs, above, inside }
    }

    /// Adds recomputation: recomputed cells run forward twice (a third of both passes) and keep only their inputs.
    fn recompute(&self, decisions: &mut [Decision], planned: &mut Predicted) {
        let mut inside = vec![false; decisions.len()];
        for i in 0..decisions.len() {
            let within = self.above[i].is_some_and(|above| inside[above]);
            inside[i] = within || decisions[i].recompute.is_some();
            let (true, Some(before)) = (inside[i], decisions[i].predicted) else { continue };
            let width = decisions[i].run.dtype().unwrap_or(DType::F32).bytes();
            let kept = if within { 0 } else { (self.costs.inputs(i) * width) as u64 };
            let after = Predicted { nanos: before.nanos + before.nanos / 3, kept };
            planned.nanos += after.nanos - before.nanos;
            planned.kept = (planned.kept + after.kept).saturating_sub(before.kept);
            decisions[i].predicted = Some(after);
        }
    }

    /// Returns the cost of each cell by itself, and the total.
    fn of(&self, runs: &[Region]) -> (Vec<Predicted>, Predicted) {
        let mut total = Takes::default();
        let around = |i: usize| self.above[i].map_or(Region::AsIs, |above| runs[above]);
        let cells = (0..self.above.len()).map(|i| {
            let own = self.costs.own(i, runs[i], around(i));
            total += own;
            own.into()
        });
        (cells.collect(), total.into())
    }

    /// Predicts the costs of the decisions, or of the fastest ones if `choices` says which cells may run in f32
    /// instead.
    pub fn decide(
        &self,
        prepared: &Prepared<'_>,
        plain: Vec<Decision>,
        choices: Option<&[Choice]>,
    ) -> (Vec<Decision>, Forecast) {
        let runs = |decisions: &[Decision]| decisions.iter().map(|d| d.run).collect::<Vec<Region>>();
        let (_, lowered) = self.of(&runs(&plain));
        let (_, full) = self.of(&vec![Region::AsIs; plain.len()]);
        let mut decisions = match choices {
            Some(choices) => self.fastest(prepared, plain, choices),
            None => plain,
        };
        let (cells, mut planned) = self.of(&runs(&decisions));
        for (i, (decision, mut predicted)) in decisions.iter_mut().zip(cells).enumerate() {
            let more = if decision.wide_weight_grads { self.costs.wide_weight_grads(i, decision.run) } else { 0 };
            predicted.nanos += more;
            planned.nanos += more;
            decision.predicted = Some(predicted);
        }
        self.recompute(&mut decisions, &mut planned);
        (decisions, Forecast { host: self.costs.host().to_string(), planned, lowered, full })
    }
}
