//! The lint of a training run, on its first batch.

use precast::{Child, Policy, cell::AsCell, error::Result, plan::undo};
use precast_diagnose::lint::{Finding, Lint, Severity};

use super::{Fit, FitOptions, Loss};
use crate::data::Split;

impl Fit {
    /// Lints the network on the first batch of the run, unless it was linted, or a step was taken. A lint that fails
    /// finds nothing. With the policy that the network has, the rules that it proposes are verified.
    pub(crate) fn lint<C: ?Sized + AsCell>(&mut self, net: &mut Child<C>, data: &Split, policy: Option<&Policy>) {
        if self.findings.is_some() || self.steps_done() > 0 || !self.options.lint {
            return;
        }
        // The hazards of a rule that ends are those after it.
        let policy = self.policy_in_the_end().or_else(|| policy.cloned());
        let found = self.first_findings(net, data, policy.as_ref()).unwrap_or_default();
        // An error is that of the first step.
        let _ = self.wrap_anew(net);
        let found = found.into_iter().filter(|finding| finding.severity > Severity::Information);
        for finding in self.findings.insert(found.collect()) {
            tracing::warn!(target: "precast", rule = finding.rule.name(), cell = %finding.cell, "{finding}");
        }
    }

    /// Lints the network, as it is wrapped now, on the first batch of the run.
    pub(crate) fn first_findings<C: ?Sized + AsCell>(
        &self,
        net: &mut Child<C>,
        data: &Split,
        policy: Option<&Policy>,
    ) -> Result<Vec<Finding>> {
        let FitOptions { seed, batch, loss, loss_scale, method, lr, .. } = &self.options;
        let batch = data.train.read_batch(&data.train.order(*seed, 0), *batch, 0)?;
        let loss = loss.clone().unwrap_or_else(|| Loss::usual(data.train.targets()));
        if !loss.counts(&batch.y) {
            return Ok(Vec::new());
        }
        let lint = Lint::new().loss_scale(loss_scale.clone()).update(method.clone(), *lr);
        net.set_train(true);
        let loss = |net: &Child<C>| loss.of(&batch.call(net)?, &batch.y);
        let found = match policy {
            Some(policy) => {
                undo(net);
                let found = lint.under(policy, net, loss);
                policy.apply(net)?;
                found
            }
            None => lint.run(net, loss),
        };
        net.set_train(false);
        // The lint made low-precision copies of the parameters. The first step makes new ones, like every other step.
        for (_, param) in net.params().iter() {
            param.set(&param.full())?;
        }
        found
    }

    /// Returns the errors and warnings of the [lint](precast_diagnose::lint::Lint) of the first batch, which runs before the first
    /// step of a run. They do not stop the run.
    pub fn findings(&self) -> &[Finding] {
        self.findings.as_deref().unwrap_or_default()
    }
}
