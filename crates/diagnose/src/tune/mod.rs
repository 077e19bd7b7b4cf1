//! Searching for the cells that can be lowered: [`Tune`] finds the largest set whose error stays within a budget, and
//! writes the policy that lowers it.

mod dry;
mod journal;
mod metric;
mod order;
mod recipes;
mod rules;
mod score;
mod search;
mod tuned;

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

pub(crate) use self::{
    metric::wide,
    rules::Base,
    score::{Probes, Scores, scores},
};
pub use metric::{ErrorOf, LossOf, Metric};
pub use tuned::{TuneRun, Tuned, TunedCell};

use self::{
    journal::{Hash, Journal},
    metric::{Call, Reference},
    order::order,
    score::SAMPLES,
    search::{Problem, REFUSALS, Searched, search},
    tuned::Watch,
};
use precast::{
    DType, Policy, Tensor,
    cell::{AsCell, Child},
    cost::Speeds,
    error::{Error, Result},
    plan::{Decision, Region, undo},
    policy::{LossScaleSpec, Operands},
};
use precast_policy::host::Timed as _;

/// A search for the cells of a network that a policy can lower within a budget of error.
///
/// It scores each cell in one pass in f32: the error of a dry lowering of the cell alone, multiplied with the gradients
/// of random projections of the output. Sorted by these scores, the cells are then lowered together, in sets that are
/// found by halving. Every set that counts was run, on all batches.
///
/// With a policy that quantizes operands, it is a search for the cells that bear it: the others keep their 16 bits, as the
/// policy has them, and lose the quantization.
///
/// ```
/// use precast::prelude::*;
/// use precast_diagnose::tune::{Metric, Tune};
/// let rng = &mut Rng::seed(1);
/// let mut net = Child::new(sequential![Dense::new(8, 32, rng), Tanh, Dense::new(32, 32, rng), Tanh, Dense::new(32, 4, rng)]);
/// let batches = [Tensor::randn(&[64, 8], rng)?, Tensor::randn(&[64, 8], rng)?];
///
/// let policy = Policy::new(Level::O2, DType::Bf16)?;
/// let found = Tune::new(&policy, Metric::Relative, 2e-3).run(&mut net, &batches)?;
/// println!("{found}");
/// assert!(found.error <= 2e-3 && found.lowered() > 0);
/// found.policy.apply(&mut net)?; // or found.policy.save("tuned.yaml")
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a search does nothing until it is run"]
pub struct Tune<'a> {
    policy: &'a Policy,
    metric: Metric<'a>,
    budget: f64,
    recipes: Vec<Operands>,
    /// The recipe of the cells that are searched, and the operands of those that do not bear it.
    recipe: Option<(Operands, Operands)>,
    runs: Option<usize>,
    minutes: Option<f64>,
    speeds: Option<&'a Speeds>,
    journal: Option<PathBuf>,
    scale: Option<f64>,
    stop: Option<&'a AtomicBool>,
    watch: Option<Watch<'a>>,
}

impl<'a> Tune<'a> {
    /// Creates a search for the most cells that a policy can lower while the error stays within a budget. Cells that
    /// the policy keeps in f32 stay so; if it quantizes operands, so do those of 16 bits, and the search is for the cells whose
    /// operands are quantized.
    pub fn new(policy: &'a Policy, metric: Metric<'a>, budget: f64) -> Self {
        Tune {
            policy,
            metric,
            budget,
            recipes: Vec::new(),
            recipe: None,
            runs: None,
            minutes: None,
            speeds: None,
            journal: None,
            scale: None,
            stop: None,
            watch: None,
        }
    }

    /// Searches for a recipe of the operands of each cell with products, in a policy that quantizes none: first for the cells
    /// that bear the first of these, and among them for those that bear the next, each time with what the budget leaves. Default:
    /// as the policy has them.
    pub fn recipes(mut self, recipes: &[Operands]) -> Self {
        self.recipes = recipes.to_vec();
        self
    }

    /// Sets the largest number of sets to be run. Default: `4 ceil(log2 n) + 8` for `n` cells, and
    /// `2 ceil(log2 n) + 3` for each recipe of operands.
    pub fn runs(mut self, runs: usize) -> Self {
        self.runs = Some(runs);
        self
    }

    /// Sets the time after which no further set is run, in minutes. Default: unlimited.
    pub fn minutes(mut self, minutes: f64) -> Self {
        self.minutes = Some(minutes);
        self
    }

