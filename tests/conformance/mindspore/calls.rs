//! Wrapper around every op of the recorded networks that computes something, so that a run can be [watched](watched),
//! comparing each op with the same op in f64, and [repeated](repeated) in recorded dtypes.

use std::cell::RefCell;

use precast::{DType, Op, Result, Tensor, layers::Rng, observe, precision::Frame};

use crate::mindspore::exact;

/// One call of an op.
pub struct Call {
    pub op: Op,
    /// Dtypes of the inputs as passed by the network.
    pub arriving: Vec<DType>,
    /// Dtypes seen by the kernel, after casts.
    pub inside: Vec<DType>,
    /// Dtype of the result returned to the network.
    pub returned: DType,
    /// Description of an excessive distance from the exact result, if any.
    pub too_far: Option<String>,
}

/// Instructions for repeating the ops of a run.
#[derive(Clone)]
pub struct Script {
    /// Dtype that each op computes in, in order; an op with none is skipped and returns its first input.
    pub inside: Vec<Option<DType>>,
    /// Dtype in which each split moves elements, in order. One that is lowered by itself rounds its input.
    pub splits: Vec<DType>,
    /// `true` when kernels that round after every step there do so here.
    pub stepwise: bool,
    /// Seed for the last digits of f32 results, which vary with the order of sums and with approximations.
    pub digits: Option<u64>,
}

/// Largest observed error of an f32 function of MindSpore, relative to the largest magnitude: its sigmoid. The order of
/// a sum of `n` terms can move it by `n / 2^24` of its largest magnitude; the sums of the networks that differ have up
/// to 12 terms.
const F32_ERROR: f64 = 7e-7;

enum Mode {
    Plain,
    Watched(Vec<Call>),
    Repeated { script: Script, at: usize, split: usize },
    Merged(Box<Rng>),
}

thread_local! {
    static MODE: RefCell<Mode> = const { RefCell::new(Mode::Plain) };
}

/// Guard that restores the plain mode, even if a run fails or panics.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        MODE.set(Mode::Plain);
    }
}

/// Runs `f` and returns every call, each compared with the exact result.
pub fn watched<R>(f: impl FnOnce() -> R) -> (R, Vec<Call>) {
    let _restore = Restore;
    MODE.set(Mode::Watched(vec![]));
    let result = f();
    match MODE.replace(Mode::Plain) {
        Mode::Watched(calls) => (result, calls),
        _ => unreachable!("modes do not nest"),
    }
}

/// Runs `f` with every op as specified by the script.
pub fn repeated<R>(script: &Script, f: impl FnOnce() -> R) -> R {
    let _restore = Restore;
    MODE.set(Mode::Repeated { script: script.clone(), at: 0, split: 0 });
    f()
}

/// Runs `f` as a graph that omits roundings between ops, drawn at random: in a low region, an op always rounds its
/// parameters, and randomly its first input and its result.
pub fn merged<R>(seed: u64, f: impl FnOnce() -> R) -> R {
    let _restore = Restore;
    MODE.set(Mode::Merged(Box::new(Rng::seed(seed))));
    f()
}

pub fn is_repeated() -> bool {
    MODE.with_borrow(|mode| matches!(mode, Mode::Repeated { .. }))
}

/// Calls an op.
pub fn op<const N: usize>(inputs: [&Tensor; N], op: impl Fn([&Tensor; N]) -> Result<Tensor>) -> Result<Tensor> {
    in_steps(inputs, &op, |_, inputs| op(inputs))
}

