//! Running context of a thread: the regions and cells its code runs in, its tape and its listeners. It is restored on
//! return, error and panic alike. A new thread starts without one.

mod region;
mod shard;

use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    rc::Rc,
};

pub(crate) use shard::{draw_in_shard, enter_shard};

pub use region::{AutocastState, Carried, carry, current, enter, region};
pub(crate) use region::{adapter, dtype_of_all, enter_adapter, enter_region, in_code, with_current};

use super::{
    listener::{Elsewhere, Hears},
    pass::Notes,
    recording::Recorder,
};

struct Context {
    /// Entered regions, each with a number that distinguishes it from a later one at the same depth.
    regions: RefCell<Vec<(u64, region::Entered)>>,
    /// Number of regions entered so far.
    entered: Cell<u64>,
    /// Identities of the slots being run, the innermost last.
    slots: RefCell<Vec<usize>>,
    switches: Cell<Switches>,
    listeners: RefCell<Vec<Rc<dyn Hears>>>,
    recorders: RefCell<Vec<Rc<Recorder>>>,
    /// Notes of the forward pass being run.
    pass: RefCell<Option<Notes>>,
    /// Random draws of the shard being run.
    shard: RefCell<Option<shard::Draws>>,
}

/// Part of a context that is restored as a whole.
#[derive(Clone, Copy, Debug)]
struct Switches {
    /// `true` in a backward pass.
    backward: bool,
    /// Slot of the forward op whose gradients are computed.
    node_slot: Option<usize>,
    /// `true` when gradients of weights are computed in f32.
    wide_weight_grads: bool,
    /// `true` when every op runs in f32, whatever region it is in.
    in_f32: bool,
    /// `true` when results are recorded on the tape.
    tape: bool,
    /// `true` when the tape keeps calls, for second derivatives.
    keeps_calls: bool,
    /// Everybody who was added.
    added: Audience,
    /// Those from whom op calls are hidden, the first who were added. Whoever is added later hears again.
    deaf: Audience,
}

/// Numbers of observers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Audience {
    listeners: usize,
    /// Listeners that do without attributes, cells, and numbers that must be computed for them.
    light: usize,
    /// Observers that record calls in order to replay them. The last one hears.
    recorders: usize,
}

const NOBODY: Audience = Audience { listeners: 0, light: 0, recorders: 0 };

thread_local! {
    static CONTEXT: Context = const {
        Context {
            regions: RefCell::new(Vec::new()),
            entered: Cell::new(0),
            slots: RefCell::new(Vec::new()),
            switches: Cell::new(Switches {
                backward: false,
                node_slot: None,
                wide_weight_grads: false,
                in_f32: false,
                tape: true,
                keeps_calls: false,
                added: NOBODY,
                deaf: NOBODY,
            }),
            listeners: RefCell::new(Vec::new()),
            recorders: RefCell::new(Vec::new()),
            pass: RefCell::new(None),
            shard: RefCell::new(None),
        }
    };
}

/// Guard that restores the context when dropped. It cannot leave its thread.
#[derive(Debug)]
#[must_use = "the context is restored when this is dropped"]
pub struct Scope {
    undo: Undo,
    _thread: PhantomData<*const ()>,
}

#[derive(Debug)]
enum Undo {
    Region {
        depth: usize,
        number: u64,
    },
    Slot,
    Shard,
    Switches(Switches),
    /// As `Switches`, and removes the observers added since.
    Audience(Switches),
}

impl Scope {
    fn new(undo: Undo) -> Self {
        Scope { undo, _thread: PhantomData }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // While a thread is torn down, its context is gone and there is nothing to restore.
        let _ = CONTEXT.try_with(|context| match self.undo {
            Undo::Region { depth, number } => region::leave(context, depth, number),
            Undo::Slot => _ = context.slots.borrow_mut().pop(),
            Undo::Shard => *context.shard.borrow_mut() = None,
            Undo::Switches(before) => context.switches.set(before),
            Undo::Audience(before) => {
                context.switches.set(before);
                let left = context.listeners.borrow_mut().split_off(before.added.listeners);
                let also_left = context.recorders.borrow_mut().split_off(before.added.recorders);
                // Their `drop` may use the context.
                drop((left, also_left));
            }
        });
    }
}

fn switches() -> Switches {
    CONTEXT.with(|context| context.switches.get())
}

/// Changes switches until the guard is dropped.
fn switch(change: impl FnOnce(&mut Switches)) -> Scope {
    CONTEXT.with(|context| {
        let before = context.switches.get();
        let mut after = before;
        change(&mut after);
        context.switches.set(after);
        Scope::new(Undo::Switches(before))
    })
}

/// Enters the slot with this identity.
pub(crate) fn enter_slot(slot: usize) -> Scope {
    CONTEXT.with(|context| context.slots.borrow_mut().push(slot));
    Scope::new(Undo::Slot)
}

/// Returns the innermost slot being run on this thread; `None` outside every cell.
pub(crate) fn slot() -> Option<usize> {
    CONTEXT.with(|context| context.slots.borrow().last().copied())
}

/// Sets the slot of the forward op whose gradients are computed.
pub(crate) fn enter_node(slot: Option<usize>) -> Scope {
    switch(|switches| switches.node_slot = slot)
}

/// Returns the slot to which an op or a cast belongs: the innermost one or, in a backward pass, that of the forward op.
pub(crate) fn slot_of_call() -> Option<usize> {
    slot().or_else(|| switches().node_slot)
}

/// Enters a backward pass.
pub(crate) fn enter_backward() -> Scope {
    switch(|switches| switches.backward = true)
}

/// Returns whether this thread runs a backward pass.
pub(crate) fn in_backward() -> bool {
    switches().backward
}

