//! Putting a plan's adapters into the slots of a network, and removing them.

use precast_policy::host::Wrap;

use super::{Decision, Plan, Reason};
use crate::{
    DType,
    cell::{AsCell, Child, Planned, Site, named},
    error::{Error, Result},
    policy::Scaler,
};

/// The result of applying a plan, which can be undone.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The plan that was applied.
    pub plan: Plan,
    /// Number of slots that changed; 0 when the same plan was applied before.
    pub changed: usize,
    before: Vec<(Planned, Option<Site>)>,
    /// Flag of each parameter: whether it required a scaler before.
    required: Vec<bool>,
}

impl<C: ?Sized + AsCell> Wrap for Child<C> {
    type Applied = Applied;

    const QUANTIZES: bool = true;

    /// Puts the plan's adapters into the slots, and clears all other slots.
    fn wrap(&mut self, plan: Plan) -> Result<Applied> {
        plan.check_fits(&self.outline())?;
        check_requests(&plan, self)?;
        Ok(put(plan, self))
    }
}

/// Applies a plan to the network for which it was made, unchanged since then.
fn put<C: ?Sized + AsCell>(plan: Plan, net: &mut Child<C>) -> Applied {
    let mut before = Vec::with_capacity(plan.decisions.len());
    let mut changed = 0;
    let mut decisions = plan.decisions.iter();
    net.walk_mut(&mut |_, slot| {
        let wanted = decisions.next().map_or_else(Planned::default, Decision::planned);
        // The site is that of a plan before; its operands keep their numbers of calls.
        let site = slot.site();
        let met = slot.replace_planned(wanted.clone(), site);
        changed += usize::from(met.0 != wanted);
        before.push(met);
    });
    net.number_adapters();
    tracing::info!(target: "precast", level = %plan.policy.level,
        dtype = %plan.policy.dtype,
        cells = plan.decisions.len(),
        wrapped = plan.decisions.iter().filter(|decision| decision.adapter.is_some()).count(),
        changed,
        "plan applied"
    );
    let scaler = plan.policy.scaler == Scaler::Required;
    let required = net.named_params().iter().map(|(_, param)| param.require_scaler(scaler)).collect();
    Applied { plan, changed, before, required }
}

/// Checks that code requests the same dtypes as when the plan was made.
fn check_requests<C: ?Sized + AsCell>(plan: &Plan, net: &Child<C>) -> Result<()> {
    let (mut decisions, mut error) = (plan.decisions.iter(), None);
    net.walk(&mut |entry| {
        let known = decisions.next().and_then(|decision| match decision.because {
            Reason::ToFloat(dtype) => Some(dtype),
            _ => None,
        });
        let asked = entry.slot.to_float;
        if asked != known && error.is_none() {
            let says = |dtype: Option<DType>| dtype.map_or("none", DType::long_name);
            let (asked, known) = (says(asked), says(known));
            error = Some(Error::plan(format!(
                "{} has the `to_float` {asked}, and the plan was made when it had {known}; make the plan again",
                named(entry.path)
            )));
        }
    });
    error.map_or(Ok(()), Err)
}

/// Checks that each slot holds what the plan put there.
fn check_holds<C: ?Sized + AsCell>(plan: &Plan, net: &Child<C>) -> Result<()> {
    let (mut decisions, mut changed) = (plan.decisions.iter(), None);
    net.walk(&mut |entry| {
        let holds = decisions.next().is_some_and(|decision| *entry.slot.planned == decision.planned());
        if !holds && changed.is_none() {
            changed = Some(entry.path.to_string());
        }
    });
    changed.map_or(Ok(()), |path| {
        Err(Error::path(format!(
            "the slot of {} does not hold what this plan put there: something else was applied since; undo that first, or \
             clear every slot with `plan::undo`",
            named(&path)
        )))
    })
}

impl Applied {
    /// Restores the previous contents of the slots. Undo the last applied plan first. [`undo`] clears all of them.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when the cells of the network are not those to which the plan was
    /// applied, or when their slots have other contents because something else was applied since; nothing is changed
    /// then.
    pub fn undo<C: ?Sized + AsCell>(self, net: &mut Child<C>) -> Result<()> {
        self.plan.check_fits(&net.outline())?;
        check_holds(&self.plan, net)?;
        let mut before = self.before.into_iter();
        net.walk_mut(&mut |_, slot| {
            let (planned, site) = before.next().unwrap_or_default();
            slot.replace_planned(planned, site);
        });
        for ((_, param), required) in net.named_params().iter().zip(self.required) {
            param.require_scaler(required);
        }
        tracing::info!(target: "precast", level = %self.plan.policy.level, cells = self.plan.decisions.len(), "plan undone");
        Ok(())
    }
}

/// Clears every adapter, which restores the network as it was written. Requests in code, `to_float` and
/// [`recompute`](Child::recompute), remain.
pub fn undo<C: ?Sized + AsCell>(net: &mut Child<C>) {
    net.walk_mut(&mut |_, slot| {
        slot.replace_planned(Planned::default(), None);
    });
    net.named_params().iter().for_each(|(_, param)| _ = param.require_scaler(false));
}
