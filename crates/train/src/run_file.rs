//! Run files: a network, data, a policy and training options, as YAML.

use std::{
    collections::HashMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use precast::{
    error::{Error, ErrorKind, Result},
    optim::{Method, Schedule},
    options::{Options, options, schema_of},
    policy::Pattern,
};
use precast_base::{
    document::{self, At, Choice, Document, Place, Source},
    files,
};
use precast_mpi::Wire;
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::Value;

use super::{
    Memory, Partition, Storage, data,
    file_name::is_file_name,
    model_source::ModelSource,
    test_data::Test,
    weights_source::{self, Weights},
    wire,
};
use crate::training::{Augment, FitOptions, GroupOptions, Loss};

/// A training run as described in a file. The keys are those of the fields.
///
/// ```
/// use precast_train::RunFile;
/// let text = "
/// version: 1
/// model: lenet5          # an architecture file, or the name of a built-in model
/// policy: o2-bf16        # a policy file, or the name of a built-in policy
/// data: digits           # or csv: {file: iris.csv, target: species}, images, npy, text, addition
/// optimizer: adam        # or adamw: {betas: [0.9, 0.95], weight_decay: 0.1}
/// epochs: 5
/// ";
/// let run = RunFile::parse(text, "run.yaml")?;
/// assert_eq!((run.options.epochs, run.options.lr), (5, 0.001));
///
/// let error = RunFile::parse(&text.replace("adam ", "adm "), "run.yaml").unwrap_err();
/// assert!(error.to_string().starts_with("run.yaml:6:12: unknown name `adm` (did you mean `adam`?)"), "{error}");
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunFile {
    /// Name of the run and of its folder. Default: that of the policy.
    pub name: Option<String>,
    /// An architecture file, the name of a built-in model, or an ONNX model.
    pub model: ModelSource,
    /// Weights to start from. Default: those drawn by the seed, or of an ONNX model.
    pub weights: Option<Weights>,
    /// Patterns of cells and parameters that are frozen; see [`Child::freeze`](precast::Child::freeze). Default: none.
    pub freeze: Vec<String>,
    /// A policy file, or the name of a built-in policy.
    pub policy: String,
    /// Source of the examples.
    pub data: data::Source,
    /// Most bytes of examples in memory. Default: 1 GiB. Tables, images and arrays that take more are read while the run
    /// trains, with the same results.
    pub memory: Memory,
    /// Test examples.
    pub test: Test,
    /// Validation examples: with them, the score after each epoch is theirs, and the test examples are scored once, at the
    /// end, with the best weights. Default: none, so the test examples choose the weights.
    pub validation: Option<Test>,
    /// Choice of test and validation examples, unless they are in files of their own. Default: by the seed.
    pub partition: Partition,
    /// `true` to standardize the inputs to mean 0 and variance 1, by the training examples. Default: false.
    pub standardize: bool,
    /// `true` to standardize numeric targets too. Default: false. Scores and predictions stay in the units of the data;
    /// the loss does not.
    pub standardize_targets: bool,
    /// Storage of the parameters. Default: f32.
    pub storage: Storage,
    /// Training options. The loss scale is that of the policy.
    pub options: FitOptions,
    /// Form of the numbers that ranks exchange. Default: `float32`.
    pub wire: Wire,
    /// `true` to divide the state of the optimizer among the ranks. Default: false.
    pub shard_optimizer: bool,
    /// Retention of checkpoints.
    pub checkpoint: CheckpointOptions,
    /// Number of epochs without a better score after which the run ends. Default: unlimited.
    pub patience: Option<usize>,
    /// Base folder of relative paths.
    pub folder: PathBuf,
    /// The text that was read.
    pub(crate) written: Written,
}

/// Retention of checkpoints. One is written after each epoch and when a run is interrupted.
#[options(written)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// Number of steps between additional checkpoints.
    #[option(default = None, at_least = 1)]
    pub every: Option<usize>,
    /// Number of latest checkpoints kept.
    #[option(default = 2, at_least = 1)]
    pub keep: usize,
}

