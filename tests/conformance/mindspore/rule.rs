//! Requirements of our rule on a network, computed here from the recorded cells and the lists: the region of each cell,
//! the adapter in its slot, and the dtypes of each op. This does not use `plan` and `precision`.
//!
//! `to_float` wins, then the enclosing cell if more than the level's default decided it, then the lists, then the
//! level.

use precast::{
    DType, Op,
    cell::{Adapter, Cast, TracedOp},
    plan::Region,
    precision::Treatment,
};

use crate::mindspore::{
    calls::Call,
    case::{Case, Effect, Ours},
    compare::places,
    golden::{CellRow, dtype},
};

/// The region of a cell, and whether more than the level's default decided it.
#[derive(Clone, Copy)]
struct Place {
    run: Region,
    decided: bool,
}

/// Returns the enclosing cell, whose path is empty at the root.
fn parent(path: &str) -> Option<&str> {
    if path.is_empty() { None } else { Some(path.rsplit_once('.').map_or("", |(parent, _)| parent)) }
}

fn place(case: &Case<'_>, effect: &Effect, row: &CellRow) -> Place {
    if let Some(asked) = &row.flag {
        return Place { run: Region::Fixed(dtype(asked)), decided: true };
    }
    let around = parent(&row.path).map(|path| {
        let row = case.original(path).unwrap_or_else(|| panic!("no cell is recorded at `{path}`"));
        place(case, effect, row)
    });
    if let Some(around) = around.filter(|around| around.decided) {
        return around;
    }
    let listed = |run| Place { run, decided: true };
    match effect {
        Effect::Listed(list) if list.cells().contains_key(&row.class) => return listed(Region::Fixed(case.low)),
        Effect::AllBut(list) if list.cells().contains_key(&row.class) => return listed(Region::Fixed(DType::F32)),
        _ => {}
    }
    let of_level = match effect {
        Effect::Nothing => Region::AsIs,
        Effect::Listed(list) if list.ops().is_empty() => Region::AsIs,
        Effect::Listed(_) => Region::Lists(case.low),
        Effect::AllBut(_) => Region::Fixed(case.low),
        Effect::EachOp(_) => Region::Lists(case.low),
    };
    around.unwrap_or(Place { run: of_level, decided: false })
}

/// Returns the contents of the slot: for a fixed region its dtype inside, and that of the enclosing cell outside; the
/// root of O2 and O3 returns f32, a root with a request returns its own dtype. Op lists are at the root.
fn adapter(effect: &Effect, row: &CellRow, run: Region, around: Region) -> Option<Result<Cast, Region>> {
    match (effect, run) {
        (Effect::Nothing, _) => None,
        _ if run == around => None,
        (_, Region::Fixed(inward)) => {
            let outward = match around {
                Region::Fixed(outward) => outward,
                _ if row.path.is_empty() && row.flag.is_some() && !matches!(effect, Effect::AllBut(_)) => inward,
                _ => DType::F32,
            };
            Some(Ok(Cast { inward, outward }))
        }
        (_, Region::AsIs) => None,
        (_, lists) => Some(Err(lists)),
    }
}

