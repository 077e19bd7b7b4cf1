//! Run files: a network, data, a policy and training options, as YAML.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_yaml::{Location, Spanned};

use super::{
    FitOptions, Loss, Method, Schedule, Storage, data,
    test_data::{TEST, Test},
    written::{Places, Written},
};
use crate::{
    error::{Error, ErrorKind, Result},
    io::{
        document::{self, Choice, Document, Source},
        files,
    },
};

/// A training run as described in a file. The keys are those of the fields.
///
/// ```
/// use precast::train::RunFile;
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
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunFile {
    /// Name of the run and of its folder. Default: that of the policy.
    pub name: Option<String>,
    /// An architecture file, or the name of a built-in model.
    pub model: String,
    /// A policy file, or the name of a built-in policy.
    pub policy: String,
    /// Source of the examples.
    pub data: data::Source,
    /// Test examples.
    pub test: Test,
    /// `true` to standardize the inputs to mean 0 and variance 1, by the training examples. Default: false.
    pub standardize: bool,
    /// `true` to standardize numeric targets too. Default: false. Scores and predictions stay in the units of the data;
    /// the loss does not.
    pub standardize_targets: bool,
    /// Storage of the parameters. Default: f32.
    pub storage: Storage,
    /// Training options. The loss scale is that of the policy.
    pub options: FitOptions,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointOptions {
    /// Number of steps between additional checkpoints. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<usize>,
    /// Number of latest checkpoints kept, at least 1. Default: 2.
    pub keep: usize,
}

impl Default for CheckpointOptions {
    fn default() -> Self {
        CheckpointOptions { every: None, keep: 2 }
    }
}

type At<T> = Spanned<T>;

/// The document.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunV1 {
    version: At<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<At<String>>,
    model: At<String>,
    policy: At<String>,
    data: At<Choice<data::Source>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    test: Option<At<Test>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    standardize: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    standardize_targets: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage: Option<At<Choice<Storage>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    optimizer: Option<At<Choice<Method>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lr: Option<At<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<At<Choice<Schedule>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warm_up: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<At<Choice<Loss>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epochs: Option<At<usize>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<At<usize>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    find_non_finite: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lint: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<At<CheckpointOptions>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patience: Option<At<usize>>,
}

impl Document for RunV1 {
    const WHAT: &'static str = "run";
    const KIND: ErrorKind = ErrorKind::Run;
    /// Large enough for the file in a run's folder, which has the names of all columns and classes of its data.
    const MAX_BYTES: usize = 64 << 20;
    const MAX_NODES: usize = 1 << 22;
    const REQUIRED: &'static [&'static str] = &["version", "model", "policy", "data"];

    fn version(&self) -> &At<u32> {
        &self.version
    }

    fn elsewhere(key: &str) -> Option<&'static str> {
        Some(match key {
            "learning_rate" => "lr",
            "batch_size" => "batch",
            "random_state" => "seed",
            "net" | "network" => "model",
            "dataset" => "data",
            "scheduler" | "lr_scheduler" => "schedule",
            "early_stopping" => "patience",
            "criterion" | "loss_fn" => "loss",
            "warmup" | "warmup_steps" => "warm_up",
            "learning_rate_decay" => "lr_decay",
            "epsilon" => "eps",
            "l2" | "wd" => "weight_decay",
            "ns_steps" => "rounds",
            "initial_accumulator_value" => "initial_sum",
            "rho" => "alpha",
            _ => return None,
        })
    }

    fn place(key: &str) -> &'static str {
        match key {
            "lr" | "learning_rate" => "`lr` is a key next to `optimizer`",
            "seed" => "it is the `seed` of the run",
            _ => "",
        }
    }

    fn allowed(key: &str) -> &'static str {
        match key {
            "model" => "an architecture file, or the name of a built-in model, such as lenet5",
            "policy" => "a policy file, or the name of a built-in policy, such as o2-bf16",
            "data" => "digits, csv, images, npy, text, addition",
            "file" => "a path",
            "every" => "a number of steps",
            "factor" => "a number, such as 0.1",
            _ => "",
        }
    }

    fn example(key: &str) -> &'static str {
        match key {
            "csv" => "`csv: {file: iris.csv, target: species}`",
            "checkpoint" => "`{every: 100, keep: 2}`",
            "adam" | "adamw" | "lion" | "lamb" => "`{betas: [0.9, 0.95], weight_decay: 0.1}`",
            "sgd" | "rmsprop" | "muon" => "`{momentum: 0.9}`",
            "masters" | "low" | "stochastic_rounding" | "kahan" => "`{exclude: [head]}`",
            _ => "",
        }
    }
}