    /// Sets the loss scale of gradients. Default: that with which the policy begins.
    pub fn scale(mut self, scale: f64) -> Self {
        self.scale = Some(scale);
        self
    }

    /// Sets a flag which, once it is set, ends the search with what it has found.
    pub fn stop(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Sets a function that is called after each run.
    pub fn watch(mut self, watch: &'a dyn Fn(&TuneRun)) -> Self {
        self.watch = Some(Watch(watch));
        self
    }

    /// Saves the largest predicted time on a machine with these speeds, rather than the most cells.
    pub fn fastest(mut self, speeds: &'a Speeds) -> Self {
        self.speeds = Some(speeds);
        self
    }

    /// Sets a file that keeps each run in a line. A run of the same problem that is in it is not repeated, so a search
    /// that was stopped continues.
    pub fn journal(mut self, file: impl AsRef<Path>) -> Self {
        self.journal = Some(file.as_ref().to_path_buf());
        self
    }

    /// Runs the search with a network of one input. The error of a set is the largest over the batches; scores are
    /// those of the first. Batch sizes should be those of the network's use, and two batches guard against a set that
    /// fits one by chance.
    ///
    /// The network runs in the mode in which it is; dropout in training mode makes the error too noisy to be searched.
    /// Afterwards, every adapter is cleared.
    ///
    /// # Errors
    /// As [`run_with`](Tune::run_with).
    pub fn run<C: ?Sized + AsCell>(&self, net: &mut Child<C>, batches: &[Tensor]) -> Result<Tuned> {
        self.run_with(net, batches.len(), &|net, at| net.call(&batches[at]))
    }

    /// Searches as [`run`](Tune::run) does, with a function that runs the network on the batch with this number and
    /// returns the output to be compared.
    ///
    /// # Errors
    /// - [`ErrorKind::Value`](precast::ErrorKind::Value) for a budget that is not positive or that no set meets, for
    ///   minutes or runs that are not positive, without batches, and when the network is not finite in f32 or its error
    ///   too noisy.
    /// - [`ErrorKind::Plan`](precast::ErrorKind::Plan) when the policy lowers nothing that a rule can keep.
    /// - Those of planning, of the network and of the metric.
    pub fn run_with<C: ?Sized + AsCell>(
        &self,
        net: &mut Child<C>,
        batches: usize,
        call: &dyn Fn(&Child<C>, usize) -> Result<Tensor>,
    ) -> Result<Tuned> {
        if !(self.budget > 0.0 && self.budget.is_finite()) {
            return Err(Error::value(format!("the budget of a search is a positive number, got {}", self.budget)));
        }
        if let Some(minutes) = self.minutes.filter(|minutes| minutes.is_nan() || *minutes <= 0.0) {
            return Err(Error::value(format!("the minutes of a search are a positive number, got {minutes}")));
        }
        if self.runs == Some(0) {
            return Err(Error::value("a search needs at least one run, got 0"));
        }
        if batches == 0 {
            return Err(Error::value("a search needs at least one batch, got none"));
        }
        let result = match self.recipes.is_empty() {
            true => self.search(net, batches, call),
            false => recipes::search(self, net, batches, call),
        };
        undo(net);
        result
    }

    fn search<C: ?Sized + AsCell>(&self, net: &mut Child<C>, batches: usize, call: Call<'_, C>) -> Result<Tuned> {
        undo(net);
        let mut base = Base::new(self.policy, net)?;
        let recipe = self.recipe.map(|(recipe, before)| {
            base.before = before;
            recipe
        });
        let base = base;
        let references: Vec<Reference> =
            (0..batches).map(|at| self.metric.reference(net, call, at)).collect::<Result<_>>()?;
        self.check_noise(net, call, &references[0])?;
        // Operands are quantized anew for each cell.
        let shared = Some(self.policy.dtype).filter(|_| !base.quantizes);
        let probes = Probes { probe: self.metric.probe(), samples: SAMPLES, shared };
        let scored = scores(net, &base.sought(&base.plan, recipe), &probes, || wide(call(net, 0)?))?;
        let cells: Vec<usize> = (0..scored.cells.len()).filter(|&cell| scored.cells[cell].rounds).collect();
        if cells.is_empty() {
            return Err(Error::plan(match (base.quantizes, recipe) {
                (true, Some(recipe)) => format!("no product of {recipe} operands ran on the first batch"),
                (true, None) => "no product with quantized operands ran on the first batch".into(),
                (false, _) => "the policy lowers no cell of this network that a rule can keep in float32; expected a level above O0".into(),
            }));
        }
        let gains = self.gains(net, call, &base, &cells)?;
        let errors: Vec<f64> = cells.iter().map(|&cell| scored.errors[cell]).collect();
        let index = |cell: usize| cells.binary_search(&cell).ok();
        let (mut order, costs) = order(&errors, &gains, &scored.shared, index);
        let journal = Journal::open(self.journal.as_deref(), self.problem(net, &base, &cells, &references)?)?;
        let log = cells.len().next_power_of_two().ilog2() as usize;
        let limit = self.runs.unwrap_or(if base.quantizes { 2 * log + 3 } else { 4 * log + 8 });
        let (begun, done) = (Instant::now(), Vec::new());
        let mut runs = Runs {
            tune: self,
            net,
            call,
            base: &base,
            scored: &scored,
            cells: &cells,
            references,
            journal,
            limit,
            begun,
            done,
            full_root: false,
        };
        let budget = self.metric.cost(self.budget);
        let mut floor = 0.0;
        if base.quantizes {
            // The error of the 16 bits of the policy is not what this search chooses.
            let error = runs.error(&[], true)?.unwrap_or(f64::INFINITY);
            floor = self.metric.cost(error);
            if error > self.budget {
                return Err(Error::value(format!(
                    "the error is {error:.2e} even without quantized operands, more than the budget of {:.2e}; allow more, or search for \
                     the cells that can run in {} first",
                    self.budget,
                    self.policy.dtype.long_name()
                )));
            }
        } else if base.rounds_input() {
            let floor = runs.error(&[], true)?.map_or(0.0, |error| self.metric.cost(error));
            runs.full_root = floor > FLOOR * budget;
            order.retain(|&i| !(runs.full_root && cells[i] == 0));
        }
        let calibrated = self.metric.is_predicted();
        let refusals = if base.quantizes { usize::MAX } else { REFUSALS };
        let problem = Problem { order: &order, scores: &costs, budget: budget - floor, calibrated, refusals };
        let cost = |error: f64| self.metric.cost(error) - floor;
        let found = search(&problem, &mut |low| Ok(runs.error(low, false)?.map(cost)))?;
        let error = match runs.known(&found.low) {
            Some(error) => error,
            None => runs.error(&found.low, true)?.unwrap_or(f64::INFINITY),
        };
        if found.low.is_empty() && error > self.budget {
            return Err(Error::value(format!(
                "the error is {error:.2e} even with every cell in float32 that a rule can keep, more than the budget of {:.2e}; \
                 allow more, or lower cells one by one at level O1",
                self.budget
            )));
        }
        let (done, full_root) = (runs.done, runs.full_root);
        self.report(&base, &scored, &Candidates { cells, gains, order, full_root }, &found, done, error)
    }

    /// Refuses a metric that differs between two passes in f32 by more than the budget.
    fn check_noise<C: ?Sized + AsCell>(&self, net: &Child<C>, call: Call<'_, C>, reference: &Reference) -> Result<()> {
        let noise = self.metric.measure(net, call, 0, reference, 1.0)?;
        if noise <= self.budget {
            return Ok(());
        }
        Err(Error::value(format!(
            "two passes in float32 differ by {noise:.2e}, more than the budget of {:.2e}; without dropout, in evaluation mode \
             (`net.set_train(false)`), passes repeat",
            self.budget
        )))
    }

    /// Returns the gain of lowering each cell: 1, or the predicted time that it saves.
    fn gains<C: ?Sized + AsCell>(
        &self,
        net: &Child<C>,
        call: Call<'_, C>,
        base: &Base<'_>,
        cells: &[usize],
    ) -> Result<Vec<f64>> {
        let Some(speeds) = self.speeds else { return Ok(vec![1.0; cells.len()]) };
        if base.quantizes {
            let words = "quantized operands are a rehearsal of numbers, which saves no time here: search for the most cells instead";
            return Err(Error::unsupported(words));
        }
        let (called, trace) = net.trace(|net| call(net, 0));
        called?;
        let adapters = base.plan.decisions.iter().filter_map(|decision| decision.adapter.as_ref());
        let rules = adapters.filter_map(|adapter| adapter.rules()).next();
        let costs = net.costs(&trace, speeds, rules.map(|rules| &**rules))?;
        let run = |cell: usize| base.plan.decisions[cell].run;
        let gain = |&cell: &usize| {
            let around = base.above[cell].map_or(Region::AsIs, run);
            let full = costs.own(cell, Region::Fixed(DType::F32), around).nanos;
            // What is in f32 in any case gains the rounding at its border.
            if run(cell).lowers() { full - costs.own(cell, run(cell), around).nanos } else { 1.0 }
        };
        Ok(cells.iter().map(gain).collect())
    }

    /// Returns a hash of everything on which the errors depend.
    fn problem<C: ?Sized + AsCell>(
        &self,
        net: &Child<C>,
        base: &Base<'_>,
        cells: &[usize],
        references: &[Reference],
    ) -> Result<u64> {
        let mut hash = Hash::new();
        hash.bytes(ERRORS);
        hash.bytes(self.metric.name().as_bytes());
        hash.bytes(self.policy.to_yaml()?.as_bytes());
        hash.numbers(
            &self.scale.filter(|_| matches!(self.metric, Metric::Gradient(_))).into_iter().collect::<Vec<_>>(),
        );
        cells.iter().for_each(|&cell| hash.bytes(base.plan.decisions[cell].path.as_bytes()));
        net.named_params().iter().for_each(|(_, param)| hash.numbers(&param.value().to_f64()));
        for Reference { output, loss, gradient, .. } in references {
            hash.numbers(&output.to_f64());
            hash.numbers(&[*loss]);
            hash.numbers(gradient);
        }
        Ok(hash.0)
    }

    /// Returns the result of the search, with the policy.
    fn report(
        &self,
        base: &Base<'_>,
        scored: &Scores,
        candidates: &Candidates,
        found: &Searched,
        runs: Vec<TuneRun>,
        error: f64,
    ) -> Result<Tuned> {
        let Candidates { cells, gains, order, full_root } = candidates;
        let of_cell = |(i, &cell): (usize, &usize)| {
            let decision = &base.plan.decisions[cell];
            let score = scored.errors[cell];
            let added = found.culprits.iter().find(|(culprit, _)| *culprit == i).map(|(_, added)| *added);
            TunedCell {
                path: decision.path.clone(),
                kind: decision.kind.clone(),
                operands: decision.quantized(),
                low: found.low.contains(&i),
                rank: order.iter().position(|&other| other == i),
                predicted: Some(self.metric.error(score)).filter(|e| e.is_finite() && self.metric.is_predicted()),
                measured: added.map(|added| self.metric.error(added.max(0.0))),
                overflows: scored.cells[cell].overflows.filter(|_| !score.is_finite()),
                saves: self.speeds.map(|_| gains[i]),
            }
        };
        let mut tuned: Vec<TunedCell> = cells.iter().enumerate().map(of_cell).collect();
        let (keep, rounds) = (kept(base, cells, *full_root, |i| !tuned[i].low), rounds(scored));
        let (name, low) = (self.metric.name(), self.policy.dtype);
        let inputs = full_root
            .then(|| format!("the inputs of the network, rounded to {}, take too much of the budget", low.long_name()));
        let because = |cell: usize| {
            if cell == 0 && *full_root {
                return inputs.clone();
            }
            let at = cells.iter().position(|&other| other == cell)?;
            tuned[at].because(name, low)
        };
        let (mut policy, plan) = base.without(&keep, &rounds, &because)?;
        policy.name = None;
        // The file must give the set that was run.
        let read =
            Policy::parse(&policy.to_yaml()?, "the policy that was found")?.plan_outline(base.outline.clone())?;
        let of = |decision: &Decision| (decision.run, decision.adapter.clone(), decision.quantized());
        let differs = |(a, b): &(&Decision, &Decision)| of(a) != of(b);
        if let Some((decision, _)) = plan.decisions.iter().zip(&read.decisions).find(differs) {
            let path = precast_base::path::named(&decision.path);
            return Err(Error::plan(format!("the policy that was found differs when it is read: see {path}")));
        }
        // A rule for all cells keeps those as well, that only rounded their results.
        let left = base.sought(&plan, self.recipe.map(|(recipe, _)| recipe));
        for (cell, tuned) in cells.iter().zip(&mut tuned) {
            tuned.low &= !left[*cell].is_none();
        }
        let (budget, complete) = (self.budget, found.complete);
        Ok(Tuned { policy, metric: name, budget, error, cells: tuned, inputs, runs, complete })
    }
}

/// Returns the loss scale with which a policy begins.
pub(crate) fn loss_scale(policy: &Policy) -> f64 {
    match &policy.loss_scale {
        LossScaleSpec::Fixed { scale } => f64::from(*scale),
        LossScaleSpec::Dynamic(dynamic) => f64::from(dynamic.init),
        _ => 1.0,
    }
}

fn rounds(scored: &Scores) -> Vec<bool> {
    scored.cells.iter().map(|cell| cell.rounds).collect()
}

/// Version of the errors in journals. Those of the first do not count numbers inside a run that are not finite.
const ERRORS: &[u8] = b"2";

/// Share of the budget above which the rounding of the network's inputs at a low root is avoided, by a root in f32.
const FLOOR: f64 = 0.25;

/// Returns for each cell of the network whether it is kept, given the same for each that can be lowered.
fn kept(base: &Base<'_>, cells: &[usize], full_root: bool, keep: impl Fn(usize) -> bool) -> Vec<bool> {
    let mut all = vec![false; base.plan.decisions.len()];
    all[0] = full_root;
    cells.iter().enumerate().for_each(|(i, &cell)| all[cell] |= keep(i));
    all
}

/// The cells that can be lowered, as indices of a walk, and the gain of lowering each.
struct Candidates {
    cells: Vec<usize>,
    gains: Vec<f64>,
    order: Vec<usize>,
    full_root: bool,
}

/// The runs of a search.
struct Runs<'a, C: ?Sized + AsCell> {
    tune: &'a Tune<'a>,
    net: &'a mut Child<C>,
    call: Call<'a, C>,
    base: &'a Base<'a>,
    scored: &'a Scores,
    cells: &'a [usize],
    references: Vec<Reference>,
    journal: Journal,
    /// The largest number of new runs.
    limit: usize,
    begun: Instant,
    done: Vec<TuneRun>,
    /// `true` when the root runs in f32, so that it does not round the network's inputs.
    full_root: bool,
}

