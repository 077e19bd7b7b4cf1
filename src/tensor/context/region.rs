//! The stack of regions.

use super::{CONTEXT, Context, Scope, Undo};
use crate::{DType, precision::Frame};

/// The state of an [`autocast`](crate::autocast()) region beside its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutocastState {
    /// Whether the region casts anything.
    pub enabled: bool,
    /// Its low dtype. A region inside that names no dtype takes this one.
    pub dtype: DType,
    /// Whether a parameter is cast once and the low copy used again.
    pub cache: bool,
}

/// One entered region. An adapter's frame is part of the [`autocast`](crate::autocast()) region around it.
#[derive(Clone, Debug)]
pub(super) struct Entered {
    frame: Frame,
    region: Option<AutocastState>,
    /// The number of the innermost adapter, of those that a plan numbered.
    adapter: Option<u64>,
    /// Whether code entered it, and not the slot of a cell.
    in_code: bool,
}

/// Enters a frame on this thread until the returned guard is dropped.
pub fn enter(frame: Frame) -> Scope {
    push(|top| {
        let (region, adapter) = top.map_or((None, None), |top| (top.region, top.adapter));
        Entered { frame, region, adapter, in_code: true }
    })
}

/// Enters the frame of an [`autocast`](crate::autocast()) region.
pub(crate) fn enter_region(frame: Frame, region: AutocastState) -> Scope {
    push(|top| Entered { frame, region: Some(region), adapter: top.and_then(|top| top.adapter), in_code: true })
}

/// Enters the frame of the adapter of a cell, with its number where a plan gave it one.
pub(crate) fn enter_adapter(frame: Frame, number: Option<u64>) -> Scope {
    push(|top| {
        let (region, around) = top.map_or((None, None), |top| (top.region, top.adapter));
        Entered { frame, region, adapter: number.or(around), in_code: false }
    })
}

fn push(entered: impl FnOnce(Option<&Entered>) -> Entered) -> Scope {
    CONTEXT.with(|context| {
        let number = context.entered.get() + 1;
        context.entered.set(number);
        let mut stack = context.regions.borrow_mut();
        let entered = entered(stack.last().map(|(_, top)| top));
        stack.push((number, entered));
        Scope::new(Undo::Region { depth: stack.len() - 1, number })
    })
}

/// Leaves a region. Truncates rather than pops, so that guards dropped out of order cannot leave a frame behind. A guard whose
/// frame is gone already, with one around it, must not end those that were entered since.
pub(super) fn leave(context: &Context, depth: usize, number: u64) {
    let mut stack = context.regions.borrow_mut();
    if stack.get(depth).is_some_and(|(met, _)| *met == number) {
        stack.truncate(depth);
    }
}

fn top<R>(f: impl FnOnce(Option<&Entered>) -> R) -> R {
    CONTEXT.with(|context| f(context.regions.borrow().last().map(|(_, top)| top)))
}

/// The innermost frame of this thread; a new thread has none.
pub fn current() -> Option<Frame> {
    top(|top| top.map(|top| top.frame.clone()))
}

/// The innermost [`autocast`](crate::autocast()) region of this thread.
pub fn region() -> Option<AutocastState> {
    top(|top| top.and_then(|top| top.region))
}

/// The number of the innermost adapter of this thread, of those that a plan numbered.
pub(crate) fn adapter() -> Option<u64> {
    top(|top| top.and_then(|top| top.adapter))
}

/// Whether code entered the innermost frame, and not the slot of a cell.
pub(crate) fn in_code() -> bool {
    top(|top| top.is_some_and(|top| top.in_code))
}

/// Lends the innermost frame, and whether low copies of parameters are kept. `f` must not enter or leave a frame.
pub(crate) fn with_current<R>(f: impl FnOnce(Option<&Frame>, bool) -> R) -> R {
    top(|top| match top {
        Some(top) => f(Some(&top.frame), top.region.is_none_or(|region| region.cache)),
        None => f(None, true),
    })
}

/// The dtype in which every op on a tensor of this dtype runs here; none where lists decide for each op.
pub(crate) fn dtype_of_all(dtype: DType) -> Option<DType> {
    with_current(|frame, _| match frame {
        Some(Frame::Lists(_)) => None,
        Some(Frame::Fixed(fixed)) if dtype.is_castable() => Some(*fixed),
        _ => Some(dtype),
    })
}

/// A thread's precision, to be taken into another thread: threads inherit none by themselves.
///
/// ```
/// use precast::{precision, prelude::*};
/// let x = Tensor::ones(&[2, 2], DType::F32);
/// let dtypes = autocast(Autocast::new("torch-2.15-cpu")?, || {
///     let carried = precision::carry();
///     std::thread::scope(|threads| {
///         let bare = threads.spawn(|| x.matmul(&x)).join().expect("does not panic")?;
///         let inside = threads.spawn(|| carried.run(|| x.matmul(&x))).join().expect("does not panic")?;
///         Ok((bare.dtype(), inside.dtype()))
///     })
/// })?;
/// assert_eq!(dtypes, (DType::F32, DType::Bf16));
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Carried(Entered);

/// Takes the precision of this thread along.
pub fn carry() -> Carried {
    // Where nothing was entered, nothing is cast, whatever the other thread has entered itself.
    let nothing = || Entered { frame: Frame::Off, region: None, adapter: None, in_code: false };
    Carried(top(|top| top.cloned().unwrap_or_else(nothing)))
}

impl Carried {
    /// Runs `f` on this thread in the precision that was taken along.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let _scope = push(|_| self.0.clone());
        f()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_nest_and_survive_a_panic() {
        let _outer = enter(Frame::Fixed(DType::F16));
        let caught = std::panic::catch_unwind(|| {
            let _inner = enter(Frame::Off);
            panic!("left by panic");
        });
        assert!(caught.is_err());
        assert_eq!(current(), Some(Frame::Fixed(DType::F16)));
    }

    #[test]
    fn guards_dropped_out_of_order_leave_nothing() {
        let outer = enter(Frame::Fixed(DType::F16));
        let inner = enter(Frame::Off);
        drop(outer);
        drop(inner);
        assert_eq!(current(), None);
    }

    #[test]
    fn a_late_guard_ends_nothing_that_was_entered_since() {
        let outer = enter(Frame::Fixed(DType::F16));
        let late = enter(Frame::Off);
        drop(outer);
        let _newer = [enter(Frame::Off), enter(Frame::Fixed(DType::Bf16))];
        drop(late);
        assert_eq!(current(), Some(Frame::Fixed(DType::Bf16)));
    }

    #[test]
    fn a_new_thread_starts_without_a_frame() {
        let _here = enter(Frame::Fixed(DType::Bf16));
        std::thread::spawn(|| assert_eq!(current(), None)).join().unwrap();
    }

    #[test]
    fn adapters_stand_inside_the_region_around_them() {
        let state = AutocastState { enabled: true, dtype: DType::Bf16, cache: false };
        let _region = enter_region(Frame::Off, state);
        let _adapter = enter(Frame::Fixed(DType::F32));
        assert_eq!(region(), Some(state));
        with_current(|_, cache| assert!(!cache));
    }
}
