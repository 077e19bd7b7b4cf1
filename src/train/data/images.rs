//! Images in folders.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Dataset;
use crate::error::{Error, Result};

/// PNG images in a folder that has a folder for each class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Images {
    /// The folder; the names of the folders inside are the classes.
    pub folder: PathBuf,
    /// What the images are converted to; rgb.
    #[serde(default)]
    pub pixels: PixelFormat,
    /// Height and width to which each image is resized, bilinearly. Unless they are said, all images must be of one size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<[usize; 2]>,
    /// The names of the classes in the order of their indices; those of the folders, sorted.
    #[serde(default)]
    pub class_names: Vec<String>,
}

/// The channels of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PixelFormat {
    /// One: `[1, height, width]`.
    Grey,
    /// Red, green and blue: `[3, height, width]`.
    #[default]
    Rgb,
}

impl Images {
    /// The images of a folder, in colour.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Images { folder: folder.into(), pixels: PixelFormat::Rgb, resize: None, class_names: Vec::new() }
    }

    /// Images are converted to grey.
    pub fn grey(self) -> Self {
        Images { pixels: PixelFormat::Grey, ..self }
    }

    /// Images are converted to red, green and blue.
    pub fn rgb(self) -> Self {
        Images { pixels: PixelFormat::Rgb, ..self }
    }

    /// Sets [`resize`](Images::resize).
    pub fn resize(self, height: usize, width: usize) -> Self {
        Images { resize: Some([height, width]), ..self }
    }

    /// Sets [`class_names`](Images::class_names).
    pub fn class_names(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Images { class_names: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// The images as examples of shape `[channels, height, width]`, with values from 0 to 1.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported): not written yet.
    pub fn read(&self) -> Result<Dataset> {
        Err(Error::unsupported("the reader of images is not written yet"))
    }

    /// The images in the folder itself, or the one image that it names, sorted by name and without targets.
    ///
    /// # Errors
    /// As [`read`](Images::read).
    pub fn read_inputs(&self) -> Result<Dataset> {
        self.read()
    }

    /// These options with what the files said of themselves: the size of the images and the names of the classes. `dataset` is
    /// what [`read`](Images::read) returned, or a part.
    pub fn found(&self, _dataset: &Dataset) -> Images {
        self.clone()
    }
}
