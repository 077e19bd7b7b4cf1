//! Running context of a thread: the regions and cells its code runs in, its tape and its listeners. It is restored on
//! return, error and panic alike. A new thread starts without one.

mod operands;
mod region;
mod shard;
mod stack;
mod switches;

use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    rc::Rc,
};

pub use operands::{
    Quantizer, Quantizing, Which, enter_operands, last_product, next_product, quantize_operands, quantizes,
    warn_of_no_products,
};
pub use shard::{draw_in_shard, drawing_in_shard};

pub use region::{AutocastState, Carried, adapter, carry, current, enter, enter_adapter, enter_region, region};
pub use region::{dtype_of_all, in_code, with_current};

use precast_policy::policy::Format;
use stack::Stack;
use switches::{Audience, Change, Switches};

use super::{
    listener::{Elsewhere, Observer},
    pass::Notes,
    recording::Recorder,
};

struct Context {
    /// Number of guards so far.
    guards: Cell<u64>,
    regions: Stack<region::Entered>,
    /// Identities of the slots being run.
    slots: Stack<usize>,
    switches: Cell<Switches>,
    /// Changes of the switches, each with their state before it.
    changes: Stack<(Switches, Change)>,
    listeners: Stack<Rc<dyn Observer>>,
    recorders: Stack<Rc<Recorder>>,
    /// Notes of the forward pass being run.
    pass: RefCell<Option<Notes>>,
    /// Operands of the cells being run.
    operands: Stack<Option<Quantizing>>,
    /// Random draws of the shards being run.
    shards: Stack<shard::Draws>,
}

thread_local! {
    static CONTEXT: Context = const {
        Context {
            guards: Cell::new(0),
            regions: Stack::new(),
            slots: Stack::new(),
            switches: Cell::new(Switches::USUAL),
            changes: Stack::new(),
            listeners: Stack::new(),
            recorders: Stack::new(),
            pass: RefCell::new(None),
            operands: Stack::new(),
            shards: Stack::new(),
        }
    };
}

/// Guard that ends what it entered when dropped, and nothing else, in whatever order guards are dropped. It cannot leave
/// its thread.
#[derive(Debug)]
#[must_use = "the context is restored when this is dropped"]
pub struct Scope {
    number: u64,
    of: Of,
    _thread: PhantomData<*const ()>,
}

/// Kind of a guard.
#[derive(Clone, Copy, Debug)]
enum Of {
    Region,
    Slot,
    Operands,
    Shard,
    Change,
    Listener,
    Recorder,
}

impl Context {
    /// Creates a guard, and enters with its number.
    fn enter(&self, of: Of, enter: impl FnOnce(u64)) -> Scope {
        let number = self.guards.get() + 1;
        self.guards.set(number);
        enter(number);
        Scope { number, of, _thread: PhantomData }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let &mut Scope { number, of, .. } = self;
        // While a thread is torn down, its context is gone and there is nothing to restore.
        let _ = CONTEXT.try_with(|context| match of {
            Of::Region => drop(context.regions.remove(number)),
            Of::Slot => _ = context.slots.remove(number),
            Of::Operands => drop(context.operands.remove(number)),
            Of::Shard => drop(context.shards.remove(number)),
            Of::Change => context.change_back(number),
            Of::Listener => {
                context.change_back(number);
                drop(context.listeners.remove(number));
            }
            Of::Recorder => {
                context.change_back(number);
                drop(context.recorders.remove(number));
            }
        });
    }
}

fn switches() -> Switches {
    CONTEXT.with(|context| context.switches.get())
}

/// Changes the switches until the guard is dropped.
fn switch(change: Change) -> Scope {
    CONTEXT.with(|context| context.enter(Of::Change, |number| context.change(number, change)))
}

/// Enters the slot with this identity.
pub fn enter_slot(slot: usize) -> Scope {
    CONTEXT.with(|context| context.enter(Of::Slot, |number| context.slots.push(number, slot)))
}

/// Returns the innermost slot being run on this thread; `None` outside every cell.
pub fn slot() -> Option<usize> {
    CONTEXT.with(|context| context.slots.top(|slot| slot.copied()))
}

