//! A run from nothing but its file: the folder into which it is written, and its lint.

use std::path::{Path, PathBuf};

use precast::{
    error::{Error, Result},
    io::models::Model,
    storage::weights,
};
use precast_diagnose::lint::{Finding, Rule};

use super::{
    Run, RunFile,
    folder::Folder,
    indices,
    parts::Read,
    prepared::{Prepared, prepared},
    records::history_of,
    settled::settled,
};
use crate::{
    data::{Split, Targets},
    training::Fit,
};

/// Returns the best weights of the run in a folder; `None` if no epoch was done.
///
/// # Errors
/// [`ErrorKind::Run`](precast::ErrorKind::Run) when they are missing although an epoch was done.
pub(super) fn best_weights(folder: &Path) -> Result<Option<PathBuf>> {
    let best = Folder::best(folder);
    match best.is_file() {
        true => Ok(Some(best)),
        false if history_of(folder)?.epochs.is_empty() => Ok(None),
        false => {
            Err(Error::run("`best.safetensors` is missing, the best weights of the run").in_file(folder.display()))
        }
    }
}

/// The folder that contains the folders of runs.
const RUNS: &str = "runs";

impl Run {
    /// Begins the run of a file, with the model that the file names, in its [own folder](RunFile::run_folder).
    ///
    /// ```no_run
    /// use precast_train::Run;
    /// let ended = Run::load("run.yaml")?.train()?; // into runs/NAME
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`RunFile::load`], [`RunFile::read_model`] and [`Run::begin`].
    pub fn load(path: impl AsRef<Path>) -> Result<Run> {
        let file = RunFile::load(path)?;
        Run::begin(&file, file.read_model()?, file.run_folder()?)
    }
}

impl RunFile {
    /// Returns the folder of the run: `runs/NAME`, next to the run file. The name is that of the run, otherwise that of
    /// its policy, otherwise that of the policy's file.
    ///
    /// # Errors
    /// Those of reading the policy.
    pub fn run_folder(&self) -> Result<PathBuf> {
        Ok(self.folder.join(RUNS).join(self.name_of_run()?))
    }

    fn name_of_run(&self) -> Result<String> {
        if let Some(name) = &self.name {
            return Ok(name.clone());
        }
        let policy = self.read_policy()?;
        let stem = Path::new(&self.policy).file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let name = policy.name.or(stem).unwrap_or_default();
        let plain = |c: char| if c.is_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
        let name: String = name.trim_start_matches('.').chars().map(plain).take(100).collect();
        Ok(if name.is_empty() { "run".into() } else { name })
    }
}

impl RunFile {
    /// Lints the network of the run on its first batch, as [`Lint`](precast_diagnose::lint::Lint) does, without a folder. In the
    /// folder of a run, the network has the best weights so far.
    ///
    /// ```
    /// use precast_train::RunFile;
    /// let file = RunFile::parse("{version: 1, model: mlp, policy: o2-bf16, data: digits}", "run.yaml")?;
    /// for finding in file.lint(file.read_model()?)? {
    ///     println!("{finding}");
    /// }
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of reading the policy and the data, and of [`Lint::run`](precast_diagnose::lint::Lint::run).
    pub fn lint(&self, mut model: Model) -> Result<Vec<Finding>> {
        let of_run = Folder::about(&self.folder).is_ok();
        if of_run {
            Folder::check_files(&self.folder)?;
        } else {
            self.load_weights(&model.net)?;
        }
        self.freeze(&model.net)?;
        let input = model.input.as_deref();
        let Read { data, standardizations, file, .. } =
            if of_run { self.read_data_of(&self.folder, input) } else { self.read_data(input) }?;
        indices::check(&model, standardizations.encoding.as_ref()).map_err(|error| self.wrong("model", error))?;
        let (policy, _) = settled(self.read_policy()?.in_the_end(), &mut model.net, &data, self.options.batch)?;
        let Prepared { mut net, options, .. } = prepared(&file, model, &policy, &data)?;
        let best = if of_run { best_weights(&self.folder)? } else { None };
        if let Some(best) = best {
            let _ = weights::load(&net, &best)?;
        }
        let found = Fit::new(&net, &options)?.first_findings(&mut net, &data, Some(&policy))?;
        Ok(found.into_iter().map(|finding| self.advised(finding, &data)).collect())
    }

    /// Adds to the cure of a finding the key of a run file that is not set.
    pub(super) fn advised(&self, mut finding: Finding, data: &Split) -> Finding {
        let numbers = matches!(data.train.targets(), Targets::Numbers { .. });
        let key = match finding.rule {
            Rule::InputDigits if !self.standardize => "standardize",
            Rule::FarData if finding.what.starts_with("the inputs") && !self.standardize => "standardize",
            Rule::FarData if finding.what.starts_with("the targets") && !self.standardize_targets => {
                "standardize_targets"
            }
            Rule::GradOverflow if numbers && !self.standardize_targets => "standardize_targets",
            _ => return finding,
        };
        if !finding.write.is_empty() {
            finding.write += &format!("; in a run file, `{key}: true`");
        }
        finding
    }
}
