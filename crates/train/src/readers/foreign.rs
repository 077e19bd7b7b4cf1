//! Data in formats that no reader reads, recognized by their first bytes.

use precast::error::{Error, Result};
use precast_base::formats::{self, FIRST, Reader};

/// First bytes with their place, the name of the format and the remedy.
const KNOWN: [(usize, &[u8], &str, &str); 6] = [
    (0, b"\x1f\x8b", "a gzip archive", "`gunzip` unpacks it"),
    (4, b"1AY&SY", "a bzip2 archive", "`bunzip2` unpacks it"),
    (0, b"\xfd7zXZ\0", "an xz archive", "`unxz` unpacks it"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd archive", "`unzstd` unpacks it"),
    (0, b"SQLite format 3\0", "a database of SQLite", "`sqlite3 -csv -header` writes the rows of a query as CSV"),
    (257, b"ustar", "a tar archive", "`tar -xf` unpacks it"),
];

/// Words for a table that pandas reads.
pub(crate) const OF_PANDAS: &str = "in Python, pandas reads it and `to_csv` writes a CSV";

/// Refuses a table in another format; `origin` names its file.
pub(super) fn check_table(start: &[u8], origin: &str) -> Result<()> {
    let text = start.trim_ascii_start();
    let of_json = match text.split_first() {
        Some((b'{', _)) => true,
        Some((b'[', rest)) => rest.trim_ascii_start().first().is_some_and(|first| b"[{\"".contains(first)),
        _ => false,
    };
    let json = of_json.then(|| format!("JSON; {OF_PANDAS}"));
    refuse(json.or_else(|| formats::other(start, Reader::Table)), start, origin)
}

/// Refuses a text in another format. A page of HTML is a text.
pub(super) fn check_text(start: &[u8], origin: &str) -> Result<()> {
    let start = &start[..start.len().min(FIRST)];
    let other = formats::other(start, Reader::Table).filter(|_| !start.starts_with(b"<"));
    let of_text = |words: String| words.replace("`csv`", "`text`").replace("expected a CSV", "expected a text");
    refuse(other.map(of_text), start, origin)
}

fn refuse(other: Option<String>, start: &[u8], origin: &str) -> Result<()> {
    let known = KNOWN.iter().find(|(place, known, ..)| start.get(*place..).is_some_and(|at| at.starts_with(known)));
    match known.map(|(.., name, remedy)| format!("{name}; {remedy}")).or(other) {
        Some(words) => Err(Error::data(words).in_file(origin)),
        None => Ok(()),
    }
}
