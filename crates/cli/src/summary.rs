//! `precast plan --summary`: the sizes of the cells of a network.

use precast::{
    Policy,
    cell::Trace,
    no_grad,
    plan::{ModelSummary, Plan},
};
use precast_train::data::call;
use serde::Serialize;

use super::{
    Failure, Format, Result,
    inputs::{Predicting, Read, batch_shape},
    network::Network,
    print, print_json,
    table::library_table,
};

/// The sizes of cells, and the reason for missing ones.
#[derive(Serialize)]
struct Shown<'a> {
    /// Shape of the example.
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a [usize]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<&'a str>,
    #[serde(flatten)]
    summary: &'a ModelSummary,
}

/// Prints the sizes of the cells under a plan.
pub(super) fn run(network: &mut Network, policy: &Read<Policy>, predicting: &Predicting, format: Format) -> Result {
    let plan = network.plan(predicting, &policy.value, false)?;
    let (input, summary, unknown, _) = summary(network, &plan, predicting)?;
    if let Format::Json = format {
        let (input, unknown) = (input.as_deref(), unknown.as_deref());
        return print_json(&Shown { input, unknown, summary: &summary });
    }
    let mut head = network.header(&[policy], &plan);
    if let Some(input) = input {
        head += &format!("input   {input:?}\n");
    }
    let (header, rows, numbers) = summary.table();
    let table = library_table(&header, rows, &numbers);
    let unknown = unknown.map_or(String::new(), |why| format!("\n\nshapes and multiply-adds are unknown: {why}"));
    print(format_args!("{head}\n{table}{unknown}"))
}

/// The shape of the example, the sizes, the reason for missing ones, and the call.
pub(super) type Sizes = (Option<Vec<usize>>, ModelSummary, Option<String>, Trace);

/// Returns the sizes of the cells under a plan.
pub(super) fn summary(network: &mut Network, plan: &Plan, predicting: &Predicting) -> Result<Sizes> {
    let model = match network {
        Network::Built(model) => model,
        Network::Stored(model) => {
            let why = format!("{model} is weights without code");
            return Ok((None, model.value.summary(plan), Some(why), Trace::default()));
        }
    };
    let shape = match batch_shape(model, predicting.batch().unwrap_or(1), "a call") {
        Ok(shape) => shape,
        Err(Failure::Usage(why)) => {
            return Ok((None, model.value.net.summary(plan, None)?, Some(why), Trace::default()));
        }
        Err(other) => return Err(other),
    };
    // A batch of one example has no statistics to normalise with.
    model.value.net.set_train(false);
    let (called, trace) = model.value.net.trace(|net| no_grad(|| call(net, &model.value.sample(&shape))));
    called?;
    let summary = model.value.net.summary(plan, Some(&trace))?;
    Ok((Some(shape), summary, None, trace))
}
