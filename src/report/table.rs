//! Training runs as text tables.

use comfy_table::{CellAlignment, Table, presets};

use super::TrainingRun;
use crate::{Plan, rewrite::Decision, train::History};

/// A table of runs: a row for each, with what each gained and what it cost. The column `time` is the time of
/// a step as a multiple of the first run's: [`History::relative_time`].
pub fn runs_table(runs: &[TrainingRun<'_>]) -> String {
    let header = [
        "run",
        "accuracy",
        "last loss",
        "steps",
        "skipped",
        "last scale",
        "ms/step",
        "time",
        "activations",
        "parameters",
        "casts/step",
    ];
    let rows = runs.iter().map(|TrainingRun { name, history }| {
        let relative = runs.first().and_then(|first| history.relative_time(first.history));
        let last = history.steps.last();
        [
            name.to_string(),
            or_dash(history.accuracy(), |accuracy| format!("{:.2} %", 100.0 * accuracy)),
            or_dash(history.epochs.last(), |epoch| format!("{:.4}", epoch.loss)),
            history.steps.len().to_string(),
            history.skipped().to_string(),
            or_dash(last, |step| step.scale.to_string()),
            or_dash(history.median_seconds(), |seconds| format!("{:.2}", 1e3 * seconds)),
            or_dash(relative, |times| format!("{times:.2}x")),
            bytes(history.tape_bytes),
            bytes(history.param_bytes),
            history.casts.to_string(),
        ]
    });
    table(header, rows)
}

/// A table of the epochs of one run.
pub fn epochs_table(history: &History) -> String {
    let rows = history.epochs.iter().map(|epoch| {
        [
            (epoch.epoch + 1).to_string(),
            format!("{:.4}", epoch.loss),
            format!("{:.2} %", 100.0 * epoch.accuracy),
            epoch.skipped.to_string(),
            format!("{:.2}", epoch.seconds),
        ]
    });
    table(["epoch", "mean loss", "test accuracy", "skipped", "seconds"], rows)
}

/// A table of a plan: a row for each cell. Cells that get an adapter are marked with `*`.
pub fn plan_table(plan: &Plan) -> String {
    let rows = plan.decisions.iter().map(|decision: &Decision| {
        [
            if decision.path.is_empty() { "(root)".into() } else { decision.path.clone() },
            decision.kind.to_string(),
            if decision.adapter.is_some() { "*".into() } else { String::new() },
            decision.effect(),
            decision.because.to_string(),
        ]
    });
    text(["path", "kind", "", "effect", "because"], rows).trim_fmt()
}

/// A table that Markdown reads, too.
fn text<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header).add_rows(rows);
    table
}

/// As [`text`], with numbers flush right in all columns but the first.
fn table<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = text(header, rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".into(), show)
}

/// `1536` as `1.5 KiB`.
fn bytes(bytes: usize) -> String {
    match bytes as f64 {
        b if b < 1024.0 => format!("{b} B"),
        b if b < 1024.0 * 1024.0 => format!("{:.1} KiB", b / 1024.0),
        b => format!("{:.1} MiB", b / 1024.0 / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_for_people() {
        assert_eq!(
            [0, 1023, 1024, 1536, 1 << 20, 3 << 19].map(bytes),
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "1.5 MiB"]
        );
    }

    #[test]
    fn an_empty_run_is_shown_with_dashes() {
        let text = runs_table(&[TrainingRun { name: "nothing", history: &History::default() }]);
        let fields: Vec<&str> = text.lines().last().unwrap().split_whitespace().filter(|field| *field != "|").collect();
        assert_eq!(fields, ["nothing", "-", "-", "0", "0", "-", "-", "-", "0", "B", "0", "B", "0"]);
    }
}
