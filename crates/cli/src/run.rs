//! `precast train run.yaml`, `precast train --resume` and `precast show runs`: training runs with their own folders.

use std::{
    fs,
    ops::ControlFlow,
    path::{Component, Path, PathBuf},
    sync::{
        Arc, LazyLock, Once,
        atomic::{AtomicBool, Ordering},
    },
};

use precast::{Policy, io::models::Model, policy::Prefer};
use precast_base::{files, printable};
use precast_train::Event;
use precast_train::{
    Change, EndReason, ModelSource, Predictor, Run, RunFile, history_of,
    report::{NOT_FAIR, RunReport, TrainingRun, all_runs_html, runs_html, runs_table_by, save_events},
};
#[cfg(unix)]
use signal_hook::consts::{SIGALRM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};

use super::{
    Cli, Failure, Format, Result, inputs,
    lead::Lead,
    outputs::{self, Force},
    print, print_json,
    progress::{self, Progress},
    remedy::{no_better_than_the_mean, remedy},
    results::{self, notes, spoilt, stalled, unless_unread, why_stalled},
    table::{plan_tree, runs_layout},
    train_args::Args,
};

const REPORT: &str = "report.html";

/// Returns whether a file is a run file and not a model file: it names the data.
pub(super) fn is_run_file(file: &Path) -> bool {
    // As long as a run file can be.
    let Ok(text) = files::read_text(file, 64 << 20) else { return false };
    let has = |key: &str| {
        let at_a_line = |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':'));
        let in_braces = || [format!("{key}:"), format!("{key}\":")].iter().any(|key| text.contains(key));
        text.lines().any(at_a_line) || (text.trim_start().starts_with('{') && in_braces())
    };
    !has("net") && (has("data") || has("model"))
}

/// Returns a run under another policy. A policy on the command line is relative to the current folder.
pub(super) fn under(mut file: RunFile, policy: &Path) -> RunFile {
    let path = std::path::absolute(policy).ok().filter(|path| path.is_file());
    file.policy = path.as_deref().unwrap_or(policy).to_string_lossy().into_owned();
    file
}

/// Trains from a run file, once for each given policy.
pub(super) fn begin(cli: &Cli, args: &Args, lead: Option<&Lead<'_>>) -> Result {
    let mut file = match args.policy.first() {
        Some(policy) => RunFile::load_under(&args.model, policy.to_string_lossy())?,
        None => RunFile::load(&args.model)?,
    };
    args.change(&mut file)?;
    lead.map_or(Ok(()), |lead| lead.check(&file))?;
    let files: Vec<RunFile> = match &args.policy[..] {
        [] => vec![file],
        policies => {
            file.name = None;
            policies.iter().map(|policy| under(file.clone(), policy)).collect()
        }
    };
    if files.len() > 1 && args.output.is_some() {
        let words = "--output is the folder of one run; leave it out, and each policy gets its own below `runs`";
        return Err(Failure::Usage(words.into()));
    }
    // Nothing is trained if the last policy has a mistake, or its folder is taken.
    let mut planned = Vec::<(&RunFile, Policy, PathBuf)>::new();
    for file in &files {
        let (policy, to) = (file.check_policy()?, args.output.clone().map_or_else(|| file.run_folder(), Ok)?);
        if let Some((.., taken)) = planned.iter().find(|(.., other)| *other == to) {
            return Err(Failure::Usage(format!("two runs would write to `{}`", inputs::shown(taken))));
        }
        Run::check_folder(&to)?;
        planned.push((file, policy, to));
    }
    // All runs have the same model, which the first takes.
    let mut first = Some(model(cli, &files[0])?);
    if let Some(model) = first.as_ref().filter(|_| files.len() > 1) {
        planned.iter().try_for_each(|(_, policy, _)| policy.plan(&model.net).map(drop))?;
    }
    let (mut folders, mut failures) = (Vec::<PathBuf>::new(), Vec::new());
    for (file, policy, to) in planned {
        let model = first.take().map_or_else(|| model(cli, file), Ok)?;
        if policy.prefer == Prefer::Speed {
            let _ = inputs::speeds_here(); // with a status line
        }
        let run = Run::begin(file, model, &to)?;
        let ended = train(cli, run, args, lead);
        folders.push(to);
        match ended {
            Ok(EndReason::Interrupted) => break,
            Ok(_) => {}
            Err(error) if STOP.load(Ordering::Relaxed) => return Err(error),
            // One run that fails does not keep the others from being trained.
            Err(Failure::Work(error)) => failures.push(error),
            Err(error) => return Err(error),
        }
    }
    if folders.len() > 1 && args.format == Format::Text {
        table(&folders)?;
    }
    match &failures[..] {
        [] => Ok(()),
        [one] if folders.len() == 1 => Err(Failure::Work(one.clone())),
        _ => {
            let (failed, all) = (failures.len(), folders.len());
            Err(Failure::Work(format!("{failed} of {all} runs failed:\n{}", failures.join("\n"))))
        }
    }
}

