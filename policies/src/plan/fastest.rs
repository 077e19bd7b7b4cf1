//! `prefer: speed`: the exact fastest choice for a whole tree of cells, computed from the leaves up.
//!
//! A cell returns the dtype of its surroundings, so its cost depends on its own precision and that of the cell above
//! it, never on its neighbors. At level auto, where dtypes flow from op to op, the network is weighed as a whole.

use std::collections::HashMap;

use precast_base::DType;

use super::{
    cost::Cost,
    decide::{Choice, Facts, Prepared, Surroundings, Verdict},
    decision::{Decision, Reason},
    predict::Tree,
    region::Region,
};

const FULL: Region = Region::Fixed(DType::F32);

impl Tree<'_> {
    /// Returns the decisions, with f32 for each cell that is free to choose and faster in f32.
    pub fn fastest(&self, prepared: &Prepared<'_>, plain: Vec<Decision>, choices: &[Choice]) -> Vec<Decision> {
        let planned: Vec<Region> = plain.iter().map(|d| d.run).collect();
        let mut search = Search { tree: self, planned: &planned, choices, known: HashMap::new() };
        let mut inside: Vec<Surroundings> = Vec::with_capacity(plain.len());
        let mut decisions = Vec::with_capacity(plain.len());
        for (i, decision) in plain.into_iter().enumerate() {
            let above = self.above[i];
            let around = above.map_or_else(Surroundings::of_root, |above| inside[above].clone());
            let as_planned = above.is_none_or(|above| planned[above] == around.run);
            let best = search.best(i, around.run);
            let inside_what = || around.decided_by.clone().map(Reason::Inside);
            let because = match (best.weighed, &decision.because) {
                (Some(_), _) if best.run != FULL && as_planned => None,
                (Some(_), _) if best.run == FULL && around.run == FULL => inside_what(),
                (Some(cost), _) => Some(Reason::Cost(cost)),
                (None, Reason::Level(_)) => inside_what(),
                (None, _) => None,
            };
            let (run, choice) = (best.run, choices[i]);
            let (because, overridden) = match because {
                None => (decision.because, decision.overridden),
                Some(because) => (because, [vec![decision.because], decision.overridden].concat()),
            };
            // Timing never changes a cell for which a rule requests weight gradients in f32.
            let wide_weight_grads = decision.turns_weight_grads.unwrap_or(around.wide_weight_grads);
            let verdict = Verdict { run, because, choice, wide_weight_grads, overridden };
            let facts = Facts { kinds: &[&decision.kind], to_float: None, is_root: above.is_none() };
            let adapter = prepared.adapter(&facts, &around, &verdict);
            inside.push(around.inside(&verdict, &decision.path));
            let Verdict { run, because, overridden, .. } = verdict;
            decisions.push(Decision { run, adapter, because, overridden, ..decision });
        }
        decisions
    }
}

/// A memoized search for the fastest choice for a cell and all inside it, for each surrounding region.
struct Search<'a> {
    tree: &'a Tree<'a>,
    planned: &'a [Region],
    choices: &'a [Choice],
    known: HashMap<(usize, Region), Best>,
}

#[derive(Clone, Copy)]
struct Best {
    run: Region,
    nanos: f64,
    /// The times compared, if there was a choice.
    weighed: Option<Cost>,
}

impl Search<'_> {
    fn best(&mut self, i: usize, around: Region) -> Best {
        if let Some(known) = self.known.get(&(i, around)) {
            return *known;
        }
        let best = match (self.choices[i], self.planned[i]) {
            (Choice::Forced, run) => Best { run, nanos: self.nanos(i, run, around), weighed: None },
            (Choice::Inherits, _) => Best { run: around, nanos: self.nanos(i, around, around), weighed: None },
            (Choice::Free, region) => {
                let (lowered, full) = (self.nanos(i, region, around), self.nanos(i, FULL, around));
                let cost = Cost { region, lowered: lowered.round() as u64, full: full.round() as u64 };
                let (run, nanos) = if cost.full < cost.lowered { (FULL, full) } else { (region, lowered) };
                Best { run, nanos, weighed: Some(cost) }
            }
        };
        self.known.insert((i, around), best);
        best
    }

    /// Returns the predicted time of a cell and all inside it when it runs in region `run`.
    fn nanos(&mut self, i: usize, run: Region, around: Region) -> f64 {
        let tree = self.tree;
        let inside: f64 = tree.inside[i].iter().map(|below| self.best(*below, run).nanos).sum();
        tree.costs.own(i, run, around).nanos + inside
    }
}
