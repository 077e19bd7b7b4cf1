//! Training runs as text tables.

use comfy_table::{CellAlignment, Table, presets};

use super::{TrainingRun, printable};
use crate::{
    Plan,
    rewrite::{Decision, Predicted, bytes, time},
    train::History,
};

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
            printable(name).into_owned(),
            or_dash(history.accuracy(), |accuracy| format!("{:.2} %", 100.0 * accuracy)),
            or_dash(history.epochs.last(), |epoch| format!("{:.4}", epoch.loss)),
            history.steps.len().to_string(),
            history.skipped().to_string(),
            or_dash(last, |step| step.scale.to_string()),
            or_dash(history.median_seconds(), |seconds| format!("{:.2}", 1e3 * seconds)),
            or_dash(relative, |times| format!("{times:.2}x")),
            bytes(history.tape_bytes as u64),
            bytes(history.param_bytes as u64),
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
    let told = plan.prediction.is_some();
    let mut header = vec!["path", "kind", "", "effect"];
    header.extend(if told { &["predicted", "kept", "because"][..] } else { &["because"] });
    let rows = plan.decisions.iter().map(|decision: &Decision| {
        let Predicted { nanos, kept } = decision.predicted.unwrap_or_default();
        let mut row = vec![
            if decision.path.is_empty() { "(root)".into() } else { printable(&decision.path).into_owned() },
            printable(&decision.kind).into_owned(),
            if decision.adapter.is_some() { "*".into() } else { String::new() },
            decision.effect(),
        ];
        if told {
            row.extend([time(nanos), bytes(kept)]);
        }
        row.push(decision.because.to_string());
        row
    });
    let mut table = text(&header, rows);
    for column in table.column_iter_mut().skip(4).take(if told { 2 } else { 0 }) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let prediction = plan.prediction.as_ref().map_or(String::new(), |prediction| format!("\n{prediction}"));
    table.trim_fmt() + &prediction
}

/// A table that Markdown reads, too.
fn text<R: IntoIterator<Item = String>>(header: &[&str], rows: impl Iterator<Item = R>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header.to_vec()).add_rows(rows.map(Vec::from_iter));
    table
}

/// As [`text`], with numbers flush right in all columns but the first.
fn table<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = text(&header, rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".into(), show)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_run_is_shown_with_dashes() {
        let text = runs_table(&[TrainingRun { name: "nothing", history: &History::default() }]);
        let fields: Vec<&str> = text.lines().last().unwrap().split_whitespace().filter(|field| *field != "|").collect();
        assert_eq!(fields, ["nothing", "-", "-", "0", "0", "-", "-", "-", "0", "B", "0", "B", "0"]);
    }
}
