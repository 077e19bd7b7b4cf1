//! A training run as a standalone HTML file.

use std::{mem, path::Path};

use precast::error::Result;
use precast_base::{files, printable};
use precast_diagnose::Headroom;

use super::{
    TrainingRun, chart,
    evaluation::evaluation_html,
    markup::{escaped, html_table},
    runs_table_by, score_chart,
};
use crate::{
    About, RunFile, SavedFault, Scores, about_of,
    folder::MOST_BYTES,
    headroom_of, history_of,
    training::{History, Step},
};

/// Remark on the score of a run without validation examples.
pub const NOT_FAIR: &str = "the test examples chose these weights, so the score is not a fair one of new examples; \
                            `validation: 0.1` in the run file makes it one";

/// The contents of a report on a run, read from its folder.
#[derive(Debug)]
pub struct RunReport {
    name: String,
    file: RunFile,
    /// The text of the run file.
    text: String,
    /// The text of the policy.
    policy: String,
    plan: String,
    about: About,
    history: History,
    headroom: Vec<Headroom>,
    scores: Option<Scores>,
    /// The commands that run its faults again.
    replays: String,
}

impl RunReport {
    /// Reads the folder of a run.
    ///
    /// # Errors
    /// [`ErrorKind::Run`](precast::ErrorKind::Run) when there is no run, and those of reading its files.
    pub fn of(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let file = RunFile::of_folder(folder)?;
        let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
        let name = absolute.file_name().map_or("run".into(), |name| name.to_string_lossy().into_owned());
        let text = |name: &str| files::read_text(&folder.join(name), MOST_BYTES);
        let history = history_of(folder)?;
        Ok(RunReport {
            name,
            file,
            text: text("run.yaml")?,
            policy: text("policy.yaml")?,
            plan: text("plan.txt")?,
            about: about_of(folder)?,
            headroom: headroom_of(folder)?,
            // Damaged scores are computed again when the run is resumed.
            scores: Scores::after(history.steps.len(), folder).ok().flatten(),
            history,
            replays: SavedFault::all(folder)?
                .iter()
                .map(|(folder, _)| format!("precast replay {} --cure\n", folder.display()))
                .collect(),
        })
    }

    fn run(&self) -> TrainingRun<'_> {
        TrainingRun { name: &self.name, history: &self.history }
    }
}

/// The maximum number of rows of skipped steps.
const MOST_SKIPPED: usize = 200;

/// Returns the report of a run, with a table and curves of others for comparison. The text is one standalone HTML file,
/// with light and dark colours.
///
/// # Errors
/// [`ErrorKind::Value`](precast::ErrorKind::Value) when a picture cannot be drawn.
pub fn runs_html(report: &RunReport, others: &[RunReport]) -> Result<String> {
    let all: Vec<&RunReport> = [report].into_iter().chain(others).collect();
    let page = section("Run", html_table(&["", ""], report.facts(), &[])) + &compared(&all)? + &report.sections();
    Ok(page_of(&report.name, &page))
}

/// Returns a report of several runs: their table and curves, and an entry for each run with its facts, policy, plan and
/// run file.
///
/// # Errors
/// As [`runs_html`].
pub fn all_runs_html(reports: &[RunReport]) -> Result<String> {
    let mut page = compared(&reports.iter().collect::<Vec<_>>())?;
    for report in reports {
        let facts = html_table(&["", ""], report.facts(), &[]);
        let (name, sections) = (escaped(&report.name), report.sections());
        page += &format!("<details>\n<summary>{name}</summary>\n{facts}\n{sections}</details>\n");
    }
    Ok(page_of(&format!("{} runs", reports.len()), &page))
}

/// Returns a standalone page, light or dark as the system of its reader.
pub(super) fn page_of(title: &str, page: &str) -> String {
    format!("{}{page}</main>\n</body>\n</html>\n", head(&escaped(title)))
}

fn section(title: &str, body: String) -> String {
    format!("<section><h2>{title}</h2>\n{body}\n</section>\n")
}

