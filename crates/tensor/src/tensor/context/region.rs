//! The stack of regions.

use std::fmt;

use super::{CONTEXT, Of, Scope, enter_slot, heard_elsewhere, is_all_in_f32, listen, slot};
use crate::{DType, precision::Frame, tensor::listener::Elsewhere};

/// State of an `autocast` region, in addition to its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutocastState {
    /// `true` when the region casts.
    pub enabled: bool,
    /// Low dtype of the region. A nested region that names no dtype inherits it.
    pub dtype: DType,
    /// `true` when a parameter is cast once and its low copy reused.
    pub cache: bool,
}

/// One entered region. An adapter's frame is part of the `autocast` region around it.
#[derive(Clone, Debug)]
pub(super) struct Entered {
    frame: Frame,
    region: Option<AutocastState>,
    /// Number of the innermost adapter that was numbered by a plan.
    adapter: Option<u64>,
    /// `true` when it was entered by code, rather than by the slot of a cell.
    in_code: bool,
}

/// Enters a frame on this thread until the returned guard is dropped.
pub fn enter(frame: Frame) -> Scope {
    push(|top| {
        let (region, adapter) = top.map_or((None, None), |top| (top.region, top.adapter));
        Entered { frame, region, adapter, in_code: true }
    })
}

/// Enters the frame of an `autocast` region.
pub fn enter_region(frame: Frame, region: AutocastState) -> Scope {
    push(|top| Entered { frame, region: Some(region), adapter: top.and_then(|top| top.adapter), in_code: true })
}

/// Enters the frame of a cell's adapter, with its number if a plan gave it one.
pub fn enter_adapter(frame: Frame, number: Option<u64>) -> Scope {
    push(|top| {
        let (region, around) = top.map_or((None, None), |top| (top.region, top.adapter));
        Entered { frame, region, adapter: number.or(around), in_code: false }
    })
}

fn push(entered: impl FnOnce(Option<&Entered>) -> Entered) -> Scope {
    CONTEXT.with(|context| {
        let entered = context.regions.top(|top| entered(top.as_deref()));
        context.enter(Of::Region, |number| context.regions.push(number, entered))
    })
}

fn top<R>(f: impl FnOnce(Option<&Entered>) -> R) -> R {
    CONTEXT.with(|context| context.regions.top(|top| f(top.as_deref())))
}

/// Returns the innermost frame of this thread. A new thread has none.
pub fn current() -> Option<Frame> {
    top(|top| top.map(|top| top.frame.clone()))
}

/// Returns the innermost `autocast` region of this thread.
pub fn region() -> Option<AutocastState> {
    top(|top| top.and_then(|top| top.region))
}

/// Returns the number of the innermost adapter of this thread that was numbered by a plan.
pub fn adapter() -> Option<u64> {
    top(|top| top.and_then(|top| top.adapter))
}

/// Returns whether the innermost frame was entered by code, rather than by the slot of a cell.
pub fn in_code() -> bool {
    top(|top| top.is_some_and(|top| top.in_code))
}

/// Calls `f` with the innermost frame and whether low copies of parameters are cached. `f` must not enter or leave a
/// frame.
pub fn with_current<R>(f: impl FnOnce(Option<&Frame>, bool) -> R) -> R {
    if is_all_in_f32() {
        return f(Some(&Frame::Fixed(DType::F32)), false);
    }
    top(|top| match top {
        Some(top) => f(Some(&top.frame), top.region.is_none_or(|region| region.cache)),
        None => f(None, true),
    })
}

/// Returns the dtype in which every op on a tensor of this dtype runs here; `None` where lists decide per op.
pub fn dtype_of_all(dtype: DType) -> Option<DType> {
    with_current(|frame, _| match frame {
        Some(Frame::Lists(_)) => None,
        Some(Frame::Fixed(fixed)) if dtype.is_castable() => Some(*fixed),
        _ => Some(dtype),
    })
}

/// Precision of a thread, to be carried into another one: threads do not inherit it.
///
/// ```
/// # use precast_tensor as precast;
/// use precast::{DType, Error, Tensor, precision::{self, Frame}};
/// let x = Tensor::ones(&[2, 2], DType::F32);
/// let _region = precision::enter(Frame::Fixed(DType::Bf16));
/// let carried = precision::carry();
/// let dtypes = std::thread::scope(|threads| {
///     let bare = threads.spawn(|| x.matmul(&x)).join().expect("does not panic")?;
///     let inside = threads.spawn(|| carried.run(|| x.matmul(&x))).join().expect("does not panic")?;
///     Ok::<_, Error>((bare.dtype(), inside.dtype()))
/// })?;
/// assert_eq!(dtypes, (DType::F32, DType::Bf16));
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone)]
pub struct Carried {
    entered: Entered,
    /// Slot of the cell that is being run, and listeners that observe other threads as well.
    slot: Option<usize>,
    listeners: Vec<Elsewhere>,
}

impl fmt::Debug for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Carried").field(&self.entered).finish()
    }
}

/// Captures the precision of this thread. A listener of this thread also sees the results
/// computed in it.
pub fn carry() -> Carried {
    // If nothing was entered, nothing is cast, whatever the other thread has entered itself.
    let nothing = || Entered { frame: Frame::Off, region: None, adapter: None, in_code: false };
    let entered = top(|top| top.cloned().unwrap_or_else(nothing));
    Carried { entered, slot: slot(), listeners: heard_elsewhere() }
}

impl Carried {
    /// Runs `f` on this thread in the captured precision.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let _scope = push(|_| self.entered.clone());
        let _slot = self.slot.map(enter_slot);
        heard_by_all(&self.listeners, f)
    }
}

/// Runs `f` while listeners observe this thread.
fn heard_by_all<R>(makers: &[Elsewhere], f: impl FnOnce() -> R) -> R {
    let Some((make, others)) = makers.split_first() else { return f() };
    let _scope = listen(make());
    heard_by_all(others, f)
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
        assert_eq!(current(), Some(Frame::Off));
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
