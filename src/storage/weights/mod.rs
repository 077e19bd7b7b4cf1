//! Weight files: parameters and buffers by path, in the safetensors format.
//!
//! A parameter is stored under its path, in its own dtype. A parameter with an f32 [master](Param::master) is stored as
//! the master, so that a run resumed from the file continues exactly. [`decorate`](crate::storage::decorate) may
//! request another dtype; the parameter is then rounded to it, once. A parameter under several paths (tied weights) is
//! stored once, under the first path; the metadata entry `tied` is a JSON map of each other path to the first. Loading
//! accepts any of its paths. Adapters change neither paths nor values, so applying a policy does not change the file.
//!
//! [`load`] requires file and network to agree in every name, shape and dtype. [`load_with`] takes [`LoadOptions`] for
//! files written by other programs; [`save_with`] takes [`SaveOptions`] and writes such a file.

mod file;
mod fit;
mod loaded;
mod options;
mod save_options;

use precast_tensor::internals::ParamInternals as _;
use std::{borrow::Borrow, collections::BTreeMap, path::Path};

pub(crate) use file::{CHECKSUM, FORMAT, File, MAX_HEADER_BYTES, OF_RUN, dtype_in_file, each_part, with_length};
pub use file::{bytes_of, check_is_safetensors};
pub use loaded::Loaded;
pub use options::LoadOptions;
pub use save_options::{SaveOptions, save_with};

use crate::{
    Child, Param, Tensor,
    cell::AsCell,
    error::{Error, Result},
    io::files,
    printable::printable,
};

/// Writes every parameter and buffer of a network. An existing file is replaced atomically.
///
/// # Errors
/// [`ErrorKind::Weights`](crate::ErrorKind::Weights) when two parameters have the same path,
/// [`ErrorKind::Value`](crate::ErrorKind::Value) when a finite number would become infinite in the dtype requested by
/// [`Decorate::save_dtype`](crate::storage::Decorate::save_dtype), [`ErrorKind::Io`](crate::ErrorKind::Io) when the
/// file cannot be written; an existing file is then unchanged.
///
/// ```
/// use precast::{prelude::*, storage::weights};
/// let file = std::env::temp_dir().join(format!("precast-doc-{}.safetensors", std::process::id()));
/// let (a, b) = (Child::new(Dense::new(2, 3, &mut Rng::seed(1))), Child::new(Dense::new(2, 3, &mut Rng::seed(2))));
/// weights::save(&a, &file)?;
/// weights::load(&b, &file)?;
/// assert_eq!(a.cell().weight.value().to_f64(), b.cell().weight.value().to_f64());
/// # std::fs::remove_file(file).unwrap();
/// # Ok::<(), precast::Error>(())
/// ```
#[doc(alias = "state_dict")]
pub fn save<C: ?Sized + AsCell>(net: &Child<C>, path: impl AsRef<Path>) -> Result<()> {
    save_with_words(net, path.as_ref(), None)
}

/// Saves a network as [`save`] does, for a training run: the file has a checksum.
///
/// # Errors
/// Those of [`save`].
pub fn save_of_run(net: &Child, path: &Path) -> Result<()> {
    save_with_words(net, path, Some((OF_RUN, "weights".into())))
}

/// Rejects damaged weights written by [`save_of_run`].
///
/// # Errors
/// [`ErrorKind::Weights`](crate::ErrorKind::Weights) for a file that is damaged or not one of these.
pub fn check_of_run(path: &Path) -> Result<()> {
    read_with_words(path, OF_RUN).map(drop)
}

fn save_with_words<C: ?Sized + AsCell>(
    net: &Child<C>,
    path: &Path,
    words: Option<(&'static str, String)>,
) -> Result<()> {
    let mut tied = BTreeMap::new();
    let mut tensors = Vec::new();
    for Named { paths, param } in by_param(net) {
        let mut paths = paths.into_iter();
        let Some(first) = paths.next() else { continue };
        tied.extend(paths.map(|path| (path, first.clone())));
        let value = param.to_save().map_err(|beyond| {
            let words = format!("`{}` {beyond}, in which it is to be saved; {}", printable(&first), beyond.way_out());
            Error::value(words)
        })?;
        tensors.push((first, value));
    }
    File { tied, words }.write(path, &tensors)
}

/// Writes named tensors. An existing file is replaced atomically.
///
/// # Errors
/// [`ErrorKind::Weights`](crate::ErrorKind::Weights) when two tensors have the same name,
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when the file cannot be written; an existing file is then unchanged.
///
/// ```
/// use precast::{prelude::*, storage::weights};
/// let file = std::env::temp_dir().join(format!("precast-doc-write-{}.safetensors", std::process::id()));
/// let (x, y) = (Tensor::ones(&[2, 3], DType::F16), Tensor::zeros(&[4], DType::I64));
/// weights::write(&file, [("x", &x), ("y", &y)])?;
/// let read = weights::read(&file)?;
/// assert_eq!(read.keys().collect::<Vec<_>>(), ["x", "y"]);
/// assert_eq!((read["x"].shape(), read["x"].dtype()), (&[2, 3][..], DType::F16));
/// # std::fs::remove_file(file).unwrap();
/// # Ok::<(), precast::Error>(())
/// ```
pub fn write<N: Into<String>, T: Borrow<Tensor>>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (N, T)>,
) -> Result<()> {
    let tensors: Vec<_> = tensors.into_iter().map(|(name, tensor)| (name.into(), tensor)).collect();
    File::default().write(path.as_ref(), &tensors)
}

