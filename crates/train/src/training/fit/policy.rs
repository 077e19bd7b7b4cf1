//! The policy of a run: rules end during it, and cells that stall it are raised to f32.

use std::collections::HashSet;

use precast::{
    Child, Policy,
    cell::AsCell,
    error::{Error, Result},
    observe::Origin,
    policy::Rule,
};
use precast_diagnose::Cure;

use super::Fit;
use crate::training::{Ended, Raised};

/// Policy of a run whose decisions change during it.
#[derive(Clone, Debug)]
pub(super) struct Changing {
    /// The policy with the rules of all raised cells.
    policy: Policy,
    /// Paths of the cells that may be raised.
    may_raise: HashSet<String>,
    /// Number of steps until which the network is wrapped; `None` before it is.
    wrapped_until: Option<usize>,
}

impl Fit {
    /// Declares the policy by which the network is wrapped. Its rules [end](precast::policy::Rule::until) after their
    /// steps, and a cell that [may be raised](precast::policy::Rule::raise_after_stall) is raised when it stalls the run.
    /// Without it, the network stays as it was wrapped.
    ///
    /// ```
    /// use precast::{prelude::*, policy::{Rule, RunAs}};
    /// use precast_train::{data, Fit, FitOptions};
    /// # fn main() -> Result<()> {
    /// let split = data::digits()?.reshape(&[64])?.split(96, 0)?;
    /// let mut net: Child = Dense::new(64, 10, &mut Rng::seed(1)).into();
    /// let policy = Policy::named("o2-bf16")?.rule(Rule::path("**", RunAs::Full)?.until(3))?;
    /// let _ = policy.apply(&mut net)?;
    /// let mut fit = Fit::new(&net, &FitOptions::default().epochs(2))?.under(&net, &policy)?;
    /// while fit.advance(&mut net, &split)?.is_some() {} // three steps in f32, then three in bf16
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Policy::plan`]; [`ErrorKind::Value`](precast::ErrorKind::Value) when cells may be raised, and no
    /// [monitor](super::FitOptions::monitor) finds them.
    pub fn under<C: ?Sized + AsCell>(mut self, net: &Child<C>, policy: &Policy) -> Result<Self> {
        if policy.ends().is_empty() && !policy.rules.iter().any(|rule| rule.raise_after_stall) {
            return Ok(self);
        }
        let plan = policy.in_the_end().plan(net)?;
        let raised = plan.decisions.into_iter().filter(|decision| decision.raise_after_stall);
        let may_raise: HashSet<String> = raised.map(|decision| decision.path).collect();
        if !may_raise.is_empty() && !self.options.monitor {
            return Err(Error::value(
                "a rule raises cells that stall the run, and only the monitor finds them; switch it on",
            ));
        }
        let policy = self.history.raised.iter().try_fold(policy.clone(), |policy, of| with_raised(&policy, of))?;
        self.changing = Some(Changing { policy, may_raise, wrapped_until: None });
        Ok(self)
    }

    /// Returns the policy of the next step, if the run is [under](Fit::under) one whose decisions change: with the rules
    /// of raised cells, and without those that have ended.
    pub fn policy(&self) -> Option<Policy> {
        self.changing.as_ref().map(|changing| changing.policy.after_steps(self.place.steps))
    }

    /// Returns the first faulty result of a stalled run, if its cell may be raised and was not.
    pub(super) fn to_raise(&self) -> Option<&Origin> {
        let origin = self.history.stalled()?.fault()?;
        let cell = &origin.edge.cell;
        let is_raised = || self.history.raised.iter().any(|raised| raised.origin.edge.cell == *cell);
        let may = self.changing.as_ref()?.may_raise.contains(cell);
        Some(origin).filter(|_| may && !is_raised())
    }

    /// Returns whether the last step [stalled](precast::Outcome::Stalled) the run, and no cell was raised since.
    pub fn has_stalled(&self) -> bool {
        let raised = || self.history.raised.last().is_some_and(|raised| raised.step == self.place.steps);
        self.history.stalled().is_some() && !raised()
    }

    /// Raises the cell that stalled the run, if it may; the run is then no longer over.
    pub(super) fn raise(&mut self) -> Result<Option<&Raised>> {
        let Some(origin) = self.to_raise().cloned() else { return Ok(None) };
        let raised = Raised { step: self.place.steps, origin };
        if let Some(changing) = &mut self.changing {
            (changing.policy, changing.wrapped_until) = (with_raised(&changing.policy, &raised)?, None);
        }
        tracing::warn!(target: "precast", step = raised.step, cell = %raised.origin.edge.cell, "cell raised to float32");
        self.history.raised.push(raised);
        Ok(self.history.raised.last())
    }

    /// Notes the rules that end with the last step, unless they are; returns whether there are any.
    pub(super) fn end_rules(&mut self) -> bool {
        let step = self.place.steps;
        let is_noted = self.history.ended.last().is_some_and(|ended| ended.step >= step);
        let rules = self.changing.iter().flat_map(|changing| &changing.policy.rules);
        let words = |rule: &Rule| match rule.run {
            Some(run) => format!("{} (run: {run})", rule.select),
            None => rule.select.to_string(),
        };
        let rules: Vec<String> = rules.filter(|rule| rule.until == Some(step)).map(words).collect();
        if rules.is_empty() || is_noted {
            return false;
        }
        tracing::info!(target: "precast", step, rules = %rules.join(", "), "rules ended");
        self.history.ended.push(Ended { step, rules });
        true
    }

    /// Returns the policy with the rules that hold when all others have ended, if its decisions change during the run.
    pub(crate) fn policy_in_the_end(&self) -> Option<Policy> {
        self.changing.as_ref().map(|changing| changing.policy.in_the_end())
    }

    /// Wraps the network as [`wrap`](Fit::wrap) does, whatever its wrapping is now.
    pub(crate) fn wrap_anew<C: ?Sized + AsCell>(&mut self, net: &mut Child<C>) -> Result<()> {
        self.changing.iter_mut().for_each(|changing| changing.wrapped_until = None);
        self.wrap(net)
    }

    /// Wraps the network by the rules that hold in the next step.
    pub(crate) fn wrap<C: ?Sized + AsCell>(&mut self, net: &mut Child<C>) -> Result<()> {
        let (steps, changing) = (self.place.steps, self.changing.as_mut());
        let Some(changing) = changing.filter(|changing| changing.wrapped_until.is_none_or(|until| steps >= until))
        else {
            return Ok(());
        };
        let now = changing.policy.after_steps(steps);
        let _ = now.plan(&*net)?.apply(net)?;
        changing.wrapped_until = Some(now.ends().first().copied().unwrap_or(usize::MAX));
        // The next step is checked against the new plan.
        self.checked = false;
        Ok(())
    }
}

/// Returns a policy with the rules that keep a raised cell in f32.
pub(crate) fn with_raised(policy: &Policy, Raised { step, origin }: &Raised) -> Result<Policy> {
    Cure::raise(origin, *step)?.apply(policy)
}
