//! Putting a plan's adapters into the slots of a network, and removing them.

use precast_policy::host::Wrap;

use super::{Decision, Plan, Reason};
use crate::{
    Autocast, DType, Policy,
    autocast::Wrapped,
    cell::{AsCell, Child, Planned, Site, Slot, named},
    error::{Error, Result},
    logging::event,
    policy::{Level, Lists, Scaler, check_low},
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

    /// Puts the plan's adapters into the slots, and clears all other slots.
    fn wrap(&mut self, plan: Plan) -> Result<Applied> {
        check_fits(&plan, self, |_, _| true)?;
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
        let met = slot.replace_planned(wanted.clone(), None);
        changed += usize::from(met.0 != wanted);
        before.push(met);
    });
    net.number_adapters();
    event!(
        INFO,
        level = %plan.policy.level,
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

/// Checks that the network has the cells of the plan, and that each slot satisfies `holds`.
fn check_fits<C: ?Sized + AsCell>(
    plan: &Plan,
    net: &Child<C>,
    holds: impl Fn(&Slot<'_>, &Decision) -> bool,
) -> Result<()> {
    let mut decisions = plan.decisions.iter();
    let (mut misfit, mut changed) = (None, None);
    net.walk(&mut |entry| {
        let kind = entry.slot.cell.kind();
        let planned = decisions.next();
        match planned.filter(|planned| planned.path == entry.path && planned.kind == kind) {
            Some(planned) if changed.is_some() || holds(&entry.slot, planned) => {}
            Some(_) => changed = Some(entry.path.to_string()),
            None if misfit.is_some() => {}
            None => {
                let planned = planned.map_or("no further cell".into(), |d| format!("{} ({})", named(&d.path), d.kind));
                misfit = Some(format!("the plan has {planned} where the network has {} ({kind})", named(entry.path)));
            }
        }
    });
    if let (None, Some(left)) = (&misfit, decisions.next()) {
        misfit = Some(format!("the plan has `{}` ({}) and the network has no such cell", left.path, left.kind));
    }
    match (misfit, changed) {
        (None, None) => Ok(()),
        (Some(what), _) => Err(Error::path(format!(
            "the plan was made for another network, or for this one before it changed: {what}"
        ))),
        (None, Some(path)) => Err(Error::path(format!(
            "the slot of {} does not hold what this plan put there: something else was applied since; undo that first, or \
                 clear every slot with `rewrite::undo`",
            named(&path)
        ))),
    }
}

impl Applied {
    /// Restores the previous contents of the slots. Undo the last applied plan first. [`undo`] clears all of them.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when the cells of the network are not those to which the plan was
    /// applied, or when their slots have other contents because something else was applied since; nothing is changed
    /// then.
    pub fn undo<C: ?Sized + AsCell>(self, net: &mut Child<C>) -> Result<()> {
        check_fits(&self.plan, net, |slot, decision| *slot.planned == decision.planned())?;
        let mut before = self.before.into_iter();
        net.walk_mut(&mut |_, slot| {
            let (planned, site) = before.next().unwrap_or_default();
            slot.replace_planned(planned, site);
        });
        for ((_, param), required) in net.named_params().iter().zip(self.required) {
            param.require_scaler(required);
        }
        event!(INFO, level = %self.plan.policy.level, cells = self.plan.decisions.len(), "plan undone");
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

/// Wraps a network by a level with the default lists: plans and applies in one call.
///
/// The level may be given by name. The dtype is checked before the level, and both before anything is changed.
///
/// # Errors
/// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f16 or bf16 (also for O0),
/// [`ErrorKind::Level`](crate::ErrorKind::Level) for an unknown level.
///
/// ```
/// use precast::prelude::*;
/// let mut net = Child::new(Dense::new(4, 2, &mut Rng::seed(1)));
/// auto_mixed_precision(&mut net, "O2", DType::Bf16)?;
/// let y = net.call(&Tensor::ones(&[1, 4], DType::F32))?;
/// assert_eq!(y.dtype(), DType::F32);
/// let error = auto_mixed_precision(&mut net, "O4", DType::F16).unwrap_err();
/// assert!(error.to_string().contains("allowed: O0, O1, O2, O3, auto, graph"));
/// # Ok::<(), precast::Error>(())
/// ```
pub fn auto_mixed_precision<C, L>(net: &mut Child<C>, level: L, dtype: DType) -> Result<Applied>
where
    C: ?Sized + AsCell,
    L: TryInto<Level>,
    Error: From<L::Error>,
{
    Policy::new(level, dtype)?.apply(net)
}

/// Wraps a function, as level auto wraps a network: while it runs, every op is treated by the pack's op lists.
///
/// Inner regions take precedence: a cell with an adapter or a `to_float`, and an inner function that is wrapped
/// separately. For a region with more options use [`Autocast::wrap`].
///
/// # Errors
/// Those of [`Autocast::new`] and [`Autocast::enter`]; the dtype is checked first.
///
/// ```
/// use precast::{policy::Pack, prelude::*, rewrite::auto_mixed_precision_fn};
/// let x = Tensor::ones(&[2, 4], DType::F32);
/// let attention = |q: &Tensor, k: &Tensor, v: &Tensor| q.matmul(&k.t()?)?.softmax(-1)?.matmul(v);
/// let attention = auto_mixed_precision_fn(attention, "mindspore-2.4", DType::F16)?;
/// assert_eq!(attention.call((&x, &x, &x))?.dtype(), DType::F16); // the products ran in f16, the softmax in f32
/// let scores = auto_mixed_precision_fn(|x: &Tensor| x.log_softmax(-1), Pack::DEFAULT, DType::F16)?;
/// assert_eq!(scores.call((&x,))?.dtype(), DType::F32);
/// # Ok::<(), precast::Error>(())
/// ```
pub fn auto_mixed_precision_fn<F>(f: F, pack: &str, dtype: DType) -> Result<Wrapped<F>> {
    check_low(dtype)?;
    Autocast::new(pack)?.dtype(dtype).wrap(f)
}

/// User-defined lists for a level, in place of a pack's.
#[derive(Clone, Debug, PartialEq)]
pub enum CustomLists {
    /// Only these cells and ops run low, and they return f32, as at O1.
    White(Lists),
    /// Everything runs low except these cells and ops, as at O2.
    Black(Lists),
}

/// Wraps a network by a user-defined white or black list. Having both is not possible.
///
/// # Errors
/// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f16 or bf16,
/// [`ErrorKind::List`](crate::ErrorKind::List) for an entry that stays f32 in a white list or runs low in a black one, and
/// for a kind that neither the network nor the library has.
///
/// ```
/// use precast::{prelude::*, rewrite::{CustomLists, custom_mixed_precision}};
/// let mut net = Child::new(Dense::new(4, 2, &mut Rng::seed(1)));
/// let applied = custom_mixed_precision(&mut net, CustomLists::White(Lists::new().low("Dense")), DType::F16)?;
/// assert_eq!(applied.changed, 1);
/// applied.undo(&mut net)?;
/// # Ok::<(), precast::Error>(())
/// ```
pub fn custom_mixed_precision<C: ?Sized + AsCell>(
    net: &mut Child<C>,
    custom: CustomLists,
    dtype: DType,
) -> Result<Applied> {
    let (level, lists) = match custom {
        CustomLists::White(lists) => (Level::O1, lists),
        CustomLists::Black(lists) => (Level::O2, lists),
    };
    Policy::with_lists(level, dtype, lists)?.apply(net)
}
