//! Putting a plan's adapters into the slots of a network, and taking them out again.

use super::{Plan, decide::Laid};
use crate::{
    DType, Policy,
    cell::{Adapter, AsCell, Child},
    error::{Error, Result},
    logging::event,
    policy::{Level, List, check_low},
    precision::{self, Frame},
};

/// What an apply did, and how to take it back.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The plan that was applied.
    pub plan: Plan,
    /// How many slots changed; 0 when the same plan was applied before.
    pub changed: usize,
    before: Vec<Option<Adapter>>,
}

impl Plan {
    /// Puts the plan's adapters into the slots: sets those it has, clears the others. Applying it again changes nothing.
    ///
    /// Parameters, their paths and the cells themselves are untouched.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when the network is not the one that was planned; then nothing was changed.
    pub fn apply<C: ?Sized + AsCell>(&self, net: &mut Child<C>) -> Result<Applied> {
        self.check_fits(net)?;
        Ok(self.clone().put(net))
    }

    /// [`apply`](Plan::apply) to the network that was planned, as it was then.
    fn put<C: ?Sized + AsCell>(self, net: &mut Child<C>) -> Applied {
        let mut before = Vec::with_capacity(self.decisions.len());
        let mut changed = 0;
        let mut decisions = self.decisions.iter();
        net.walk_mut(&mut |_, slot| {
            let wanted = decisions.next().and_then(|decision| decision.adapter.clone());
            changed += usize::from(slot.adapter() != wanted.as_ref());
            before.push(slot.replace_adapter(wanted));
        });
        event!(
            INFO,
            level = %self.policy.level,
            dtype = %self.policy.dtype,
            cells = self.decisions.len(),
            wrapped = self.decisions.iter().filter(|decision| decision.adapter.is_some()).count(),
            changed,
            "plan applied"
        );
        Applied { plan: self, changed, before }
    }

    fn check_fits<C: ?Sized + AsCell>(&self, net: &Child<C>) -> Result<()> {
        let mut decisions = self.decisions.iter();
        let mut misfit = None;
        net.walk(&mut |entry| {
            let kind = entry.slot.cell.kind();
            let planned = decisions.next();
            if misfit.is_none() && !planned.is_some_and(|d| d.path == entry.path && d.kind == kind) {
                let planned = planned.map_or("no further cell".into(), |d| format!("`{}` ({})", d.path, d.kind));
                misfit = Some(format!("the plan has {planned} where the network has `{}` ({kind})", entry.path));
            }
        });
        if let (None, Some(left)) = (&misfit, decisions.next()) {
            misfit = Some(format!("the plan has `{}` ({}) and the network has no such cell", left.path, left.kind));
        }
        match misfit {
            None => Ok(()),
            Some(what) => Err(Error::path(format!("the plan was made for another network: {what}"))),
        }
    }
}

impl Applied {
    /// Puts back what stood in the slots before: the last plan applied is the first undone. [`undo`] clears all of them.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when the network's cells are not those it was applied to, or their slots
    /// do not hold what was put there, because something else was applied since; then nothing was changed.
    pub fn undo<C: ?Sized + AsCell>(self, net: &mut Child<C>) -> Result<()> {
        self.plan.check_fits(net)?;
        let mut decisions = self.plan.decisions.iter();
        let mut other = None;
        net.walk(&mut |entry| {
            let put = decisions.next().and_then(|decision| decision.adapter.as_ref());
            if other.is_none() && entry.slot.adapter != put {
                other = Some(entry.path.to_string());
            }
        });
        if let Some(path) = other {
            return Err(Error::path(format!(
                "the slot `{path}` does not hold what this plan put there: something else was applied since; undo that first, \
                 or clear every slot with `rewrite::undo`"
            )));
        }
        let mut before = self.before.into_iter();
        net.walk_mut(&mut |_, slot| {
            slot.replace_adapter(before.next().flatten());
        });
        event!(INFO, level = %self.plan.policy.level, cells = self.plan.decisions.len(), "plan undone");
        Ok(())
    }
}

/// Clears every adapter: the network as it was written. `to_float` requests stay, they are the user's.
pub fn undo<C: ?Sized + AsCell>(net: &mut Child<C>) {
    net.walk_mut(&mut |_, slot| {
        slot.replace_adapter(None);
    });
}

