//! Weight files: parameters and buffers by path, in the safetensors format.
//!
//! A parameter is stored under its path, in its own dtype. A parameter with an f32 [master](Param::master) is stored as the
//! master, so that a run continues from the file as if it had not been stopped. [`decorate`](crate::rewrite::decorate) may ask
//! for another dtype; the parameter is then rounded to it, once. A parameter under several paths (tied weights) is stored
//! once, under the first path; the metadata entry `tied` is a JSON map of each other path to the first. Loading takes it from
//! any of its paths that the file has. Adapters change neither paths nor values, so applying a policy does not change what is
//! saved.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::{
    Child, DType, Param, Tensor,
    cell::AsCell,
    error::{Error, Result, did_you_mean},
    io::files,
    logging::event,
};

/// The metadata entry that says which paths share a parameter.
const TIED: &str = "tied";

/// What [`load_with`] may do beside reading exactly the tensors that the network has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Round or widen floating tensors of another dtype to the parameter's dtype. Without it, another dtype is an error; only
    /// a parameter with a [master](Param::master) takes f32 as well.
    pub cast: bool,
}

/// Writes every parameter and buffer of a network. An existing file is replaced in one step.
///
/// # Errors
/// [`ErrorKind::Weights`](crate::ErrorKind::Weights) when two parameters have one path,
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when the file cannot be written; an older file then stays as it was.
///
/// ```
/// use precast::{prelude::*, io::weights};
/// let file = std::env::temp_dir().join(format!("precast-doc-{}.safetensors", std::process::id()));
/// let (a, b) = (Child::new(Dense::new(2, 3, &mut Rng::seed(1))), Child::new(Dense::new(2, 3, &mut Rng::seed(2))));
/// weights::save(&a, &file)?;
/// weights::load(&b, &file)?;
/// assert_eq!(a.cell().weight.value().to_f64(), b.cell().weight.value().to_f64());
/// # std::fs::remove_file(file).unwrap();
/// # Ok::<(), precast::Error>(())
/// ```
pub fn save<C: ?Sized + AsCell>(net: &Child<C>, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let bytes = encode(&by_param(net.named_params())).map_err(|e| e.context(path.display()))?;
    files::replace(path, &bytes)?;
    event!(INFO, file = %path.display(), bytes = bytes.len(), "weights written");
    Ok(())
}

/// Reads every parameter and buffer of a network; dtypes must be the same (see [`LoadOptions::cast`]).
///
/// # Errors
/// As [`load_with`].
pub fn load<C: ?Sized + AsCell>(net: &Child<C>, path: impl AsRef<Path>) -> Result<()> {
    load_with(net, path, LoadOptions::default())
}

/// Reads every parameter and buffer of a network.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when the file cannot be read. [`ErrorKind::Weights`](crate::ErrorKind::Weights), naming the file and the tensor: no or
/// a damaged safetensors file, a tensor that is missing or that the network does not have, a wrong shape, another dtype
/// that the options do not allow to be cast. On any error the network is as it was.
pub fn load_with<C: ?Sized + AsCell>(net: &Child<C>, path: impl AsRef<Path>, options: LoadOptions) -> Result<()> {
    let path = path.as_ref();
    let bytes = files::read(path)?;
    load_bytes(net, &bytes, options).map_err(|e| e.context(path.display()))?;
    event!(INFO, file = %path.display(), bytes = bytes.len(), "weights read");
    Ok(())
}

/// As [`load_with`], from the bytes of a file.
///
/// # Errors
/// As [`load_with`], without the name of a file.
pub fn load_bytes<C: ?Sized + AsCell>(net: &Child<C>, bytes: &[u8], options: LoadOptions) -> Result<()> {
    let found = decode(bytes, &by_param(net.named_params()), options)?;
    found.iter().try_for_each(|(param, value)| param.set(value))
}

/// A parameter with all its paths, in the order of the walk.
type Named = (Vec<String>, Param);

/// Parameters in the order of their first paths, each once.
fn by_param(named: Vec<(String, Param)>) -> Vec<Named> {
    let mut all: Vec<Named> = Vec::new();
    let mut place = HashMap::new();
    for (path, param) in named {
        let i = *place.entry(param.id()).or_insert(all.len());
        match all.get_mut(i) {
            Some((paths, _)) => paths.push(path),
            None => all.push((vec![path], param)),
        }
    }
    all
}

