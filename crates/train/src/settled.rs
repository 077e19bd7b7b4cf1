//! The policy of a run that prefers speed, settled for this machine.

use precast::{
    Checkpoint, Child, LossScale, Policy,
    cost::Speeds,
    error::{Error, Result},
    policy::Prefer,
};

use super::folder::POLICY;
use crate::data::{Split, batches::call};

/// Settles a policy that prefers speed into one with rules, by a training step that changes nothing, and returns it
/// with a note.
pub(super) fn settled(policy: Policy, net: &mut Child, data: &Split, batch: usize) -> Result<(Policy, Option<String>)> {
    if policy.prefer == Prefer::Memory {
        return Ok((policy, None));
    }
    let Some(batch) = data.train.try_batches_of_inputs(batch)?.next().transpose()? else {
        return Err(Error::data("there are no examples to train with"));
    };
    let speeds = Speeds::here();
    let mut none = LossScale::none();
    let before = Checkpoint::of(net, &[], &none);
    net.set_train(true);
    let (called, trace) = net.trace(|net| call(net, &batch));
    net.set_train(false);
    // Norms count their batches, and dropout its calls.
    before.restore(net, &mut [], &mut none)?;
    called.map_err(|e| e.context("the model on a batch to train with"))?;
    let settled = policy.settled(net, &trace, &speeds)?;
    // Its rules refer to the file that the folder gets.
    let settled = Policy::parse(&settled.to_yaml()?, POLICY)?;
    let cells = settled.rules.len() - policy.rules.len();
    let note = format!("`prefer: speed` is settled for {}: {cells} rules were added to `policy.yaml`", speeds.host);
    Ok((settled, Some(note)))
}
