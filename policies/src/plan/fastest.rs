//! `prefer: speed`: the fastest choice for a whole tree of cells, found exactly, from the leaves up.
//!
//! A cell returns the dtype of what surrounds it, so what it takes depends on its own precision and that of the cell above,
//! never on its neighbours. At level auto, where dtypes flow from op to op, the network is weighed as a whole.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{
    Decision, Reason, Region,
    decide::{Choice, Facts, Prepared, Surroundings, Verdict},
    predict::Tree,
};
use crate::DType;

/// The two times of which the lesser decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// How the level would run the cell.
    pub region: Region,
    /// Nanoseconds that it and all inside it would take so, casts at its border counted.
    pub lowered: u64,
    /// The same in f32.
    pub full: u64,
}

const FULL: Region = Region::Fixed(DType::F32);

impl Tree<'_> {
    /// The decisions, with f32 for those cells that are free to choose where that takes less time.
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
            // Time turns no cell for which a rule asks for f32 gradients of weights.
            let wide_weight_grads = decision.turns_weight_grads.unwrap_or(around.wide_weight_grads);
            let verdict = Verdict { run, because, choice, wide_weight_grads, overridden };
            let facts = Facts { path: &decision.path, kind: &decision.kind, to_float: None, is_root: above.is_none() };
            let adapter = prepared.adapter(&facts, &around, &verdict);
            inside.push(around.inside(&verdict, &decision.path));
            let Verdict { run, because, overridden, .. } = verdict;
            decisions.push(Decision { run, adapter, because, overridden, ..decision });
        }
        decisions
    }
}

/// The fastest choice for a cell and all inside it, for each region that may surround it.
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
    /// What it was chosen by, where there was a choice.
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

    /// What a cell and all inside it take when it runs so.
    fn nanos(&mut self, i: usize, run: Region, around: Region) -> f64 {
        let tree = self.tree;
        let inside: f64 = tree.inside[i].iter().map(|below| self.best(*below, run).nanos).sum();
        tree.costs.own(i, run, around).nanos + inside
    }
}
