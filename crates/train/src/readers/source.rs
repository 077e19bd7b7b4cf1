//! Data sources of a run, as described in a file.

use std::path::{Path, PathBuf};

use precast::{
    error::{Error, Result},
    options::options,
};
use precast_base::printable;

use super::{Addition, Column, Csv, Images, MOST_BYTES, Npy, PixelFormat, Text, Vocabulary};
use crate::data::{Dataset, digits, read_digits};

/// Source of examples: `digits`, or a reader with its options, such as `csv: {file: iris.csv, target: species}`.
#[options]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Source {
    /// The handwritten digits shipped with the library; see [`digits`].
    Digits,
    /// A table in a text file.
    Csv(Csv),
    /// Images, a folder for each class.
    Images(Images),
    /// NumPy arrays.
    Npy(Npy),
    /// Text, to be continued by a language model.
    Text(Text),
    /// Synthetic sums in digits.
    Addition(Addition),
}

impl Source {
    /// Reads the examples with their targets. Relative paths are resolved against `folder`.
    ///
    /// # Errors
    /// As the reader's `read`.
    pub fn read(&self, folder: &Path) -> Result<Dataset> {
        self.read_within(folder, MOST_BYTES as u64)
    }

    /// Reads the examples as [`read`](Source::read) does. Tables, images and arrays that take more than `memory` bytes are
    /// [stored](Dataset::stored): they are read when they are needed.
    ///
    /// # Errors
    /// As the reader's `read_within`, or its `read` if it has none.
    pub fn read_within(&self, folder: &Path, memory: u64) -> Result<Dataset> {
        match self.starting_from(folder) {
            Source::Digits => digits(),
            Source::Csv(csv) => csv.read_within(memory),
            Source::Images(images) => images.read_within(memory),
            Source::Npy(npy) => npy.read_within(memory),
            Source::Text(text) => text.read(),
            Source::Addition(addition) => addition.read(),
        }
    }

    /// Returns this source with the settings found in its files: the input columns, the names of the classes, the
    /// characters of the vocabulary. A run keeps it, so that [`read_inputs`](Source::read_inputs) reads other files
    /// like this one. `dataset` is the result of [`read`](Source::read), or a part of it.
    pub fn found(&self, dataset: &Dataset) -> Source {
        match self {
            Source::Csv(csv) => Source::Csv(csv.found(dataset)),
            Source::Images(images) => Source::Images(images.found(dataset)),
            Source::Text(text) => Source::Text(text.found(dataset)),
            other => other.clone(),
        }
    }

    /// Returns the name of a target in words.
    pub(crate) fn target(&self, place: usize) -> String {
        let column = match self {
            Source::Csv(csv) => csv.target.0.get(place),
            _ => None,
        };
        match column {
            Some(Column::Name(name)) => format!("`{}`", printable(name)),
            Some(Column::Number(number)) => format!("column {number}"),
            None => format!("target {}", place + 1),
        }
    }

    /// Reads examples without targets, for predictions, from another file of the same format: a CSV with or without its
    /// target columns, an image or a folder of images, the array of the inputs, a text. They are in the order of the
    /// file; images are sorted by name.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](precast::ErrorKind::Unsupported) for sums, which have no file; else as the reader's
    /// `read_inputs`.
    pub fn read_inputs(&self, file: &Path) -> Result<Dataset> {
        self.read_inputs_within(file, MOST_BYTES as u64)
    }

    /// Reads examples as [`read_inputs`](Source::read_inputs) and [`read_within`](Source::read_within) do.
    ///
    /// # Errors
    /// As [`read_inputs`](Source::read_inputs), but for lengths.
    pub fn read_inputs_within(&self, file: &Path, memory: u64) -> Result<Dataset> {
        match self {
            Source::Digits => read_digits(file).map(Dataset::without_targets),
            Source::Csv(csv) => Csv { file: file.into(), ..csv.clone() }.read_inputs_within(memory),
            Source::Images(images) => Images { folder: file.into(), ..images.clone() }.read_inputs_within(memory),
            Source::Npy(npy) => npy.of_inputs(file).read_inputs_within(memory),
            Source::Text(text) => Text { file: file.into(), ..text.clone() }.read_inputs(),
            Source::Addition(_) => Err(Error::unsupported("sums are made up, and read from no file")),
        }
    }

    /// Refuses a file of another kind than that of this source before it is read.
    pub(crate) fn check_kind(&self, file: &Path) -> Result<()> {
        let expected = match self {
            Source::Csv(_) => "a CSV file",
            Source::Images(_) => "an image or a folder of images, PNG or JPEG",
            Source::Npy(_) => "an array of NumPy, .npy or .npz",
            Source::Text(_) | Source::Digits => "a text file",
            Source::Addition(_) => return Ok(()),
        };
        let is_of_images = matches!(self, Source::Images(_));
        let met = match () {
            () if !file.exists() => return Ok(()),
            () if file.is_dir() && !is_of_images => "a folder",
            () if file.is_file() && is_of_images && !Images::is_image(file) => "a file that is not an image",
            () => return Ok(()),
        };
        Err(Error::data(format!("{met}; expected {expected}, like the data of the run")).in_file(file.display()))
    }