impl RunFile {
    /// Reads a run file. Relative paths in it are resolved against its folder.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when it cannot be read; [`ErrorKind::Run`] with `file:line:column` for errors in its contents.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = document::load::<RunV1>(path, |_| String::new())?;
        let run = RunFile::parse(&text, &path.display().to_string())?;
        Ok(RunFile { folder: path.parent().unwrap_or(Path::new("")).to_path_buf(), ..run })
    }

    /// Parses the text of a run file; `name` names the file in messages. Relative paths are resolved against the
    /// working directory.
    ///
    /// # Errors
    /// As [`RunFile::load`].
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        let source = Source::new(name, text);
        let read: RunV1 = document::read(&source)?;
        let least_one = |key: &str, n: Option<&At<usize>>| match n {
            Some(n) if n.value == 0 => {
                Err(source.error(n.referenced, Error::run(format!("`{key}` is 0; allowed: at least 1"))))
            }
            n => Ok(n.map(|n| n.value)),
        };
        let name = match &read.name {
            Some(name) if !is_file_name(&name.value) => {
                let words = format!("`{}` names no folder; allowed: letters, digits, `-`, `_` and `.`", name.value);
                return Err(source.error(name.referenced, Error::run(words)));
            }
            name => name.as_ref().map(|name| name.value.clone()),
        };
        let method = match read.optimizer {
            Some(at) => {
                let Choice(method) = at.value;
                method.check().map_err(|error| source.error(at.referenced, Error::run(error.to_string())))?;
                method
            }
            None => Method::default(),
        };
        let storage = match read.storage {
            Some(at) => {
                let Choice(storage) = at.value;
                storage.check().map_err(|error| source.error(at.referenced, Error::run(error.to_string())))?;
                storage
            }
            None => Storage::default(),
        };
        let lr = match read.lr {
            Some(lr) if !(lr.value.is_finite() && lr.value > 0.0) => {
                let words = format!("`lr` is {}; allowed: finite and above 0", lr.value);
                return Err(source.error(lr.referenced, Error::run(words)));
            }
            lr => lr.map_or(method.usual_lr(), |lr| lr.value),
        };
        let schedule = match read.schedule {
            Some(at) if matches!(at.value.0, Schedule::Step { every: 0, .. }) => {
                return Err(
                    source.error(at.referenced, Error::run("a schedule of steps after every 0; allowed: at least 1"))
                );
            }
            at => at.map_or(Schedule::Constant, |at| at.value.0),
        };
        let test_at = read.test.as_ref().map(|at| at.referenced);
        let test = match read.test {
            Some(at)
                if matches!(at.value, Test::Count(0))
                    || matches!(at.value, Test::Share(s) if !(s > 0.0 && s < 1.0)) =>
            {
                let met = match at.value {
                    Test::Share(share) => share.to_string(),
                    _ => "0 examples".into(),
                };
                let words = format!("`test` is {met}; allowed: {TEST}");
                return Err(source.error(at.referenced, Error::run(words)));
            }
            at => at.map_or(Test::Share(0.2), |at| at.value),
        };
        let checkpoint = match read.checkpoint {
            Some(at) if at.value.keep == 0 || at.value.every == Some(0) => {
                let words = "`every` and `keep` of checkpoints are at least 1";
                return Err(source.error(at.referenced, Error::run(words)));
            }
            at => at.map_or(CheckpointOptions::default(), |at| at.value),
        };
        let usual = FitOptions::default();
        let options = FitOptions {
            epochs: least_one("epochs", read.epochs.as_ref())?.unwrap_or(usual.epochs),
            batch: least_one("batch", read.batch.as_ref())?.unwrap_or(usual.batch),
            lr,
            schedule,
            warm_up: read.warm_up.unwrap_or(0),
            seed: read.seed.unwrap_or(0),
            method,
            loss: read.loss.map(|at| at.value.0),
            find_non_finite: read.find_non_finite.unwrap_or(false),
            lint: read.lint.unwrap_or(true),
            ..usual
        };
        let written = Written::new(
            &source,
            Places {
                model: (read.model.value.clone(), read.model.referenced.into()),
                policy: (read.policy.value.clone(), read.policy.referenced.into()),
                data: (read.data.value.0.clone(), read.data.referenced.into()),
                test: test_at.map(|at| (test.clone(), at.into())),
            },
        );
        Ok(RunFile {
            written,
            name,
            model: read.model.value,
            policy: read.policy.value,
            data: read.data.value.0,
            test,
            standardize: read.standardize.unwrap_or(false),
            standardize_targets: read.standardize_targets.unwrap_or(false),
            storage,
            options,
            checkpoint,
            patience: least_one("patience", read.patience.as_ref())?,
            folder: PathBuf::new(),
        })
    }

    /// Returns the text of an equivalent run file with every option written out.
    ///
    /// # Errors
    /// [`ErrorKind::Run`] when it cannot be written.
    pub fn to_yaml(&self) -> Result<String> {
        fn at<T>(value: T) -> At<T> {
            Spanned::new(value, Location::UNKNOWN, Location::UNKNOWN)
        }
        let FitOptions { epochs, batch, lr, schedule, warm_up, seed, method, loss, find_non_finite, lint, .. } =
            &self.options;
        let written = RunV1 {
            version: at(1),
            name: self.name.clone().map(at),
            model: at(self.model.clone()),
            policy: at(self.policy.clone()),
            data: at(Choice(self.data.clone())),
            test: Some(at(self.test.clone())),
            standardize: Some(self.standardize),
            standardize_targets: Some(self.standardize_targets),
            storage: Some(at(Choice(self.storage.clone()))),
            optimizer: Some(at(Choice(method.clone()))),
            lr: Some(at(*lr)),
            schedule: Some(at(Choice(*schedule))),
            warm_up: Some(*warm_up),
            loss: loss.clone().map(|loss| at(Choice(loss))),
            epochs: Some(at(*epochs)),
            batch: Some(at(*batch)),
            seed: Some(*seed),
            find_non_finite: Some(*find_non_finite),
            lint: Some(*lint),
            checkpoint: Some(at(self.checkpoint)),
            patience: self.patience.map(at),
        };
        serde_yaml::to_string(&written).map_err(|error| Error::run(format!("the run cannot be written: {error}")))
    }

    /// Writes a run file atomically.
    ///
    /// # Errors
    /// As [`RunFile::to_yaml`], and [`ErrorKind::Io`] when it cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        files::replace(path, self.to_yaml()?.as_bytes())
    }
}