/// Lists where the network violates our rule. `calls` are the calls of a watched run of the same network.
pub fn broken(case: &Case<'_>, ours: &Ours, calls: &[Call]) -> Vec<String> {
    let effect = case.effect();
    let mut wrong = vec![];
    // A network lowered once or twice, whatever the second level: an adapter left by the first one would be seen.
    for row in &case.net.original_cells {
        let Ok(decision) = ours.plan.decision(&row.path) else {
            wrong.push(format!("the plan has no cell `{}`", row.path));
            continue;
        };
        let run = place(case, &effect, row).run;
        let around = parent(&row.path).and_then(|path| case.original(path));
        let around = around.map_or(Region::AsIs, |around| place(case, &effect, around).run);
        let demanded = adapter(&effect, row, run, around);
        let found = decision.adapter.as_ref().map(|adapter| match adapter {
            Adapter::Cast(cast) => Ok(*cast),
            _ => Err(decision.run),
        });
        if (run, &demanded) != (decision.run, &found) {
            let (path, kind) = (&row.path, &row.class);
            wrong.push(format!("{kind} `{path}`: {run:?} {demanded:?} is our rule, {:?} {found:?} met", decision.run));
        }
    }
    let region = |path: &str| case.original(path).map_or(Region::AsIs, |row| place(case, &effect, row).run);
    for op in &ours.trace.ops {
        if let Region::Fixed(dtype) = region(&op.path)
            && op.op != Op::Cast
            && op.inputs.iter().any(|d| d.is_castable() && *d != dtype)
        {
            wrong.push(format!("{} in `{}` runs in {:?}, its region in {dtype}", op.op, op.path, op.inputs));
        }
    }
    let computing: Vec<&TracedOp> = ours.trace.ops.iter().filter(|op| !places(op.op)).collect();
    if computing.len() != calls.len() {
        wrong.push(format!("{} ops ran, {} were watched", computing.len(), calls.len()));
    }
    for (op, call) in computing.iter().zip(calls) {
        let (path, region) = (&op.path, region(&op.path));
        wrong.extend(call.too_far.iter().map(|too_far| format!("in `{path}`: {too_far}")));
        let (inside, returned) = demanded(&effect, region, call);
        if op.op != call.op || (&inside, returned) != (&call.inside, call.returned) {
            wrong.push(format!(
                "{} in `{path}` ({region:?}) of {:?}: {inside:?} -> {returned} is our rule, {} {:?} -> {} met",
                op.op, call.arriving, call.op, call.inside, call.returned
            ));
        }
    }
    wrong.extend(wrong_outputs(case, &effect, ours));
    wrong
}

/// Returns the dtypes in which an op computes, and the one it returns.
fn demanded(effect: &Effect, region: Region, call: &Call) -> (Vec<DType>, DType) {
    let all = |to: DType| call.arriving.iter().map(|d| if d.is_castable() { to } else { *d }).collect::<Vec<_>>();
    let widest = || call.arriving.iter().copied().filter(|d| d.is_castable()).reduce(DType::promote);
    // Everything not decided by a list is arithmetic: mixed inputs are promoted to the widest, and only a norm keeps
    // each unchanged.
    let arithmetic = || match call.op {
        Op::BatchNorm | Op::LayerNorm | Op::GroupNorm => call.arriving.clone(),
        _ => widest().map_or(call.arriving.clone(), all),
    };
    let (inside, back) = match (region, effect) {
        (Region::Fixed(dtype), _) => (all(dtype), false),
        (Region::Lists(low), Effect::Listed(list)) if list.ops().contains_key(&call.op) => (all(low), true),
        (Region::Lists(low), Effect::EachOp(lists)) => match lists.op(call.op, low).map(|entry| entry.treatment) {
            Some(Treatment::Low) => (all(low), false),
            Some(Treatment::Full) => (all(DType::F32), false),
            _ => (arithmetic(), false),
        },
        _ => (arithmetic(), false),
    };
    let computed = inside.first().copied().unwrap_or(DType::F32);
    (inside, if back { DType::F32 } else { computed })
}

/// Checks the dtype of every floating-point output, which is known for a root that is one fixed region or that nothing
/// low leaves.
fn wrong_outputs(case: &Case<'_>, effect: &Effect, ours: &Ours) -> Vec<String> {
    let Ok(outputs) = &ours.outputs else { return vec![] };
    let Some(root) = case.original("") else { return vec![] };
    let run = place(case, effect, root).run;
    let demanded = match (adapter(effect, root, run, Region::AsIs), run) {
        (Some(Ok(cast)), _) => cast.outward,
        (None, Region::Fixed(dtype)) => dtype,
        (Some(Err(_)), _) if matches!(effect, Effect::EachOp(_)) => return vec![],
        _ if case.inputs().iter().any(|x| x.dtype().is_low()) => return vec![],
        _ => DType::F32,
    };
    let wrong = outputs.iter().filter(|y| y.dtype().is_castable() && y.dtype() != demanded);
    wrong.map(|y| format!("an output is {}, {demanded} is our rule", y.dtype())).collect()
}