/// Reads the tensors of any safetensors file, by name. Tied weights appear once, under their stored name.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when the file cannot be read, [`ErrorKind::Weights`](crate::ErrorKind::Weights)
/// when it is damaged or has a tensor of a dtype other than float64, float32, float16, bfloat16, int64 and bool.
pub fn read(path: impl AsRef<Path>) -> Result<BTreeMap<String, Tensor>> {
    read_with_words(path.as_ref(), "").map(|(tensors, _)| tensors)
}

/// Reads tensors as [`read`] does, with the text of a metadata entry, if the file has it.
///
/// # Errors
/// As [`read`], and when the checksum of a file with such an entry does not match.
pub(crate) fn read_with_words(path: &Path, entry: &str) -> Result<(BTreeMap<String, Tensor>, Option<String>)> {
    let bytes = files::read(path)?;
    let read = tensors_with_words(&bytes, entry).map_err(|e| e.in_file(path.display()))?;
    tracing::info!(target: "precast", file = %path.display(), bytes = bytes.len(), "weights read");
    Ok(read)
}

/// Returns the tensors and the metadata entry of the bytes of a file, as [`read_with_words`] does.
pub(crate) fn tensors_with_words(bytes: &[u8], entry: &str) -> Result<(BTreeMap<String, Tensor>, Option<String>)> {
    let (stored, _) = file::Stored::all(bytes)?;
    let words = file::words(bytes, entry, &stored)?;
    let tensor = |(name, stored): (String, file::Stored<'_>)| match stored.tensor() {
        Ok(tensor) => Ok((name, tensor)),
        Err(error) => Err(error.context(format_args!("`{name}`"))),
    };
    Ok((stored.into_iter().map(tensor).collect::<Result<_>>()?, words))
}

/// Reads every parameter and buffer of a network. Names, shapes and dtypes must match.
///
/// # Errors
/// As [`load_with`].
#[doc(alias = "load_state_dict")]
pub fn load<C: ?Sized + AsCell>(net: &Child<C>, path: impl AsRef<Path>) -> Result<Loaded> {
    load_with(net, path, &LoadOptions::new())
}

/// Reads every parameter and buffer of a network by the given options, and returns a report.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when the file cannot be read.
/// [`ErrorKind::Weights`](crate::ErrorKind::Weights), naming the file, when it is not a valid safetensors file, or
/// listing every difference between file, options and network, each with its name: a missing parameter, a tensor
/// unknown to the network, a shape, a dtype that may not be cast, a finite number that would become infinite in the
/// dtype of its parameter, and a pattern of the options that matches nothing. On any error the network is unchanged.
#[doc(alias = "from_pretrained")]
pub fn load_with<C: ?Sized + AsCell>(net: &Child<C>, path: impl AsRef<Path>, options: &LoadOptions) -> Result<Loaded> {
    let path = path.as_ref();
    let bytes = files::read(path)?;
    let loaded = load_bytes(net, &bytes, options).map_err(|e| e.in_file(path.display()))?;
    tracing::info!(target: "precast", file = %path.display(), bytes = bytes.len(), "weights read");
    Ok(loaded)
}

/// Loads weights as [`load_with`] does, from the bytes of a file.
///
/// # Errors
/// As [`load_with`], without the name of a file.
pub fn load_bytes<C: ?Sized + AsCell>(net: &Child<C>, bytes: &[u8], options: &LoadOptions) -> Result<Loaded> {
    let (values, loaded) = fit::fit(bytes, &by_param(net), options)?;
    values.iter().try_for_each(|(param, value)| param.check(value))?;
    values.iter().try_for_each(|(param, value)| param.set(value))?;
    Ok(loaded)
}

/// A parameter with all its paths, in walk order.
pub(crate) struct Named {
    pub paths: Vec<String>,
    pub param: Param,
}

/// Returns the parameters in the order of their first paths, each once.
pub(crate) fn by_param<C: ?Sized + AsCell>(net: &Child<C>) -> Vec<Named> {
    let named = net.named_params();
    let mut all: Vec<Named> = Vec::new();
    let mut place = BTreeMap::new();
    for (path, param) in named {
        let i = *place.entry(param.id()).or_insert(all.len());
        match all.get_mut(i) {
            Some(named) => named.paths.push(path),
            None => all.push(Named { paths: vec![path], param }),
        }
    }
    all
}