/// Returns tables and curves of runs.
fn compared(reports: &[&RunReport]) -> Result<String> {
    let runs: Vec<TrainingRun<'_>> = reports.iter().map(|report| report.run()).collect();
    let mut page = section("All runs", runs_table_by(&runs, false, html_table));
    let header = ["run", "begun", "time of all steps", "learning rate", "schedule", "optimizer", "batch", "machine"];
    let row = |report: &&RunReport| {
        let options = &report.file.options;
        let schedule = serde_json::to_value(options.schedule).unwrap_or_default();
        vec![
            printable(&report.name).into_owned(),
            report.begun(),
            report.duration(),
            options.lr.to_string(),
            schedule.as_str().map_or_else(|| schedule.to_string(), str::to_string),
            options.method.name().to_string(),
            options.batch.to_string(),
            printable(&report.about.machine).into_owned(),
        ]
    };
    page += &section("How they were trained", html_table(&header, reports.iter().map(row).collect(), &[3, 6]));
    // Curves of runs without a finite loss cannot be drawn.
    if runs.iter().any(|run| run.history.steps.iter().any(|step| step.loss.is_finite())) {
        page += &section("Loss and loss scale", svg(&chart(&runs)?));
    }
    if let Some(picture) = score_chart(&runs)? {
        let validated = reports.iter().any(|report| report.about.validation_examples.is_some());
        let of = if validated { "validation examples of runs that have them" } else { "test examples" };
        page += &section(&format!("Score on the {of}"), svg(&picture));
    }
    Ok(page)
}

impl RunReport {
    /// Returns the date and time of the beginning, in UTC.
    fn begun(&self) -> String {
        self.about.started.map_or("-".into(), |at| at.strftime("%Y-%m-%d %H:%M UTC").to_string())
    }

    /// Returns the time of all steps in words.
    fn duration(&self) -> String {
        let seconds: f64 = self.history.steps.iter().map(|step| step.seconds).sum();
        match (seconds / 3600.0, seconds / 60.0) {
            (hours, _) if hours >= 1.0 => format!("{hours:.1} h"),
            (_, minutes) if minutes >= 1.0 => format!("{minutes:.1} min"),
            _ => format!("{seconds:.1} s"),
        }
    }

    fn facts(&self) -> Vec<Vec<String>> {
        let RunReport { file, plan, about, history, .. } = self;
        let facts = [
            ("model", about.model.clone()),
            ("policy", plan.lines().next().unwrap_or_default().to_string()),
            ("training examples", format!("{} of shape {:?}", about.train_examples, about.shape)),
            ("validation examples", about.validation_examples.map_or("none".into(), |examples| examples.to_string())),
            ("test examples", about.test_examples.to_string()),
            ("checksum of the data", format!("{:08x}", about.data_checksum)),
            ("learning rate", file.options.lr.to_string()),
            ("steps", history.steps.len().to_string()),
            ("skipped steps", history.skipped().to_string()),
            ("epochs", format!("{} of {}", history.epochs.len(), file.options.epochs)),
            ("begun", self.begun()),
            ("time of all steps", self.duration()),
            ("precast", about.precast.clone()),
            ("machine", about.machine.clone()),
        ];
        facts.map(|(what, value)| vec![what.to_string(), value]).to_vec()
    }

    /// Returns the sections that are about this run only.
    fn sections(&self) -> String {
        let RunReport { text, policy, plan, history, headroom, scores, replays, .. } = self;
        let block = |title: &str, text: &str| section(title, format!("<pre>{}</pre>", escaped(text)));
        let mut page = String::new();
        if let Some(scores) = scores {
            let weights = format!("with the best weights, of epoch {}", scores.epoch + 1);
            let chose =
                if scores.validation.is_none() { format!("<p>{}</p>\n", escaped(NOT_FAIR)) } else { String::new() };
            page += &section(&format!("Test examples, {weights}"), chose + &evaluation_html(&scores.test));
            if let Some(validation) = &scores.validation {
                page += &section(&format!("Validation examples, {weights}"), evaluation_html(validation));
            }
        }
        page += &section("Skipped steps", skipped(history));
        if !replays.is_empty() {
            page += &block("Run a fault again, and find its cure", replays);
        }
        let raised = history.raised.iter().map(|raised| (raised.step, raised.to_string()));
        let mut changes: Vec<(usize, String)> =
            raised.chain(history.ended.iter().map(|ended| (ended.step, ended.to_string()))).collect();
        if !changes.is_empty() {
            changes.sort_by_key(|(step, _)| *step);
            let lines: String = changes.iter().map(|(_, text)| format!("{}\n", printable(text))).collect();
            page += &block("Raised cells, and rules that ended", &lines);
        }
        if !headroom.is_empty() {
            page += &section("Headroom in 16 bits, in the last steps", headroom_table(headroom));
        }
        page + &block("Plan", plan) + &block("Policy", policy) + &block("Run file", text)
    }
}