/// Resumes the run of a folder.
pub(super) fn resume(cli: &Cli, args: &Args, folder: &Path, lead: Option<&Lead<'_>>) -> Result {
    let file = RunFile::of_folder(folder)?;
    lead.map_or(Ok(()), |lead| lead.check(&file))?;
    let mut change = Change::default();
    (change.epochs, change.lr) = (args.epochs.map(|epochs| epochs as usize), args.lr);
    let run = Run::resume_with(folder, model(cli, &file)?, change)?;
    train(cli, run, args, lead).map(drop)
}

/// Returns the model of a run: one that the program builds, otherwise that of the file.
pub(super) fn model(cli: &Cli, file: &RunFile) -> Result<Model> {
    match &file.model {
        ModelSource::Named(name) if cli.builds(name) && !file.folder.join(name).is_file() => {
            Ok(cli.named(name, file.options.seed)?)
        }
        _ => Ok(file.read_model()?),
    }
}

/// Returns the network of a run with its best weights.
pub(super) fn predictor(cli: &Cli, folder: &Path) -> Result<Predictor> {
    let file = RunFile::of_folder(folder)?;
    Ok(Predictor::of_folder(folder, model(cli, &file)?)?)
}

/// Prints a note on standard error that is not a failure.
pub(super) fn say_line(note: &str) {
    progress::say(&format!("note: {note}"));
}

/// Set by the first signal that asks for an end.
pub(super) static STOP: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Lets signals set [`STOP`]: Ctrl-C, the end of a session, and what batch systems send some time before they kill a job.
/// A second Ctrl-C or Ctrl-\ ends the process at once.
pub(super) fn listen() {
    #[cfg(unix)]
    const SIGNALS: [i32; 8] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU];
    #[cfg(unix)]
    const AT_ONCE: [i32; 2] = [SIGINT, SIGQUIT];
    #[cfg(not(unix))]
    const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];
    #[cfg(not(unix))]
    const AT_ONCE: [i32; 1] = [SIGINT];
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let ignored = ignored();
        for signal in SIGNALS.into_iter().filter(|signal| ignored & 1 << (signal - 1) == 0) {
            // If no handler can be installed, the signal ends the process, and the last checkpoint remains.
            if AT_ONCE.contains(&signal) {
                let _ = flag::register_conditional_shutdown(signal, 128 + signal, STOP.clone());
            }
            let _ = flag::register(signal, STOP.clone());
        }
    });
}