impl<C: ?Sized + AsCell> Runs<'_, C> {
    /// Returns a set of cells as the journal has it.
    fn key(&self, low: &[usize]) -> Vec<bool> {
        let lowered = (0..self.cells.len()).map(|cell| low.contains(&cell));
        lowered.chain([self.full_root]).collect()
    }

    /// Returns the error of a set that was run.
    fn known(&self, low: &[usize]) -> Option<f64> {
        self.journal.find(&self.key(low))
    }

    /// Returns the error with these cells lowered; `None` if no further run is allowed, unless it is forced.
    fn error(&mut self, low: &[usize], force: bool) -> Result<Option<f64>> {
        let key = self.key(low);
        if let Some(error) = self.journal.find(&key) {
            self.done.push(TuneRun { low: low.len(), error, seconds: 0.0, known: true });
            return Ok(Some(error));
        }
        // The run that lowers no cell is the floor of the others, and no set.
        let fresh = self.done.iter().filter(|run| !run.known && run.low > 0).count();
        let late = self.tune.minutes.is_some_and(|minutes| self.begun.elapsed().as_secs_f64() > 60.0 * minutes);
        let late = late || self.tune.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        if !force && (fresh >= self.limit || late) {
            return Ok(None);
        }
        let start = Instant::now();
        let error = self.measure(&key[..self.cells.len()])?;
        let seconds = start.elapsed().as_secs_f64();
        self.journal.add(&key, error, seconds)?;
        let run = TuneRun { low: low.len(), error, seconds, known: false };
        if let Some(Watch(watch)) = self.tune.watch {
            watch(&run);
        }
        self.done.push(run);
        Ok(Some(error))
    }

    fn measure(&mut self, lowered: &[bool]) -> Result<f64> {
        let keep = kept(self.base, self.cells, self.full_root, |i| !lowered[i]);
        let (_, plan) = self.base.without(&keep, &rounds(self.scored), &|_| None)?;
        plan.apply(self.net)?;
        let scale = self.tune.scale.unwrap_or_else(|| loss_scale(self.tune.policy));
        let mut worst = 0.0;
        for (at, reference) in self.references.iter().enumerate() {
            let error = self.tune.metric.measure(self.net, self.call, at, reference, scale)?;
            worst = error.max(worst);
            if worst > self.tune.budget {
                break;
            }
        }
        Ok(worst)
    }
}
