//! Progress of training runs, as a bar on a terminal or as lines of a log; and a bar for bytes.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal, Write as _},
    time::Duration,
};

use console::{Term, measure_text_width, truncate_str};
use indicatif::{ProgressBar, ProgressStyle};
use precast_base::{printable, printable_lines};
use precast_train::report::loss_in_words;
use precast_train::{Epoch, Event, Score, Step};

/// Progress on standard error: a bar on a terminal, otherwise a line for each epoch; nothing if it is
/// [quiet](Progress::quiet), except for cells that are raised.
#[derive(Clone, Debug)]
pub struct Progress {
    bar: ProgressBar,
    /// `true` when each epoch is a line.
    lines: bool,
    quiet: bool,
    name: String,
    epochs: usize,
    score: Option<Score>,
    skipped: usize,
    /// Score and skipped steps of the runs that wait for their turn.
    others: BTreeMap<String, (Option<Score>, usize)>,
}

impl Progress {
    /// Creates the progress of `steps` steps in all, in `epochs` epochs of each run.
    pub fn new(steps: usize, epochs: usize) -> Self {
        let bar = ProgressBar::new(steps as u64);
        bar.set_style(ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar()));
        let lines = !io::stderr().is_terminal();
        Progress {
            bar,
            lines,
            quiet: false,
            name: String::new(),
            epochs,
            score: None,
            skipped: 0,
            others: BTreeMap::new(),
        }
    }

    /// Creates one that shows only raised cells.
    pub fn quiet() -> Self {
        Progress { bar: ProgressBar::hidden(), lines: false, quiet: true, ..Progress::new(0, 0) }
    }

    /// Shows the name of a run, another one than before, from now on.
    pub fn rename(&mut self, name: &str) {
        let before = std::mem::replace(&mut self.name, printable(name).into_owned());
        self.others.insert(before, (self.score, self.skipped));
        (self.score, self.skipped) = self.others.remove(&self.name).unwrap_or_default();
    }

    /// Starts after a number of steps, for a resumed run.
    pub fn begin_at(&self, steps: usize) {
        self.bar.set_position(steps as u64);
        self.bar.reset_eta();
    }

    /// Shows an event of the run.
    pub fn note(&mut self, event: &Event<'_>) {
        match event {
            Event::Step(step) => self.step(step),
            Event::Epoch(epoch) => self.epoch(epoch),
            Event::Raised(raised) => self.above(&format!("note: {raised}")),
            Event::Ended(ended) if !self.quiet => self.above(&format!("note: {}: {ended}", self.name)),
            _ => {}
        }
    }

    fn step(&mut self, step: &Step) {
        self.skipped += usize::from(step.is_skipped());
        self.bar.inc(1);
        if self.quiet || self.lines {
            return;
        }
        let columns = Term::stderr().size_checked().map_or(80, |(_, columns)| usize::from(columns));
        let of_bar = Shown {
            name: &self.name,
            epoch: (step.epoch + 1, self.epochs),
            share: self.bar.position() as f64 / self.bar.length().unwrap_or(1).max(1) as f64,
            loss: step.loss,
            score: self.score,
            skipped: self.skipped,
            scale: step.scale,
            per_second: self.bar.per_sec(),
            left: self.bar.eta(),
        };
        // The last column stays free: some terminals begin a new line after it.
        self.bar.set_message(of_bar.line(columns.saturating_sub(1)));
    }

    fn epoch(&mut self, epoch: &Epoch) {
        self.score = Some(epoch.score);
        if self.lines {
            say(&line_of(&self.name, epoch, self.epochs));
        }
    }

    /// Prints a line while the bar is hidden.
    fn above(&self, text: &str) {
        self.bar.suspend(|| say(text));
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Writes a text to standard error.
pub fn say(text: &str) {
    // If standard error is closed, the results are still available.
    let _ = writeln!(io::stderr(), "{}", printable_lines(text));
}

/// Returns the line of an epoch in a log.
fn line_of(name: &str, epoch: &Epoch, epochs: usize) -> String {
    let Epoch { score, skipped, .. } = epoch;
    let mut line = format!("{name}: epoch {}/{epochs}, loss {}", epoch.epoch + 1, loss_in_words(epoch.loss));
    line += &format!(", {} {score}", score.name());
    if *skipped > 0 {
        line += &format!(", {skipped} skipped");
    }
    if let Some(rate) = epoch.learning_rate {
        line += &format!(", learning rate {rate:.2e}");
    }
    format!("{line}, {:.2} s", epoch.seconds)
}

/// The contents of a bar.
#[derive(Clone, Copy, Debug)]
struct Shown<'a> {
    name: &'a str,
    /// The epoch, from 1, and their number.
    epoch: (usize, usize),
    /// The part of all steps that is done.
    share: f64,
    loss: f64,
    score: Option<Score>,
    skipped: usize,
    scale: f32,
    per_second: f64,
    left: Duration,
}

