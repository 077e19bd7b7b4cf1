//! The text of a table: in memory, or in its file.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use precast::error::{Error, Result};
use precast_base::formats::Reader;

use crate::readers::{
    check_format,
    gzip::unpacking,
    lines::{line_behind, not_utf8},
};

/// Text in UTF-8.
pub(super) enum Text<'a> {
    Memory(&'a str),
    /// A file, perhaps packed, which is read anew for each pass; its text after a mark of the byte order.
    File {
        path: &'a Path,
        mark: usize,
    },
}

/// The mark of the byte order with which some programs begin a text.
const MARK: &str = "\u{feff}";

/// Bytes that are read together.
const PART: usize = 1 << 16;

impl<'a> Text<'a> {
    /// Checks that bytes are a text; `origin` names them in errors.
    pub fn of(bytes: &'a [u8], origin: &str) -> Result<Self> {
        check_format(bytes, Reader::Table, origin)?;
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let (before, rest) = bytes.split_at(error.valid_up_to());
            not_utf8(rest).at(origin, line_behind(before), None)
        })?;
        Ok(Text::Memory(text.strip_prefix(MARK).unwrap_or(text)))
    }

    /// Checks that a file is a text.
    pub fn of_file(path: &'a Path, origin: &str) -> Result<Self> {
        let (mut line, mut mark) = (1, None);
        // The last bytes of a part, which may be the beginning of a character or of the end of a line.
        let mut rest = Vec::new();
        let whole = Text::File { path, mark: 0 };
        let mut text = whole.open()?;
        loop {
            let (before, is_start) = (rest.len(), mark.is_none());
            text.by_ref().take(PART as u64).read_to_end(&mut rest).map_err(|error| Error::io(path, &error))?;
            let is_end = rest.len() == before;
            if is_start {
                check_format(&rest, Reader::Table, origin)?;
            }
            mark.get_or_insert_with(|| if rest.starts_with(MARK.as_bytes()) { MARK.len() } else { 0 });
            let valid = match std::str::from_utf8(&rest) {
                Ok(_) => rest.len(),
                Err(error) if error.error_len().is_none() && !is_end => error.valid_up_to(),
                Err(error) => {
                    let (before, rest) = rest.split_at(error.valid_up_to());
                    return Err(not_utf8(rest).at(origin, line + line_behind(before) - 1, None));
                }
            };
            if is_end {
                return Ok(Text::File { path, mark: mark.unwrap_or_default() });
            }
            let whole = if rest[..valid].ends_with(b"\r") { valid - 1 } else { valid };
            line += line_behind(&rest[..whole]) - 1;
            rest.drain(..whole);
        }
    }

    /// Begins to read the text.
    pub fn open(&self) -> Result<Box<dyn Read + '_>> {
        match self {
            Text::Memory(text) => Ok(Box::new(text.as_bytes())),
            Text::File { path, mark } => {
                let open = || -> io::Result<_> {
                    let mut text = unpacking(File::open(path)?)?;
                    text.read_exact(&mut vec![0; *mark])?;
                    Ok(text)
                };
                open().map_err(|error| Error::io(path, &error))
            }
        }
    }

    /// Returns whether the text ends within quotes. Quotes begin a cell; within another one they are text.
    pub fn ends_in_quotes(&self, delimiter: u8) -> Result<bool> {
        enum At {
            Start,
            Plain,
            Quoted,
            /// Behind a quote that ends the quoted text, unless another one follows.
            Behind,
        }
        let (mut text, mut part, mut at) = (self.open()?, vec![0; PART], At::Start);
        loop {
            let read = text.read(&mut part).map_err(|e| Error::data(format!("the text cannot be read: {e}")))?;
            if read == 0 {
                return Ok(matches!(at, At::Quoted));
            }
            for &byte in &part[..read] {
                at = match (at, byte) {
                    (At::Start | At::Behind, b'"') => At::Quoted,
                    (At::Quoted, b'"') => At::Behind,
                    (At::Quoted, _) => At::Quoted,
                    (_, b'\r' | b'\n') => At::Start,
                    (_, byte) if byte == delimiter => At::Start,
                    _ => At::Plain,
                };
            }
        }
    }
}

/// Most bytes of a row that is read from a file, as rows are held in memory one at a time.
const MOST_OF_ROW: usize = 1 << 26;

/// A text that keeps what was read of it until its lines are counted.
pub(super) struct Kept<'a> {
    text: Box<dyn Read + 'a>,
    most: usize,
    bytes: Vec<u8>,
    /// Number of these bytes whose lines are counted, and the position of the first byte in the text.
    counted: usize,
    first: u64,
}

impl<'a> Kept<'a> {
    pub fn new(text: &'a Text<'_>) -> Result<Self> {
        let most = if let Text::File { .. } = text { MOST_OF_ROW } else { usize::MAX };
        Ok(Kept { text: text.open()?, most, bytes: Vec::new(), counted: 0, first: 0 })
    }

    /// Counts the ends of lines up to a position that has been read and the ends that follow it, from where it counted
    /// before.
    pub fn lines_until(&mut self, position: u64) -> usize {
        let end = usize::try_from(position.saturating_sub(self.first)).unwrap_or(usize::MAX).min(self.bytes.len());
        let empty = self.bytes[end..].iter().take_while(|byte| b"\r\n".contains(byte)).count();
        let lines = line_behind(self.bytes.get(self.counted..end + empty).unwrap_or_default()) - 1;
        self.counted = end + empty;
        lines
    }
}

impl Read for Kept<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.text.read(buffer)?;
        self.bytes.drain(..self.counted);
        (self.first, self.counted) = (self.first + self.counted as u64, 0);
        if self.bytes.len() > self.most {
            let words = format!(
                "the row is longer than {} MiB, the most for a table that is not held in memory",
                self.most >> 20
            );
            return Err(io::Error::other(words));
        }
        self.bytes.extend_from_slice(&buffer[..read]);
        Ok(read)
    }
}
