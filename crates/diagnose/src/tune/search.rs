//! The search for the cells that can be lowered together: verified splitting of a list sorted by scores.

use precast::error::Result;

/// Factor by which a predicted squared error may be wrong while the prediction still counts as right: 2 for what lies
/// between the error of a sum and the sum of errors when roundings agree or cancel, in a norm, so 4 in its square; and
/// 2 for the noise of a score.
pub(super) const DOUBT: f64 = 8.0;

/// Number of successive cells that may fail as predicted before the budget counts as spent: the scores of two
/// neighbours in the order may be exchanged by their noise.
pub(super) const REFUSALS: usize = 2;

/// The cells that can be lowered.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Searched {
    /// The cells. Unless there are none, this set was run, and its cost was within the budget.
    pub low: Vec<usize>,
    /// Its cost.
    pub cost: f64,
    /// Each cell whose addition to a set within the budget exceeded it, with the cost that it added.
    pub culprits: Vec<(usize, f64)>,
    /// `true` when the search ended by itself.
    pub complete: bool,
}

/// A search over cells that are known by their scores.
pub(super) struct Problem<'a> {
    /// The cells, those to be lowered first in front.
    pub order: &'a [usize],
    /// Score of each cell: the predicted cost of lowering it alone.
    pub scores: &'a [f64],
    /// The largest cost allowed.
    pub budget: f64,
    /// `true` when scores and costs have the same unit.
    pub calibrated: bool,
    /// Number of successive cells that may fail as predicted before the budget counts as spent.
    pub refusals: usize,
}

/// Searches. `run` returns the cost of lowering a set, or `None` when no more runs are allowed.
///
/// The first set tried is everything, if it may be within the budget, or else as many cells as the scores predict.
/// The longest prefix that passes is found by halving. The next cell alone turns it into one that fails, so it is kept;
/// if it added far more than predicted, it is a fragile cell that the score missed, and the search continues with the
/// cells after it. Otherwise the budget is spent.
pub(super) fn search(problem: &Problem<'_>, run: &mut dyn FnMut(&[usize]) -> Result<Option<f64>>) -> Result<Searched> {
    let Problem { order, scores, budget, calibrated, refusals: most } = *problem;
    let mut found = Searched::default();
    let mut rest = order.to_vec();
    let mut scale = calibrated.then_some(1.0);
    let mut refusals = 0;
    while !rest.is_empty() {
        let mut prefix = Prefix::new(&rest, scores, found.cost, refusals > 0);
        while let Some(length) = prefix.next(budget, scale) {
            let set = [&found.low[..], &rest[..length]].concat();
            let Some(cost) = run(&set)? else {
                found.low.extend(&rest[..prefix.passes]);
                found.cost = prefix.cost;
                return Ok(found);
            };
            let predicted: f64 = set.iter().map(|&cell| scores[cell]).sum();
            if cost <= budget && cost > 0.0 && predicted > 0.0 {
                let met = cost / predicted;
                scale = Some(if calibrated { met.clamp(1.0 / DOUBT, DOUBT) } else { met });
            }
            prefix.note(length, cost, cost <= budget);
        }
        let Prefix { passes, cost, failed, .. } = prefix;
        found.low.extend(&rest[..passes]);
        found.cost = cost;
        let Some(&culprit) = rest.get(passes) else { break };
        let added = failed - cost;
        found.culprits.push((culprit, added));
        let as_predicted = scale.is_some_and(|scale| added <= DOUBT * scale * scores[culprit]);
        refusals = match as_predicted {
            true if passes == 0 => refusals + 1,
            true => 1,
            false => 0,
        };
        if refusals >= most {
            break;
        }
        rest.drain(..=passes);
    }
    found.complete = true;
    Ok(found)
}

/// The longest prefix of a list that passes, as far as known.
struct Prefix<'a> {
    cells: &'a [usize],
    scores: &'a [f64],
    /// Length of the longest one known to pass, and its cost.
    passes: usize,
    cost: f64,
    /// Length of the shortest one known to fail; one more than all if none is.
    fails: usize,
    /// Cost of that one.
    failed: f64,
    tries: usize,
    /// Number of cells to add where no prefix is known to fail.
    step: usize,
    /// `true` when the budget seems spent.
    spent: bool,
}

impl<'a> Prefix<'a> {
    fn new(cells: &'a [usize], scores: &'a [f64], cost: f64, spent: bool) -> Self {
        let (fails, failed) = (cells.len() + 1, f64::INFINITY);
        Prefix { cells, scores, passes: 0, cost, fails, failed, tries: 0, step: 1, spent }
    }

    fn note(&mut self, length: usize, cost: f64, passes: bool) {
        self.tries += 1;
        match passes {
            true => (self.passes, self.cost) = (length, cost),
            false => (self.fails, self.failed) = (length, cost),
        }
    }

    /// Returns the predicted cost of a prefix longer than the longest that passes.
    fn predicted(&self, length: usize, scale: f64) -> f64 {
        self.cost + scale * self.cells[self.passes..length].iter().map(|&cell| self.scores[cell]).sum::<f64>()
    }