/// Calls an op whose low-precision kernel in MindSpore takes these steps, rounding after each.
pub fn in_steps<const N: usize>(
    inputs: [&Tensor; N],
    op: impl Fn([&Tensor; N]) -> Result<Tensor>,
    steps: impl Fn(DType, [&Tensor; N]) -> Result<Tensor>,
) -> Result<Tensor> {
    enum Now {
        Plain,
        Watched,
        Left,
        In(DType, bool, Option<u64>),
        Merged(DType, bool),
    }
    let now = MODE.with_borrow_mut(|mode| match mode {
        Mode::Plain => Now::Plain,
        Mode::Watched(_) => Now::Watched,
        Mode::Merged(rng) => match precast::__test::current() {
            Some(Frame::Fixed(low)) if low.is_low() => Now::Merged(low, rng.uniform(0.0, 1.0) < 0.5),
            _ => Now::Plain,
        },
        Mode::Repeated { script, at, .. } => {
            *at += 1;
            let digits = script.digits.map(|seed| seed.wrapping_mul(1_000_003).wrapping_add(*at as u64));
            match script.inside.get(*at - 1).copied().flatten() {
                Some(inside) => Now::In(inside, script.stepwise && inside.is_low(), digits),
                None => Now::Left,
            }
        }
    });
    match now {
        Now::Plain => op(inputs),
        Now::Left => Ok(inputs[0].clone()),
        Now::Watched => {
            let (y, events) = observe::watch(|| op(inputs));
            let y = y?;
            let event = events.iter().rfind(|event| event.op != Op::Cast).expect("an op ran").clone();
            let too_far = exact::too_far(&event, inputs, &op, &y)?;
            // A number takes the dtype of the tensor it is combined with.
            let mut arriving: Vec<DType> = inputs.iter().map(|x| x.dtype()).collect();
            arriving.resize(event.inputs.len(), arriving[0]);
            let call = Call { op: event.op, arriving, inside: event.inputs, returned: y.dtype(), too_far };
            MODE.with_borrow_mut(|mode| match mode {
                Mode::Watched(calls) => calls.push(call),
                _ => unreachable!("modes do not nest"),
            });
            Ok(y)
        }
        Now::Merged(low, rounds) => {
            let _off = precast::__test::enter(Frame::Off);
            let mut first = true;
            let wide = inputs.map(|x| {
                let is_first = std::mem::take(&mut first);
                match x.dtype() {
                    dtype if !dtype.is_castable() => x.clone(),
                    _ if is_first => x.cast(DType::F32),
                    _ => x.cast(low).cast(DType::F32),
                }
            });
            let y = op(wide.each_ref())?;
            Ok(if rounds { y.cast(low) } else { y })
        }
        Now::In(inside, stepwise, digits) => {
            let _off = precast::__test::enter(Frame::Off);
            let cast = inputs.map(|x| if x.dtype().is_castable() { x.cast(inside) } else { x.clone() });
            if stepwise {
                return steps(inside, cast.each_ref());
            }
            let (y, events) = observe::watch(|| op(cast.each_ref()));
            match digits {
                Some(seed) if events.iter().any(|event| !exact::rounds_once(event.op)) => redrawn(&y?, seed),
                _ => y,
            }
        }
    }
}

/// Calls an op that only moves elements. It computes nothing, so a script does not affect it.
pub fn place<R>(x: &Tensor, op: impl Fn(&Tensor) -> Result<R>) -> Result<R> {
    let _off = is_repeated().then(|| precast::__test::enter(Frame::Off));
    op(x)
}

/// Splits into `n` pieces along the second axis, in the dtype recorded for it.
pub fn chunks(x: &Tensor, n: usize) -> Result<Vec<Tensor>> {
    let recorded = MODE.with_borrow_mut(|mode| match mode {
        Mode::Repeated { script, split, .. } => {
            *split += 1;
            script.splits.get(*split - 1).copied().filter(|dtype| dtype.is_low())
        }
        _ => None,
    });
    let rounded = recorded.map(|low| x.cast(low));
    place(rounded.as_ref().unwrap_or(x), |x| x.chunk(n, 1))
}

/// Returns an f32 result with other last digits.
fn redrawn(y: &Tensor, seed: u64) -> Result<Tensor> {
    if y.dtype() != DType::F32 {
        return Ok(y.clone());
    }
    let mut rng = Rng::seed(seed);
    let numbers = y.to_f64();
    let largest = numbers.iter().fold(0.0f64, |m, y| m.max(y.abs()));
    let moved: Vec<f64> = numbers.iter().map(|y| y + rng.uniform(-1.0, 1.0) * F32_ERROR * largest).collect();
    Tensor::from_f64(&moved, y.shape(), DType::F32)
}
