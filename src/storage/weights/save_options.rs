//! Writing the weights of a network in the form of the file from which they were loaded.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use precast_base::names::did_you_mean;
use precast_tensor::{Beyond, internals::TensorInternals as _};

use super::{
    File, Loaded, Named, by_param,
    file::Stored,
    loaded::{Form, Placed},
    read,
};
use crate::{
    Child, Param, Tensor,
    cell::{AsCell, Pattern},
    error::{Error, Result},
    printable::printable,
};

/// Options of [`save_with`] for the names, layouts and dtypes of another program.
///
/// ```
/// use precast::{storage::weights::{self, LoadOptions, SaveOptions}, prelude::*};
/// # let folder = std::env::temp_dir();
/// # let file = folder.join(format!("precast-doc-like-{}.safetensors", std::process::id()));
/// # let tuned = folder.join(format!("precast-doc-tuned-{}.safetensors", std::process::id()));
/// let kernel = Tensor::from_vec(vec![1f32, 2., 3., 4., 5., 6.], &[2, 3])?.cast(DType::F16);
/// weights::write(&file, [("encoder.dense.kernel", &kernel)])?;
///
/// let net = Child::of(sequential![Dense::new(2, 3, &mut Rng::seed(1)), ReLU]);
/// let options = LoadOptions::new().rename("encoder.dense.kernel", "0.weight").transpose("0.weight").cast(true);
/// let loaded = weights::load_with(&net, &file, &options.partial("0.bias"))?;
/// // .. training ..
/// weights::save_with(&net, &tuned, &SaveOptions::like(&loaded).without("0.bias"))?;
/// assert_eq!(std::fs::read(&tuned).unwrap(), std::fs::read(&file).unwrap());
/// # std::fs::remove_file(file).unwrap();
/// # std::fs::remove_file(tuned).unwrap();
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[doc(alias = "save_pretrained")]
pub struct SaveOptions {
    form: Form,
    transposed: HashSet<String>,
    ignored: Vec<String>,
    ignored_of: Option<PathBuf>,
    /// Patterns of paths, with those of their names in the file.
    own: Vec<(String, String)>,
    without: Vec<String>,
}

impl SaveOptions {
    /// Creates options that undo a load: tensors have the names, the layouts and the dtypes of the file. Renames,
    /// splits and transposes are inverted; a number that was widened is rounded once. Ignored tensors are left out,
    /// unless [`ignored_of`](SaveOptions::ignored_of) names their file.
    ///
    /// For weights in several files, load each with [`LoadOptions::partial`](super::LoadOptions::partial) and save each
    /// by its own report, [without](SaveOptions::without) the parameters of the others.
    pub fn like(loaded: &Loaded) -> Self {
        SaveOptions {
            form: loaded.form.clone(),
            transposed: loaded.transposed.iter().cloned().collect(),
            ignored: loaded.ignored.clone(),
            ..SaveOptions::default()
        }
    }

    /// Also writes the tensors that were ignored, as they are in this file: the one that was loaded.
    #[must_use]
    pub fn ignored_of(mut self, file: impl Into<PathBuf>) -> Self {
        self.ignored_of = Some(file.into());
        self
    }

    /// Writes parameters that came from no tensor of the file, such as a new head, under their own paths.
    #[must_use]
    pub fn own(self, paths: impl Into<String>) -> Self {
        let paths = paths.into();
        self.own_as(paths.clone(), paths)
    }

    /// Writes parameters that came from no tensor of the file under other names: `own_as("head.*", "model.fc.*")`. Text
    /// that a wildcard matches in the first replaces it in the second.
    #[must_use]
    pub fn own_as(mut self, paths: impl Into<String>, names: impl Into<String>) -> Self {
        self.own.push((paths.into(), names.into()));
        self
    }

    /// Leaves out parameters that came from no tensor of the file.
    #[must_use]
    pub fn without(mut self, paths: impl Into<String>) -> Self {
        self.without.push(paths.into());
        self
    }
}

/// Patterns of an option with those of names in the file, each with a flag for whether it has matched.
struct Patterns(Vec<(Pattern, Pattern, bool)>);

impl Patterns {
    fn read<'a>(option: &str, texts: impl Iterator<Item = (&'a String, &'a String)>) -> Result<Self> {
        let read = |(paths, names): (&String, &String)| -> Result<_> {
            let (paths, names): (Pattern, Pattern) = (paths.parse()?, names.parse()?);
            match names.has_wildcards_of(&paths) {
                true => Ok((paths, names, false)),
                false => Err(Error::weights(format!(
                    "`{names}` has other wildcards than `{paths}`; allowed: the same in the same order"
                ))),
            }
        };
        texts.map(|texts| read(texts).map_err(|e| e.context(option))).collect::<Result<_>>().map(Patterns)
    }

    /// Returns the name in the file that the first matching pattern gives a parameter with these paths.
    fn name(&mut self, paths: &[String]) -> Option<String> {
        let mut name = None;
        for (pattern, names, used) in &mut self.0 {
            if let Some(captures) = paths.iter().find_map(|path| pattern.captures(path)) {
                *used = true;
                name = name.or_else(|| Some(names.filled(&captures)));
            }
        }
        name
    }

    /// Returns an error for each pattern that matched nothing.
    fn unused(&self, name: &str, paths: &[&str]) -> Vec<String> {
        let unused = self.0.iter().filter(|(.., used)| !used);
        let words = |(pattern, ..): &(Pattern, Pattern, bool)| {
            let pattern = pattern.to_string();
            let near = did_you_mean(&pattern, paths.iter().copied());
            format!("{name}: `{pattern}` matches no parameter that came from no tensor of the file{near}")
        };
        unused.map(words).collect()
    }
}

