//! Training examples: a [`Dataset`] from memory, the [`digits`] shipped with the library, and readers of files, of which a
//! [`Source`] selects one.
//!
//! | reader | what it reads |
//! | --- | --- |
//! | [`Csv`] | tables: a row for each example, with columns of numbers and words, and of classes or numbers as targets |
//! | [`Images`] | PNG and JPEG images, a folder for each class |
//! | [`Npy`] | arrays of NumPy, `.npy` and `.npz` |
//! | [`Text`] | text, to be continued by a language model |
//! | [`Addition`] | sums in digits, made up |

pub(crate) mod ahead;
pub(crate) mod batches;
mod dataset;
mod digits;
mod elements;
mod encoded;
mod encoding;
mod exact;
pub(crate) mod fitted;
pub(crate) mod later;
mod lines;
pub(crate) mod numbers;
pub(crate) mod origin;
pub(crate) mod resize;
mod standardization;
mod stored;
pub(crate) mod sums;
mod table;
mod targets;
mod windows;

pub use batches::{Batch, batches_of_epoch, call};
pub use dataset::{Dataset, FurtherInputs, Inputs, Split};
pub use digits::{digits, parse_digits, read_digits};
pub use encoding::Encoding;
pub use standardization::Standardization;
pub use stored::Stored;
pub use table::{Cells, Empty, Table, TableColumn, WordForm};
pub use targets::{IGNORED, Targets};

pub use crate::readers::{
    Addition, Column, Columns, Csv, Images, Npy, PixelFormat, Series, Source, TargetKind, Text, Tokens, Vocabulary,
    npz_arrays, write_npz,
};
