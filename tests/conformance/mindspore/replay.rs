//! The recorded run repeated here: our kernels, each op in the dtype recorded for it.
//!
//! If the recorded numbers are reproduced, they differ from ours only by dtypes and by the places where kernels round.
//! The dtypes are then explained one by one, and ours are those required by our rule.

use precast::{
    DType, Result, Tensor,
    cell::{Adapter, Cast},
    error::Error,
};

use crate::mindspore::{
    calls::{self, Script},
    case::Case,
    compare::{aligned, allowed, largest_difference, our_ops, places, their_dtypes, their_ops},
    golden::{Mode, Run, dtype},
    networks::Kit,
};

/// Number of times that digits and roundings are drawn.
const DRAWS: u64 = 100;

/// Way in which a recorded result was reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// With only the recorded dtypes.
    Dtypes,
    /// Also with f16 kernels that round after every step.
    Steps,
    /// Also with other last digits of f32 results: each recorded number is between those that were drawn.
    Digits,
}

/// Returns how the recorded numbers of a leaf are reproduced, if they are.
pub fn reproduces(case: &Case<'_>, leaf: usize) -> Option<How> {
    let run = case.record.pynative.as_ref()?;
    let recorded = run.out.as_ref()?.leaves().get(leaf)?.tensor();
    let script = |stepwise, digits| script(case, run, stepwise, digits).ok();
    let number = |script: Script| -> Option<Tensor> {
        let outputs = repeated(case, run, &script).ok()?;
        outputs.get(leaf).map(|y| y.cast(recorded.dtype())).filter(|y| y.shape() == recorded.shape())
    };
    let ours = case.run(Kit::Unfused).ok()?;
    for (how, stepwise) in [(How::Dtypes, false), (How::Steps, true)] {
        let y = number(script(stepwise, None)?)?;
        let off = largest_difference(&recorded.to_f64(), &y.to_f64());
        if off <= allowed(&recorded, &ours, case.low) {
            return Some(how);
        }
    }
    let plain = script(true, None)?;
    let drawn = |seed| number(Script { digits: Some(seed), ..plain.clone() });
    in_reach(&recorded, drawn).then_some(How::Digits)
}

/// Returns whether a leaf of a graph is within the range of results with roundings between ops omitted at random.
pub fn merges(case: &Case<'_>, leaf: usize) -> bool {
    let graph = case.record.graph.as_ref().filter(|_| case.mode == Mode::Graph);
    let Some(recorded) = graph.and_then(|run| Some(run.out.as_ref()?.leaves().get(leaf)?.tensor())) else {
        return false;
    };
    in_reach(&recorded, |seed| {
        let outputs = calls::merged(seed, || case.run(Kit::Unfused)).ok()?.outputs.ok()?;
        outputs.get(leaf).map(|y| y.cast(recorded.dtype()))
    })
}

/// Returns whether each recorded number is between those that were drawn.
fn in_reach(recorded: &Tensor, drawn: impl Fn(u64) -> Option<Tensor>) -> bool {
    let recorded = recorded.to_f64();
    let mut reach = vec![(f64::INFINITY, f64::NEG_INFINITY); recorded.len()];
    for seed in 1..=DRAWS {
        let Some(y) = drawn(seed).filter(|y| y.len() == recorded.len()) else { return false };
        for (reach, y) in reach.iter_mut().zip(y.to_f64()) {
            *reach = (reach.0.min(y), reach.1.max(y));
        }
    }
    recorded.iter().zip(reach).all(|(y, (low, high))| (low..=high).contains(y))
}

/// Returns the dtype recorded for each op that runs here; an op that did not run there has none.
fn script(case: &Case<'_>, run: &Run, stepwise: bool, digits: Option<u64>) -> Result<Script> {
    let missing = || Error::value("the ops were not recorded");
    let theirs = their_ops(run).ok_or_else(missing)?;
    let splits = theirs.iter().filter(|row| row.name == "Split").map(|row| their_dtypes(row).inside).collect();
    let ours = our_ops(case, &case.run(Kit::Unfused)?);
    let mut inside = vec![];
    for (row, op) in aligned(case, &theirs, &ours) {
        if let Some(op) = op.filter(|op| !places(op.op)) {
            inside.push(row.map(|row| their_dtypes(row).inside).filter(|_| op.dtypes.result.is_float()));
        }
    }
    Ok(Script { inside, splits, stepwise, digits })
}

/// Runs the original network, with the recorded dtypes at the borders of cells and in ops.
fn repeated(case: &Case<'_>, run: &Run, script: &Script) -> Result<Vec<Tensor>> {
    let mut net = case.network(Kit::Unfused)?;
    net.walk_mut(&mut |path, slot| {
        let path = case.first_path(path);
        let calls: Vec<_> = run.calls().filter(|call| call.path == path).collect();
        // A wrapper casts its result, whatever the inner cell returned.
        let wrapped = calls.iter().any(|call| call.wrapper);
        let arriving = calls.iter().flat_map(|call| call.arriving);
        let returned = calls.iter().filter(|call| call.wrapper == wrapped).flat_map(|call| call.results).flatten();
        let (inward, outward) = (the_low_one(arriving), the_low_one(returned));
        slot.set_to_float(None).unwrap();
        slot.set_adapter(Some(Adapter::Cast(Cast { inward, outward }))).unwrap();
    });
    calls::repeated(script, || net.call_many(&case.inputs()))
}

/// Returns the low dtype shared by all, else f32, which loses nothing.
fn the_low_one<'a>(codes: impl Iterator<Item = &'a String>) -> DType {
    let mut floats = codes.map(|code| dtype(code)).filter(|d| d.is_float());
    let first = floats.next().filter(|d| d.is_low() && floats.all(|other| other == *d));
    first.unwrap_or(DType::F32)
}
