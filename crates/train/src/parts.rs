//! The model, the policy and the data that a run file names.

use std::{
    mem,
    path::{Path, PathBuf},
};

use precast::{
    Child, Param, Plan, Policy,
    error::{Error, Result},
    io::models::Model,
    storage::Decorated,
};
use precast_base::printable;

use super::{
    Memory, Partition, RunFile, Storage, Test, Weights,
    about::About,
    classes,
    data::Source,
    folder::{ABOUT, Folder, POLICY_NOW},
    split::notes_on_copies,
    standardizations::Standardizations,
};
use crate::{
    data::{Dataset, Encoding, IGNORED, Inputs, Split, Standardization, Targets, fitted::is_regrouped},
    training::{FitOptions, Loss},
};

impl RunFile {
    /// Reads the run file of a [`Run`](super::Run)'s folder.
    ///
    /// # Errors
    /// As [`RunFile::load`]; [`ErrorKind::Run`](precast::ErrorKind::Run) when the folder has none.
    pub fn of_folder(folder: impl AsRef<Path>) -> Result<Self> {
        Folder::run_file(folder.as_ref())
    }

    /// Reads the model, with weights initialized from the seed, or those of an ONNX model.
    ///
    /// # Errors
    /// As [`Model::load`], [`Model::named`] and [`OnnxSource::read`](super::OnnxSource::read).
    pub fn read_model(&self) -> Result<Model> {
        let (word, seed) = (self.model.to_string(), self.options.seed);
        let file = self.folder.join(&word);
        match self.model.onnx() {
            Some(onnx) => onnx.read_for_run(&self.folder).map_err(|error| self.wrong("model", error)),
            None if file.is_file() || is_path(&word) => {
                Model::load(file, seed).map_err(|error| self.not_there("model", error))
            }
            None => Model::named(&word, seed).map_err(|error| {
                let beside = ["yaml", "yml", "onnx"].map(|end| format!("{word}.{end}"));
                let beside = beside.into_iter().find(|name| self.folder.join(name).is_file());
                self.wrong(
                    "model",
                    beside.iter().fold(error, |error, name| error.ending(format!("; the file is `{name}`"))),
                )
            }),
        }
    }

    /// Reads the policy, and checks that it allows the storage of the parameters: everything that needs neither model
    /// nor data.
    ///
    /// # Errors
    /// Those of reading the policy; [`ErrorKind::Policy`](precast::ErrorKind::Policy) for a storage that it does not
    /// allow.
    pub fn check_policy(&self) -> Result<Policy> {
        let policy = self.read_policy()?;
        self.storage.dtype(&policy)?;
        Ok(policy)
    }

    /// Loads the weights from which the run starts, if it names some.
    pub(crate) fn load_weights(&self, net: &Child) -> Result<()> {
        let Some(weights) = &self.weights else { return Ok(()) };
        weights.load(net, &self.folder).map_err(|error| self.wrong("weights", error.context("`weights`")))
    }

    /// Freezes what the file names, and refuses to freeze everything.
    pub(crate) fn freeze(&self, net: &Child) -> Result<()> {
        let wrong = |error: Error, pattern: &str| self.wrong("freeze", error.context("`freeze`").about(pattern));
        for pattern in &self.freeze {
            let frozen = net.freeze(pattern).map_err(|error| wrong(error, pattern))?;
            if frozen == 0 {
                let words = format!("what `{pattern}` matches has no parameters");
                return Err(wrong(Error::run(words), pattern));
            }
        }
        match self.freeze.last() {
            Some(last) if net.params().is_empty() => {
                Err(wrong(Error::run("every parameter is frozen, so there is nothing to train"), last))
            }
            _ => Ok(()),
        }
    }

    /// Returns the weights to start from with an absolute path.
    pub(crate) fn absolute_weights(&self) -> Result<Option<Weights>> {
        let absolute =
            |weights: &Weights| Ok(Weights { file: absolute(&self.folder.join(&weights.file))?, ..weights.clone() });
        self.weights.as_ref().map(absolute).transpose()
    }

