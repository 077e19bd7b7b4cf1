//! Models and policies by file or by name, and plans of policies for models.

use std::{
    fmt,
    fs::{self, File},
    io::{self, IsTerminal, Read as _},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use precast::{
    Plan, Policy,
    cell::Trace,
    cost::Speeds,
    io::models::Model,
    policy::{PolicyFile, Prefer},
    storage::{stored::StoredModel, weights::check_is_safetensors},
};
use precast_base::{files, names::did_you_mean, printable};
use precast_graph::onnx::{ImportOptions, OnnxModel, OnnxNetwork};
use precast_train::data::call;
use precast_train::is_onnx;

use super::{Cli, Failure, Result, progress, say};

/// A value that was read, and its origin.
pub(super) struct Read<T> {
    pub value: T,
    /// The argument: a file or a name.
    argument: PathBuf,
    pub built_in: bool,
    /// `true` when the program itself builds it.
    own: bool,
}

impl<T> Read<T> {
    /// Returns a value that was read from this file, or from a folder.
    pub fn of_file(value: T, argument: &Path) -> Self {
        Read { value, argument: argument.to_path_buf(), built_in: false, own: false }
    }

    /// Returns the file or the name, as it was given.
    pub fn argument(&self) -> String {
        shown(&self.argument)
    }

    /// As [`argument`](Read::argument), for a command line.
    pub fn word(&self) -> String {
        word(&self.argument)
    }

    /// Returns the built-in name, or the name of the file without folder and extension.
    pub fn short_name(&self) -> String {
        match self.argument.file_stem() {
            Some(stem) if !self.built_in => stem.to_string_lossy().into_owned(),
            _ => self.argument.to_string_lossy().into_owned(),
        }
    }
}

impl Read<PolicyFile> {
    /// Returns the policy for cells; `None` for one for graphs.
    pub fn cells(&self) -> Option<Read<Policy>> {
        let value = self.value.clone().cells().ok()?;
        Some(Read { value, argument: self.argument.clone(), built_in: self.built_in, own: self.own })
    }

    /// Returns the text of the file.
    pub fn text(&self) -> Result<String> {
        match self.argument.as_os_str() == STANDARD_INPUT {
            true => standard_input().map(String::from),
            false => Ok(files::read_text(&self.argument, MOST_BYTES as usize)?),
        }
    }
}

impl<T> fmt::Display for Read<T> {
    /// Writes `o2 (built in)` or the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = match (self.own, self.built_in) {
            (true, _) => " (of this program)",
            (false, true) => " (built in)",
            (false, false) => "",
        };
        write!(f, "{}{from}", self.argument())
    }
}

/// Formats a path as a word of a command line that can be copied.
pub(super) fn word(path: &Path) -> String {
    let shown = shown(path);
    let plain = |c: char| c.is_alphanumeric() || "_-./:@%+,".contains(c);
    if !shown.is_empty() && shown.chars().all(plain) { shown } else { format!("'{}'", shown.replace('\'', r"'\''")) }
}

/// Formats a path without control characters.
pub(super) fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// Opens a model, with a note on an opset that is not known.
pub(super) fn onnx_model(argument: &Path) -> Result<Read<OnnxModel>> {
    let model = OnnxModel::open(argument)?;
    if let Some(note) = model.note_on_opset() {
        progress::say(&format!("note: {}: {note}", shown(argument)));
    }
    Ok(Read::of_file(model, argument))
}

/// Reads a model, or builds one of the program's own, with initial weights drawn from the seed.
pub(super) fn model(cli: &Cli, argument: &Path, seed: u64) -> Result<Read<Model>> {
    let own = argument.to_str().is_some_and(|name| cli.builds(name)) && !argument.is_file();
    if own {
        let value = cli.named(&argument.to_string_lossy(), seed)?;
        return Ok(Read { value, argument: argument.to_path_buf(), built_in: true, own });
    }
    if is_onnx(argument) {
        let imported = onnx_model(argument)?.value.import(&ImportOptions::new());
        let network = imported.map_err(|error| error.context(shown(argument)))?;
        return Ok(Read::of_file(OnnxNetwork::into_model(network), argument));
    }
    refuse_others(argument)?;
    read(argument, |file| Model::load(file, seed), |name| cli.named(name, seed))
}

