//! Reports on plans, conversions and training runs: tables, a page, and a chart.

mod chart;
mod conversion;
mod evaluation;
mod events;
mod html;
mod markup;
mod names;
mod table;
mod tune_chart;

pub use chart::{chart, save_chart, score_chart};
pub use conversion::{conversion_html, conversion_kept, conversion_summary, conversion_table, conversion_table_by};
pub use evaluation::{evaluation_table, evaluation_table_by};
pub use events::save_events;
pub use html::{NOT_FAIR, RunReport, all_runs_html, runs_html};
pub use table::{
    graph_summary, graph_table, graph_table_by, loss_in_words, plan_table, plan_table_by, runs_table, runs_table_by,
};
pub use tune_chart::tune_chart;

use crate::training::History;
pub use precast_base::printable::{printable, printable_lines};

/// A training run and its display name.
#[derive(Clone, Copy, Debug)]
pub struct TrainingRun<'a> {
    /// Its name: `O2 float16`.
    pub name: &'a str,
    /// Its steps and epochs.
    pub history: &'a History,
}

/// Groups runs with the same loss and the same loss scale at every step, bit for bit; losses that are not finite count as
/// the same. Policies that differ only in lossless casts, such as a widening, give such runs.
pub fn same_course<'a>(runs: &[TrainingRun<'a>]) -> Vec<Vec<TrainingRun<'a>>> {
    let loss = |loss: f64| if loss.is_finite() { loss.to_bits() } else { f64::NAN.to_bits() };
    let course = |run: &TrainingRun<'a>| run.history.steps.iter().map(|step| (loss(step.loss), step.scale.to_bits()));
    let mut groups: Vec<Vec<TrainingRun<'a>>> = Vec::new();
    for run in runs {
        match groups.iter_mut().find(|group| course(&group[0]).eq(course(run))) {
            Some(group) => group.push(*run),
            None => groups.push(vec![*run]),
        }
    }
    groups
}

/// Returns the names of a group, [printable]: `o1 = o2 = o3`.
pub fn joint_name(group: &[TrainingRun<'_>]) -> String {
    group.iter().map(|run| printable(run.name)).collect::<Vec<_>>().join(" = ")
}
