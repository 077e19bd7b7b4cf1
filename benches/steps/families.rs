//! Arithmetic, bytes and time of a step by family of work: `-- families`.

use std::{
    collections::{BTreeMap, HashMap},
    time::Instant,
};

use precast::{
    Op,
    cost::{Bound, Limits, Speeds},
    observe::{Accumulation, CastCall, GradientCall, Listener, OpCall, listen},
    prelude::*,
};
use precast_policy::catalogue::Family;

use crate::{
    Column, Trainer,
    peers::{Options, fastest, median},
};

/// In f32, and at O2 in bf16.
pub const COLUMNS: [Column; 2] =
    [Column::Ours(Some(Level::O0), DType::F16), Column::Ours(Some(Level::O2), DType::Bf16)];

/// Listener that adds the time since the event before to the family of each event. Numbers that are computed when they are
/// first read count for the reader.
struct Clock {
    last: Instant,
    /// Families of convolutions, by the slot of their cell: their gradients do not have the shapes.
    kinds: HashMap<usize, &'static str>,
    seconds: BTreeMap<&'static str, f64>,
    /// Bytes of tensors that were read or written, each once in an op or gradient.
    bytes: usize,
    calls: usize,
}

impl Clock {
    fn new() -> Self {
        Clock { last: Instant::now(), kinds: HashMap::new(), seconds: BTreeMap::new(), bytes: 0, calls: 0 }
    }

    fn add(&mut self, family: &'static str, bytes: usize) {
        *self.seconds.entry(family).or_default() += self.last.elapsed().as_secs_f64();
        self.bytes += if family == VIEWS { 0 } else { bytes };
        self.calls += 1;
        self.last = Instant::now();
    }
}

impl Listener for Clock {
    fn op(&mut self, call: &OpCall<'_>) {
        // Ops of a backward pass are parts of a gradient, which is reported after them.
        if call.backward {
            return;
        }
        let (family, of_convolution) = match family(call.op) {
            CONVOLUTIONS => (convolution(call), call.slot),
            other => (other, None),
        };
        if let Some(slot) = of_convolution {
            let _ = self.kinds.insert(slot, family);
        }
        let tensors = call.inputs.iter().chain([call.output]).chain(call.more);
        self.add(family, tensors.map(bytes).sum());
    }

    fn cast(&mut self, cast: &CastCall<'_>) {
        if cast.computed {
            self.add(CASTS, bytes(cast.input) + bytes(cast.output));
        }
    }

    fn gradient(&mut self, call: &GradientCall<'_>) {
        let of_op = call.op.map_or(VIEWS, family);
        let of_cell = call.slot.and_then(|slot| self.kinds.get(&slot).copied());
        let family = of_cell.filter(|_| of_op == CONVOLUTIONS).unwrap_or(of_op);
        self.add(family, bytes(call.grad) + call.gradients.iter().flatten().map(bytes).sum::<usize>());
    }

    fn accumulate(&mut self, sum: &Accumulation<'_>) {
        self.add("sums of gradients", sum.terms.iter().map(|x| bytes(x)).sum::<usize>() + bytes(sum.sum));
    }
}

fn bytes(x: &Tensor) -> usize {
    x.len() * x.dtype().bytes()
}

const CONVOLUTIONS: &str = "convolutions";
const CASTS: &str = "casts";
const RECURRENT: &str = "recurrent";
const VIEWS: &str = "views";

fn family(op: Op) -> &'static str {
    match op {
        Op::Cast => return CASTS,
        Op::Relu | Op::Gelu => return "activations",
        _ => {}
    }
    match op.family() {
        Some(Family::View) | None => VIEWS,
        Some(Family::Convolution | Family::TransposedConvolution) => CONVOLUTIONS,
        Some(Family::Attention) => "attention",
        Some(Family::Recurrent) => RECURRENT,
        Some(Family::Norm) => "norms",
        Some(Family::Pool) => "pools",
        Some(Family::Function) => "softmax and functions",
        Some(Family::Elementwise | Family::Distance) => "sums and copies",
        Some(_) => "products",
    }
}

