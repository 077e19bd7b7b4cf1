//! Run files: a network, data, a policy and training options, as YAML.

use std::path::{Path, PathBuf};

use precast::{
    error::{Error, Result},
    optim::{Method, Schedule},
    options::{Options, options, schema_of},
    policy::Pattern,
};
use precast_base::{
    document::{self, At, Choice, Document as _, Place, Source, Words, placeless as at},
    files,
};
use precast_mpi::Wire;
use serde_json::Value;

use super::{
    Memory, Partition, Storage, data,
    file_name::is_file_name,
    model_source::ModelSource,
    test_data::Test,
    weights_source::{self, Weights},
    wire,
    written::{Places, Written},
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
    /// Source positions of some values.
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
    pub(super) version: At<u32>,
    /// Name of the run and of its folder.
    #[option(default = None, shown = "that of the policy")]
    name: Option<At<String>>,
    /// A model file, the name of a built-in model, or an ONNX model: `{onnx: model.onnx}`. Relative paths start from the
    /// folder of this file.
    model: At<ModelSource>,
    /// Weights to start from: a safetensors file, with options if its tensors do not match the network.
    #[option(default = None, shown = "drawn by the seed")]
    weights: Option<At<weights_source::Written>>,
    /// Patterns of cells and parameters that are not trained, such as `encoder.**`.
    #[option(default = at(Words::default()), left_out)]
    freeze: At<Words>,
    /// A policy file, or the name of a built-in policy. `precast train --policy` names another one.
    #[option(default = None, shown = "that of the command")]
    policy: Option<At<String>>,
    /// Source of the examples.
    data: At<Choice<data::Source>>,
    /// Most bytes of examples in memory, such as 256 MiB. Tables, images and arrays that take more are read while the run
    /// trains, with the same results.
    #[option(default = Memory::default(), shown = "1 GiB", left_out)]
    memory: Memory,
    /// Test examples: a share of all, a number of them, or another file of the same format.
    #[option(default = None, shown = "0.2")]
    test: Option<At<Test>>,
    /// Validation examples, as for `test`: they choose the best weights, and the test examples are scored once, at the end.
    #[option(default = None, shown = "none; the test examples choose", left_out)]
    validation: Option<At<Test>>,
    /// Choice of test and validation examples: drawn by the seed, `in_order` for the last ones (of a time series, of
    /// overlapping windows), or `{by: COLUMN}` for rows of one patient, device or day that must not be divided.
    #[option(default = at(Partition::default()), shown = "shuffled", left_out)]
    split: At<Partition>,
    /// `true` when the inputs are standardized to mean 0 and variance 1, by the training examples. Numbers keep all
    /// digits of their file until then.
    #[option(default = false)]
    standardize: bool,
    /// `true` when numeric targets are standardized, too. Scores and predictions stay in the units of the data; the loss
    /// does not.
    #[option(default = false)]
    standardize_targets: bool,
    /// Storage of the parameters. Low storage takes less memory; stochastic_rounding and kahan are for bfloat16.
    #[option(default = at(Choice(Storage::Float32)))]
    storage: At<Choice<Storage>>,
    /// The optimizer, with its own options.
    #[option(default = at(Choice(Method::default())), shown = "sgd")]
    optimizer: At<Choice<Method>>,
    /// The full learning rate.
    #[option(default = None, shown = "the usual one of the optimizer", above = 0)]
    lr: Option<At<f64>>,
    /// Groups of parameters with their own factor of the learning rate, or their own weight decay.
    #[option(default = at(Vec::new()), left_out)]
    groups: At<Vec<GroupOptions>>,
    /// Largest norm of the gradients of a step.
    #[option(default = None, shown = "unlimited", above = 0)]
    clip: Option<At<f64>>,
    /// Learning-rate schedule.
    #[option(default = at(Choice(Schedule::Constant)))]
    schedule: At<Choice<Schedule>>,
    /// Number of steps of a linear warm-up before the schedule.
    #[option(default = 0)]
    warm_up: usize,
    /// The loss.
    #[option(default = None, shown = "cross_entropy for classes, mse for numbers")]
    loss: Option<At<Choice<Loss>>>,
    /// Number of passes over the training examples.
    #[option(default = at(FitOptions::default().epochs), at_least = 1)]
    epochs: At<usize>,
    /// Number of examples per step.
    #[option(default = at(FitOptions::default().batch), at_least = 1)]
    batch: At<usize>,
    /// Number of batches per step, whose gradients are added.
    #[option(default = at(1), at_least = 1, left_out)]
    accumulate: At<usize>,
    /// Number of parts of a step whose gradients are computed alone: the most ranks among which it can be divided.
    #[option(default = at(1), at_least = 1, at_most = 4096, left_out)]
    shards: At<usize>,
    /// Dtype in which the ranks of a run exchange gradients.
    #[option(default = wire::Written::default(), shown = "float32", left_out)]
    wire: wire::Written,
    /// `true` when the ranks of a run divide the state of the optimizer.
    #[option(default = false, left_out)]
    shard_optimizer: bool,
    /// Decay of an average of the weights, which is tested and saved in their place: 0.999 averages about 1000 steps.
    #[option(default = None, shown = "no average", at_least = 0, below = 1)]
    average: Option<At<f64>>,
    /// Random changes of the training examples, made anew in each epoch: mirrored, shifted, brighter or darker images, and
    /// mixtures of two examples.
    #[option(default = at(Augment::default()), shown = "none", left_out)]
    augment: At<Augment>,
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
    #[option(default = at(CheckpointOptions::default()), shown = "the last 2")]
    checkpoint: At<CheckpointOptions>,
    /// Number of epochs without a better score after which the run ends.
    #[option(default = None, shown = "unlimited", at_least = 1)]
    patience: Option<At<usize>>,
}