fn headroom_table(headroom: &[Headroom]) -> String {
    let quantizes = headroom.iter().any(|of| !of.operands.is_empty());
    let row = |of: &Headroom| {
        let cell = if of.cell.is_empty() { "(root)" } else { of.cell.as_str() };
        let largest = of.largest.map_or("not finite".into(), |x| format!("{x:.3e}"));
        let doublings = of.doublings.map_or("none".into(), |x| format!("{x:.1}"));
        let zero = format!("{:.0} %", 100.0 * of.zero);
        let mut row =
            vec![printable(cell).into_owned(), of.phase.to_string(), of.dtype.to_string(), largest, doublings, zero];
        row.extend(quantizes.then(|| of.operands.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")));
        row
    };
    let mut header = vec!["cell", "phase", "dtype", "largest number", "doublings left", "zeros"];
    header.extend(quantizes.then_some("operands, of the numbers other than 0"));
    html_table(&header, headroom.iter().map(row).collect(), &[3, 4, 5])
}

fn skipped(history: &History) -> String {
    // Steps one after the other that began in the same place share a row.
    let place =
        |of: &Step| of.fault().map(|of| (of.edge.phase, of.edge.cell.clone(), of.edge.op, of.edge.subject.clone()));
    let kind = |of: &Step| (of.outcome.cause().map(mem::discriminant), place(of));
    let mut groups: Vec<(usize, usize)> = Vec::new();
    for (i, step) in history.steps.iter().enumerate() {
        if step.outcome.cause().is_none() && step.fault().is_none() {
            continue;
        }
        match groups.last_mut() {
            Some((first, last)) if *last + 1 == i && kind(&history.steps[*first]) == kind(step) => *last = i,
            _ => groups.push((i, i)),
        }
    }
    let row = |(first, last): (usize, usize)| {
        let step = &history.steps[first];
        let why = match (step.outcome.cause(), step.fault()) {
            (Some(cause), _) => cause.to_string(),
            (None, fault) => {
                let fault = fault.map(ToString::to_string).unwrap_or_default();
                format!("taken, although a number was not finite: {fault}")
            }
        };
        let steps = if first == last { (first + 1).to_string() } else { format!("{} to {}", first + 1, last + 1) };
        vec![steps, (step.epoch + 1).to_string(), why]
    };
    let rows: Vec<Vec<String>> = groups.into_iter().map(row).collect();
    if rows.is_empty() {
        return "<p>No step was skipped, and none met a number that was not finite.</p>".into();
    }
    let more = match rows.len().saturating_sub(MOST_SKIPPED) {
        0 => String::new(),
        more => format!("<p>{more} more are in <code>metrics.jsonl</code>.</p>"),
    };
    let header = ["step", "epoch", "cause"];
    html_table(&header, rows.into_iter().take(MOST_SKIPPED).collect(), &[0, 1]) + &more
}

/// Returns a picture, without the parts needed only in a file of its own.
fn svg(picture: &str) -> String {
    let start = picture.find("<svg").unwrap_or(0);
    format!("<figure>{}</figure>", &picture[start..])
}

fn head(name: &str) -> String {
    format!(
        "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>{name} - precast</title>
<style>
:root {{ color-scheme: light dark; --line: #d5d9df; --soft: #f5f6f8; --text: #1b1f24; --back: #ffffff; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --line: #3a4048; --soft: #20242a; --text: #e6e8eb; --back: #15181c; }}
}}
body {{ margin: 0; background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; }}
main {{ max-width: 1080px; margin: 0 auto; padding: 24px 16px 64px; }}
h1 {{ font-size: 1.6em; margin: 0 0 8px; }}
h2 {{ font-size: 1.1em; margin: 32px 0 8px; }}
summary {{ font-size: 1.2em; font-weight: 600; margin: 32px 0 8px; cursor: pointer; }}
.table {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 14px; }}
th, td {{ text-align: left; padding: 4px 12px 4px 0; border-bottom: 1px solid var(--line); white-space: nowrap; }}
th {{ font-weight: 600; }}
.same {{ opacity: 0.6; }}
.lost {{ color: #d32f2f; }}
.number {{ text-align: right; font-variant-numeric: tabular-nums; }}
pre {{ background: var(--soft); padding: 12px; overflow-x: auto; font-size: 13px; line-height: 1.35; }}
h3 {{ font-size: 1em; margin: 20px 0 6px; }}
.confusion th, .confusion td {{ padding: 4px 8px; border: 1px solid var(--line); }}
figure {{ margin: 0; background: #ffffff; padding: 4px; border: 1px solid var(--line); }}
svg {{ width: 100%; height: auto; display: block; }}
</style>
</head>
<body>
<main>
<h1>{name}</h1>
"
    )
}