/// Returns the kind of a convolution, from the shapes `[batch, channels, ..]` and `[outputs, channels of a group, ..]`.
fn convolution(call: &OpCall<'_>) -> &'static str {
    let (x, weight) = (call.inputs[0].shape(), call.inputs[1].shape());
    let one_tap = weight[2..].iter().all(|taps| *taps == 1);
    let strided = call.output.shape()[2..].iter().zip(&x[2..]).any(|(after, before)| 3 * after < 2 * before);
    match (weight[1] < x[1], one_tap, strided) {
        (true, ..) => "convolutions with groups",
        (false, true, false) => "1x1 convolutions",
        (false, true, true) => "1x1 convolutions with a stride",
        (false, false, false) => "larger convolutions",
        (false, false, true) => "larger convolutions with a stride",
    }
}

/// Returns the floating-point operations of a step: two for each multiply-add of a forward pass, and as many for each
/// gradient of the first two inputs. A recurrent layer needs the gradients of its hidden states in any case: only that of
/// the input of the first of its two layers, a quarter of a pass, is left out.
pub fn arithmetic(trainer: &Trainer) -> Result<f64> {
    let net = &trainer.task.net;
    let (called, trace) = net.trace(|net| net.call(&trainer.task.x));
    let _ = called?;
    let summary = net.summary(&Policy::new(Level::O0, DType::F16)?.plan(net)?, Some(&trace))?;
    let passes = |path: &str| {
        let multiplies = |op: Op| matches!(family(op), CONVOLUTIONS | "products" | "attention" | RECURRENT);
        match trace.ops.iter().find(|op| op.path == path && multiplies(op.op)) {
            Some(op) if family(op.op) == RECURRENT => 2.75,
            Some(op) => 1.0 + op.sizes.needs.iter().take(2).filter(|needs| **needs).count() as f64,
            None => 3.0,
        }
    };
    let work = |cell: &precast::plan::CellSummary| match cell.multiply_adds {
        Some(adds) if adds > 0 => 2.0 * adds as f64 * passes(&cell.path),
        _ => 0.0,
    };
    Ok(summary.cells.iter().map(work).sum())
}

/// Returns the fastest rate of a column in operations per second, on one thread.
pub fn peak(limits: &Limits, column: Column) -> Option<f64> {
    let bound = match column {
        Column::Ours(Some(Level::O0), _) => Bound::Arithmetic,
        _ => Bound::Bf16Arithmetic,
    };
    limits.of(bound).map(|rate| rate * 1e9)
}

/// Prints one network in f32 and at O2 in bf16.
pub fn row(name: &str, options: &Options, limits: &Limits, speeds: &Speeds) -> Result<()> {
    for column in COLUMNS {
        let Column::Ours(level, dtype) = column else { continue };
        let mut trainer = Trainer::new(name, options.times, level, dtype)?;
        let arithmetic = arithmetic(&trainer)?;
        let steps = (0.2 / trainer.time(1)?).ceil().clamp(1.0, 50.0) as usize;
        let (mut alone, mut on_two, mut clocks, mut updates) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            precast::set_threads(1);
            alone.push(trainer.time(steps)?);
            precast::set_threads(2);
            on_two.push(trainer.time(steps)?);
            precast::set_threads(1);
            let (clock, update) = trainer.clocked(steps)?;
            clocks.push(clock);
            updates.push(update);
        }
        let ratio = median(on_two.iter().zip(&alone).map(|(two, one)| two / one).collect());
        let step = fastest(&alone);
        let bytes = trainer.least_bytes()?;
        let share =
            peak(limits, column).map_or(String::new(), |rate| format!(", {:.2} of the peak", arithmetic / step / rate));
        println!(
            "\n{name}, {}: {:.2} ms; {:.2} Gflop{share}; {:.0} MB at least, {:.2} of copied bytes; two threads {ratio:.2}",
            column.name(),
            step * 1e3,
            arithmetic / 1e9,
            bytes / 1e6,
            bytes / step / (limits.copy * 1e9),
        );
        let mut rows: Vec<(&str, f64)> = Vec::new();
        for family in clocks[0].seconds.keys() {
            rows.push((*family, median(clocks.iter().map(|clock| clock.seconds[family]).collect()) / steps as f64));
        }
        rows.push(("update", median(updates) / steps as f64));
        rows.sort_by(|a, b| b.1.total_cmp(&a.1));
        let all: f64 = rows.iter().map(|(_, seconds)| seconds).sum();
        for (family, seconds) in rows {
            println!("  {family:40} {:9.3} ms {:5.1} %", seconds * 1e3, 100.0 * seconds / all);
        }
        let calls = clocks[0].calls as f64 / steps as f64;
        // The speed of a call covers its gradient.
        let dispatch = calls / 2.0 * speeds.call / 1e9;
        println!(
            "  {:40} {:9.3} ms {:5.1} %",
            format!("(dispatch of {calls} calls)"),
            dispatch * 1e3,
            100.0 * dispatch / all
        );
    }
    Ok(())
}

impl Trainer {
    /// Runs steps in which a clock hears the passes, and returns it with the seconds of all checks and updates.
    fn clocked(&mut self, steps: usize) -> Result<(Clock, f64)> {
        let (mut clock, mut update) = (Clock::new(), 0.0);
        for _ in 0..steps {
            clock.last = Instant::now();
            let passes = || self.scale.scale(self.loss()?)?.into_grads();
            let (scaled, heard) = listen(clock, passes);
            clock = heard;
            let mut scaled = scaled?;
            let start = Instant::now();
            let grads = scaled.unscale(self.optimizer.params())?;
            let _ = self.scale.apply(&mut *self.optimizer, &grads)?;
            self.scale.update()?;
            update += start.elapsed().as_secs_f64();
        }
        Ok((clock, update))
    }

    /// Returns the bytes that a step reads and writes at least: each tensor once in an op or gradient, and gradients, weights
    /// and averages in f32 in the update.
    pub fn least_bytes(&mut self) -> Result<f64> {
        let (clock, _) = self.clocked(1)?;
        let (weights, averages) = self.weights_and_averages();
        Ok((clock.bytes + 3 * weights + 2 * averages) as f64)
    }

    /// Returns the bytes of the weights in f32, and of the optimizer's averages of them.
    pub fn weights_and_averages(&self) -> (usize, usize) {
        let weights = 4 * self.task.net.params().iter().map(|(_, param)| param.value().len()).sum::<usize>();
        (weights, if self.task.adamw { 2 * weights } else { weights })
    }
}