impl RunV1 {
    /// Returns the position of the value of a key that has a range.
    fn place(&self, key: &str) -> Place {
        let optional = match key {
            "data" => Some(self.data.place),
            "test" => self.test.as_ref().map(|at| at.place),
            "validation" => self.validation.as_ref().map(|at| at.place),
            "split" => Some(self.split.place),
            "lr" => self.lr.as_ref().map(|at| at.place),
            "schedule" => Some(self.schedule.place),
            "loss" => self.loss.as_ref().map(|at| at.place),
            "epochs" => Some(self.epochs.place),
            "batch" => Some(self.batch.place),
            "weights" => self.weights.as_ref().map(|at| at.place),
            "groups" => Some(self.groups.place),
            "clip" => self.clip.as_ref().map(|at| at.place),
            "accumulate" => Some(self.accumulate.place),
            "shards" => Some(self.shards.place),
            "augment" => Some(self.augment.place),
            "average" => self.average.as_ref().map(|at| at.place),
            "checkpoint" => Some(self.checkpoint.place),
            "patience" => self.patience.as_ref().map(|at| at.place),
            _ => None,
        };
        optional.unwrap_or(Place::START)
    }
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
        let read: RunV1 = document::read(&source)?;
        let written = read.policy.as_ref().map(|policy| (policy.value.clone(), policy.place));
        let Some(policy) = policy.or_else(|| read.policy.as_ref().map(|policy| policy.value.clone())) else {
            let words = format!(
                "the key `policy` is missing from this map: {}; `precast train --policy` names one, too",
                RunV1::allowed("policy")
            );
            return Err(source.error(source.first(), Error::run(words)));
        };
        // A policy of the command has no place in the file.
        let written = written.unwrap_or_else(|| (String::new(), source.first()));
        let refused = |at: Place, words: String| source.error(at, Error::run(words));
        // The position of the option inside the key.
        let out_of_range = |at: Place, key: &str, error: Error| {
            let option = error.word().filter(|option| *option != key);
            let place = option.map_or(at, |option| source.place_in(at, option));
            source.error(place, Error::run(error.to_string()))
        };
        if let Some(name) = read.name.as_ref().filter(|name| !is_file_name(&name.value)) {
            let words = format!("`{}` names no folder; allowed: letters, digits, `-`, `_` and `.`", name.value);
            return Err(refused(name.place, words));
        }
        let (optimizer, storage) = (&read.optimizer, &read.storage);
        optimizer.value.0.check().map_err(|error| out_of_range(optimizer.place, "", error))?;
        storage.value.0.check().map_err(|error| out_of_range(storage.place, "", error))?;
        if let Some((key, error)) = read.out_of_range() {
            return Err(out_of_range(read.place(key), key, error));
        }
        let (freeze, groups) = (&read.freeze, &read.groups);
        let of_groups = groups.value.iter().map(|group| (groups.place, &group.path));
        for (at, pattern) in freeze.value.0.iter().map(|pattern| (freeze.place, pattern)).chain(of_groups) {
            let malformed = |error: Error| source.error(source.place_in(at, pattern), Error::run(error.to_string()));
            pattern.parse::<Pattern>().map_err(malformed)?;
        }
        if let (Schedule::Plateau { patience: waits, .. }, Some(patience)) = (read.schedule.value.0, &read.patience)
            && patience.value <= waits
        {
            let words = format!(
                "the run ends after {} epochs without a better score, before the rate of the plateau falls, which waits \
                 for {waits}; allowed: at least {}",
                patience.value,
                waits + 1
            );
            return Err(refused(patience.place, words));
        }
        let method = read.optimizer.value.0;
        let test_at = read.test.as_ref().map(|at| at.place);
        let test = read.test.map_or(Test::Share(0.2), |at| at.value);
        let (validation, validation_at) = read.validation.map(|at| (at.value, at.place)).unzip();
        let mut options = FitOptions::default()
            .epochs(read.epochs.value)
            .batch(read.batch.value)
            .accumulate(read.accumulate.value)
            .shards(read.shards.value)
            .groups(read.groups.value.clone())
            .lr(read.lr.map_or(method.usual_lr(), |lr| lr.value))
            .schedule(read.schedule.value.0)
            .warm_up(read.warm_up)
            .seed(read.seed)
            .method(method)
            .monitor(read.monitor)
            .lint(read.lint);
        let loss_at = read.loss.as_ref().map(|at| at.place);
        options.loss = read.loss.map(|at| at.value.0);
        options.clip = read.clip.map(|at| at.value);
        options.average = read.average.map(|at| at.value);
        options.augment = read.augment.value.clone();
        let (weights, weights_at) = read.weights.map(|at| (at.value.0, at.place)).unzip();
        let written = Written::new(
            &source,
            Places {
                model: (read.model.value.clone(), read.model.place),
                policy: written,
                data: (read.data.value.0.clone(), read.data.place),
                loss: options.loss.clone().zip(loss_at),
                augment: (read.augment.value, read.augment.place),
                test: test_at.map(|at| (test.clone(), at)),
                validation: validation.clone().zip(validation_at),
                split: (read.split.value.clone(), read.split.place),
                weights: weights.clone().zip(weights_at),
                freeze: (read.freeze.value.0.clone(), read.freeze.place),
                groups: (read.groups.value, read.groups.place),
            },
        );
        Ok(RunFile {
            written,
            name: read.name.map(|name| name.value),
            model: read.model.value,
            weights,
            freeze: read.freeze.value.0,
            policy,
            data: read.data.value.0,
            memory: read.memory,
            test,
            validation,
            partition: read.split.value,
            standardize: read.standardize,
            standardize_targets: read.standardize_targets,
            storage: read.storage.value.0,
            options,
            wire: read.wire.0,
            shard_optimizer: read.shard_optimizer,
            checkpoint: read.checkpoint.value,
            patience: read.patience.map(|at| at.value),
            folder: PathBuf::new(),
        })
    }

    /// Returns the text of an equivalent run file with every option written out.
    ///
    /// # Errors
    /// [`ErrorKind::Run`](precast::ErrorKind::Run) when it cannot be written.
    pub fn to_yaml(&self) -> Result<String> {
        let FitOptions { epochs, batch, lr, schedule, warm_up, seed, method, loss, monitor, lint, .. } = &self.options;
        let FitOptions { accumulate, shards, groups, clip, average, augment, .. } = &self.options;
        let written = RunV1 {
            version: at(1),
            name: self.name.clone().map(at),
            model: at(self.model.clone()),
            weights: self.weights.clone().map(|weights| at(weights_source::Written(weights))),
            freeze: at(Words(self.freeze.clone())),
            policy: Some(at(self.policy.clone())),
            data: at(Choice(self.data.clone())),
            memory: self.memory,
            test: Some(at(self.test.clone())),
            validation: self.validation.clone().map(at),
            split: at(self.partition.clone()),
            standardize: self.standardize,
            standardize_targets: self.standardize_targets,
            storage: at(Choice(self.storage.clone())),
            optimizer: at(Choice(method.clone())),
            lr: Some(at(*lr)),
            groups: at(groups.clone()),
            clip: clip.map(at),
            schedule: at(Choice(*schedule)),
            warm_up: *warm_up,
            loss: loss.clone().map(|loss| at(Choice(loss))),
            epochs: at(*epochs),
            batch: at(*batch),
            accumulate: at(*accumulate),
            shards: at(*shards),
            wire: wire::Written(self.wire),
            shard_optimizer: self.shard_optimizer,
            average: average.map(at),
            augment: at(augment.clone()),
            seed: *seed,
            monitor: *monitor,
            lint: *lint,
            checkpoint: at(self.checkpoint),
            patience: self.patience.map(at),
        };
        document::written(&written)
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
