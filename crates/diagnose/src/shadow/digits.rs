//! Lost digits, found without a reference: the spread of two passes with stochastic rounding.

use std::{cell::RefCell, fmt, rc::Rc};

use precast::{
    DType, Op, Tensor,
    catalogue::Family,
    cell::{AsCell, Child},
    error::{Error, Result},
    layers::Rng,
    no_grad,
    observe::{CastCall, CellCall, CellEntry, Observer, OpCall, observed_by},
    precision,
    precision::Frame,
};
use precast_base::path::named;

use crate::{
    Monitor,
    beside::Beside,
    measure::{GROWTH, LOST},
};

/// The spread of two passes of a lowered network that round stochastically: each result goes to one of the two nearest
/// numbers, with a probability given by its proximity. Where the two differ, the digits are not those of the network
/// but of its rounding. This needs no weights in f32, which a network with [decorated](precast::storage::Decorate)
/// parameters or from a file may not have.
///
/// Both passes are computed op by op during one call of the network, whose own results are unchanged.
///
/// ```
/// use precast::prelude::*;
/// use precast_diagnose::shadow::Digits;
///
/// #[derive(Cell, Debug)]
/// struct ThereAndBack;
///
/// impl Forward for ThereAndBack {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         let far = Tensor::scalar(3000.0, DType::F32);
///         x.add(&far)?.sub(&far) // f16 has steps of 2 there
///     }
/// }
///
/// let mut net = Child::new(sequential![Tanh, ThereAndBack]);
/// auto_mixed_precision(&mut net, Level::O3, DType::F16)?;
/// let x = Tensor::randn(&[8, 8], &mut Rng::seed(1))?;
/// let digits = Digits::of(&net, |net| net.call(&x))?;
/// assert_eq!(digits.lost.expect("most are").cell, "1");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Digits {
    /// Spread of the output: the norm of the difference of the two passes, divided by the norm of their sum and by √½.
    /// It estimates the relative error of one pass.
    pub spread: f64,
    /// The first place where digits are lost; `None` if there is none.
    pub lost: Option<LostDigits>,
}

/// A place where digits are lost although the inputs of the cell have them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LostDigits {
    /// Path of the cell; empty for the root, and outside every cell.
    pub cell: String,
    /// The op whose result has lost them; [`Op::Cast`] for an input of the network, whose cast lost them.
    pub op: Op,
    /// Spread of the result.
    pub spread: f64,
    /// The largest spread that came into the cell.
    pub incoming: f64,
}

impl Digits {
    /// Runs `f`, which calls the network once, and compares two further passes that follow it.
    ///
    /// # Errors
    /// Those of `f`; [`ErrorKind::Value`](precast::ErrorKind::Value) when the output is not finite.
    pub fn of<C: ?Sized + AsCell>(net: &Child<C>, f: impl FnOnce(&Child<C>) -> Result<Tensor>) -> Result<Self> {
        let (listener, mut monitor) = (Rc::new(Twins::default()), Monitor::default());
        let output = monitor.watch(net, |net| observed_by(listener.clone(), || f(net)))?;
        let state = listener.0.take();
        let [a, b] = state.twins(&output);
        if ![&output, &a, &b].iter().all(|x| x.has_only_finite()) {
            let first = monitor.fault().map_or(String::new(), |fault| format!("; it began with {fault}"));
            return Err(Error::value(format!("the output of the network is not finite, so it has no digits{first}")));
        }
        let spread = spread(&a, &b);
        let lost = state.lost.map(|(slot, lost)| {
            let cell = slot.and_then(|slot| net.path_of(slot)).unwrap_or_default();
            LostDigits { cell, ..lost }
        });
        Ok(Digits { spread, lost })
    }
}

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spread of the output {:.1e}", self.spread)?;
        match &self.lost {
            None => write!(f, "; no cell loses digits"),
            Some(lost) => write!(f, "; {lost}"),
        }
    }
}

impl fmt::Display for LostDigits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LostDigits { cell, op, spread, incoming } = self;
        let percent = 100.0 * spread;
        if *op == Op::Cast {
            return write!(
                f,
                "the cast of the network's input in {} loses digits: {percent:.0} % of what reads it is rounding",
                named(cell)
            );
        }
        write!(
            f,
            "{} loses digits: {percent:.0} % of {op} is rounding, of its inputs {:.1} %",
            named(cell),
            100.0 * incoming
        )
    }
}

/// Returns the relative spread of two results; 0 if it is not a number, which is another kind of fault.
fn spread(a: &Tensor, b: &Tensor) -> f64 {
    let (a, b) = (a.to_f64(), b.to_f64());
    let square = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>();
    let apart = square(&mut a.iter().zip(&b).map(|(a, b)| a - b));
    let whole = square(&mut a.iter().zip(&b).map(|(a, b)| a + b));
    let spread = if apart > 0.0 { (2.0 * apart / whole).sqrt() } else { 0.0 };
    if spread.is_nan() { 0.0 } else { spread }
}

/// The listener that computes two further passes.
#[derive(Default)]
struct Twins(RefCell<State>);

struct State {
    values: Beside<Value>,
    calls: Vec<u64>,
    last_call: u64,
    rngs: [Rng; 2],
    lost: Option<(Option<usize>, LostDigits)>,
}

impl Default for State {
    fn default() -> Self {
        let rngs = [Rng::seed(1), Rng::seed(2)];
        State { values: Beside::default(), calls: Vec::new(), last_call: 0, rngs, lost: None }
    }
}