impl data::Source {
    /// Returns the same source with its relative paths resolved against a folder.
    pub(super) fn starting_from(&self, folder: &Path) -> Self {
        match self.clone() {
            #[cfg(feature = "data")]
            data::Source::Csv(csv) => data::Source::Csv(data::Csv { file: folder.join(&csv.file), ..csv }),
            #[cfg(feature = "data")]
            data::Source::Images(images) => {
                data::Source::Images(data::Images { folder: folder.join(&images.folder), ..images })
            }
            #[cfg(feature = "data")]
            data::Source::Npy(npy) => data::Source::Npy(npy.starting_from(folder)),
            data::Source::Text(text) => data::Source::Text(data::Text { file: folder.join(&text.file), ..text }),
            other => other,
        }
    }

    /// Returns whether images are converted to grey or resized.
    pub(super) fn may_change_pixels(&self) -> bool {
        match self {
            #[cfg(feature = "data")]
            data::Source::Images(images) => images.pixels == data::PixelFormat::Grey || images.resize.is_some(),
            _ => false,
        }
    }

    /// Returns the names of the classes, if known.
    pub(super) fn class_names(&self) -> &[String] {
        match self {
            #[cfg(feature = "data")]
            data::Source::Csv(csv) => &csv.class_names,
            #[cfg(feature = "data")]
            data::Source::Images(images) => &images.class_names,
            _ => &[],
        }
    }

    /// Reads the examples of another file like those of this source, with their targets.
    pub(super) fn read_like(&self, file: &Path) -> Result<data::Dataset> {
        let file = file.to_path_buf();
        match self.clone() {
            data::Source::Digits => data::read_digits(&file),
            #[cfg(feature = "data")]
            data::Source::Csv(csv) => data::Csv { file, ..csv }.read(),
            #[cfg(feature = "data")]
            data::Source::Images(images) => data::Images { folder: file, ..images }.read(),
            #[cfg(feature = "data")]
            data::Source::Npy(npy) if npy.file.is_some() => data::Npy { file: Some(file), ..npy }.read(),
            data::Source::Text(text) => data::Text { file, ..text }.read(),
            _ => Err(Error::run("examples with targets are read from one file for digits, csv, images, npz and text")),
        }
    }
}

/// Returns whether a name is valid for a folder on any system.
pub(super) fn is_file_name(name: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ' | '+' | '=');
    (1..=100).contains(&name.chars().count()) && name.chars().all(plain) && !name.starts_with('.')
}
