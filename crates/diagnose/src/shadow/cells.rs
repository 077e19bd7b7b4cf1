//! A shadow run: the error that enters, begins in, and leaves each cell of a lowered network.

use std::{borrow::Cow, fmt, rc::Rc};

use precast::{
    Policy, Tensor,
    cell::{AsCell, Child},
    error::{Error, Result},
    no_grad,
    observe::Distance,
    plan::undo,
};
use precast_base::{printable, table::table};

use super::passes::{Border, borders, compared, gradients};
use crate::{
    measure::GROWTH,
    tune::{Base, LossOf, Metric, Probes, Scores, loss_scale, scores, wide},
};

/// Number of samples from which the effect of a cell is estimated, rows times backward passes: a batch of at least as many
/// rows takes one. The standard deviation of an effect is then `sqrt(2 / 8) / 2`, a quarter, of its expectation.
const SAMPLES: usize = 8;

/// The errors of the cells of a lowered network, compared with the same network in f32 on one batch.
///
/// It takes one call in f32, in which each op is also run once more in the precision of the plan, one call of the lowered
/// network, and a backward pass of the first, which computes no gradient of a parameter; for a batch of fewer than 8 rows,
/// as many passes as make 8. A cell's own ops count as its own, those of cells inside it as theirs. All errors are
/// relative: the norm of the difference divided by the norm in f32, over the numbers that are finite in f32.
///
/// ```
/// use precast::prelude::*;
/// use precast_diagnose::shadow::Shadow;
/// let rng = &mut Rng::seed(1);
/// let mut net = Child::new(sequential![Dense::new(8, 32, rng), Tanh, Dense::new(32, 4, rng)]);
/// let x = Tensor::randn(&[64, 8], rng)?;
/// let shadow = Shadow::of(&Policy::new(Level::O2, DType::Bf16)?, &mut net, &x)?;
/// println!("{shadow}");
/// assert!(shadow.error > 1e-4 && shadow.error < 1e-1);
/// assert_eq!(shadow.cells.len(), 3);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Shadow {
    /// The cells that the plan rounds, by their effect on the output, the largest first.
    pub cells: Vec<ShadowCell>,
    /// The cast of the network's inputs, if the cells do not explain the error of the output. Its effect is measured.
    pub input: Option<ShadowCell>,
    /// Error of the output of the network.
    pub error: f64,
}

/// The errors of one cell.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShadowCell {
    /// Path of the cell.
    pub path: String,
    /// Kind of the cell.
    pub kind: Cow<'static, str>,
    /// Error of the inputs that it got in the lowered network.
    pub incoming: f64,
    /// Error of its outputs when it alone is lowered, on inputs in f32.
    pub local: f64,
    /// Error of its outputs in the lowered network.
    pub outgoing: f64,
    /// Predicted error of the network's output when this cell alone is lowered; infinite if it is not finite. With n
    /// rows, its standard deviation is `1 / sqrt(2 n)` of it.
    pub effect: f64,
    /// Error of the gradient of its outputs, in a shadow run with a loss.
    pub gradient: Option<f64>,
}

impl ShadowCell {
    /// Returns the outgoing error, divided by the sum of the incoming and the local one.
    pub fn growth(&self) -> f64 {
        let given = self.incoming + self.local;
        if given > 0.0 { self.outgoing / given } else { 1.0 }
    }
}

/// The batch, the loss and its scale of a shadow run.
struct Step<'a, C: ?Sized> {
    call: &'a dyn Fn(&Child<C>) -> Result<Tensor>,
    loss: Option<LossOf<'a>>,
    scale: f64,
}

impl Shadow {
    /// Runs a network of one input. Afterwards, every adapter is cleared.
    ///
    /// # Errors
    /// As [`Shadow::of_step`].
    pub fn of<C: ?Sized + AsCell>(policy: &Policy, net: &mut Child<C>, x: &Tensor) -> Result<Self> {
        Shadow::of_step(policy, net, &|net| net.call(x), None)
    }

    /// Runs a network through `call`, which returns its output, and also compares the gradients of `loss`, if there is
    /// one. The loss is multiplied by the policy's loss scale.
    ///
    /// # Errors
    /// Those of planning and of the network; [`ErrorKind::Value`](precast::ErrorKind::Value) when it is not finite in
    /// f32.
    pub fn of_step<C: ?Sized + AsCell>(
        policy: &Policy,
        net: &mut Child<C>,
        call: &dyn Fn(&Child<C>) -> Result<Tensor>,
        loss: Option<LossOf<'_>>,
    ) -> Result<Self> {
        undo(net);
        let base = Base::new(policy, net)?;
        let step = Step { call, loss, scale: loss_scale(policy) };
        let shadow = run(&base, net, &step);
        undo(net);
        shadow
    }

    /// Returns the paths of the cells with the largest effects.
    pub fn top(&self, count: usize) -> Vec<&str> {
        self.cells.iter().take(count).map(|cell| cell.path.as_str()).collect()
    }
}

