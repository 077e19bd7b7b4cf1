//! Progress bars: for a training run, and for bytes.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use precast::train::{Epoch, Score, Step};
use precast_policy::printable;

/// A progress bar on standard error, shown on a terminal only: nothing is written when the output is piped, or when the
/// bar is [quiet](Progress::quiet).
#[derive(Clone, Debug)]
pub struct Progress {
    bar: ProgressBar,
    score: Option<Score>,
    skipped: usize,
}

impl Progress {
    /// Creates a bar for a run of `steps` steps.
    pub fn new(name: impl Into<String>, steps: usize) -> Self {
        let bar = ProgressBar::new(steps as u64).with_prefix(printable(&name.into()).into_owned());
        let style = ProgressStyle::with_template("{prefix:10} {bar:30} {pos}/{len} {per_sec} {eta} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { bar, score: None, skipped: 0 }
    }

    /// Creates a bar that shows nothing.
    pub fn quiet() -> Self {
        Progress { bar: ProgressBar::hidden(), score: None, skipped: 0 }
    }

    /// Shows the name of another run from now on.
    pub fn rename(&mut self, name: impl Into<String>) {
        self.bar.set_prefix(printable(&name.into()).into_owned());
        (self.score, self.skipped) = (None, 0);
    }

    /// Starts after a number of steps, for a resumed run.
    pub fn begin_at(&self, steps: usize) {
        self.bar.set_position(steps as u64);
        self.bar.reset_eta();
    }

    /// Advances by one step.
    pub fn step(&mut self, step: &Step) {
        let score = self.score.map_or(String::new(), |score| format!(", {} {score}", score.name()));
        self.skipped += usize::from(step.is_skipped());
        let skipped = if self.skipped > 0 { format!(", {} skipped", self.skipped) } else { String::new() };
        self.bar.set_message(format!("loss {:.4}, scale {}{skipped}{score}", step.loss, step.scale));
        self.bar.inc(1);
    }

    /// Shows the score from now on.
    pub fn epoch(&mut self, epoch: &Epoch) {
        self.score = Some(epoch.score);
    }

    /// Prints something while the bar is hidden.
    pub fn above(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A progress bar for bytes, shown under the same conditions as [`Progress`].
#[derive(Clone, Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// Creates a bar for a number of bytes.
    pub fn of_bytes(bytes: u64) -> Self {
        let bar = ProgressBar::new(bytes);
        let style = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {eta}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(200));
        Bar(bar)
    }

    /// Creates a bar that shows nothing.
    pub fn hidden() -> Self {
        Bar(ProgressBar::hidden())
    }

    /// Advances by a number of bytes.
    pub fn advance(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}