/// Refuses weights in the format of another tool where a model is expected.
fn refuse_others(argument: &Path) -> Result {
    let mut first = Vec::new();
    let read = File::open(argument).and_then(|file| file.take(128).read_to_end(&mut first));
    match read {
        Ok(_) if argument.is_file() => Ok(check_is_safetensors(&first).map_err(|e| e.in_file(shown(argument)))?),
        _ => Ok(()),
    }
}

/// Reads the headers of weights written by another tool.
pub(super) fn stored(argument: &Path) -> Result<Read<StoredModel>> {
    Ok(Read::of_file(StoredModel::open(argument)?, argument))
}

/// Returns a line for the model, and one for each policy.
pub(super) fn header<T, P>(model: &Read<T>, policies: &[&Read<P>]) -> String {
    let policies: String = policies.iter().map(|policy| format!("policy  {policy}\n")).collect();
    format!("model   {model}\n{policies}")
}

/// Reads a policy for cells. This is where the commands that take no other refuse one for graphs.
pub(super) fn policy(argument: &Path) -> Result<Read<Policy>> {
    let read = policy_file(argument)?;
    read.cells().ok_or_else(|| {
        Failure::Usage(format!(
            "{read} is a policy for graphs, and this command takes one with a level: O0 to O3 or auto; `graph`, `plan`, \
             `explain` and `diff` show what one for graphs does"
        ))
    })
}

/// Reads a policy of either kind; `-` is standard input.
pub(super) fn policy_file(argument: &Path) -> Result<Read<PolicyFile>> {
    if argument.as_os_str() == "-" {
        let value = PolicyFile::parse(standard_input()?, STANDARD_INPUT)?;
        return Ok(Read::of_file(value, Path::new(STANDARD_INPUT)));
    }
    read(argument, |file| PolicyFile::load(file), PolicyFile::named)
}

const STANDARD_INPUT: &str = "standard input";
/// The maximum length of text read from standard input; policies have a lower limit of their own.
const MOST_BYTES: u64 = 1 << 20;

/// Returns all of standard input, which can be read once.
fn standard_input() -> Result<&'static str> {
    static TEXT: OnceLock<String> = OnceLock::new();
    if let Some(text) = TEXT.get() {
        return Ok(text);
    }
    if io::stdin().is_terminal() {
        say("reading a policy from standard input");
    }
    let mut text = String::new();
    let read = io::stdin().lock().take(MOST_BYTES).read_to_string(&mut text);
    read.map_err(|error| Failure::Usage(format!("{STANDARD_INPUT}: {error}")))?;
    Ok(TEXT.get_or_init(|| text))
}

/// The maximum number of input elements of the call on which a plan or a graph is made: 64 MiB in f32. Activations are
/// a multiple of that.
const MOST_ELEMENTS: usize = 16 << 20;

/// The batch and the machine of a prediction.
#[derive(Debug, clap::Args)]
pub(super) struct Predicting {
    /// Batch size, which decides where 16 bit pays for a policy that prefers speed [default: 32]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    batch: Option<u32>,
    /// Speeds of another machine, for a policy that prefers speed: a file written by `precast show bench --speeds`
    #[arg(long)]
    speeds: Option<PathBuf>,
}

impl Predicting {
    /// Creates a prediction for a batch of this size on this machine.
    pub fn of_batch(batch: u32) -> Self {
        Predicting { batch: Some(batch), speeds: None }
    }

    /// Returns the size of the batch, if it was given.
    pub fn batch(&self) -> Option<u32> {
        self.batch
    }

    /// Returns the name of an option that was given.
    pub fn given(&self) -> Option<&'static str> {
        let given = [("--speeds", self.speeds.is_some()), ("--batch", self.batch.is_some())];
        given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    /// Refuses options that would have no effect.
    pub fn check(&self, predict: bool, policies: &[&PolicyFile]) -> Result {
        let prefers_speed = |policy: &&PolicyFile| matches!(policy, PolicyFile::Cells(p) if p.prefer == Prefer::Speed);
        let read = predict || policies.iter().any(prefers_speed);
        match self.given().filter(|_| !read) {
            Some(name) => {
                Err(Failure::Usage(format!("{name} is for a policy with `prefer: speed`, and for `plan --predict`")))
            }
            None => Ok(()),
        }
    }