    /// Returns the file or the folder of the examples with their targets, if it is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Source::Csv(csv) => Some(&csv.file),
            Source::Images(images) => Some(&images.folder),
            Source::Npy(npy) => npy.file.as_deref(),
            Source::Text(text) => Some(&text.file),
            Source::Digits | Source::Addition(_) => None,
        }
    }

    /// Returns the same source without paths.
    pub(crate) fn without_files(&self) -> Source {
        match self.clone() {
            Source::Csv(csv) => Source::Csv(Csv { file: PathBuf::new(), ..csv }),
            Source::Images(images) => Source::Images(Images { folder: PathBuf::new(), ..images }),
            Source::Npy(_) => Source::Npy(Npy::new("", "")),
            Source::Text(text) => Source::Text(Text { file: PathBuf::new(), ..text }),
            other => other,
        }
    }

    /// Returns whether examples are windows of a series, which are split in order.
    pub(crate) fn is_series(&self) -> bool {
        matches!(self, Source::Csv(Csv { series: Some(_), .. }))
    }

    /// Returns the number of tokens between the starts of two windows of a text.
    pub(crate) fn stride(&self) -> Option<usize> {
        match self {
            Source::Text(text) => Some(text.stride.unwrap_or(text.length)),
            _ => None,
        }
    }

    /// Returns the number of examples after each with which it shares places of the text, or rows of the series.
    pub(crate) fn overlap(&self) -> usize {
        match self {
            Source::Text(text) => text.overlap(),
            Source::Csv(Csv { series: Some(series), .. }) => series.overlap(),
            _ => 0,
        }
    }

    /// Returns the vocabulary of the indices used as inputs and classes: for sums, for a text of bytes, and for a text
    /// of characters that are known; see [`found`](Source::found).
    pub fn vocabulary(&self) -> Option<Vocabulary> {
        match self {
            Source::Text(text) => text.vocabulary(),
            Source::Addition(_) => Some(Addition::vocabulary()),
            _ => None,
        }
    }

    /// Returns the same source with its relative paths resolved against a folder.
    pub(crate) fn starting_from(&self, folder: &Path) -> Self {
        match self.clone() {
            Source::Csv(csv) => Source::Csv(Csv { file: folder.join(&csv.file), ..csv }),
            Source::Images(images) => Source::Images(Images { folder: folder.join(&images.folder), ..images }),
            Source::Npy(npy) => Source::Npy(npy.starting_from(folder)),
            Source::Text(text) => Source::Text(Text { file: folder.join(&text.file), ..text }),
            other => other,
        }
    }

    /// Returns whether images are converted to grey or resized.
    pub(crate) fn may_change_pixels(&self) -> bool {
        match self {
            Source::Images(images) => images.pixels == PixelFormat::Grey || images.resize.is_some(),
            _ => false,
        }
    }

    /// Returns the names of the classes, if known.
    pub(crate) fn class_names(&self) -> &[String] {
        match self {
            Source::Csv(csv) => &csv.class_names,
            Source::Images(images) => &images.class_names,
            _ => &[],
        }
    }

    /// Adds to an error of another file, whose remedy is a key of the data, that a trained network has its keys.
    pub(crate) fn of_trained(&self, error: Error) -> Error {
        const KEYS: [&str; 8] = ["as", "decimal", "delimiter", "empty", "header", "missing", "one_hot", "thousands"];
        let (Source::Csv(_), text) = (self, error.to_string()) else { return error };
        let names = |key: &str| text.contains(&format!("`{key}: ")) || text.contains(&format!("`{key}`, "));
        match KEYS.iter().any(|key| names(key)) {
            true => error.ending(
                "; keys are those of the run, so this file is written as its data are, or another run is trained",
            ),
            false => error,
        }
    }

    /// Reads the examples of another file like those of this source, with their targets.
    pub(crate) fn read_like(&self, file: &Path, memory: u64) -> Result<Dataset> {
        let file = file.to_path_buf();
        match self.clone() {
            Source::Digits => read_digits(&file),
            Source::Csv(csv) => Csv { file, ..csv }.read_within(memory),
            Source::Images(images) => Images { folder: file, ..images }.read_within(memory),
            Source::Npy(npy) if npy.file.is_some() => Npy { file: Some(file), ..npy }.read_within(memory),
            Source::Text(text) => Text { file, ..text }.read(),
            _ => Err(Error::run("examples with targets are read from one file for digits, csv, images, npz and text")),
        }
    }
}