    /// Refuses an ONNX model of low weights for a run that stores them in f32: its updates would be rounded away.
    pub(crate) fn check_weights(&self, model: &Model) -> Result<()> {
        let low = |param: &Param| param.dtype().is_low() && param.is_trained();
        let params = model.net.named_params();
        let Some((name, param)) = params.iter().find(|(_, param)| low(param)) else { return Ok(()) };
        if self.model.onnx().is_none() || self.storage != Storage::Float32 {
            return Ok(());
        }
        let words = format!(
            "weights of the model are in {}, among them `{}`, which would round small updates away; import the float32 \
             model, and lower it by a policy",
            param.dtype().long_name(),
            printable(name)
        );
        Err(self.wrong("model", Error::run(words)))
    }

    /// Stores the parameters of a network as the file says, and wraps the network by the policy.
    pub(crate) fn wrap(&self, net: &mut Child, policy: &Policy) -> Result<(Plan, Option<Decorated>)> {
        let plan = policy.plan(net)?;
        let storage = self.storage.put(net, policy, self.options.seed)?;
        let _ = plan.apply(net)?;
        Ok((plan, storage))
    }

    /// Computes the checksum of everything that determines the run except its data, which has a checksum of its own.
    pub(crate) fn fingerprint(&self) -> Result<u32> {
        self.checksum_with(Source::Digits)
    }

    /// Computes the checksum of the settings that a run keeps to its end, also those found in its data, without paths.
    pub(crate) fn settings(&self) -> Result<u32> {
        let mut file = self.clone();
        let FitOptions { epochs, lr, .. } = FitOptions::default();
        (file.options.epochs, file.options.lr) = (epochs, lr);
        file.checksum_with(self.data.without_files())
    }

    fn checksum_with(&self, data: Source) -> Result<u32> {
        let weights = self.weights.clone().map(|weights| Weights { file: PathBuf::new(), ..weights });
        let text = RunFile {
            data,
            test: Test::Share(0.5),
            validation: None,
            partition: Partition::default(),
            memory: Memory::default(),
            shard_optimizer: false,
            weights,
            model: self.model.without_file(),
            policy: String::new(),
            ..self.clone()
        }
        .to_yaml()?;
        Ok(crc32fast::hash(text.as_bytes()))
    }

    /// Reads the policy.
    ///
    /// # Errors
    /// As [`Policy::load`] and [`Policy::named`].
    pub fn read_policy(&self) -> Result<Policy> {
        let file = self.folder.join(&self.policy);
        match file.is_file() || is_path(&self.policy) {
            true => Policy::load(file).map_err(|error| self.not_there("policy", error)),
            false => Policy::named(&self.policy).map_err(|error| self.wrong("policy", error)),
        }
    }

    /// Returns the run with the policy of the last step: without the rules that have
    /// [ended](precast::policy::Rule::until), and with those for [raised](crate::training::Raised) cells. Outside of the
    /// folder of a run, it is unchanged.
    ///
    /// # Errors
    /// [`ErrorKind::Run`](precast::ErrorKind::Run) when a file of the run's network was changed since the run began.
    pub fn as_now(mut self) -> Result<Self> {
        if self.folder.join(ABOUT).is_file() {
            Folder::check_network(&self.folder, &self)?;
        }
        if self.folder.join(POLICY_NOW).is_file() {
            self.policy = POLICY_NOW.into();
        }
        Ok(self)
    }

    /// Returns the file of the policy, or its name.
    pub fn policy_path(&self) -> PathBuf {
        let file = self.folder.join(&self.policy);
        if file.is_file() || is_path(&self.policy) { file } else { PathBuf::from(&self.policy) }
    }

    /// Reads the data as [`read_data`](RunFile::read_data) does, and rejects data that changed since the run in a folder
    /// began.
    pub(crate) fn read_data_of(&self, run: &Path, input: Option<&[usize]>) -> Result<Read> {
        let read = self.read_data(input)?;
        Folder::check_data(run, &read.about(self)?)?;
        Ok(read)
    }

    /// Reads the data for a model whose examples have the shape `input`.
    pub(crate) fn read_data(&self, input: Option<&[usize]>) -> Result<Read> {
        self.prepare(self.read_all()?, input)
    }

    /// Reads all examples, as they are in the data.
    fn read_all(&self) -> Result<Dataset> {
        let read = self.read_by(&self.data, |source| source.read_within(&self.folder, self.memory.0));
        read.map_err(|error| self.not_there("data", error))
    }

    /// Reads the examples of another file like those of a source of this run, with their targets.
    pub(crate) fn read_like(&self, source: &Source, file: &Path) -> Result<Dataset> {
        self.read_by(source, |source| source.read_like(file, self.memory.0))
    }

