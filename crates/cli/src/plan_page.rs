//! The pages of `--html`, in which the plans of a network are searched, folded and compared.

use std::{collections::BTreeMap, path::Path};

use precast::{
    Plan, Policy,
    cell::Trace,
    io::models::Model,
    policy::{GraphPolicy, PolicyFile},
};
use precast_diagnose::Headroom;
use precast_explorer::{About, NodesView, Note, View, of_cells, of_nodes};
use precast_graph::NodeDecision;

use super::{
    Failure, Result,
    inputs::{Predicting, Read},
    network::Network,
    outputs,
    summary::{Sizes, summary},
};

/// Returns the page of these plans, one for each policy. Each is applied to a network of its own, since weights keep the
/// low copies that a call makes.
pub(super) fn page(
    networks: &mut [Network],
    policies: &[Read<Policy>],
    plans: &[Plan],
    predicting: &Predicting,
    headroom: &[Headroom],
) -> Result<String> {
    let called = networks.iter_mut().zip(plans).map(|(network, plan)| called(network, plan, predicting));
    let called = called.collect::<Result<Vec<Sizes>>>()?;
    let views = policies.iter().zip(plans).zip(&called).map(|((policy, plan), (_, sizes, _, trace))| View {
        name: policy.to_string(),
        policy: &policy.value,
        plan,
        sizes,
        trace,
    });
    let mut about = About { model: networks[0].to_string(), ..About::default() };
    about.facts.extend(networks[0].inferred(&plans[0]).map(|inferred| format!("cells {inferred}")));
    if let Some((input, _, unknown, _)) = called.last() {
        (about.input, about.unknown) = (input.clone(), unknown.clone());
    }
    for of in headroom {
        about.numbers.entry(of.cell.clone()).or_default().push(of.to_string());
    }
    Ok(of_cells(&about, &views.collect::<Vec<_>>())?.page())
}

/// Notes on cells, by path.
pub(super) type Notes = BTreeMap<String, Vec<Note>>;

/// Writes the page of one plan with notes on its cells. The network is not called.
pub(super) fn write_noted(file: &Path, model: &Read<Model>, name: String, policy: &Policy, notes: Notes) -> Result {
    let plan = &Predicting::of_batch(1).plan(model, policy, false)?;
    let (sizes, trace) = (&model.value.net.summary(plan, None)?, &Trace::default());
    let about = About { model: model.to_string(), notes, ..About::default() };
    let page = of_cells(&about, &[View { name, policy, plan, sizes, trace }])?.page();
    outputs::write(file, &page)
}

/// Writes the page of decisions about the nodes of a graph, those of each policy.
pub(super) fn write_nodes(
    file: &Path,
    model: String,
    files: &[Read<PolicyFile>],
    policies: &[GraphPolicy],
    nodes: &[Vec<NodeDecision>],
) -> Result {
    let views = files.iter().zip(policies).zip(nodes).map(|((file, policy), nodes)| NodesView {
        name: file.to_string(),
        policy: policy.to_string(),
        rules: &policy.rules,
        nodes,
    });
    let page = of_nodes(&About { model, ..About::default() }, &views.collect::<Vec<_>>())?.page();
    outputs::write(file, &page)
}

/// Applies a plan, and returns the sizes of the cells with a call, which has its casts. If the call fails, only the sizes
/// of parameters are known.
fn called(network: &mut Network, plan: &Plan, predicting: &Predicting) -> Result<Sizes> {
    if let Network::Built(model) = network {
        let _applied = plan.apply(&mut model.value.net)?;
    }
    match (summary(network, plan, predicting), network) {
        (Err(Failure::Usage(why)), Network::Built(model)) => {
            Ok((None, model.value.net.summary(plan, None)?, Some(why), Trace::default()))
        }
        (sizes, _) => sizes,
    }
}