fn encode(params: &[Named]) -> Result<Vec<u8>> {
    let mut tied: BTreeMap<&str, &str> = BTreeMap::new();
    let mut stored = BTreeMap::new();
    for (paths, param) in params {
        let value = param.to_save();
        if stored
            .insert(paths[0].as_str(), (dtype_in_file(value.dtype()), value.shape().to_vec(), bytes_of(&value)))
            .is_some()
        {
            return Err(Error::weights(format!("two parameters stand under the path `{}`", paths[0])));
        }
        tied.extend(paths[1..].iter().map(|path| (path.as_str(), paths[0].as_str())));
    }
    let failed = |e: &dyn std::fmt::Display| Error::weights(e.to_string());
    let views: Vec<(&str, TensorView<'_>)> = stored
        .iter()
        .map(|(path, (dtype, shape, bytes))| {
            Ok((*path, TensorView::new(*dtype, shape.clone(), bytes).map_err(|e| failed(&e))?))
        })
        .collect::<Result<_>>()?;
    let metadata = match tied.is_empty() {
        true => None,
        false => Some(HashMap::from([(TIED.to_string(), serde_json::to_string(&tied).map_err(|e| failed(&e))?)])),
    };
    safetensors::serialize(views, metadata).map_err(|e| failed(&e))
}

/// The new value of each parameter. All errors are found here, before any parameter is set.
fn decode(bytes: &[u8], params: &[Named], options: LoadOptions) -> Result<Vec<(Param, Tensor)>> {
    let damaged = |e| Error::weights(format!("not a whole safetensors file: {e}"));
    let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
    let aliases: HashMap<String, String> = match header.metadata().as_ref().and_then(|entries| entries.get(TIED)) {
        Some(json) => serde_json::from_str(json)
            .map_err(|e| Error::weights(format!("the entry `{TIED}` is no map of paths: {e}")))?,
        None => HashMap::new(),
    };
    let stored: BTreeMap<&str, TensorView<'_>> = file.iter().collect();
    let known = |path: &str| params.iter().any(|(paths, _)| paths.iter().any(|known| known == path));
    // An alias counts where the file does not store the path itself.
    let lookup = |path: &str| match stored.get_key_value(path) {
        Some(hit) => Some(hit),
        None => stored.get_key_value(aliases.get(path)?.as_str()),
    };
    let mut used = Vec::new();
    let mut found = Vec::new();
    for (paths, param) in params {
        let mut hits = paths.iter().filter_map(|path| lookup(path));
        let Some((name, view)) = hits.next() else {
            let unused = stored.keys().copied().filter(|name| !known(name));
            return Err(Error::weights(format!(
                "`{}` is not in the file{}",
                paths[0],
                did_you_mean(&paths[0], unused)
            )));
        };
        used.push(*name);
        for (other, same) in hits {
            used.push(*other);
            if same.data() != view.data() {
                return Err(Error::weights(format!(
                    "`{name}` and `{other}` are one parameter in the network and two different ones in the file"
                )));
            }
        }
        let value = value_of(view, param, options).map_err(|e| e.context(format_args!("`{name}`")))?;
        found.push((param.clone(), value));
    }
    if let Some(extra) = stored.keys().find(|name| !used.contains(name)) {
        return Err(Error::weights(format!("`{extra}` is not in the network")));
    }
    Ok(found)
}

/// A stored tensor as the value of a parameter.
fn value_of(view: &TensorView<'_>, param: &Param, options: LoadOptions) -> Result<Tensor> {
    let now = param.value();
    if view.shape() != now.shape() {
        return Err(Error::weights(format!("has the shape {:?}; the network's is {:?}", view.shape(), now.shape())));
    }
    let value = tensor_of(view)?;
    // A parameter with a master takes the master's dtype as well as its own.
    let (from, to, full) = (value.dtype(), now.dtype(), param.full().dtype());
    if from == to || from == full {
        Ok(value)
    } else if from.is_float() && to.is_float() && options.cast {
        Ok(value.cast(full))
    } else {
        let hint =
            if from.is_float() && to.is_float() { "; `LoadOptions { cast: true }` rounds or widens it" } else { "" };
        Err(Error::weights(format!("is {}; the network's is {}{hint}", from.long_name(), to.long_name())))
    }
}

fn dtype_in_file(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::Bf16 => Dtype::BF16,
        DType::I64 => Dtype::I64,
        DType::Bool => Dtype::BOOL,
    }
}

/// The elements in row-major order, little-endian.
fn bytes_of(value: &Tensor) -> Vec<u8> {
    macro_rules! bytes {
        ($($dtype:ident: $t:ty),*) => {
            match value.dtype() {
                $(DType::$dtype => value.to_vec_stored::<$t>().into_iter().flat_map(<$t>::to_le_bytes).collect(),)*
                DType::Bool => value.to_vec_stored::<bool>().into_iter().map(u8::from).collect(),
            }
        };
    }
    bytes!(F64: f64, F32: f32, F16: f16, Bf16: bf16, I64: i64)
}

fn tensor_of(view: &TensorView<'_>) -> Result<Tensor> {
    macro_rules! tensor {
        ($($dtype:ident: $t:ty),*) => {
            match view.dtype() {
                $(Dtype::$dtype => {
                    let (elements, _) = view.data().as_chunks();
                    Tensor::from_vec::<$t>(elements.iter().map(|&bytes| <$t>::from_le_bytes(bytes)).collect(), view.shape())
                })*
                Dtype::BOOL => Tensor::from_vec(view.data().iter().map(|&byte| byte != 0).collect(), view.shape()),
                other => Err(Error::weights(format!("is {other}; float64, float32, float16, bfloat16, int64 and bool are read"))),
            }
        };
    }
    tensor!(F64: f64, F32: f32, F16: f16, BF16: bf16, I64: i64)
}
