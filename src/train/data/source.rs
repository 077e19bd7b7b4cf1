//! Where the examples of a run come from, as a file says it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Addition, Dataset, Text, Vocabulary, digits, read_digits};
#[cfg(feature = "data")]
use super::{Csv, Images, Npy};
use crate::error::{Error, Result};

/// Where examples come from: `digits`, or a reader with its options, such as `csv: {file: iris.csv, target: species}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Source {
    /// The handwritten digits that come with the library; see [`digits`].
    Digits,
    /// A table in a text file.
    #[cfg(feature = "data")]
    Csv(Csv),
    /// Images, a folder for each class.
    #[cfg(feature = "data")]
    Images(Images),
    /// Arrays of NumPy.
    #[cfg(feature = "data")]
    Npy(Npy),
    /// Text, to be continued by a language model.
    Text(Text),
    /// Sums in digits, made up.
    Addition(Addition),
}

impl Source {
    /// The examples with their targets. Relative paths start from `folder`.
    ///
    /// # Errors
    /// As the reader's `read`.
    pub fn read(&self, folder: &Path) -> Result<Dataset> {
        match self {
            Source::Digits => digits(),
            #[cfg(feature = "data")]
            Source::Csv(csv) => Csv { file: folder.join(&csv.file), ..csv.clone() }.read(),
            #[cfg(feature = "data")]
            Source::Images(images) => Images { folder: folder.join(&images.folder), ..images.clone() }.read(),
            #[cfg(feature = "data")]
            Source::Npy(npy) => npy.starting_from(folder).read(),
            Source::Text(text) => Text { file: folder.join(&text.file), ..text.clone() }.read(),
            Source::Addition(addition) => addition.read(),
        }
    }

    /// This source with what its files said of themselves: which columns are inputs, the names of the classes, the
    /// characters of the vocabulary. A run keeps it, so that [`read_inputs`](Source::read_inputs) reads other files as
    /// this one was read. `dataset` is what [`read`](Source::read) returned, or a part of it.
    pub fn found(&self, dataset: &Dataset) -> Source {
        match self {
            #[cfg(feature = "data")]
            Source::Csv(csv) => Source::Csv(csv.found(dataset)),
            #[cfg(feature = "data")]
            Source::Images(images) => Source::Images(images.found(dataset)),
            Source::Text(text) => Source::Text(text.found(dataset)),
            other => other.clone(),
        }
    }

    /// Examples without targets, for predictions, from another file of the same form: a CSV with or without its target
    /// columns, an image or a folder of images, the array of the inputs, a text. Their order is that of the file;
    /// images are sorted by name.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for sums, which have no file; else as the reader's
    /// `read_inputs`.
    pub fn read_inputs(&self, file: &Path) -> Result<Dataset> {
        match self {
            Source::Digits => read_digits(file).map(Dataset::without_targets),
            #[cfg(feature = "data")]
            Source::Csv(csv) => Csv { file: file.into(), ..csv.clone() }.read_inputs(),
            #[cfg(feature = "data")]
            Source::Images(images) => Images { folder: file.into(), ..images.clone() }.read_inputs(),
            #[cfg(feature = "data")]
            Source::Npy(npy) => npy.of_inputs(file).read_inputs(),
            Source::Text(text) => Text { file: file.into(), ..text.clone() }.read_inputs(),
            Source::Addition(_) => Err(Error::unsupported("sums are made up, and read from no file")),
        }
    }

    /// What the indices mean that are inputs and classes: of sums, of a text of bytes, and of a text of characters
    /// whose characters are known; see [`found`](Source::found).
    pub fn vocabulary(&self) -> Option<Vocabulary> {
        match self {
            Source::Text(text) => text.vocabulary(),
            Source::Addition(_) => Some(Addition::vocabulary()),
            _ => None,
        }
    }
}
