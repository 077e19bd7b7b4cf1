//! The switches of a context, and their changes, which end in any order.

use precast_policy::policy::Format;

use super::Context;

/// Switches that are looked at in each op.
#[derive(Clone, Copy, Debug)]
pub(super) struct Switches {
    /// `true` in a backward pass.
    pub backward: bool,
    /// Slot of the forward op whose gradients are computed.
    pub node_slot: Option<usize>,
    /// `true` when gradients of weights are computed in f32.
    pub wide_weight_grads: bool,
    /// Format in which the tape keeps activations; `None` where they stay as they are.
    pub kept: Option<Format>,
    /// `true` when every op runs in f32, whatever region it is in.
    pub in_f32: bool,
    /// `true` when results are recorded on the tape.
    pub tape: bool,
    /// `true` when the tape keeps calls, for second derivatives.
    pub keeps_calls: bool,
    /// Everybody who was added.
    pub added: Audience,
    /// Those from whom op calls are hidden, the first who were added. Whoever is added later hears again.
    pub deaf: Audience,
}

/// Numbers of observers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Audience {
    pub listeners: usize,
    /// Listeners that do without attributes, cells, and numbers that must be computed for them.
    pub light: usize,
    /// Observers that record calls in order to replay them. The last one hears.
    pub recorders: usize,
}

const NOBODY: Audience = Audience { listeners: 0, light: 0, recorders: 0 };

impl Switches {
    /// Switches of a thread that has entered nothing.
    pub const USUAL: Switches = Switches {
        backward: false,
        node_slot: None,
        wide_weight_grads: false,
        kept: None,
        in_f32: false,
        tape: true,
        keeps_calls: false,
        added: NOBODY,
        deaf: NOBODY,
    };
}

/// Change of the switches.
#[derive(Clone, Copy)]
pub(super) enum Change {
    Node(Option<usize>),
    Backward,
    WideWeightGrads(bool),
    Kept(Option<Format>),
    InF32,
    Tape(bool),
    KeepsCalls,
    InOp,
    Silence,
    Listener { light: bool },
    Recorder,
}

impl Change {
    fn make(self, switches: &mut Switches) {
        match self {
            Change::Node(slot) => switches.node_slot = slot,
            Change::Backward => switches.backward = true,
            Change::WideWeightGrads(wide) => switches.wide_weight_grads = wide,
            Change::Kept(format) => switches.kept = format,
            Change::InF32 => switches.in_f32 = true,
            Change::Tape(on) => switches.tape = on,
            Change::KeepsCalls => switches.keeps_calls = true,
            Change::InOp => (switches.deaf.recorders, switches.keeps_calls) = (switches.added.recorders, false),
            Change::Silence => switches.deaf = switches.added,
            Change::Listener { light } => {
                switches.added.listeners += 1;
                switches.added.light += usize::from(light);
            }
            Change::Recorder => switches.added.recorders += 1,
        }
    }
}

impl Context {
    /// Changes the switches until the guard with this number is dropped.
    pub(super) fn change(&self, number: u64, change: Change) {
        let before = self.switches.get();
        let mut after = before;
        change.make(&mut after);
        self.switches.set(after);
        self.changes.push(number, (before, change));
    }

    /// Takes a change of the switches back, and makes later ones again.
    pub(super) fn change_back(&self, number: u64) {
        let _ = self.changes.remove_with(number, |(before, _), later| {
            let mut switches = *before;
            for (_, (before, change)) in later {
                *before = switches;
                change.make(&mut switches);
            }
            self.switches.set(switches);
        });
    }
}