    /// Returns the length of the longest prefix that is predicted to pass, and not known to fail.
    fn cut(&self, budget: f64, scale: f64) -> usize {
        let fits = |&length: &usize| self.predicted(length, scale) <= budget;
        (self.passes + 1..self.fails.min(self.cells.len() + 1)).take_while(fits).last().unwrap_or(self.passes)
    }

    /// Returns the length of the prefix to be tried next; `None` when the longest that passes is known.
    fn next(&mut self, budget: f64, scale: Option<f64>) -> Option<usize> {
        let (all, open) = (self.cells.len(), self.fails - self.passes);
        if open <= 1 {
            return None;
        }
        let limit = if self.spent { budget } else { DOUBT * budget };
        let cut = scale.map(|scale| self.cut(budget, scale)).filter(|&cut| cut > self.passes);
        Some(match (self.tries, scale) {
            (0, None) => all,
            (0, Some(scale)) if self.predicted(all, scale) <= limit => all,
            (0 | 1, _) if cut.is_some() => cut.unwrap_or(1),
            // The scores gave all that they can give.
            _ if self.fails > all => {
                let next = (self.passes + self.step).min(all);
                self.step *= 2;
                next
            }
            _ => self.passes + open / 2,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use precast::layers::Rng;

    /// Cells whose costs add up. The budget holds all but the fragile ones, and none of these.
    struct Planted {
        costs: Vec<f64>,
        scores: Vec<f64>,
        fragile: Vec<usize>,
    }

    impl Planted {
        /// Makes fragile cells; every other one has the score of a harmless cell.
        fn new(n: usize, fragile: usize, rng: &mut Rng) -> Self {
            let mut order: Vec<usize> = (0..n).collect();
            rng.shuffle(&mut order);
            let fragile = order[..fragile].to_vec();
            let mut costs: Vec<f64> = (0..n).map(|_| rng.uniform(0.0, 0.2 / n as f64)).collect();
            let mut scores: Vec<f64> = costs.iter().map(|cost| cost * rng.uniform(0.5, 2.0)).collect();
            for (i, &cell) in fragile.iter().enumerate() {
                costs[cell] = if i % 3 == 2 { f64::INFINITY } else { rng.uniform(5.0, 1e4) };
                scores[cell] = if i % 2 == 0 { costs[cell].min(1e4) } else { scores[cell] };
            }
            Planted { costs, scores, fragile }
        }

        fn search(&self, limit: usize) -> (Searched, usize) {
            let mut order: Vec<usize> = (0..self.costs.len()).collect();
            order.sort_by(|&a, &b| self.scores[a].total_cmp(&self.scores[b]));
            let mut runs = 0;
            let problem =
                Problem { order: &order, scores: &self.scores, budget: 1.0, calibrated: true, refusals: REFUSALS };
            let found = search(&problem, &mut |low| {
                runs += 1;
                Ok((runs <= limit).then(|| low.iter().map(|&cell| self.costs[cell]).sum()))
            });
            (found.unwrap(), runs)
        }
    }

    #[test]
    fn fragile_cells_are_found_within_the_bound() {
        let rng = &mut Rng::seed(1);
        for case in 0..500 {
            let (n, k) = (4 + case % 120, 1 + case % 4);
            let planted = Planted::new(n, k, rng);
            let (found, runs) = planted.search(usize::MAX);
            let log = n.next_power_of_two().ilog2() as usize;
            assert_eq!(found.low.len(), n - k, "{n} cells, {:?} fragile: {found:?}", planted.fragile);
            assert!(planted.fragile.iter().all(|cell| !found.low.contains(cell)));
            assert!(runs <= k * (log + 1) + 2, "{n} cells, {k} fragile, {runs} runs");
            assert!(found.complete);
        }
    }

    #[test]
    fn a_search_cut_short_has_run_what_it_returns() {
        let rng = &mut Rng::seed(2);
        for limit in 0..8 {
            let planted = Planted::new(40, 3, rng);
            let (found, _) = planted.search(limit);
            let cost: f64 = found.low.iter().map(|&cell| planted.costs[cell]).sum();
            assert!(cost <= 1.0 && (cost - found.cost).abs() < 1e-12, "{found:?}");
        }
    }

    #[test]
    fn without_a_unit_scores_only_give_the_order() {
        let scores = [1e-9, 2e-9, 3e-9, 4e-9, 5e-9, 6e-9];
        let problem =
            Problem { order: &[0, 1, 2, 3, 4, 5], scores: &scores, budget: 1.0, calibrated: false, refusals: REFUSALS };
        let found = search(&problem, &mut |low| Ok(Some(if low.contains(&4) { 3.0 } else { 0.1 }))).unwrap();
        assert_eq!(found.low, [0, 1, 2, 3, 5]);
        assert_eq!(found.culprits.iter().map(|(cell, _)| *cell).collect::<Vec<_>>(), [4]);
    }
}