/// The document. Its fields are the keys, as editors show them.
#[options(written, no_new, called = "run")]
pub(super) struct RunV1 {
    /// Version of the file format.
    #[option(at_least = 1, at_most = 1)]
    version: u32,
    /// Name of the run and of its folder.
    #[option(default = None, shown = "that of the policy")]
    name: Option<String>,
    /// A model file, the name of a built-in model, or an ONNX model: `{onnx: model.onnx}`. Relative paths start from the
    /// folder of this file.
    model: ModelSource,
    /// Weights to start from: a safetensors file, with options if its tensors do not match the network.
    #[option(default, shown = "drawn by the seed", left_out)]
    weights: weights_source::Written,
    /// Patterns of cells and parameters that are not trained, such as `encoder.**`.
    #[option(default, left_out)]
    freeze: Vec<String>,
    /// A policy file, or the name of a built-in policy. `precast train --policy` names another one.
    #[option(default = None, shown = "that of the command")]
    policy: Option<String>,
    /// Source of the examples.
    #[serde(deserialize_with = "choice")]
    data: data::Source,
    /// Most bytes of examples in memory, such as 256 MiB. Tables, images and arrays that take more are read while the run
    /// trains, with the same results.
    #[option(default, shown = "1 GiB", left_out)]
    memory: Memory,
    /// Test examples: a share of all, a number of them, or another file of the same format.
    #[option(default = None, shown = "0.2")]
    test: Option<Test>,
    /// Validation examples, as for `test`: they choose the best weights, and the test examples are scored once, at the end.
    #[option(default = None, shown = "none; the test examples choose", left_out)]
    validation: Option<Test>,
    /// Choice of test and validation examples: drawn by the seed, `in_order` for the last ones (of a time series, of
    /// overlapping windows), or `{by: COLUMN}` for rows of one patient, device or day that must not be divided.
    #[option(default, shown = "shuffled", left_out)]
    split: Partition,
    /// `true` when the inputs are standardized to mean 0 and variance 1, by the training examples. Numbers keep all
    /// digits of their file until then.
    #[option(default = false)]
    standardize: bool,
    /// `true` when numeric targets are standardized as well. Scores and predictions stay in the units of the data; the loss
    /// does not.
    #[option(default = false)]
    standardize_targets: bool,
    /// Storage of the parameters. Low storage takes less memory; stochastic_rounding and kahan are for bfloat16.
    #[option(default = Storage::Float32)]
    #[serde(deserialize_with = "choice")]
    storage: Storage,
    /// The optimizer, with its own options.
    #[option(default, shown = "sgd")]
    #[serde(deserialize_with = "choice")]
    optimizer: Method,
    /// The full learning rate.
    #[option(default = None, shown = "the usual one of the optimizer", above = 0)]
    lr: Option<f64>,
    /// Groups of parameters with their own factor of the learning rate, or their own weight decay.
    #[option(default, left_out)]
    groups: Vec<GroupOptions>,
    /// Largest norm of the gradients of a step.
    #[option(default = None, shown = "unlimited", above = 0)]
    clip: Option<f64>,
    /// Learning-rate schedule.
    #[option(default = Schedule::Constant)]
    #[serde(deserialize_with = "choice")]
    schedule: Schedule,
    /// Number of steps of a linear warm-up before the schedule.
    #[option(default = 0)]
    warm_up: usize,
    /// The loss.
    #[option(default = None, shown = "cross_entropy for classes, mse for numbers")]
    #[serde(deserialize_with = "no_choice")]
    loss: Option<Loss>,
    /// Number of passes over the training examples.
    #[option(default = FitOptions::default().epochs, at_least = 1)]
    epochs: usize,
    /// Number of examples per step.
    #[option(default = FitOptions::default().batch, at_least = 1)]
    batch: usize,
    /// Number of batches per step, whose gradients are added.
    #[option(default = 1, at_least = 1, left_out)]
    accumulate: usize,
    /// Number of parts of a step whose gradients are computed alone: the most ranks among which it can be divided.
    #[option(default = 1, at_least = 1, at_most = 4096, left_out)]
    shards: usize,
    /// Dtype in which the ranks of a run exchange gradients.
    #[option(default, shown = "float32", left_out)]
    wire: wire::Written,
    /// `true` when the ranks of a run divide the state of the optimizer.
    #[option(default = false, left_out)]
    shard_optimizer: bool,
    /// Decay of an average of the weights, which is tested and saved in their place: 0.999 averages about 1000 steps.
    #[option(default = None, shown = "no average", at_least = 0, below = 1)]
    average: Option<f64>,
    /// Random changes of the training examples, made anew in each epoch: mirrored, shifted, brighter or darker images, and
    /// mixtures of two examples.
    #[option(default, shown = "none", left_out)]
    augment: Augment,
    /// Seed of the weights, the choice of test examples, and the order of the others.
    #[option(default = 0)]
    seed: u64,
    /// `true` to watch every step: the first result that was not finite is named.
    #[option(default = true)]
    monitor: bool,
    /// `true` to lint the network on the first batch; errors and warnings are notes of the run.
    #[option(default = true)]
    lint: bool,
    /// Retention of checkpoints. One is written after each epoch and when a run is interrupted.
    #[option(default, shown = "the last 2")]
    checkpoint: CheckpointOptions,
    /// Number of epochs without a better score after which the run ends.
    #[option(default = None, shown = "unlimited", at_least = 1)]
    patience: Option<usize>,
}