    /// Reads a source. A class of a CSV that the loss ignores by its name is removed.
    fn read_by(&self, source: &Source, read: impl FnOnce(&Source) -> Result<Dataset>) -> Result<Dataset> {
        let (Some(ignored), Source::Csv(csv)) = (self.ignored(), source) else { return read(source) };
        let (name, mut csv) = (ignored.to_string(), csv.clone());
        if !csv.class_names.is_empty() && !csv.class_names.contains(&name) && is_name(ignored, &csv.class_names) {
            csv.class_names.push(name.clone());
        }
        Ok(read(&Source::Csv(csv))?.without_class(&name))
    }

    /// Returns the class that the loss ignores.
    fn ignored(&self) -> Option<i64> {
        match self.options.loss {
            Some(Loss::CrossEntropy { ignore_index, .. }) => ignore_index,
            _ => None,
        }
    }

    /// Returns the source with the settings found in its examples. A class that was removed is the last of the class names
    /// where they would not show that the loss ignores a name.
    fn found(&self, all: &Dataset) -> Source {
        let mut found = self.data.found(all);
        if let (Some(ignored), Source::Csv(csv)) = (self.ignored(), &mut found)
            && !is_name(ignored, &csv.class_names)
            && (all.labels().contains(&IGNORED) || self.data.class_names().contains(&ignored.to_string()))
        {
            csv.class_names.push(ignored.to_string());
        }
        found
    }

    /// Returns the loss of examples as read by a run with these settings: a class of a CSV that it ignores by its name has
    /// no index.
    pub fn loss(&self) -> Option<Loss> {
        let mut loss = self.options.loss.clone();
        if let (Source::Csv(csv), Some(Loss::CrossEntropy { ignore_index, .. })) = (&self.data, &mut loss)
            && ignore_index.is_some_and(|ignored| is_name(ignored, &csv.class_names))
        {
            *ignore_index = None;
        }
        loss
    }

    /// Returns the names of the classes, in the order of their indices; empty if they have none.
    pub(crate) fn class_names(&self) -> &[String] {
        let names = self.data.class_names();
        match (names.split_last(), self.ignored(), &self.data) {
            (Some((last, others)), Some(ignored), Source::Csv(_)) if *last == ignored.to_string() => others,
            _ => names,
        }
    }

    /// Returns a note on a class that the loss ignores and that no example has.
    fn note_on_ignored(&self, parts: &[&Dataset]) -> Option<String> {
        let ignored = self.ignored()?;
        let is_removed = self.loss() != self.options.loss;
        let has =
            |data: &&Dataset| data.labels().iter().any(|label| *label == IGNORED || !is_removed && *label == ignored);
        (!parts.iter().any(has)).then(|| format!("`ignore_index: {ignored}`: no example has this class"))
    }

    /// Reads all examples of the run in a folder, as they are in the data, and rejects data that has changed.
    pub(crate) fn read_all_of(&self, run: &Path, input: Option<&[usize]>) -> Result<Dataset> {
        let all = self.read_all()?;
        let read = self.prepare(all.clone(), input)?;
        Folder::check_data(run, &read.about(self)?)?;
        Ok(all)
    }

