//! Checking that a network ran by its plan.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use precast_base::{
    DType, Error, Result,
    path::{named, no_such_path},
    printable::printable,
};

use super::{Plan, Region};
use crate::{
    host::{CalledCell, RanOp, ReadParam, Recorded},
    precision::{Frame, OpRules, resolve},
};

impl Plan {
    /// Checks a traced run of the network to which the plan is applied: every op of a forward pass ran in the precision
    /// planned for its cell, every cell with parameters that ran is in the plan, and no cell's parameters were read by
    /// code in another precision while the cell itself was not called.
    ///
    /// Ops outside of every cell are not part of the plan; neither are those in a region that code enters inside a
    /// cell, such as an autocast region.
    ///
    /// # Errors
    /// [`ErrorKind::Plan`](crate::ErrorKind::Plan) for a run that contradicts the plan, and
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) for a run of another network.
    pub fn check(&self, trace: &impl Recorded) -> Result<()> {
        let rules = self.decisions.iter().find_map(|decision| decision.adapter.as_ref()?.rules().cloned());
        let claims = self.decisions.iter().map(|decision| Claim {
            path: &decision.path,
            kind: &decision.kind,
            region: decision.run,
            rules: rules.clone(),
        });
        check_claims(claims, trace)
    }
}

/// The planned precision of one cell.
#[derive(Debug)]
pub struct Claim<'a> {
    /// Path of the cell.
    pub path: &'a str,
    /// Kind of the cell.
    pub kind: &'a str,
    /// Precision inside the cell.
    pub region: Region,
    /// Lists of the region, if it has any.
    pub rules: Option<Arc<OpRules>>,
}

impl Claim<'_> {
    fn frame(&self) -> Option<Frame> {
        match self.region {
            Region::AsIs => None,
            Region::Fixed(dtype) => Some(Frame::Fixed(dtype)),
            Region::Lists(_) | Region::Except(_) => self.rules.clone().map(Frame::Lists),
        }
    }

    fn name(&self) -> String {
        format!("{} ({})", named(self.path), printable(self.kind))
    }
}

/// Maximum number of contradictions in a message.
const SHOWN: usize = 3;

/// Compares a recorded call with the planned precision of these cells, as [`Plan::check`] does.
///
/// # Errors
/// As [`Plan::check`].
pub fn check_claims<'a>(claims: impl Iterator<Item = Claim<'a>>, trace: &impl Recorded) -> Result<()> {
    let mut paths = Vec::new();
    let claims: HashMap<&str, Claim<'_>> =
        claims.inspect(|claim| paths.push(claim.path)).map(|claim| (claim.path, claim)).collect();
    let claim = |path: &str| {
        claims
            .get(path)
            .ok_or_else(|| no_such_path(path, paths.iter().copied()).context("the trace is of another network"))
    };
    let (mut found, mut as_planned, mut otherwise) = (Vec::<String>::new(), false, false);
    for call in trace.called_cells() {
        found.extend(cell(call, trace.show_it(), claim)?);
    }
    for run in trace.ran_ops().filter(|run| run.by_cell && !run.backward) {
        let claim = claim(run.path)?;
        let wrong = op(run, claim);
        as_planned |= wrong.is_none() && claim.region.lowers();
        otherwise |= wrong.is_some();
        found.extend(wrong);
    }
    let called: HashSet<&str> = trace.called_cells().filter_map(|call| call.path).collect();
    for read in trace.read_params() {
        found.extend(param(read, &called, &claim)?);
    }
    let mut met = HashSet::new();
    let mut shown: Vec<&str> = found.iter().map(String::as_str).filter(|words| met.insert(*words)).collect();
    let more = match shown.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    shown.truncate(SHOWN);
    let more = match otherwise && !as_planned {
        false => more,
        true => format!("{more} (no op ran as planned: is the plan applied to this network?)"),
    };
    match shown.is_empty() {
        true => Ok(()),
        false => Err(Error::plan(format!("{}{more}", shown.join("; ")))),
    }
}

/// Checks that a called cell was planned.
fn cell<'a, 'b: 'a>(
    call: CalledCell<'_>,
    show_it: &str,
    claim: impl Fn(&str) -> Result<&'a Claim<'b>>,
) -> Result<Option<String>> {
    let Some(path) = call.path else {
        let words = format!(
            "a cell with parameters ({}) ran that the network does not show, so no plan, optimizer or weight file knows it: \
             {show_it}",
            call.kind
        );
        return Ok(call.has_params.then_some(words));
    };
    let claim = claim(path)?;
    match claim.kind == call.kind {
        true => Ok(None),
        false => Err(Error::path(format!(
            "the trace is of another network: as {} it has a {}, this one a {}",
            named(path),
            call.kind,
            claim.kind
        ))),
    }
}

/// Checks that an op ran on its inputs as cast by the precision of its cell.
fn op(run: RanOp<'_>, claim: &Claim<'_>) -> Option<String> {
    let frame = claim.frame()?;
    match resolve(Some(&frame), run.op, run.inputs) {
        Ok(casts) if casts.after(run.inputs) == run.inputs => None,
        casts => {
            let dtypes = |of: &[DType]| {
                let mut names: Vec<&str> = of.iter().map(|dtype| dtype.name()).collect();
                if names.iter().all(|name| *name == names[0]) {
                    names.truncate(1);
                }
                names.join(", ")
            };
            let wanted = match (claim.region, casts) {
                (Region::Fixed(dtype), _) => dtype.to_string(),
                (_, Ok(casts)) => dtypes(&casts.after(run.inputs)),
                (_, Err(_)) => "that it is refused".into(),
            };
            Some(format!("{} of {} ran in {}; the plan says {wanted}", run.op, claim.name(), dtypes(run.inputs)))
        }
    }
}

/// Checks that a parameter was read by its cell, or else in the precision of its cell.
fn param<'a, 'b: 'a>(
    read: ReadParam<'_>,
    called: &HashSet<&str>,
    claim: &impl Fn(&str) -> Result<&'a Claim<'b>>,
) -> Result<Option<String>> {
    if read.owners.iter().any(|(path, _)| read.by == Some(path) || called.contains(path.as_str())) {
        return Ok(None);
    }
    let reader = read.by.map(claim).transpose()?;
    let region = reader.map_or(Region::AsIs, |reader| reader.region);
    let mut owners = Vec::new();
    for (path, name) in read.owners {
        owners.push((claim(path)?, name));
    }
    if owners.iter().any(|(owner, _)| owner.region == region) {
        return Ok(None);
    }
    Ok(owners.first().map(|(owner, name)| {
        let by = reader.map_or("code outside of the network".into(), Claim::name);
        format!(
            "{} was not called, and its `{}` was read by {by}, which runs {region}; the plan says {}",
            owner.name(),
            printable(name),
            owner.region
        )
    }))
}