fn run<C: ?Sized + AsCell>(base: &Base<'_>, net: &mut Child<C>, step: &Step<'_, C>) -> Result<Shadow> {
    let probes = Probes { probe: Metric::Relative.probe(), samples: SAMPLES, shared: None };
    let (scored, exact) = borders(|| scores(net, &base.lowerings(&base.plan), &probes, || wide((step.call)(net)?)))?;
    if !scored.output.has_only_finite() {
        return Err(Error::value("the network is not finite in float32, so there is nothing to compare"));
    }
    let exact = Rc::new(exact);
    let exact_gradients = step.loss.map(|loss| gradients(&loss(&scored.output, 0)?, &exact)).transpose()?;
    base.plan.clone().apply(net)?;
    let lowered = || wide((step.call)(net)?);
    let (output, mut errors) = match step.loss {
        Some(_) => compared(&exact, lowered)?,
        None => compared(&exact, || no_grad(lowered))?,
    };
    if let Some((loss, exact)) = step.loss.zip(exact_gradients) {
        let loss = loss(&output, 0)?;
        errors.compare_gradients(&loss.mul(&Tensor::scalar(step.scale, loss.dtype()))?, step.scale, exact)?;
    }
    let mut slots = Vec::new();
    net.walk(&mut |entry| slots.push(entry.slot.id));
    let mut cells = Vec::new();
    for (i, decision) in base.plan.decisions.iter().enumerate().filter(|(i, _)| scored.cells[*i].rounds) {
        let of_cell = errors.of(slots[i]);
        cells.push(ShadowCell {
            path: decision.path.clone(),
            kind: decision.kind.clone(),
            incoming: of_cell.incoming.relative(),
            local: scored.local[i],
            outgoing: of_cell.outgoing.relative(),
            effect: scored.errors[i].sqrt(),
            gradient: step.loss.map(|_| of_cell.gradient.relative()),
        });
    }
    cells.sort_by(|a, b| b.effect.total_cmp(&a.effect));
    let error = Distance::between(&output, &scored.output).relative();
    let explained = cells.iter().map(|cell| cell.effect * cell.effect).sum::<f64>().sqrt();
    let input = match base.rounds_input() && (error.is_nan() || error > GROWTH * explained) {
        true => Some(input(base, net, step, &scored, exact.get(&slots[0]).map_or(&[], Vec::as_slice))?),
        false => None,
    };
    Ok(Shadow { cells, input, error })
}

/// Measures the error of the output when nothing but the inputs of the network is rounded, in one more pass.
fn input<C: ?Sized + AsCell>(
    base: &Base<'_>,
    net: &mut Child<C>,
    step: &Step<'_, C>,
    scored: &Scores,
    calls: &[Border],
) -> Result<ShadowCell> {
    let rounds: Vec<bool> = scored.cells.iter().map(|cell| cell.rounds).collect();
    let keep: Vec<bool> = rounds.iter().enumerate().map(|(i, rounds)| i > 0 && *rounds).collect();
    let (_, mut plan) = base.keeping(&keep, &rounds, &|_| None)?;
    plan.decisions.iter_mut().for_each(|decision| decision.operands = None);
    plan.apply(net)?;
    let output = no_grad(|| wide((step.call)(net)?))?;
    let mut rounded = Distance::default();
    for x in calls.iter().flat_map(|call| &call.inputs).filter(|x| x.dtype().is_float()) {
        rounded += Distance::between(&x.detach().cast(base.policy.dtype), x);
    }
    let finite = |x: f64| if x.is_nan() { f64::INFINITY } else { x };
    let effect = finite(Distance::between(&output, &scored.output).relative());
    let local = finite(rounded.relative());
    let (path, kind) = ("(input)".into(), "cast".into());
    Ok(ShadowCell { path, kind, incoming: 0.0, local, outgoing: local, effect, gradient: None })
}

impl fmt::Display for Shadow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with_gradients = self.cells.iter().any(|cell| cell.gradient.is_some());
        let number = |x: f64| if x.is_finite() { format!("{x:.1e}") } else { "not finite".to_string() };
        write!(f, "error of the output {}\n\n", number(self.error))?;
        if self.cells.is_empty() {
            return f.write_str("the policy lowers no cell of this network");
        }
        let rows = self.input.iter().chain(&self.cells).map(|cell| {
            let path = if cell.path.is_empty() { "(root)".into() } else { printable::printable(&cell.path) };
            let note = match cell {
                _ if !cell.effect.is_finite() || !cell.outgoing.is_finite() => "overflows",
                _ if cell.growth() > GROWTH => "enlarges what came in",
                _ => "",
            };
            let mut row = vec![path.into_owned(), cell.kind.to_string()];
            row.extend([cell.effect, cell.incoming, cell.local, cell.outgoing].map(number));
            row.push(match cell.growth() {
                growth if growth.is_finite() => format!("{growth:.1}"),
                _ => "not finite".into(),
            });
            row.extend(with_gradients.then(|| cell.gradient.map_or(String::new(), number)));
            row.push(note.into());
            row
        });
        let mut header = vec!["cell", "kind", "effect", "in", "local", "out", "growth"];
        header.extend(with_gradients.then_some("gradient"));
        header.push("note");
        let numbers = 2..header.len() - 1;
        f.write_str(&table(&header, rows, |i| numbers.contains(&i)))
    }
}