/// Writes the parameters and buffers of a network by the given options. A parameter with an f32
/// [master](crate::Param::master) is written as the master. An existing file is replaced atomically.
///
/// # Errors
/// [`ErrorKind::Weights`](crate::ErrorKind::Weights), listing every difference between options and network: a path that
/// the network lacks, a shape other than in the file, a parameter that came from no tensor of the file and is covered
/// by no option, a number that the dtype in the file cannot hold, and a pattern that matches nothing.
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when a file cannot be read or written; an existing file is then unchanged.
pub fn save_with<C: ?Sized + AsCell>(net: &Child<C>, path: impl AsRef<Path>, options: &SaveOptions) -> Result<()> {
    let named = by_param(net);
    let places: HashMap<&str, usize> = named
        .iter()
        .enumerate()
        .flat_map(|(place, named)| named.paths.iter().map(move |path| (path.as_str(), place)))
        .collect();
    let (mut used, mut tensors, mut wrong) = (HashSet::<&usize>::new(), Vec::new(), Vec::new());
    for placed in &options.form.tensors {
        match whole(placed, &named, &places, &options.transposed) {
            Ok(tensor) => tensors.push((placed.name.clone(), tensor)),
            Err(error) => wrong.push(format!("`{}` {error}", printable(&placed.name))),
        }
        used.extend(placed.paths.iter().filter_map(|path| places.get(path.as_str())));
    }
    let mut own = Patterns::read("own", options.own.iter().map(|(paths, names)| (paths, names)))?;
    let mut without = Patterns::read("without", options.without.iter().map(|paths| (paths, paths)))?;
    let (mut left, mut others) = (Vec::new(), Vec::new());
    for (_, Named { paths, param }) in named.iter().enumerate().filter(|(place, _)| !used.contains(place)) {
        left.push(paths[0].as_str());
        match (own.name(paths), without.name(paths)) {
            (Some(name), _) => tensors.push((name, param.full())),
            (None, Some(_)) => {}
            (None, None) => others.push(format!("`{}`", printable(&paths[0]))),
        }
    }
    wrong.extend(own.unused("own", &left));
    wrong.extend(without.unused("without", &left));
    if !others.is_empty() {
        wrong.push(format!(
            "{} came from no tensor of the file; `own` writes parameters under their own paths, `own_as` \
             under other names, `without` leaves them out",
            others.join(", ")
        ));
    }
    match &wrong[..] {
        [] => {}
        [one] => return Err(Error::weights(one.clone())),
        all => return Err(Error::weights(format!("{} differences:\n- {}", all.len(), all.join("\n- ")))),
    }
    if let Some(file) = &options.ignored_of {
        let mut rest = read(file)?;
        for name in &options.ignored {
            let tensor = rest.remove(name).ok_or_else(|| {
                let words = format!("the ignored tensor `{}` is not in it", printable(name));
                Error::weights(words).in_file(file.display())
            })?;
            tensors.push((name.clone(), tensor));
        }
    }
    let names: HashSet<&str> = tensors.iter().map(|(name, _)| name.as_str()).collect();
    let kept = |(alias, name): &(&String, &String)| names.contains(name.as_str()) && !names.contains(alias.as_str());
    let tied = options.form.tied.iter().filter(kept).map(|(alias, name)| (alias.clone(), name.clone())).collect();
    File { tied, words: None }.write(path.as_ref(), &tensors)
}

/// Returns a tensor as it is in the file, from the parameters that have its numbers.
fn whole(
    placed: &Placed,
    named: &[Named],
    places: &HashMap<&str, usize>,
    transposed: &HashSet<String>,
) -> Result<Tensor> {
    let part = |path: &String| -> Result<Stored<'static>> {
        let Some(&place) = places.get(path.as_str()) else {
            let near = did_you_mean(path, places.keys().copied());
            return Err(Error::weights(format!(
                "was loaded into `{}`, which is not in the network{near}",
                printable(path)
            )));
        };
        let Named { paths, param } = &named[place];
        let stored = Stored::of(&in_dtype(param, placed, path)?);
        if transposed.contains(&paths[0]) { stored.transposed() } else { Ok(stored) }
    };
    let parts = placed.paths.iter().map(part).collect::<Result<Vec<_>>>()?;
    let whole = if let [one] = &parts[..] { one.clone() } else { Stored::joined(&parts, placed.axis)? };
    if whole.shape != placed.shape {
        return Err(Error::weights(format!(
            "would have the shape {:?}; in the file it had {:?}",
            whole.shape, placed.shape
        )));
    }
    whole.tensor()
}

/// Returns the value of a parameter in the dtype of the file.
fn in_dtype(param: &Param, placed: &Placed, path: &str) -> Result<Tensor> {
    let full = param.full();
    match placed.dtype {
        Some(dtype) if dtype != full.dtype() => match Beyond::check(full.array(), dtype) {
            // Writing is not a cast, so listeners are not notified.
            Ok(()) => Ok(Tensor::from_array(full.array().cast(dtype))),
            Err(Beyond { largest, .. }) => Err(Error::weights(format!(
                "is {} in the file, and `{}` has {largest:e}, which that cannot hold",
                dtype.long_name(),
                printable(path)
            ))),
        },
        _ => Ok(full),
    }
}