/// Sets the slot of the forward op whose gradients are computed.
pub fn enter_node(slot: Option<usize>) -> Scope {
    switch(Change::Node(slot))
}

/// Returns the slot to which an op or a cast belongs: the innermost one or, in a backward pass, that of the forward op.
pub fn slot_of_call() -> Option<usize> {
    slot().or_else(|| switches().node_slot)
}

/// Enters a backward pass.
pub fn enter_backward() -> Scope {
    switch(Change::Backward)
}

/// Returns whether this thread runs a backward pass.
pub fn in_backward() -> bool {
    switches().backward
}

/// Sets whether the following ops compute gradients of weights in f32.
pub fn enter_weight_grads(wide: bool) -> Scope {
    switch(Change::WideWeightGrads(wide))
}

/// Returns whether gradients of weights are computed in f32.
pub fn wide_weight_grads() -> bool {
    switches().wide_weight_grads
}

/// Sets the format in which the tape keeps the activations of the following ops; `None` for their own.
pub fn enter_kept(format: Option<Format>) -> Scope {
    switch(Change::Kept(format))
}

/// Returns the format in which the tape keeps activations; `None` for their own, as where every op runs in f32.
pub fn kept() -> Option<Format> {
    let switches = switches();
    switches.kept.filter(|_| !switches.in_f32)
}

/// Runs every op of `f` in f32: regions cast to no other dtype, nor do borders of cells.
pub fn all_in_f32<R>(f: impl FnOnce() -> R) -> R {
    let _scope = switch(Change::InF32);
    f()
}

/// Returns whether every op runs in f32.
pub fn is_all_in_f32() -> bool {
    switches().in_f32
}

/// Runs `f` with the tape switched on or off.
pub fn with_recording<R>(on: bool, f: impl FnOnce() -> R) -> R {
    let _scope = switch(Change::Tape(on));
    f()
}

/// Returns whether results are recorded on the tape.
pub fn is_recording() -> bool {
    switches().tape
}

/// Makes the tape keep calls, for second derivatives.
pub fn keep_calls() -> Scope {
    switch(Change::KeepsCalls)
}

/// Returns whether the tape keeps calls, for second derivatives.
pub fn keeps_calls() -> bool {
    switches().keeps_calls
}

/// Enters the inside of an op, whose calls are neither recorded nor kept by the tape.
pub fn enter_op() -> Scope {
    switch(Change::InOp)
}

/// Hides op calls from everybody who listens or records so far. The tape is unchanged.
pub fn silence() -> Scope {
    switch(Change::Silence)
}

/// Adds a listener.
pub(super) fn listen(listener: Rc<dyn Observer>) -> Scope {
    let change = Change::Listener { light: listener.is_light() };
    CONTEXT.with(|context| {
        context.enter(Of::Listener, |number| {
            context.listeners.push(number, listener);
            context.change(number, change);
        })
    })
}

/// Adds a recorder that replaces the previous one.
pub(super) fn record(recorder: Rc<Recorder>) -> Scope {
    CONTEXT.with(|context| {
        context.enter(Of::Recorder, |number| {
            context.recorders.push(number, recorder);
            context.change(number, Change::Recorder);
        })
    })
}

/// Returns whether anything listens to this thread.
pub fn is_heard() -> bool {
    let Switches { added, deaf, .. } = switches();
    added != deaf
}

/// Returns whether anything but [light](Observer::is_light) listeners listens to this thread.
pub fn is_heard_in_full() -> bool {
    let Switches { added, deaf, .. } = switches();
    let full = |audience: Audience| (audience.listeners - audience.light, audience.recorders);
    full(added) != full(deaf)
}

/// Notifies the recorder and all listeners, in the order in which they were added. The ops run by a listener meanwhile
/// are hidden from all of them.
pub fn tell(f: impl Fn(&dyn Observer)) {
    if !is_heard() {
        return;
    }
    let deaf = switches().deaf.listeners;
    let listeners: Vec<_> = CONTEXT.with(|context| context.listeners.after(deaf, |heard| heard.cloned().collect()));
    let recorder = recorder();
    let _quiet = silence();
    if let Some(recorder) = recorder {
        f(&*recorder);
    }
    listeners.iter().for_each(|listener| f(&**listener));
}