/// The most columns of a name.
const NAME: usize = 24;
/// The fewest and the most columns of the bar itself.
const BAR: (usize, usize) = (10, 30);

impl Shown<'_> {
    /// Returns a line of at most `columns` columns. What does not fit is left out, the loss last.
    fn line(&self, columns: usize) -> String {
        let left = self.left.as_secs();
        let clock = match (left / 3600, left / 60 % 60, left % 60) {
            (0, minutes, seconds) => format!("{minutes}:{seconds:02} left"),
            (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02} left"),
        };
        let rate = match self.per_second {
            rate if rate >= 10.0 => format!("{rate:.0} steps/s"),
            rate if rate >= 1.0 => format!("{rate:.1} steps/s"),
            rate if rate > 0.0 => format!("{:.1} s/step", 1.0 / rate),
            _ => String::new(),
        };
        // By place in the line, with the rank in which they are kept.
        let parts = [
            (4, truncate_str(self.name, NAME, "…").into_owned()),
            (2, format!("epoch {}/{}", self.epoch.0, self.epoch.1)),
            (5, "-".repeat(BAR.0)),
            (0, format!("loss {}", loss_in_words(self.loss))),
            (1, self.score.map_or(String::new(), |score| format!("{} {score}", score.name()))),
            (6, if self.skipped > 0 { format!("{} skipped", self.skipped) } else { String::new() }),
            (8, format!("scale {}", self.scale)),
            (7, rate),
            (3, clock),
        ];
        let mut ranks: Vec<usize> = (0..parts.len()).filter(|part| !parts[*part].1.is_empty()).collect();
        ranks.sort_by_key(|part| parts[*part].0);
        let (mut kept, mut used) = ([false; 9], 0);
        for part in ranks {
            let more = measure_text_width(&parts[part].1) + if used > 0 { 2 } else { 0 };
            if used + more <= columns {
                (kept[part], used) = (true, used + more);
            }
        }
        let width = (BAR.0 + columns - used.min(columns)).min(BAR.1);
        let done = ((self.share.clamp(0.0, 1.0) * width as f64) as usize).min(width);
        let bar = format!("{}{}", "█".repeat(done), "░".repeat(width - done));
        let shown = parts.iter().zip(kept).filter(|(_, kept)| *kept);
        let texts: Vec<&str> = shown.map(|((rank, text), _)| if *rank == 5 { &bar } else { text.as_str() }).collect();
        texts.join("  ")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shown() -> Shown<'static> {
        Shown {
            name: "a-long-name-of-a-policy-of-ones-own",
            epoch: (3, 20),
            share: 0.13,
            loss: 0.12345,
            score: Some(Score::of_accuracy(0.9731)),
            skipped: 12,
            scale: 65536.0,
            per_second: 123.4,
            left: Duration::from_secs(3725),
        }
    }

    #[test]
    fn a_bar_is_never_wider_than_the_terminal() {
        for loss in [0.5, 3.6e12, f64::NAN] {
            for score in [None, Some(Score::of_accuracy(1.0)), Some(Score::of_squared_error(1.25e9))] {
                for columns in 0..=220 {
                    let line = Shown { loss, score, ..shown() }.line(columns);
                    assert!(measure_text_width(&line) <= columns, "{columns}: {line}");
                }
            }
        }
    }

    #[test]
    fn loss_and_score_stay_where_little_fits() {
        let all = shown().line(200);
        for part in ["epoch 3/20", "█", "12 skipped", "scale 65536", "123 steps/s", "1:02:05 left"] {
            assert!(all.contains(part), "{part}: {all}");
        }
        assert_eq!(shown().line(33), "loss 0.1235  accuracy 97.31 %");
        assert_eq!(shown().line(41), "epoch 3/20  loss 0.1235  accuracy 97.31 %");
        let eighty = shown().line(79);
        assert!(eighty.contains("left") && !eighty.contains("scale") && !eighty.contains("steps/s"), "{eighty}");
    }

    #[test]
    fn an_epoch_is_a_line_of_a_log() {
        let epoch = r#"{"epoch": 2, "loss": 3595721745128.7, "accuracy": 0.975, "skipped": 1, "seconds": 1.5,
            "learning_rate": 0.00125}"#;
        let line = line_of("o2", &serde_json::from_str(epoch).unwrap(), 20);
        let expected = "o2: epoch 3/20, loss 3.596e12, accuracy 97.50 %, 1 skipped, learning rate 1.25e-3, 1.50 s";
        assert_eq!(line, expected);
    }
}
