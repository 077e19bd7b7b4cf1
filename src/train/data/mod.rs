//! Training examples: a [`Dataset`] from memory, the [`digits`] shipped with the library, and file readers. A
//! [`Source`] selects one of them in a file.
//!
//! | reader | what it reads | feature |
//! | --- | --- | --- |
//! | [`Csv`] | tables: a row for each example, with columns of classes or numbers as targets | `data` |
//! | [`Images`] | PNG images, a folder for each class | `data` |
//! | [`Npy`] | arrays of NumPy, `.npy` and `.npz` | `data` |
//! | [`Text`] | text, to be continued by a language model | |
//! | [`Addition`] | sums in digits, made up | |

mod addition;
#[cfg(feature = "data")]
mod class_names;
#[cfg(feature = "data")]
mod csv;
mod dataset;
mod digits;
mod exact;
mod fitted;
#[cfg(feature = "data")]
mod images;
mod lines;
#[cfg(feature = "data")]
mod npy;
#[cfg(feature = "data")]
mod npy_header;
mod numbers;
mod origin;
mod resize;
mod source;
mod standardization;
mod text;

pub use addition::Addition;
#[cfg(feature = "data")]
#[cfg_attr(docsrs, doc(cfg(feature = "data")))]
pub use csv::{Column, Columns, Csv, TargetKind};
pub(super) use dataset::check_batch;
pub use dataset::{Batch, Dataset, IGNORED, Inputs, Split, Targets, batches_of_epoch};
pub use digits::{digits, parse_digits, read_digits};
#[cfg(feature = "data")]
#[cfg_attr(docsrs, doc(cfg(feature = "data")))]
pub use images::{Images, PixelFormat};
#[cfg(feature = "data")]
#[cfg_attr(docsrs, doc(cfg(feature = "data")))]
pub use npy::Npy;
pub use source::Source;
pub use standardization::Standardization;
pub use text::{Text, Tokens, Vocabulary};

/// Maximum length of a file: 1 GiB.
const MOST_BYTES: usize = 1 << 30;

/// Maximum number of tokens in all examples of a text: 1 GiB of indices.
const MOST_TOKENS: usize = 1 << 27;
