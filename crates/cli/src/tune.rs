//! `precast tune`: the search for the cells that a policy can lower within a budget of error.

use std::{
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use precast::{
    Child, Tensor,
    io::models::Model,
    plan::undo,
    policy::{LossScaleSpec, Operands},
};
use precast_base::files;
use precast_diagnose::tune::{Metric, Tune, TuneRun, Tuned, TunedCell};
use precast_explorer::Note;
use precast_train::report::tune_chart;
use serde::Serialize;

use super::{
    Cli, Failure, Format, Result,
    examples::{self, Subject},
    inputs::{self, Read, shown},
    outputs::{self, Force, Output},
    plan_page::write_noted,
    print, print_json,
    run::{STOP, listen},
    say,
};

/// Search for the cells that a policy can lower while the error of the network stays within a budget, and write the
/// policy that keeps the others in float32
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With a policy that quantizes operands, or with --low-bit, the search is for the cells that bear it; the others keep their 16 bits.
The error is that of the network with lowered cells, compared with the same network in float32, on two batches of examples; the
larger of the two counts. Every set of cells that counts was run. With --output, each run is also kept in a file of that name
with the extension `jsonl`, and a search that was stopped continues from there.

Examples:
  precast tune runs/o2 --policy o2-bf16 --budget 4e-6 --output tuned.yaml
  precast tune runs/o2 --policy o2 --metric gradient --budget 0.02 --fastest
  precast tune runs/o2 --policy o2-bf16 --low-bit mxfp8,nvfp4 --budget 1e-3 --output recipes.yaml
  precast tune net.yaml --weights w.safetensors --data calib.npz --policy o1 --metric relative --budget 1e-3")]
pub(super) struct Args {
    #[command(flatten)]
    examples: examples::Args,
    /// A policy file or a built-in policy [default: that of the run]
    #[arg(short, long)]
    policy: Option<PathBuf>,
    /// The error to be kept within the budget [default: kl for classes, relative for numbers]
    #[arg(long)]
    metric: Option<MetricName>,
    /// The largest error allowed
    #[arg(long, value_parser = positive, allow_hyphen_values = true)]
    budget: f64,
    /// Save the most time, as predicted for this machine, rather than lower the most cells
    #[arg(long)]
    fastest: bool,
    /// Search for a recipe of the operands of each cell with products, such as `mxfp8,nvfp4`: first for the cells that bear the
    /// first one, and among them for those that bear the next, each time with what the budget leaves
    #[arg(long, value_name = "RECIPES", value_delimiter = ',', conflicts_with = "fastest")]
    low_bit: Vec<Operands>,
    /// The most sets of cells to be run [default: 4 ceil(log2 n) + 8 for n cells; 2 ceil(log2 n) + 3 for operands]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    runs: Option<u32>,
    /// The time after which no further set is run
    #[arg(long, value_parser = positive, allow_hyphen_values = true)]
    minutes: Option<f64>,
    #[command(flatten)]
    output: Output,
    /// Draw the error of each run against the number of cells lowered
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write a page for a browser: the cells under the policy found, with their errors
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Output format
    #[arg(long, default_value = "text")]
    format: Format,
}

/// Parses a positive, finite number.
fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("expected a positive number".into()),
    }
}

/// The name of a metric.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum MetricName {
    /// Difference of the loss
    Loss,
    /// Divergence of the probabilities, in nats; the outputs are logits
    Kl,
    /// Error of the outputs, relative to their norm
    Relative,
    /// Error of the gradient of the loss, relative to its norm
    Gradient,
}

/// The result, as JSON.
#[derive(Serialize)]
struct Report<'a> {
    metric: &'a str,
    budget: f64,
    error: f64,
    complete: bool,
    cells: &'a [TunedCell],
    /// The reason for which the inputs of the network are not rounded, if they are not.
    inputs: Option<&'a str>,
    runs: &'a [TuneRun],
}

const NEEDS: &str = "tune needs at least 2 examples, a batch to search on and one to check, and better hundreds";