/// Defines the exchange between a run file and its document: each key with its field, and the value of a missing one.
macro_rules! exchange {
    (
        |$read:ident|
        { $($key:ident = $field:ident $(or $default:expr)?,)* }
        options { $($set:ident = $option:ident $(or $usual:expr)?,)* }
    ) => {
        impl RunFile {
            fn of($read: RunV1, written: Written) -> Self {
                let mut options = FitOptions::default();
                $(options.$option = $read.$set$(.unwrap_or($usual))?.into();)*
                let folder = PathBuf::new();
                RunFile { $($field: $read.$key$(.unwrap_or($default))?.into(),)* options, folder, written }
            }

            fn document(&self) -> RunV1 {
                let RunFile { options, .. } = self;
                RunV1 { version: 1, $($key: self.$field.clone().into(),)* $($set: options.$option.clone().into(),)* }
            }
        }
    };
}

exchange! {
    |read| {
        name = name,
        model = model,
        weights = weights,
        freeze = freeze,
        policy = policy or String::new(),
        data = data,
        memory = memory,
        test = test or Test::Share(0.2),
        validation = validation,
        split = partition,
        standardize = standardize,
        standardize_targets = standardize_targets,
        storage = storage,
        wire = wire,
        shard_optimizer = shard_optimizer,
        checkpoint = checkpoint,
        patience = patience,
    }
    options {
        lr = lr or read.optimizer.usual_lr(),
        optimizer = method,
        groups = groups,
        clip = clip,
        schedule = schedule,
        warm_up = warm_up,
        loss = loss,
        epochs = epochs,
        batch = batch,
        accumulate = accumulate,
        shards = shards,
        average = average,
        augment = augment,
        seed = seed,
        monitor = monitor,
        lint = lint,
    }
}

/// Reads the name of a variant, or a map of the name and its options.
fn choice<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Choice::deserialize(deserializer).map(|Choice(variant)| variant)
}

/// Reads a choice, or nothing.
fn no_choice<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.map(|Choice(variant)| variant))
}

/// The name and the text of a run file, for positions in errors.
#[derive(Clone)]
pub(crate) struct Written(Arc<(String, String)>);

impl fmt::Debug for Written {
    /// Leaves out the text, which runs with the same values need not share.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Written")
    }
}

/// Returns the position of a key's value in a run file, or of the word in it that an error is about.
fn place_of(source: &Source<'_>, key: &str, error: &Error) -> Option<Place> {
    #[derive(Deserialize)]
    struct Places(HashMap<String, At<IgnoredAny>>);

    impl Document for Places {
        const WHAT: &'static str = RunV1::WHAT;
        const KIND: ErrorKind = RunV1::KIND;
        const MAX_BYTES: usize = RunV1::MAX_BYTES;
        const MAX_NODES: usize = RunV1::MAX_NODES;
        const REQUIRED: &'static [&'static str] = RunV1::REQUIRED;
    }

    let place = document::read::<Places>(source).ok()?.0.get(key)?.place;
    let word = error.word().filter(|word| *word != key);
    Some(word.map_or(place, |word| source.place_in(place, word)))
}

