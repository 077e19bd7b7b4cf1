//! Layers, training curves, scaled steps and steps over ranks, with their bounds.

use std::fmt::Write as _;

use precast::DType;

use crate::{
    Options, data_parallel,
    layers::{self, Compared},
    peer::Peer,
    training::{self, Followed},
};

/// Bound on the error of a layer, in f32 epsilons of the largest number of a result or gradient.
const LAYER_BOUND: f64 = 16.0;
/// Bound on the difference of losses in an f32 training curve, relative to torch's.
const CURVE_BOUND: f64 = 4e-6;

/// Bound on the difference of losses in a scaled run, in epsilons of the dtype, relative to torch's.
const SCALED_BOUND: f64 = 4.0;

/// Results of the comparisons.
pub struct Beside {
    pub tables: Vec<(&'static str, String)>,
    pub failures: Vec<String>,
    pub about: String,
}

pub fn run(options: &Options) -> Result<Beside, String> {
    let mut peer = Peer::start(&options.python)?;
    let mut failures = Vec::new();
    let compared = layers(&mut peer, options.seed, &mut failures);
    let mut table = String::from("layer\tours\ttorch\n");
    compared.iter().for_each(|one| {
        let _ = writeln!(table, "{}\t{:.2}\t{:.2}", one.name, one.ours, one.torch);
    });
    let mut tables = vec![("layers", table)];
    let kinds = [("curves", training::curves()), ("scaled", training::scaled()), ("penalized", training::penalized())];
    let count: usize = kinds.iter().map(|(_, runs)| runs.len()).sum();
    for (name, runs) in kinds {
        let mut followed = Vec::new();
        for run in runs {
            match run.follow(&mut peer, options.seed) {
                Ok(one) => followed.push(one),
                Err(why) => failures.push(why),
            }
        }
        followed.iter().filter_map(judge).for_each(|failure| failures.push(failure));
        tables.push((name, table_of(&followed)));
    }
    match data_parallel::compare(&mut peer, options.seed) {
        Ok((table, wrong)) => {
            tables.push(("data_parallel", table));
            failures.extend(wrong);
        }
        Err(why) => failures.push(why),
    }
    let about = format!("{} layers, {count} runs", compared.len());
    Ok(Beside { tables, failures, about })
}

fn layers(peer: &mut Peer, seed: u64, failures: &mut Vec<String>) -> Vec<Compared> {
    let mut all = Vec::new();
    for configuration in layers::configurations() {
        match layers::compare(peer, seed, &configuration) {
            Ok(one) if one.ours > LAYER_BOUND => {
                failures.push(format!(
                    "{}: {:.2} epsilons, {LAYER_BOUND} allowed (torch {:.2})",
                    one.name, one.ours, one.torch
                ));
                all.push(one);
            }
            Ok(one) => all.push(one),
            Err(why) => failures.push(why),
        }
    }
    all
}

fn judge(run: &Followed) -> Option<String> {
    if let Some(step) = run.parted {
        return Some(format!("{}: another skip or scale than torch's at step {step}", run.name));
    }
    let bound = run.dtype.map_or(CURVE_BOUND, |dtype: DType| SCALED_BOUND * dtype.epsilon());
    (run.loss > bound).then(|| format!("{}: losses {:.1e} apart, {bound:.1e} allowed", run.name, run.loss))
}

fn table_of(runs: &[Followed]) -> String {
    let mut table = String::from("run\tsteps\tskipped\tlosses_apart\n");
    for run in runs {
        let _ = writeln!(table, "{}\t{}\t{}\t{:.1e}", run.name, run.steps, run.skipped, run.loss);
    }
    table
}