impl Policy {
    /// [Plans](Policy::plan) and applies.
    ///
    /// # Errors
    /// As [`Policy::plan`]; the network is then unchanged.
    pub fn apply<C: ?Sized + AsCell>(&self, net: &mut Child<C>) -> Result<Applied> {
        Ok(self.plan(net)?.put(net))
    }
}

/// Wraps a network by a level with the default lists: plan and apply in one call.
///
/// The level may be given by name. The dtype is checked before the level, and both before anything is touched.
///
/// # Errors
/// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f16 or bf16 (also for O0),
/// [`ErrorKind::Level`](crate::ErrorKind::Level) for a level that does not exist.
///
/// ```
/// use precast::prelude::*;
/// let mut net = Child::new(Dense::new(4, 2, &mut Rng::seed(1)));
/// auto_mixed_precision(&mut net, "O2", DType::Bf16)?;
/// let y = net.call(&Tensor::ones(&[1, 4], DType::F32))?;
/// assert_eq!(y.dtype(), DType::F32);
/// let error = auto_mixed_precision(&mut net, "O4", DType::F16).unwrap_err();
/// assert!(error.to_string().contains("allowed: O0, O1, O2, O3, auto"));
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

/// Wraps a function, as level auto wraps a network: while it runs, every op is treated by the default op lists.
///
/// Regions inside win: a cell with an adapter or a `to_float`, and an inner function wrapped by itself.
///
/// # Errors
/// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f16 or bf16.
///
/// ```
/// use precast::{prelude::*, rewrite::auto_mixed_precision_fn};
/// let x = Tensor::ones(&[2, 4], DType::F32);
/// let attention = |(q, k): (&Tensor, &Tensor)| q.matmul(&k.t()?)?.log_softmax(-1);
/// let attention = auto_mixed_precision_fn(attention, DType::F16)?;
/// assert_eq!(attention((&x, &x))?.dtype(), DType::F32); // the product ran in f16, the log softmax in f32
/// # Ok::<(), precast::Error>(())
/// ```
pub fn auto_mixed_precision_fn<A, R>(f: impl Fn(A) -> R, dtype: DType) -> Result<impl Fn(A) -> R> {
    let rules = Laid::new(&Policy::new(Level::Auto, dtype)?)?.into_ops();
    Ok(move |input| {
        let _region = rules.clone().map(|rules| precision::enter(Frame::Lists(rules)));
        f(input)
    })
}

/// A list of the user's own, in place of the pack's.
#[derive(Clone, Debug, PartialEq)]
pub enum Custom {
    /// These cells and ops run low and return f32, as at O1.
    White(List),
    /// All runs low but these cells, as at O2.
    Black(List),
}

/// Wraps a network by a white or a black list of one's own. Having both is not possible.
///
/// # Errors
/// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f16 or bf16,
/// [`ErrorKind::List`](crate::ErrorKind::List) when a black list names ops (they would have no effect), or a kind that
/// neither the network nor the library has.
///
/// ```
/// use precast::prelude::*;
/// let mut net = Child::new(Dense::new(4, 2, &mut Rng::seed(1)));
/// let applied = custom_mixed_precision(&mut net, Custom::White(List::new().cell("Dense")), DType::F16)?;
/// assert_eq!(applied.changed, 1);
/// applied.undo(&mut net)?;
/// # Ok::<(), precast::Error>(())
/// ```
pub fn custom_mixed_precision<C: ?Sized + AsCell>(net: &mut Child<C>, list: Custom, dtype: DType) -> Result<Applied> {
    check_low(dtype)?;
    let policy = match list {
        Custom::White(list) => Policy::with_lists(Level::O1, dtype, list, List::new())?,
        Custom::Black(list) if list.ops().is_empty() => Policy::with_lists(Level::O2, dtype, List::new(), list)?,
        Custom::Black(list) => {
            let ops: Vec<&str> = list.ops().keys().map(|op| op.name()).collect();
            return Err(Error::list(format!("a black list holds kinds of cells; these are ops: {}", ops.join(", "))));
        }
    };
    policy.apply(net)
}