/// Sets whether the following ops compute gradients of weights in f32.
pub(crate) fn enter_weight_grads(wide: bool) -> Scope {
    switch(|switches| switches.wide_weight_grads = wide)
}

/// Returns whether gradients of weights are computed in f32.
pub(crate) fn wide_weight_grads() -> bool {
    switches().wide_weight_grads
}

/// Runs every op of `f` in f32: regions cast to no other dtype, nor do borders of cells.
pub(crate) fn all_in_f32<R>(f: impl FnOnce() -> R) -> R {
    let _scope = switch(|switches| switches.in_f32 = true);
    f()
}

/// Returns whether every op runs in f32.
pub(crate) fn is_all_in_f32() -> bool {
    switches().in_f32
}

/// Runs `f` with the tape switched on or off.
pub(crate) fn with_recording<R>(on: bool, f: impl FnOnce() -> R) -> R {
    let _scope = switch(|switches| switches.tape = on);
    f()
}

/// Returns whether results are recorded on the tape.
pub(crate) fn is_recording() -> bool {
    switches().tape
}

/// Makes the tape keep calls, for second derivatives.
pub(crate) fn keep_calls() -> Scope {
    switch(|switches| switches.keeps_calls = true)
}

/// Returns whether the tape keeps calls, for second derivatives.
pub(crate) fn keeps_calls() -> bool {
    switches().keeps_calls
}

/// Enters the inside of an op, whose calls are neither recorded nor kept by the tape.
pub(crate) fn enter_op() -> Scope {
    switch(|switches| {
        switches.deaf.recorders = switches.added.recorders;
        switches.keeps_calls = false;
    })
}

/// Hides op calls from everybody who listens or records so far. The tape is unchanged.
pub(crate) fn silence() -> Scope {
    switch(|switches| switches.deaf = switches.added)
}

/// Adds a listener.
pub(super) fn listen(listener: Rc<dyn Hears>) -> Scope {
    let light = usize::from(listener.is_light());
    CONTEXT.with(|context| context.listeners.borrow_mut().push(listener));
    added(|added| {
        added.listeners += 1;
        added.light += light;
    })
}

/// Adds a recorder that replaces the previous one.
pub(super) fn record(recorder: Rc<Recorder>) -> Scope {
    CONTEXT.with(|context| context.recorders.borrow_mut().push(recorder));
    added(|added| added.recorders += 1)
}

/// Counts an observer that was added, until the guard is dropped.
fn added(count: impl FnOnce(&mut Audience)) -> Scope {
    let before = switches();
    let mut after = before;
    count(&mut after.added);
    CONTEXT.with(|context| context.switches.set(after));
    Scope::new(Undo::Audience(before))
}

/// Returns whether anything listens to this thread.
pub(crate) fn is_heard() -> bool {
    let Switches { added, deaf, .. } = switches();
    added != deaf
}

/// Returns whether anything but [light](Hears::is_light) listeners listens to this thread.
pub(crate) fn is_heard_in_full() -> bool {
    let Switches { added, deaf, .. } = switches();
    let full = |audience: Audience| (audience.listeners - audience.light, audience.recorders);
    full(added) != full(deaf)
}

/// Notifies the recorder and all listeners, in the order in which they were added. The ops run by a listener meanwhile
/// are hidden from all of them.
pub(crate) fn tell(f: impl Fn(&dyn Hears)) {
    if !is_heard() {
        return;
    }
    let deaf = switches().deaf.listeners;
    let listeners = CONTEXT.with(|context| context.listeners.borrow()[deaf..].to_vec());
    let recorder = recorder();
    let _quiet = silence();
    if let Some(recorder) = recorder {
        f(&*recorder);
    }
    listeners.iter().for_each(|listener| f(&**listener));
}

/// Returns makers of the listeners that observe other threads, too.
fn heard_elsewhere() -> Vec<Elsewhere> {
    let deaf = switches().deaf.listeners;
    CONTEXT
        .with(|context| context.listeners.borrow()[deaf..].iter().filter_map(|listener| listener.elsewhere()).collect())
}

/// Returns the active recorder.
pub(super) fn recorder() -> Option<Rc<Recorder>> {
    let Switches { added, deaf, .. } = switches();
    if added.recorders == deaf.recorders {
        return None;
    }
    CONTEXT.with(|context| context.recorders.borrow().last().cloned())
}

/// Replaces the notes of the forward pass.
pub(super) fn replace_notes(notes: Option<Notes>) -> Option<Notes> {
    CONTEXT.with(|context| context.pass.replace(notes))
}

/// Calls `f` with the notes of the forward pass; `None` outside a pass.
pub(super) fn with_notes<R>(f: impl FnOnce(&mut Notes) -> R) -> Option<R> {
    CONTEXT.with(|context| context.pass.borrow_mut().as_mut().map(f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_nest_and_survive_a_panic() {
        let _outer = enter_slot(1);
        let caught = std::panic::catch_unwind(|| {
            let _inner = enter_slot(2);
            let _backward = enter_backward();
            assert_eq!((slot(), in_backward()), (Some(2), true));
            panic!("left by panic");
        });
        assert!(caught.is_err());
        assert_eq!((slot(), in_backward()), (Some(1), false));
        assert_eq!(std::thread::spawn(slot).join().unwrap(), None);
    }

    #[test]
    fn what_is_hidden_stays_hidden_further_inside() {
        let recorder = || record(Rc::new(Recorder::default()));
        let _outer = recorder();
        assert!(is_heard());
        let _silence = silence();
        let _op = enter_op();
        assert!(!is_heard());
        // An observer added inside hears, until it is removed.
        drop(recorder());
        assert!(!is_heard());
        let _inner = recorder();
        assert!(is_heard());
    }
}
