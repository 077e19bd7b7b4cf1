//! Plans and training runs for people: tables, a picture, a progress bar.

mod chart;
mod progress;
mod table;

pub use chart::{chart, save_chart};
pub use progress::Progress;
pub use table::{epochs_table, plan_table, runs_table};

use crate::train::History;

/// A training run under the name by which it is shown.
#[derive(Clone, Copy, Debug)]
pub struct TrainingRun<'a> {
    /// Its name: `O2 float16`.
    pub name: &'a str,
    /// What happened.
    pub history: &'a History,
}