impl RunFile {
    /// Reads a run file. Relative paths in it are resolved against its folder.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](precast::ErrorKind::Io) when it cannot be read; [`ErrorKind::Run`](precast::ErrorKind::Run) with
    /// `file:line:column` for errors in its contents.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        RunFile::loaded(path, None)
    }

    /// Reads a run file as [`load`](RunFile::load) does, for another policy; the key `policy` may be missing.
    ///
    /// # Errors
    /// As [`RunFile::load`].
    pub fn load_under(path: impl AsRef<Path>, policy: impl Into<String>) -> Result<Self> {
        RunFile::loaded(path.as_ref(), Some(policy.into()))
    }

    fn loaded(path: &Path, policy: Option<String>) -> Result<Self> {
        let text = document::load::<RunV1>(path, |_| String::new())?;
        let run = RunFile::parsed(&text, &path.display().to_string(), policy)?;
        Ok(RunFile { folder: path.parent().unwrap_or(Path::new("")).to_path_buf(), ..run })
    }

    /// Parses the text of a run file; `name` names the file in messages. Relative paths are resolved against the
    /// working directory.
    ///
    /// # Errors
    /// As [`RunFile::load`].
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        RunFile::parsed(text, name, None)
    }

    fn parsed(text: &str, name: &str, policy: Option<String>) -> Result<Self> {
        let source = Source::new(name, text);
        let mut read: RunV1 = document::read(&source)?;
        read.policy = policy.or(read.policy);
        if read.policy.is_none() {
            let words = format!(
                "the key `policy` is missing from this map: {}; the flag `--policy` of `precast train` takes its place",
                RunV1::allowed("policy")
            );
            return Err(source.error(source.first(), Error::run(words)));
        }
        let wrong = |key: &str, error: Error| {
            let place = place_of(&source, key, &error).unwrap_or(Place::START);
            source.error(place, Error::run(error.to_string()))
        };
        if let Some(name) = read.name.as_ref().filter(|name| !is_file_name(name)) {
            let words = format!("`{name}` is not a valid folder name; allowed: letters, digits, `-`, `_` and `.`");
            return Err(wrong("name", Error::run(words)));
        }
        read.optimizer.check().map_err(|error| wrong("optimizer", error))?;
        read.storage.check().map_err(|error| wrong("storage", error))?;
        if let Some((key, error)) = read.out_of_range() {
            return Err(wrong(key, error));
        }
        let of_groups = read.groups.iter().map(|group| ("groups", &group.path));
        for (key, pattern) in read.freeze.iter().map(|pattern| ("freeze", pattern)).chain(of_groups) {
            pattern.parse::<Pattern>().map_err(|error| wrong(key, error.about(pattern)))?;
        }
        if let (Schedule::Plateau { patience: waits, .. }, Some(patience)) = (read.schedule, read.patience)
            && patience <= waits
        {
            let words = format!(
                "the run ends after {patience} epochs without a better score, before the rate of the plateau falls, which \
                 waits for {waits}; allowed: at least {}",
                waits + 1
            );
            return Err(wrong("patience", Error::run(words)));
        }
        Ok(RunFile::of(read, Written(Arc::new((name.into(), text.into())))))
    }

    /// Returns the text of an equivalent run file with every option written out.
    ///
    /// # Errors
    /// [`ErrorKind::Run`](precast::ErrorKind::Run) when it cannot be written.
    pub fn to_yaml(&self) -> Result<String> {
        document::written(&self.document())
    }

    /// Adds the position of a key's value to an error, if the value is still the one that was read.
    pub(super) fn wrong(&self, key: &str, error: Error) -> Error {
        let (name, text) = &*self.written.0;
        let source = Source::new(name, text);
        let value = |file: &RunV1| serde_json::to_value(file).unwrap_or_default()[key].take();
        let is_as_read = |read: RunV1| value(&read) == value(&self.document());
        match place_of(&source, key, &error).filter(|_| document::read(&source).is_ok_and(is_as_read)) {
            Some(place) => source.error(place, error),
            None => error,
        }
    }

    /// Adds the position of a group to an error about its pattern.
    pub(super) fn wrong_group(&self, error: Error) -> Error {
        if error.word().is_some() { self.wrong("groups", error.context("`groups`")) } else { error }
    }

    /// Adds a position as [`wrong`](RunFile::wrong) does, for a file that cannot be opened and for a column that it has
    /// not. Other errors within a file have their position there.
    pub(super) fn not_there(&self, key: &str, error: Error) -> Error {
        if error.kind() == ErrorKind::Io || error.word().is_some() { self.wrong(key, error) } else { error }
    }

    /// Returns the JSON Schema of run files, by which editors complete and check them.
    pub fn schema() -> Value {
        let mut schema = schema_of(&RunV1::options());
        schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
        schema["title"] = "precast run, version 1".into();
        schema["description"] = "A training run: a model, data, a policy, and how to train.".into();
        schema
    }

    /// Returns the files and folders of the examples: those of `data`, `test` and `validation`.
    pub fn files_read(&self) -> Vec<&Path> {
        let data = match &self.data {
            data::Source::Npy(npy) if npy.file.is_none() => [Some(&*npy.inputs), npy.targets.as_deref()],
            other => [other.file(), None],
        };
        let parts = [Some(&self.test), self.validation.as_ref()].into_iter().flatten();
        let parts = parts.filter_map(|part| match part {
            Test::File(file) => Some(&**file),
            _ => None,
        });
        data.into_iter().flatten().chain(parts).collect()
    }

    /// Writes a run file atomically.
    ///
    /// # Errors
    /// As [`RunFile::to_yaml`], and [`ErrorKind::Io`](precast::ErrorKind::Io) when it cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        files::replace(path, self.to_yaml()?.as_bytes())
    }
}