    /// Splits and standardizes examples for a model whose examples have the shape `input`.
    fn prepare(&self, all: Dataset, input: Option<&[usize]>) -> Result<Read> {
        let shape = all.shape().to_vec();
        let notes_of = |data: &Dataset| data.notes_unless(self.standardize, self.standardize_targets);
        let mut notes = notes_of(&all);
        self.check_domain("data", &all)?;
        let base = match &self.data {
            Source::Digits | Source::Addition(_) => self.folder.clone(),
            _ => absolute(&self.folder)?,
        };
        let data = self.found(&all).starting_from(&base);
        let mut file = RunFile { data, ..self.clone() };
        let places = self.places(&all)?;
        notes.extend(self.notes_on_overlaps(&places));
        notes.extend(self.notes_on_groups(&places)?);
        if let (Test::File(test), Some(Test::File(validation))) = (&file.test, &file.validation)
            && test == validation
        {
            let words =
                "`test` and `validation` are one file, so the examples that choose the weights are those of the test";
            notes.push(words.into());
        }
        let mut of_file = |key: &str, path: &mut PathBuf, source: &Source| -> Result<Dataset> {
            *path = absolute(&self.folder.join(&*path))?;
            let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
            if source.file().is_some_and(|data| real(data) == real(path)) {
                let words = format!("`{key}` is the file of `data`, whose examples the network is trained with");
                return Err(self.wrong(key, Error::run(words)));
            }
            let not_there = |error: Error| self.not_there(key, error.context(format_args!("`{key}`")));
            let read = self.read_like(source, path).map_err(not_there)?;
            self.check_domain(key, &read)?;
            notes.extend(notes_of(&read));
            Ok(read)
        };
        let test = match &mut file.test {
            Test::File(path) => of_file("test", path, &file.data)?,
            _ => all.select(&places.test)?,
        };
        let validation = match &mut file.validation {
            None => None,
            Some(Test::File(path)) => Some(of_file("validation", path, &file.data)?),
            Some(_) => Some(all.select(&places.validation)?),
        };
        let train = match places.train.len() == all.len() {
            true => all,
            false => {
                let train = all.select(&places.train)?;
                // Its targets and, of examples in memory, its inputs are those of the parts.
                drop((all, places));
                train
            }
        };
        if matches!(train.targets(), Targets::None) {
            let cure = match &self.data {
                Source::Npy(_) => "`targets` names the array that has them",
                _ => "`target` names the column that has them",
            };
            let words = format!("the data has no targets, so nothing can be learnt of it; {cure}");
            return Err(self.wrong("data", Error::data(words)));
        }
        let parts = [("`test`", Some(&test)), ("`validation`", validation.as_ref())];
        let loss = file.loss();
        notes.extend(
            parts.iter().filter_map(|(key, part)| classes::never_trained(&train, loss.as_ref(), key, (*part)?)),
        );
        notes.extend(file.note_on_ignored(&[&[&train, &test][..], &validation.iter().collect::<Vec<_>>()].concat()));
        if matches!(self.data, Source::Npy(_)) {
            notes.extend(classes::left_out(&train, loss.as_ref()));
        }
        // The tokens of a text are not names.
        if matches!(self.data, Source::Csv(_) | Source::Images(_)) {
            notes.extend(classes::alike("classes", train.class_names()));
        }
        let encoding = match train.form() {
            Inputs::Table(_) => Some(Encoding::of(&train).map_err(|error| self.wrong("data", error))?),
            _ => None,
        };
        if self.standardize && encoding.as_ref().is_some_and(Encoding::is_of_indices) {
            let words =
                "`standardize` is for numbers, and all inputs are `indices`, which an embedding takes as they are";
            return Err(self.wrong("data", Error::data(words).about("indices")));
        }
        if let Some(encoding) = &encoding {
            let of = |key: &str, part: &Dataset| {
                encoding.notes_on(part).into_iter().map(|note| format!("{key}: {note}")).collect::<Vec<_>>()
            };
            notes.extend(of("`test`", &test));
            notes.extend(validation.iter().flat_map(|part| of("`validation`", part)));
        }
        let encoded = Standardizations { encoding, ..Standardizations::default() };
        let examples = train.len() + test.len() + validation.as_ref().map_or(0, Dataset::len);
        let memory = if encoded.fits(examples, self.memory.0) { u64::MAX } else { 0 };
        let train = encoded.encoded(train, memory)?;
        let standardizations = Standardizations {
            inputs: match self.standardize {
                true => Some(Standardization::of(&train).map_err(|e| e.context("`standardize`"))?),
                false => None,
            },
            targets: match self.standardize_targets {
                true => Some(Standardization::of_targets(&train).map_err(|e| e.context("`standardize_targets`"))?),
                false => None,
            },
            ..encoded
        };
        // Before all are brought to the shape of the model.
        for (key, part) in [("test", Some(&test)), ("validation", validation.as_ref())] {
            part.map_or(Ok(()), |part| self.check_shape(key, part, &shape))?;
        }
        let fitted = |data: Dataset| standardizations.inputs_of(data, input, memory);
        let targets = standardizations.targets.as_ref().map(|_| train.targets().clone());
        let train = match &standardizations.targets {
            Some(by) => train.targets_standardized(by)?,
            None => train,
        };
        let (train, test) = (fitted(train)?, fitted(test)?);
        if let (&[_, h, w], [.., height, width]) = (&shape[..], train.shape())
            && !is_regrouped(&shape, train.shape())
        {
            notes.push(format!("images of {h} x {w} pixels are resized to {height} x {width}, which the model takes"));
        }
        let (data, held_out) = match validation {
            Some(validation) => {
                self.check_alike("test", &train, &test)?;
                let validation = fitted(validation)?;
                self.check_alike("validation", &train, &validation)?;
                (Split { train, test: validation }, Some(test))
            }
            None => (Split { train, test }, None),
        };
        let parts = match &held_out {
            Some(test) => vec![("`validation`", &data.test), ("`test`", test)],
            None => vec![("`test`", &data.test)],
        };
        let targets = targets.as_ref().unwrap_or(data.train.targets());
        notes.extend(notes_on_copies(&data.train, targets, &parts, self.data.stride())?);
        Ok(Read { data, held_out, shape, file, standardizations, notes })
    }
}

