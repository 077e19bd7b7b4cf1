//! Readers of training examples. A [`Source`] selects one of them in a file. Each gives a [`Dataset`](crate::data::Dataset).
//!
//! | reader | what it reads |
//! | --- | --- |
//! | [`Csv`] | tables: a row for each example, with columns of numbers and words, and of classes or numbers as targets |
//! | [`Images`] | PNG and JPEG images, a folder for each class |
//! | [`Npy`] | arrays of NumPy, `.npy` and `.npz` |
//! | [`Text`] | text, to be continued by a language model |
//! | [`Addition`] | sums in digits, made up |

mod addition;
mod charset;
mod class_names;
mod csv;
pub(crate) mod gzip;
mod images;
mod lines;
mod npy;
mod npy_header;
mod npz_write;
mod numbers;
mod picture;
mod rows;
mod source;
mod text;

pub use addition::Addition;
pub use csv::{Column, Columns, Csv, Series, TargetKind};
pub use images::Images;
pub use npy::{Npy, npz_arrays};
pub use npz_write::write_npz;
pub use picture::PixelFormat;
pub use source::Source;
pub use text::{Text, Tokens, Vocabulary};

use precast::error::{Error, Result};
use precast_base::{
    formats::{self, Reader},
    printable,
};

/// Returns a cell or a name for a message, cut after 80 characters.
pub(crate) fn in_message(cell: &str) -> String {
    match cell.char_indices().nth(80) {
        Some((end, _)) => format!("{}...", printable(&cell[..end])),
        None => printable(cell).into_owned(),
    }
}

/// Refuses data in the format of another reader, by their first bytes; `origin` names the file.
fn check_format(start: &[u8], reader: Reader, origin: &str) -> Result<()> {
    match formats::other(start, reader) {
        Some(words) => Err(Error::data(words).in_file(origin)),
        None => Ok(()),
    }
}

/// Maximum length of a file: 1 GiB.
const MOST_BYTES: usize = 1 << 30;

/// Maximum number of tokens in all examples of a text: 1 GiB of indices.
const MOST_TOKENS: usize = 1 << 27;