/// A result in both passes.
struct Value {
    twins: [Tensor; 2],
    spread: f64,
    /// The cell call in which an op computed it; `None` for a cast.
    call: Option<u64>,
    /// The largest spread that came into that call on the way to it.
    incoming: f64,
    /// The slot in which an input of the network was cast, of which this is a view.
    input: Option<Option<usize>>,
}

impl State {
    /// Returns a tensor in both passes: the same where none of them differs.
    fn twins(&self, x: &Tensor) -> [Tensor; 2] {
        let wide = |y: &Tensor| if y.dtype().is_low() { y.cast(DType::F32) } else { y.to_keep() };
        let twins = self.values.get(x).map(|value| &value.twins);
        twins.map_or_else(|| [wide(x), wide(x)], |[a, b]| [wide(a), wide(b)])
    }

    /// Returns the largest spread with which these tensors came into a call of a cell.
    fn incoming(&self, inputs: &[Tensor], call: u64) -> f64 {
        let of = |x: &Tensor| match self.values.get(x) {
            Some(value) if value.call == Some(call) => value.incoming,
            Some(value) => value.spread,
            None => 0.0,
        };
        inputs.iter().map(of).fold(0.0, f64::max)
    }

    fn insert(&mut self, output: &Tensor, value: Value) -> f64 {
        let spread = value.spread;
        self.values.insert(output, value);
        spread
    }
}

impl Observer for Twins {
    fn enter(&self, _: &CellEntry) {
        let mut state = self.0.borrow_mut();
        state.last_call += 1;
        let call = state.last_call;
        state.calls.push(call);
    }

    fn leave(&self, _: &CellCall<'_>) {
        self.0.borrow_mut().calls.pop();
    }

    fn op(&self, call: &OpCall<'_>) {
        let to = call.output.dtype();
        if call.backward || !to.is_float() {
            return;
        }
        let mut state = self.0.borrow_mut();
        let state = &mut *state;
        let number = state.calls.last().copied().unwrap_or(0);
        let inputs: Vec<[Tensor; 2]> = call.inputs.iter().map(|x| state.twins(x)).collect();
        let repeatable = call.repeatable();
        let mut run = |twin: usize| {
            let inputs: Vec<&Tensor> = inputs.iter().map(|twins| &twins[twin]).collect();
            let _off = precision::enter(Frame::Off);
            let output = no_grad(|| repeatable.run(&inputs));
            Some(rounded(output.ok()?.first()?, to, &mut state.rngs[twin]))
        };
        // An op that cannot be repeated gives both passes the network's own result.
        let (Some(a), Some(b)) = (run(0), run(1)) else { return };
        let incoming = state.incoming(call.inputs, number);
        let cast = call.inputs.iter().find_map(|x| state.values.get(x)?.input);
        let input = cast.filter(|_| call.op.family() == Some(Family::View));
        let spread = spread(&a, &b);
        let value = Value { twins: [a, b], spread, call: Some(number), incoming, input };
        let spread = state.insert(call.output, value);
        if state.lost.is_some() || spread <= LOST || spread <= GROWTH * incoming {
            return;
        }
        // An op in f32 only shows what the rounding of its input lost.
        let (slot, op) = match cast {
            Some(slot) if !to.is_low() => (slot, Op::Cast),
            _ if to.is_low() => (call.slot, call.op),
            _ => return,
        };
        state.lost = Some((slot, LostDigits { cell: String::new(), op, spread, incoming }));
    }

    fn cast(&self, cast: &CastCall<'_>) {
        let (from, to) = (cast.input.dtype(), cast.output.dtype());
        let mut state = self.0.borrow_mut();
        if cast.backward || !from.is_float() || !to.is_float() || state.values.get(cast.output).is_some() {
            return;
        }
        let [a, b] = state.twins(cast.input);
        let [one, other] = &mut state.rngs;
        let twins = [rounded(&a, to, one), rounded(&b, to, other)];
        let known = state.values.get(cast.input).map(|value| value.input);
        // A tensor that no op wrote and that has no gradient is an input of the network; a single number is a constant.
        let is_input = to.is_low() && cast.of.leaf().is_none() && cast.input.len() > 1;
        let given = is_input.then_some(cast.slot);
        let (spread, input) = (spread(&twins[0], &twins[1]), known.unwrap_or(given));
        state.insert(cast.output, Value { twins, spread, call: None, incoming: 0.0, input });
    }
}

/// Rounds to a dtype, stochastically if it is low: a number uniform in one step of the dtype is added, and the sum is
/// rounded to the nearest.
fn rounded(x: &Tensor, to: DType, rng: &mut Rng) -> Tensor {
    let (digits, least) = match to {
        DType::F16 => (10, -14),
        DType::Bf16 => (7, -126),
        _ => return x.cast(to),
    };
    let step = |x: f64| {
        let exponent = if x == 0.0 { least } else { (x.abs().log2().floor() as i32).max(least) };
        2f64.powi(exponent - digits)
    };
    let dithered = x.to_f64().into_iter().map(|x| {
        let noise = rng.uniform(-0.5, 0.5);
        if x.is_finite() { (x + noise * step(x)) as f32 } else { x as f32 }
    });
    let dithered = Tensor::from_vec(dithered.collect::<Vec<f32>>(), x.shape());
    dithered.map_or_else(|_| x.cast(to), |dithered| dithered.cast(to))
}