impl RunFile {
    /// Rejects targets that the loss is not defined for, by their row and column.
    pub(super) fn check_domain(&self, key: &str, data: &Dataset) -> Result<()> {
        let loss = self.loss().unwrap_or_else(|| Loss::usual(data.targets()));
        let outside = loss.outside(data.targets()).filter(|_| !self.standardize_targets);
        let Some(([example, place], words)) = outside else { return Ok(()) };
        let (row, column) = (example + 1, self.data.target(place));
        Err(self.wrong("loss", Error::data(format!("`{key}`: {column} of row {row} is {words}"))))
    }

    /// Rejects a part whose examples have another shape.
    fn check_shape(&self, key: &str, part: &Dataset, expected: &[usize]) -> Result<()> {
        let met = part.shape();
        if met == expected || part.is_empty() {
            return Ok(());
        }
        let words =
            format!("`{key}` has examples of shape {met:?}; expected {expected:?}, that of the training examples");
        Err(self.wrong(key, Error::data(words)))
    }

    /// Rejects examples that the network cannot be called with as with those for training, before the run begins.
    fn check_alike(&self, key: &str, train: &Dataset, part: &Dataset) -> Result<()> {
        if part.is_empty() {
            return Err(self.wrong(key, Error::data(format!("`{key}` has no examples"))));
        }
        self.check_shape(key, part, train.shape())?;
        if mem::discriminant(part.targets()) != mem::discriminant(train.targets()) {
            let words = format!("`{key}` has targets of another kind than the training examples");
            return Err(self.wrong(key, Error::data(words)));
        }
        Ok(())
    }
}

/// The data of a run.
pub(crate) struct Read {
    /// Examples as the model takes them: those for training, and those scored after each epoch. Only the training targets
    /// are standardized.
    pub data: Split,
    /// Test examples that are scored at the end, if others are scored after each epoch.
    pub held_out: Option<Dataset>,
    /// Shape of one example as read.
    pub shape: Vec<usize>,
    /// Run file with absolute paths and all settings found in the data.
    pub file: RunFile,
    pub standardizations: Standardizations,
    /// Human-readable notes about the reading.
    pub notes: Vec<String>,
}

impl Read {
    /// Returns the provenance of the run of a file with this data.
    ///
    /// # Errors
    /// Those of reading examples that are not in memory.
    pub fn about(&self, file: &RunFile) -> Result<About> {
        About::of(file, &self.data, self.held_out.as_ref(), &self.shape)
    }
}

/// Returns whether the class of a CSV that a loss ignores is meant by its name: it is one of the class names, they are whole
/// numbers like it, or no class has this index.
fn is_name(ignored: i64, class_names: &[String]) -> bool {
    let is_index = usize::try_from(ignored).is_ok_and(|index| index < class_names.len());
    let is_number = |name: &String| name.parse::<i64>().is_ok();
    !is_index || class_names.iter().all(is_number) || class_names.contains(&ignored.to_string())
}

/// Returns whether a word can only be a file, not the name of a built-in.
fn is_path(word: &str) -> bool {
    word.contains(['/', '\\']) || word.ends_with(".yaml") || word.ends_with(".yml")
}

/// Makes a path absolute.
fn absolute(path: &Path) -> Result<std::path::PathBuf> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let path = std::path::absolute(path).map_err(|e| Error::io(path, &e))?;
    match path.to_str() {
        Some(_) => Ok(path),
        None => Err(Error::run("the path is not UTF-8, in which run files are written").in_file(path.display())),
    }
}
