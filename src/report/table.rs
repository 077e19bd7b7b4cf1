//! Plans and training runs as text tables.

use super::{TrainingRun, printable};
use crate::{
    Plan,
    rewrite::{Decision, Predicted, bytes, time},
    table::table,
    train::Score,
};

/// A table with a row for each run: score, loss, steps, time and bytes. The column `time` is the time of a step relative to
/// the first run; see [`History::relative_time`](crate::train::History::relative_time).
pub fn runs_table(runs: &[TrainingRun<'_>]) -> String {
    let mut scores = runs.iter().filter_map(|run| run.history.score()).map(Score::name);
    let name = scores.next().unwrap_or("accuracy");
    let header = [
        "run",
        if scores.all(|other| other == name) { name } else { "score" },
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
            or_dash(history.score(), |score| score.to_string()),
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
    table(&header, rows, |column| column > 0)
}

/// A table of a plan: a row for each cell. Cells that get an adapter are marked with `*`.
pub fn plan_table(plan: &Plan) -> String {
    let predicted = plan.prediction.is_some();
    let mut header = vec!["path", "kind", "", "effect"];
    header.extend(if predicted { &["predicted", "kept", "because"][..] } else { &["because"] });
    let rows = plan.decisions.iter().map(|decision: &Decision| {
        let Predicted { nanos, kept } = decision.predicted.unwrap_or_default();
        let mut row = vec![
            if decision.path.is_empty() { "(root)".into() } else { printable(&decision.path).into_owned() },
            printable(&decision.kind).into_owned(),
            if decision.adapter.is_some() { "*".into() } else { String::new() },
            decision.effect(),
        ];
        if predicted {
            row.extend([time(nanos), bytes(kept)]);
        }
        row.push(decision.because.to_string());
        row
    });
    let table = table(&header, rows, |column| predicted && matches!(column, 4 | 5));
    let prediction = plan.prediction.as_ref().map_or(String::new(), |prediction| format!("\n{prediction}"));
    table + &prediction
}

fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".into(), show)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::History;

    #[test]
    fn an_empty_run_is_shown_with_dashes() {
        let text = runs_table(&[TrainingRun { name: "nothing", history: &History::default() }]);
        let fields: Vec<&str> = text.lines().last().unwrap().split_whitespace().filter(|field| *field != "|").collect();
        assert_eq!(fields, ["nothing", "-", "-", "0", "0", "-", "-", "-", "0", "B", "0", "B", "0"]);
    }
}