/// Returns the signals that this process was started to ignore, as `nohup` does with the end of a session: bit n - 1 is
/// signal n. They are known on Linux.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn train(cli: &Cli, mut run: Run, args: &Args, lead: Option<&Lead<'_>>) -> Result<EndReason> {
    let program = &cli.program;
    let folder = run.folder().to_path_buf();
    let (shown, name) = (inputs::shown(&folder), file_name(&folder));
    let text = args.format == Format::Text && !args.quiet;
    for note in run.notes() {
        say_line(note);
    }
    let done = run.history().steps.len();
    if text {
        let storage = run.storage().map_or(String::new(), |storage| format!("\n{storage}\n"));
        let validation = run.validation().map_or(String::new(), |of| format!("{} validation examples, ", of.len()));
        let data = &run.data().train;
        let further = data.further().iter().map(|further| format!(" and {:?}", further.shape));
        let shapes: String = std::iter::once(format!("{:?}", data.shape())).chain(further).collect();
        let ranks = lead.map_or(String::new(), |lead| {
            let file = run.file();
            let is_usual = file.wire == precast_mpi::Wire::default();
            let wire = if is_usual { String::new() } else { format!(", and send {}", file.wire) };
            let state = if file.shard_optimizer { " and the state of the optimizer" } else { "" };
            let (ranks, shards) = (lead.ranks.size(), file.options.shards);
            format!("\nranks   {ranks}, which divide {shards} shards{state}{wire}")
        });
        let from = if done > 0 { format!("\nresumed after step {done} of {}", run.steps()) } else { String::new() };
        unless_unread(print(format_args!(
            "model   {}\npolicy  {} ({}, {})\ndata    {} training examples, {validation}{} test examples of shape {shapes}{ranks}\nfolder  {shown}{from}\n\n{}\n{storage}",
            printable(&run.file().model.to_string()),
            printable(&run.file().policy),
            run.policy().level,
            run.policy().dtype.long_name(),
            data.len(),
            run.test().len(),
            plan_tree(run.plan()),
        )))?;
    }
    listen();
    let mut bar = if args.quiet { Progress::quiet() } else { Progress::new(run.steps(), run.file().options.epochs) };
    bar.rename(&name);
    bar.begin_at(done);
    let mut observer = |event: Event<'_>| {
        bar.note(&event);
        if STOP.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let ended = match lead {
        Some(lead) => lead.train(&mut run, args.resume.is_none(), &mut observer),
        None => run.train_with(&mut observer),
    };
    bar.finish();
    let ended = ended.map_err(|error| {
        // It would hold the name of the run, and there is nothing to resume.
        if args.resume.is_none() && run.history().steps.is_empty() {
            let _ = fs::remove_dir_all(&folder);
        }
        Failure::work(error)
    })?;
    // The report covers the available results, even for a run that stalled or was interrupted.
    let report = folder.join(REPORT);
    files::replace(&report, report_of(&folder)?.as_bytes()).map_err(Failure::work)?;
    let runs = [TrainingRun { name: &name, history: run.history() }];
    unless_unread(match args.format {
        Format::Json => print_json(&Summary::of(&name, &folder, &run, ended)),
        Format::Text => {
            let best = best(&run, ended);
            let faults = run.faults().map_err(Failure::work)?.iter().fold(String::new(), |faults, folder| {
                format!("{faults}\na step met a number that was not finite: {program} replay {}", inputs::shown(folder))
            });
            print(format_args!(
                "{}\n\n{}{best}{faults}\nwritten: {shown} ({REPORT}, metrics.jsonl, weights and checkpoints)",
                runs_table_by(&runs, false, runs_layout),
                notes(&runs, false)
            ))
        }
    })?;
    if let Some(note) = no_better_than_the_mean(&run) {
        say_line(&note);
    }
    match ended {
        EndReason::Interrupted => {
            let steps = run.history().steps.len();
            let words = format!("interrupted after step {steps}; continue with: {program} train --resume {shown}");
            Err(Failure::Work(words))
        }
        EndReason::Stalled => {
            // A rule does not help against a wrong learning rate or large targets.
            let cure = Some(remedy(&run)).filter(|cure| !cure.is_empty());
            let why = match &cure {
                Some(cure) => stalled(run.history()).map(|why| why + cure),
                None => why_stalled(run.history()),
            };
            Err(Failure::Work(format!("{name} {}", why.unwrap_or_default())))
        }
        ended => match run.history().epochs.last() {
            Some(epoch) => {
                let examples = if run.validation().is_some() { "validation" } else { "test" };
                let cure = Some(remedy(&run)).filter(|cure| !cure.is_empty());
                let cure = cure.unwrap_or_else(|| results::cure(run.history()).into());
                spoilt(epoch, examples).map_or(Ok(ended), |words| Err(Failure::Work(words + &cure)))
            }
            None => Ok(ended),
        },
    }
}

/// Describes the best weights of a run, what chose them, and the end by patience.
fn best(run: &Run, ended: EndReason) -> String {
    let Some((epoch, score)) = run.best() else { return String::new() };
    let by_patience = match (ended, run.file().patience) {
        (EndReason::NoBetter, Some(patience)) => {
            let (epochs, s) = (run.history().epochs.len(), if patience == 1 { "" } else { "s" });
            let best = epoch + 1;
            format!(
                "\nended after epoch {epochs} by its patience: {patience} epoch{s} without a better score than epoch {best}"
            )
        }
        _ => String::new(),
    };
    let name = score.name();
    let fair = match (run.validation(), &run.history().test) {
        (None, _) => format!("\n{NOT_FAIR}"),
        (Some(_), Some(test)) => format!("\ntest {name}: {}, of these weights, scored once", test.score),
        (Some(_), None) => String::new(),
    };
    let of = if run.validation().is_some() { "validation " } else { "" };
    format!("{by_patience}\nbest {of}{name}: {score}, after epoch {}{fair}", epoch + 1)
}

/// The outcome of a run, as JSON.
#[derive(serde::Serialize)]
struct Summary<'a> {
    name: &'a str,
    folder: &'a Path,
    ended: String,
    steps: usize,
    skipped: usize,
    epochs: usize,
    loss: Option<f64>,
    score: Option<precast_train::Score>,
    best_epoch: Option<usize>,
    best_score: Option<precast_train::Score>,
    /// Score of the best weights on the test examples, if others chose them.
    test_score: Option<precast_train::Score>,
    /// Examples that chose the best weights.
    chosen_by: &'static str,
}

