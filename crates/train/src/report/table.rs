//! Plans and training runs as text tables.

use std::collections::HashSet;

use precast::{
    DType, Plan,
    plan::{Decision, Predicted, Reason},
};
use precast_base::{
    printable,
    printable::{bytes, time},
    table::table,
};
use precast_graph::NodeDecision;

use super::TrainingRun;

/// Returns a table with a row for each run: score, score on held-out test examples if a run has some, loss, steps, time and
/// bytes. The column `time` is the time of a step relative to the first run, for runs that alternate; see
/// [`History::relative_time`](crate::training::History::relative_time).
pub fn runs_table(runs: &[TrainingRun<'_>]) -> String {
    runs_table_by(runs, true, one_line_a_row)
}

/// A table layout, given its header, its rows and the columns that hold numbers.
pub(crate) type Layout = fn(&[&str], Vec<Vec<String>>, &[usize]) -> String;

pub(super) fn one_line_a_row(header: &[&str], rows: Vec<Vec<String>>, numbers: &[usize]) -> String {
    table(header, rows, |column| numbers.contains(&column))
}

/// Returns the table of [`runs_table`] in another layout. The column `time` is that of runs that alternated.
pub fn runs_table_by(runs: &[TrainingRun<'_>], alternated: bool, layout: Layout) -> String {
    let mut measures = runs.iter().filter_map(|run| run.history.measure());
    let name = measures.next().unwrap_or("accuracy");
    let tested = runs.iter().any(|run| run.history.test.is_some());
    let mut header = vec!["run", if measures.all(|other| other == name) { name } else { "score" }];
    header.extend(tested.then_some("test"));
    header.extend([
        "last loss",
        "steps",
        "skipped",
        "last scale",
        "ms/step",
        "time",
        "activations",
        "parameters",
        "casts/step",
    ]);
    let time = header.iter().position(|name| *name == "time").unwrap_or(header.len());
    let rows = runs.iter().map(|TrainingRun { name, history }| {
        let relative = runs.first().and_then(|first| history.relative_time(first.history));
        let last = history.steps.last();
        let mut row = vec![printable(name).into_owned(), or_dash(history.score(), |score| score.to_string())];
        row.extend(tested.then(|| or_dash(history.test.as_ref(), |test| test.score.to_string())));
        row.extend([
            or_dash(history.epochs.last(), |epoch| loss_in_words(epoch.loss)),
            history.steps.len().to_string(),
            history.skipped().to_string(),
            or_dash(last, |step| step.scale.to_string()),
            or_dash(history.median_seconds(), |seconds| format!("{:.2}", 1e3 * seconds)),
            or_dash(relative, |times| format!("{times:.2}x")),
            bytes(history.tape_bytes as u64),
            bytes(history.param_bytes as u64),
            history.casts.to_string(),
        ]);
        if !alternated {
            row.remove(time);
        }
        row
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if !alternated {
        header.remove(time);
    }
    layout(&header, rows, &Vec::from_iter(1..header.len()))
}

/// Returns a table of a plan: a row for each cell. Cells that get an adapter are marked with `*`.
pub fn plan_table(plan: &Plan) -> String {
    plan_table_by(plan, one_line_a_row)
}

/// Returns the table of [`plan_table`] in another layout.
pub fn plan_table_by(plan: &Plan, layout: Layout) -> String {
    let predicted = plan.prediction.is_some();
    let mut header = vec!["path", "kind", "", "effect"];
    header.extend(if predicted { &["predicted", "kept", "because"][..] } else { &["because"] });
    let mut said = HashSet::new();
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
        row.push(decision.reasons(&mut said));
        row
    });
    let table = layout(&header, rows.collect(), if predicted { &[4, 5] } else { &[] });
    let prediction = plan.prediction.as_ref().map_or(String::new(), |prediction| format!("\n{prediction}"));
    table + &prediction
}

/// Returns a table of a graph: a row for each op and each cast. Inputs, parameters and constants do not change and have
/// no row.
///
/// ```
/// use precast::prelude::*;
/// use precast_graph::{Graph, GraphPolicy};
/// use precast_train::report::{graph_summary, graph_table};
/// let x = Tensor::ones(&[2, 2], DType::F32);
/// let graph = Graph::trace_fn(&Default::default(), &[x], |x| Ok(vec![x[0].matmul(&x[0])?]))?;
/// let low = graph.rewrite(&GraphPolicy::named("graph")?)?.decisions();
/// assert_eq!(graph_table(&low), "\
/// | node                    | op     | cell   | dtype | because            |
/// |-------------------------|--------|--------|-------|--------------------|
/// | input-0-CastToFp16-0    | Cast   | (root) | f16   | read by matmul_1   |
/// | matmul_1                | MatMul | (root) | f16   | on the allow list  |
/// | matmul_1-0-CastToFp32-0 | Cast   | (root) | f32   | read by the caller |");
/// assert_eq!(graph_summary(&low), "1 of 1 ops run in float16; 2 casts");
/// # Ok::<(), precast::Error>(())
/// ```
pub fn graph_table(nodes: &[NodeDecision]) -> String {
    graph_table_by(nodes, one_line_a_row)
}

/// Returns the table of [`graph_table`] in another layout.
pub fn graph_table_by(nodes: &[NodeDecision], layout: Layout) -> String {
    let nodes = nodes.iter().filter(|node| node.computes() || node.is_cast());
    let rows = nodes.map(|node| {
        vec![
            printable(&node.node).into_owned(),
            printable(&node.op).into_owned(),
            if node.cell.is_empty() { "(root)".into() } else { printable(&node.cell).into_owned() },
            node.dtype.to_string(),
            node.because.as_ref().map_or(String::new(), Reason::to_string),
        ]
    });
    layout(&["node", "op", "cell", "dtype", "because"], rows.collect(), &[])
}

/// Returns in a line the number of ops of a graph that run in 16 bits, and the number of casts.
pub fn graph_summary(nodes: &[NodeDecision]) -> String {
    let ops = nodes.iter().filter(|node| node.computes());
    let low = ops.clone().filter(|node| node.dtype.is_low()).count();
    let dtype = ops.clone().map(|node| node.dtype).find(|dtype| dtype.is_low());
    let casts = nodes.iter().filter(|node| node.is_cast()).count();
    format!("{low} of {} ops run in {}; {casts} casts", ops.count(), dtype.map_or("16 bits", DType::long_name))
}

/// Returns a loss as text: with four digits after the point, or as `3.596e12`.
pub fn loss_in_words(loss: f64) -> String {
    match loss.abs() {
        0.0 | 1e-4..1e6 => format!("{loss:.4}"),
        size if size.is_finite() => format!("{loss:.3e}"),
        _ => loss.to_string(),
    }
}

fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".into(), show)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::History;

    #[test]
    fn an_empty_run_is_shown_with_dashes() {
        let text = runs_table(&[TrainingRun { name: "nothing", history: &History::default() }]);
        let fields: Vec<&str> = text.lines().last().unwrap().split_whitespace().filter(|field| *field != "|").collect();
        assert_eq!(fields, ["nothing", "-", "-", "0", "0", "-", "-", "-", "0", "B", "0", "B", "0"]);
    }
}