    /// Returns the plan of a policy for a model, with a prediction if `predict` is set or the policy prefers speed.
    pub fn plan(&self, model: &Read<Model>, policy: &Policy, predict: bool) -> Result<Plan> {
        if policy.prefer == Prefer::Memory && !predict {
            return Ok(policy.plan(&model.value.net)?);
        }
        let shape = batch_shape(model, self.batch.unwrap_or(32), "a prediction")?;
        let speeds = match &self.speeds {
            Some(file) => Speeds::load(file).map_err(|error| {
                Failure::Usage(format!("--speeds: no file that `precast show bench --speeds` wrote: {error}"))
            })?,
            None => speeds_here(),
        };
        Ok(policy.plan_for(&model.value.net, &traced(&model.value, &shape)?, &speeds)?)
    }
}

/// Returns the shape of an input batch of a model; `what` depends on it.
pub(super) fn batch_shape(model: &Read<Model>, batch: u32, what: &str) -> Result<Vec<usize>> {
    let Some(shape) = &model.value.input else {
        return Err(Failure::Usage(format!(
            "{what} depends on the size of the input, and {model} does not say it; {}",
            match model.own {
                _ if is_onnx(&model.argument) => {
                    "it must have one input, whose axes but the first have known lengths; in a run file, `fix` gives values to \
                     inputs and `axes` lengths to axes: `model: {onnx: net.onnx, axes: {sequence: 128}}`"
                }
                true => "say the shape of one example by `Model::input([1, 28, 28])`",
                false => "write the shape of one example into the file, as `input: [1, 28, 28]`",
            }
        )));
    };
    let shape: Vec<usize> = [batch as usize].iter().chain(shape).copied().collect();
    let elements = shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
    if elements.is_none_or(|elements| elements > MOST_ELEMENTS) {
        return Err(Failure::Usage(format!(
            "a batch of {batch} makes inputs of {shape:?}; {what} is made on a call with at most {MOST_ELEMENTS} elements"
        )));
    }
    Ok(shape)
}

/// Traces a call in training mode on a batch of this shape.
pub(super) fn traced(model: &Model, shape: &[usize]) -> Result<Trace> {
    let (called, trace) = model.net.trace(|net| call(net, &model.sample(shape)));
    called?;
    Ok(trace)
}

/// Returns the speeds of this machine. A status line is shown while they are measured for the first time.
pub(super) fn speeds_here() -> Speeds {
    if Speeds::cache_file().is_some_and(|file| file.exists()) {
        return Speeds::here();
    }
    say("measuring this machine, once");
    let speeds = Speeds::here();
    say("");
    speeds
}

/// Returns the file of the same ending whose name is nearest to one that is not there.
fn near(argument: &Path) -> String {
    let folder = argument.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Some(ending), Some(name)) = (argument.extension(), argument.file_name()) else { return String::new() };
    let others = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let others = others.filter(|path| path.extension() == Some(ending) && path.is_file());
    let names: Vec<String> = others.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect();
    did_you_mean(&name.to_string_lossy(), names.iter().map(|name| &name[..]))
}

/// Reads the file if there is one, otherwise the built-in model or policy of that name.
fn read<T>(
    argument: &Path,
    load: impl FnOnce(&Path) -> precast::Result<T>,
    named: impl FnOnce(&str) -> precast::Result<T>,
) -> Result<Read<T>> {
    // A folder does not hide a built-in name.
    let folder = argument.is_dir();
    let built_in = folder || !argument.exists();
    let value = if built_in {
        let met = if folder {
            format!("`{}` is a folder", shown(argument))
        } else {
            format!("there is no file `{}`{}", shown(argument), near(argument))
        };
        named(&argument.to_string_lossy()).map_err(|error| Failure::Usage(format!("{met}, and {error}")))?
    } else {
        load(argument)?
    };
    Ok(Read { value, argument: argument.to_path_buf(), built_in, own: false })
}