pub(super) fn run(cli: &Cli, args: &Args) -> Result {
    if let Some(file) = args.output.file.as_ref().filter(|file| **file == file.with_extension(JOURNAL)) {
        let words = "is the name of the file of its runs; a policy is a `.yaml` file";
        return Err(Failure::Usage(format!("--output: `{}` {words}", shown(file))));
    }
    let journal = args.journal();
    let written =
        [("--output", args.output.file.as_deref()), ("--svg", args.svg.as_deref()), ("--html", args.html.as_deref())];
    let read = [&args.examples.files()[..], &[("--policy", args.policy.as_deref())]].concat();
    // The file of runs is continued, whether or not the search came to a policy.
    let continued = [&written[..], &[("the file of runs", journal.as_deref())]].concat();
    outputs::check_unread(&read, &continued, Force { given: true })?;
    let given = args.output.force.given || args.output.file.as_deref().is_some_and(is_unfinished);
    outputs::check_free(&written, Force { given })?;
    outputs::check_ending("--output", args.output.file.as_deref(), &["yaml", "yml"])?;
    outputs::check_ending("--svg", args.svg.as_deref(), &["svg"])?;
    outputs::check_ending("--html", args.html.as_deref(), &["html", "htm"])?;
    let policy = args.examples.policy(args.policy.as_deref())?;
    let mut subject = args.examples.read(cli, 2, NEEDS)?;
    undo(&mut subject.net);
    let mut net = std::mem::replace(&mut subject.net, precast::Child::of(precast::layers::Identity));
    if matches!(args.metric, Some(MetricName::Kl)) && !subject.has_classes() {
        let words = "--metric kl compares the probabilities of classes, and the targets are numbers; expected relative, loss \
                     or gradient";
        return Err(Failure::Usage(words.into()));
    }
    listen();
    let found = search(args, &policy.value.in_the_end(), &subject, &mut net).map_err(Failure::work)?;
    match args.format {
        Format::Json => {
            let Tuned { metric, budget, error, complete, cells, inputs, runs, .. } = &found;
            let (budget, error, complete, inputs) = (*budget, *error, *complete, inputs.as_deref());
            print_json(&Report { metric, budget, error, complete, cells, inputs, runs })?;
        }
        Format::Text => {
            print(format_args!("model   {}\npolicy  {policy}\n\n{found}", shown(&args.examples.model)))?;
        }
    }
    if let Some(svg) = &args.svg {
        outputs::write(svg, &tune_chart(&found)?)?;
    }
    if let Some(page) = &args.html {
        undo(&mut net);
        let model = Read::of_file(Model::new(net), &args.examples.model);
        let notes = found.cells.iter().map(|cell| (cell.path.clone(), vec![note(cell)])).collect();
        write_noted(page, &model, format!("{policy}, tuned"), &found.policy, notes)?;
    }
    if let Some(file) = &args.output.file {
        found.save(file).map_err(Failure::work)?;
    }
    match STOP.load(Ordering::Relaxed) {
        true if journal.is_some() => Err(Failure::Work(
            "interrupted; the policy is that of the runs so far, and the same command continues".into(),
        )),
        true => Err(Failure::Work("interrupted; the policy is that of the runs so far".into())),
        false => Ok(()),
    }
}

/// The extension of the file of runs.
const JOURNAL: &str = "jsonl";

impl Args {
    /// Returns the file of runs, by which a search is resumed.
    fn journal(&self) -> Option<PathBuf> {
        self.output.file.as_ref().map(|file| file.with_extension(JOURNAL))
    }
}

/// Returns whether a policy file is that of a search that has not ended, and so is replaced, with the drawing, when it
/// continues.
fn is_unfinished(file: &Path) -> bool {
    files::read_text(file, 1 << 20).is_ok_and(|text| text.lines().any(|line| line == Tuned::UNFINISHED))
}

/// Returns the result for a cell in words.
fn note(cell: &TunedCell) -> Note {
    let facts = [
        Some(match (cell.low, cell.operands) {
            (true, Some(operands)) => format!("operands {operands}"),
            (true, None) => "lowered".into(),
            (false, Some(_)) => "operands not quantized".into(),
            (false, None) => "kept in f32".into(),
        }),
        cell.predicted.map(|error| format!("predicted error if it alone is {} {error:.1e}", cell.verb())),
        cell.measured.map(|error| format!("error that it added to a set {error:.1e}")),
        cell.overflows.map(|op| format!("{op} in it is not finite in the low dtype")),
        cell.saves.map(|time| format!("lowering saves {time:.0} ns")),
    ];
    let mark = if cell.low { cell.verb() } else { "kept" };
    Note { mark: mark.into(), text: facts.into_iter().flatten().collect::<Vec<_>>().join("; ") }
}

fn search(args: &Args, policy: &precast::Policy, subject: &Subject, net: &mut Child) -> precast::Result<Tuned> {
    let batches = &subject.batches;
    let loss = |y: &Tensor, at: usize| subject.loss(y, at);
    let usual = if subject.has_classes() { MetricName::Kl } else { MetricName::Relative };
    let metric = match args.metric.unwrap_or(usual) {
        MetricName::Loss => Metric::Loss(&loss),
        MetricName::Kl => Metric::Kl,
        MetricName::Relative => Metric::Relative,
        MetricName::Gradient => Metric::Gradient(&loss),
    };
    let speeds = args.fastest.then(inputs::speeds_here);
    let mut tune = Tune::new(policy, metric, args.budget).stop(&STOP);
    // The scale at which the run settled, rather than the first one, which overflows.
    let settled = subject.scale.filter(|_| matches!(policy.loss_scale, LossScaleSpec::Dynamic(_)));
    tune = settled.into_iter().fold(tune, |tune, scale| tune.scale(scale.into()));
    tune = args.runs.into_iter().fold(tune, |tune, runs| tune.runs(runs as usize));
    tune = args.minutes.into_iter().fold(tune, Tune::minutes);
    tune = speeds.iter().fold(tune, Tune::fastest);
    tune = tune.recipes(&args.low_bit);
    tune = args.journal().into_iter().fold(tune, Tune::journal);
    let does = if args.low_bit.is_empty() { "lowered" } else { "quantized" };
    let shown = |run: &TuneRun| say(&format!("{} cells {does}: {} {:.2e}", run.low, metric.name(), run.error));
    let found = tune.watch(&shown).run_with(net, batches.len(), &|net, at| batches[at].call(net));
    say("");
    found
}
