//! Models as other tools store them: a safetensors file, or a folder of Hugging Face.
//!
//! [`StoredModel::open`] reads the headers alone. [`StoredModel::outline`] infers the tree of cells from the names and
//! the shapes of the tensors, so that a policy can [plan](crate::Policy::plan_outline) a model that was never written
//! in cells. [`Plan::convert`](crate::Plan::convert) writes it with each tensor in the dtype that the plan has for its
//! cell.

mod convert;
mod folder;
mod header;
mod infer;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

pub(crate) use convert::Target;
pub use convert::{ConvertOptions, Converted, ConvertedTensor};
use folder::Folder;
use header::Header;
pub use infer::{CONTAINER, UNKNOWN};
pub(crate) use precast_policy::weights::{cell_of, is_average, is_weight};
use safetensors::Dtype;

use crate::{
    cell::Outline,
    error::{Error, Result},
    io::weights::{CHECKSUM, OF_RUN},
    logging::event,
};

/// A model as it is stored: a safetensors file, or a folder with such files. Its headers were read, its data was not.
#[derive(Clone, Debug)]
pub struct StoredModel {
    path: PathBuf,
    files: Vec<WeightFile>,
    /// What a folder has beside weights.
    folder: Option<Folder>,
}

/// One safetensors file of a model.
#[derive(Clone, Debug)]
struct WeightFile {
    /// Its name in the folder.
    name: String,
    path: PathBuf,
    header: Header,
}

/// A tensor as the header of its file describes it.
#[derive(Clone, Debug)]
pub struct StoredTensor {
    /// Its name in the file.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// How many bytes it takes.
    pub bytes: u64,
    dtype: Dtype,
    /// Where it begins in its file.
    start: u64,
}

impl StoredModel {
    /// Reads the headers of a safetensors file, or of those of a folder: `model.safetensors`, or the files that
    /// `model.safetensors.index.json` names. The `config.json` of the folder says what the model is.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when a file cannot be read.
    /// [`ErrorKind::Weights`](crate::ErrorKind::Weights) for a damaged file, a folder without weights, and an index
    /// that names a file that is not there, a tensor that is not in its file, or a file outside of the folder.
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
        event!(DEBUG, file = %path.display(), bytes = model.bytes(), "stored model opened");
        Ok(model)
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every tensor, file by file, in the order of the data.
    pub fn tensors(&self) -> impl Iterator<Item = &StoredTensor> {
        self.files.iter().flat_map(|file| &file.header.tensors)
    }

    /// How many bytes all tensors take.
    pub fn bytes(&self) -> u64 {
        self.tensors().map(|tensor| tensor.bytes).sum()
    }

    /// What `config.json` calls the model, as `BertModel`, if there is one and it says so.
    pub fn architecture(&self) -> Option<&str> {
        self.folder.as_ref().and_then(Folder::architecture)
    }

    /// The tree of cells as the names and the shapes of the tensors tell it.
    ///
    /// A cell stands for each name in front of a dot. Its kind is what its own tensors say: a `weight` of two axes is a
    /// `Dense`, or an `Embedding` where the name says so; of three to five axes a convolution; of one axis a norm;
    /// `running_mean` a batch norm; `weight_ih_l0` an `LSTM`, a `GRU` or an `RNN`. A cell without tensors of its own is
    /// a [`CONTAINER`], and what cannot be told is [`UNKNOWN`]. Cells without tensors, such as activations, are not
    /// there. The kind of the root is the [architecture](StoredModel::architecture), where it is known.
    ///
    /// ```
    /// use precast::{io::{stored::StoredModel, weights}, prelude::*};
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
        infer::outline(self.tensors(), self.architecture())
    }

    /// Refuses checkpoints of this library, whose checksum is that of the tensors as they are.
    fn check_is_no_checkpoint(&self) -> Result<()> {
        let is =
            |metadata: &BTreeMap<String, String>| metadata.contains_key(CHECKSUM) && !metadata.contains_key(OF_RUN);
        match self.files.iter().find(|file| is(&file.header.metadata)) {
            Some(file) => Err(Error::weights(format!(
                "{}: a checkpoint with a checksum of its tensors, to go on with and not to convert; `weights::save` writes weights alone",
                file.path.display()
            ))),
            None => Ok(()),
        }
    }
}