impl<'a> Summary<'a> {
    fn of(name: &'a str, folder: &'a Path, run: &Run, ended: EndReason) -> Self {
        let history = run.history();
        Summary {
            name,
            folder,
            ended: ended.to_string(),
            steps: history.steps.len(),
            skipped: history.skipped(),
            epochs: history.epochs.len(),
            loss: history.epochs.last().map(|epoch| epoch.loss),
            score: history.score(),
            best_epoch: run.best().map(|(epoch, _)| epoch),
            best_score: run.best().map(|(_, score)| score),
            test_score: history.test.as_ref().map(|test| test.score),
            chosen_by: if run.validation().is_some() { "validation" } else { "test" },
        }
    }
}

fn file_name(folder: &Path) -> String {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
    absolute.file_name().map_or("run".into(), |name| name.to_string_lossy().into_owned())
}

/// Returns the absolute path of a folder as one name.
fn long_name(folder: &Path) -> String {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
    let names = absolute.components().filter(|part| matches!(part, Component::Normal(_)));
    names.map(|part| part.as_os_str().to_string_lossy().into_owned()).collect::<Vec<_>>().join("-")
}

/// Returns the report of a run, with its sibling runs for comparison.
fn report_of(folder: &Path) -> Result<String> {
    let report = RunReport::of(folder)?;
    let mut others = Vec::new();
    let parent = std::path::absolute(folder).ok().and_then(|path| path.parent().map(Path::to_path_buf));
    for other in parent.map(|parent| runs_in(&parent)).unwrap_or_default() {
        if file_name(&other) != file_name(folder) {
            // A sibling folder that cannot be read is ignored.
            others.extend(RunReport::of(&other));
        }
    }
    Ok(runs_html(&report, &others)?)
}

/// Returns the folders of runs in a folder, by name.
fn runs_in(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .map(|entries| {
            entries.flatten().map(|entry| entry.path()).filter(|path| path.join("run.yaml").is_file()).collect()
        })
        .unwrap_or_default();
    found.sort();
    found
}

fn table(folders: &[PathBuf]) -> Result {
    let mut histories = Vec::new();
    for folder in folders {
        match history_of(folder) {
            Ok(history) => histories.push((file_name(folder), history)),
            Err(error) => say_line(&format!("left out: {error}")),
        }
    }
    if histories.is_empty() {
        return Err(Failure::Usage("no run can be read".into()));
    }
    let runs: Vec<TrainingRun<'_>> = histories.iter().map(|(name, history)| TrainingRun { name, history }).collect();
    unless_unread(print(format_args!("{}\n\n{}", runs_table_by(&runs, false, runs_layout), notes(&runs, false))))
}

/// Compare training runs: a table of those in a folder, and one report of all
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  precast show runs                         the runs below `runs`
  precast show runs experiments --html all.html
  precast show runs --tensorboard events    then: tensorboard --logdir events")]
pub(super) struct RunsArgs {
    /// The folder with the runs' folders, or these folders themselves
    #[arg(default_value = "runs")]
    folders: Vec<PathBuf>,
    /// Write a report of the runs, with an entry for each
    #[arg(long)]
    html: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
    /// Write a folder of events for each run into this folder, which TensorBoard reads; also of runs that are training
    #[arg(long, value_name = "FOLDER")]
    tensorboard: Option<PathBuf>,
}

/// Runs `precast show runs`.
pub(super) fn runs(args: &RunsArgs) -> Result {
    let mut folders = Vec::new();
    for folder in &args.folders {
        match folder.join("run.yaml").is_file() {
            true => folders.push(folder.clone()),
            false => folders.extend(runs_in(folder)),
        }
    }
    if folders.is_empty() {
        let given: Vec<String> = args.folders.iter().map(|folder| inputs::shown(folder)).collect();
        return Err(Failure::Usage(format!(
            "there is no run in `{}`; `precast train run.yaml` makes one",
            given.join("`, `")
        )));
    }
    outputs::check(&[("--html", args.html.as_deref())], args.force)?;
    outputs::check_ending("--html", args.html.as_deref(), &["html", "htm"])?;
    if let Some(html) = &args.html {
        let reports = folders.iter().map(RunReport::of).collect::<precast::Result<Vec<_>>>()?;
        let page = match &reports[..] {
            [one] => runs_html(one, &[])?,
            all => all_runs_html(all)?,
        };
        outputs::write(html, &page)?;
    }
    if let Some(to) = &args.tensorboard {
        for folder in &folders {
            // Runs of one name get those of the folders above as well.
            let same = folders.iter().filter(|other| file_name(other) == file_name(folder)).count();
            let name = if same > 1 { long_name(folder) } else { file_name(folder) };
            save_events(folder, to.join(name)).map_err(Failure::work)?;
        }
    }
    table(&folders)
}