/// Returns makers of the listeners that observe other threads as well.
fn heard_elsewhere() -> Vec<Elsewhere> {
    let deaf = switches().deaf.listeners;
    CONTEXT.with(|context| context.listeners.after(deaf, |heard| heard.filter_map(|of| of.elsewhere()).collect()))
}

/// Returns the active recorder.
pub(super) fn recorder() -> Option<Rc<Recorder>> {
    let Switches { added, deaf, .. } = switches();
    if added.recorders == deaf.recorders {
        return None;
    }
    CONTEXT.with(|context| context.recorders.top(|last| last.cloned()))
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

    /// Drops guards in every order, and calls `look` before each and at the end with those that are left.
    fn in_every_order(enter: &[fn() -> Scope], look: impl Fn(&[usize])) {
        fn orders(of: &[usize]) -> Vec<Vec<usize>> {
            if of.is_empty() {
                return vec![vec![]];
            }
            let rest = |first: &usize| of.iter().copied().filter(|of| of != first).collect::<Vec<_>>();
            let with = |first: usize| move |rest: Vec<usize>| [vec![first], rest].concat();
            of.iter().flat_map(|first| orders(&rest(first)).into_iter().map(with(*first))).collect()
        }
        for order in orders(&Vec::from_iter(0..enter.len())) {
            let mut guards: Vec<Option<Scope>> = enter.iter().map(|enter| Some(enter())).collect();
            let left =
                |guards: &[Option<Scope>]| (0..guards.len()).filter(|&i| guards[i].is_some()).collect::<Vec<_>>();
            look(&left(&guards));
            for gone in order {
                guards[gone] = None;
                look(&left(&guards));
            }
        }
    }

    #[test]
    fn a_guard_ends_its_own_entry_in_whatever_order() {
        in_every_order(&[|| enter_slot(0), || enter_slot(1), || enter_slot(2)], |left| {
            assert_eq!(slot(), left.last().copied());
        });
        let changes: [fn() -> Scope; 4] =
            [enter_backward, || enter_weight_grads(true), || enter_weight_grads(false), || enter_node(Some(7))];
        in_every_order(&changes, |left| {
            assert_eq!(in_backward(), left.contains(&0), "{left:?}");
            assert_eq!(wide_weight_grads(), left.contains(&1) && !left.contains(&2), "{left:?}");
            assert_eq!(switches().node_slot, left.contains(&3).then_some(7), "{left:?}");
        });
        // Each look draws for a layer of its own, and so the first number of the shard: a multiple of the calls of one.
        let layers = Cell::new(0);
        in_every_order(&[|| shard::enter_shard(0, 1), || shard::enter_shard(0, 2)], |left| {
            layers.set(layers.get() + 1);
            let drawn = draw_in_shard(layers.get()).map(|first| (first >> 20) as usize);
            assert_eq!(drawn, left.last().map(|i| i + 1), "{left:?}");
        });
    }

    /// Listeners that count what they hear.
    #[derive(Default)]
    struct Counts(Cell<usize>);

    impl Observer for Counts {
        fn updated(&self, _: &crate::Param, _: u64) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn an_observer_hears_until_its_own_guard_is_dropped() {
        let param = crate::Param::new(crate::Tensor::scalar(1.0, crate::DType::F32));
        let say = || tell(|listener| listener.updated(&param, 0));
        let counts: [Rc<Counts>; 3] = Default::default();
        let heard = || counts.each_ref().map(|counts| counts.0.take());
        let mut guards = counts.each_ref().map(|counts| Some(listen(counts.clone())));
        say();
        assert_eq!(heard(), [1, 1, 1]);
        guards[0] = None;
        say();
        assert_eq!(heard(), [0, 1, 1]);
        let quiet = silence();
        let recorder = record(Rc::new(Recorder::default()));
        guards[2] = None;
        say();
        assert_eq!(heard(), [0, 0, 0]);
        drop(quiet);
        say();
        assert_eq!(heard(), [0, 1, 0]);
        assert!(self::recorder().is_some());
        drop(recorder);
        assert!(self::recorder().is_none() && is_heard());
        guards[1] = None;
        assert!(!is_heard());
    }
}
