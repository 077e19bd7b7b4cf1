//! Models as other tools store them: a safetensors file, or a folder of Hugging Face.
//!
//! [`StoredModel::open`] reads only the headers. [`StoredModel::outline`] infers the tree of cells from the names and
//! shapes of the tensors, so that a policy can [plan](crate::Policy::plan_outline) a model that was never written as
//! cells. [`Plan::convert`](crate::Plan::convert) writes it with each tensor in the dtype that the plan assigns to its
//! cell.

mod convert;
mod folder;
mod header;
mod summary;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

pub(crate) use convert::Target;
pub use convert::{ConvertOptions, Converted, ConvertedTensor};
use folder::Folder;
use header::Header;
use precast_policy::infer::NamedTensor;
pub use precast_policy::infer::{CONSTANTS, CONTAINER, UNKNOWN};
pub(crate) use precast_policy::weights::{cell_of, is_weight, kept_for};
use safetensors::Dtype;

use crate::{
    cell::{Outline, known_kinds},
    error::{Error, Result},
    storage::weights::{CHECKSUM, OF_RUN},
};

/// A stored model: a safetensors file, or a folder of such files. Only its headers have been read.
#[derive(Clone, Debug)]
pub struct StoredModel {
    path: PathBuf,
    files: Vec<WeightFile>,
    /// Contents of a folder other than weights.
    folder: Option<Folder>,
}

/// One safetensors file of a model.
#[derive(Clone, Debug)]
struct WeightFile {
    /// Name in the folder.
    name: String,
    path: PathBuf,
    header: Header,
}

/// Description of a tensor in the header of its file.
#[derive(Clone, Debug)]
pub struct StoredTensor {
    /// Name in the file.
    pub name: String,
    /// Shape of the tensor.
    pub shape: Vec<usize>,
    /// Size in bytes.
    pub bytes: u64,
    dtype: Dtype,
    /// Offset in its file.
    start: u64,
}

impl StoredModel {
    /// Reads the headers of a safetensors file, or of those in a folder: `model.safetensors`, or the files named by
    /// `model.safetensors.index.json`. The folder's `config.json` gives the architecture.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when a file cannot be read.
    /// [`ErrorKind::Weights`](crate::ErrorKind::Weights) for a damaged file, a folder without weights, and an index
    /// that names a missing file, a tensor missing from its file, or a file outside of the folder.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let read = |name: String, path: PathBuf| -> Result<WeightFile> {
            let header = Header::read(&path)?;
            Ok(WeightFile { name, path, header })
        };
        let (files, folder) = if path.is_dir() {
            let (folder, names) = Folder::read(path)?;
            let files = names.into_iter().map(|name| read(name.clone(), path.join(&name)));
            let files: Vec<WeightFile> = files.collect::<Result<_>>()?;
            folder.check_index(&files)?;
            (files, Some(folder))
        } else {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (vec![read(name, path.to_path_buf())?], None)
        };
        let model = StoredModel { path: path.to_path_buf(), files, folder };
        tracing::debug!(target: "precast", file = %path.display(), bytes = model.bytes(), "stored model opened");
        Ok(model)
    }

    /// Reads a model from the beginnings of its files: for each its name, its length, and its first bytes, up to the end
    /// of the header or further. `config` has the bytes of its `config.json`. Without files to read tensors from, the
    /// model can be planned, not converted; its path is empty.
    ///
    /// ```
    /// use precast::storage::stored::StoredModel;
    /// let header = br#"{"fc.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
    /// let start = [&(header.len() as u64).to_le_bytes()[..], header].concat();
    /// let model = StoredModel::from_headers([("w.safetensors", start.len() as u64 + 24, &start[..])], None)?;
    /// assert_eq!(model.tensors().next().unwrap().name, "fc.weight");
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Weights`](crate::ErrorKind::Weights) as for [`StoredModel::open`].
    pub fn from_headers<'a>(
        files: impl IntoIterator<Item = (&'a str, u64, &'a [u8])>,
        config: Option<&[u8]>,
    ) -> Result<Self> {
        let read = |(name, bytes, start): (&str, u64, &[u8])| -> Result<WeightFile> {
            let header = Header::of_start(start, bytes).map_err(|e| e.in_file(name))?;
            Ok(WeightFile { name: name.into(), path: PathBuf::new(), header })
        };
        let files = files.into_iter().map(read).collect::<Result<_>>()?;
        Ok(StoredModel { path: PathBuf::new(), files, folder: Some(Folder::of_config(config)?) })
    }

    /// Returns the path of the file or folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Iterates over all tensors, file by file, in data order.
    pub fn tensors(&self) -> impl Iterator<Item = &StoredTensor> {
        self.files.iter().flat_map(|file| &file.header.tensors)
    }

    /// Returns the total size of all tensors in bytes.
    pub fn bytes(&self) -> u64 {
        self.tensors().map(|tensor| tensor.bytes).sum()
    }

    /// Returns the model's architecture, such as `BertModel`, if `config.json` names it.
    pub fn architecture(&self) -> Option<&str> {
        self.folder.as_ref().and_then(Folder::architecture)
    }

    /// Infers the tree of cells from the names and shapes of the tensors.
    ///
    /// See [`Outline::inferred`]. The kind of the root is the [architecture](StoredModel::architecture), if known.
    ///
    /// ```
    /// use precast::{storage::{stored::StoredModel, weights}, prelude::*};
    /// let file = std::env::temp_dir().join(format!("precast-doc-outline-{}.safetensors", std::process::id()));
    /// let of = |shape: &[usize]| Tensor::ones(shape, DType::F32);
    /// weights::write(&file, [
    ///     ("layers.0.q_proj.weight", of(&[8, 8])),
    ///     ("layers.0.norm.weight", of(&[8])),
    ///     ("embed_tokens.weight", of(&[100, 8])),
    /// ])?;
    /// let plan = Policy::named("o2")?.plan_outline(StoredModel::open(&file)?.outline())?;
    /// let kind = |path| plan.decision(path).map(|decision| decision.kind.to_string());
    /// assert_eq!(kind("layers.0.q_proj")?, "Dense");
    /// assert_eq!(kind("layers.0.norm")?, "RmsNorm");
    /// assert_eq!(kind("embed_tokens")?, "Embedding");
    /// # std::fs::remove_file(file).unwrap();
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn outline(&self) -> Outline {
        let tensors = self.tensors().map(|tensor| NamedTensor {
            name: &tensor.name,
            shape: &tensor.shape,
            dtype: tensor.castable(),
            is_float: tensor.is_float(),
        });
        Outline::inferred(tensors, self.architecture()).kinds(known_kinds())
    }

    /// Rejects checkpoints of this library, whose checksum covers the unconverted tensors.
    fn check_is_no_checkpoint(&self) -> Result<()> {
        let is =
            |metadata: &BTreeMap<String, String>| metadata.contains_key(CHECKSUM) && !metadata.contains_key(OF_RUN);
        match self.files.iter().find(|file| is(&file.header.metadata)) {
            Some(file) => Err(Error::weights(format!(
                "{}: a checkpoint with a checksum of its tensors, to resume from, not to convert; `weights::save` writes weights alone",
                file.path.display()
            ))),
            None => Ok(()),
        }
    }
}
