//! The handwritten digits shipped with the library.

use std::path::Path;

use precast::error::{Error, Result};
use precast_base::printable::printable;

use super::{Dataset, lines::lines};
use crate::readers::gzip::unpacked;

/// Returns 1,797 handwritten digits of 13 writers, `[1, 8, 8]` with pixels from 0 to 1: the test set of the UCI
/// "Optical Recognition of Handwritten Digits", as distributed by scikit-learn. See `data/README.md`.
///
/// # Errors
/// As [`read_digits`]; none for the embedded copy.
///
/// ```
/// let split = precast_train::data::digits()?.split(1500, 0)?;
/// assert_eq!((split.train.len(), split.test.len(), split.train.classes()), (1500, 297, 10));
/// # Ok::<(), precast::Error>(())
/// ```
pub fn digits() -> Result<Dataset> {
    parse_digits(include_bytes!("../../data/digits.csv.gz"), "data/digits.csv.gz")
}

/// Reads a file of digits, CSV or gzipped CSV: 64 pixels from 0 to 16 and a digit in each row.
///
/// # Errors
/// [`ErrorKind::Io`](precast::ErrorKind::Io) when the file cannot be read or is longer than 32 MiB,
/// [`ErrorKind::Data`](precast::ErrorKind::Data) with file and line when it does not hold digits or decompresses to more.
pub fn read_digits(file: impl AsRef<Path>) -> Result<Dataset> {
    let file = file.as_ref();
    parse_digits(&precast_base::files::read_within(file, MOST_BYTES)?, &file.display().to_string())
}

/// Enough for a hundred times as many digits; a file that decompresses to more is not one of digits.
const MOST_BYTES: usize = 32 << 20;

/// Parses the bytes of a file as [`read_digits`] does; `origin` names it in errors.
///
/// # Errors
/// [`ErrorKind::Data`](precast::ErrorKind::Data), as [`read_digits`].
pub fn parse_digits(bytes: &[u8], origin: &str) -> Result<Dataset> {
    let origin = printable(origin);
    let bytes = unpacked(bytes, MOST_BYTES).map_err(|error| error.in_file(&origin))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| Error::data("not a text in UTF-8").in_file(&origin))?;
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for (i, line) in lines(text).enumerate() {
        let at = |e: Error| e.at(&origin, i + 1, None);
        let row: Vec<f32> = line.split(',').enumerate().map(number).collect::<Result<_>>().map_err(at)?;
        let &[ref pixels @ .., digit] = &row[..] else { unreachable!("a line has at least one field") };
        if pixels.len() != 64 {
            let met = row.len();
            return Err(at(Error::data(format!("{met} numbers; a row holds 65: 64 pixels, then the digit"))));
        }
        if !(digit.fract() == 0.0 && (0.0..=9.0).contains(&digit)) {
            return Err(at(Error::data(format!("the digit is {digit}; allowed: 0 to 9"))));
        }
        values.extend(pixels.iter().map(|pixel| pixel / 16.0));
        labels.push(digit as i64);
    }
    if labels.is_empty() {
        return Err(Error::data("no rows").in_file(&origin));
    }
    Dataset::new(values, &[1, 8, 8], labels)
}

/// Parses one field of a row: a number from 0 to 16.
fn number((column, field): (usize, &str)) -> Result<f32> {
    let value = field.trim().parse::<f32>().ok().filter(|value| (0.0..=16.0).contains(value));
    value.ok_or_else(|| Error::data(format!("column {}: `{field}` is not a number from 0 to 16", column + 1)))
}
