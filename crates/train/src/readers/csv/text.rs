//! The text of a table: in memory, or in its file.

use std::{
    borrow::Cow,
    fs::File,
    io::{self, Read},
    path::Path,
};

use encoding_rs::{Encoding, UTF_8};
use encoding_rs_io::DecodeReaderBytesBuilder;
use precast::error::{Error, ErrorKind, Result};
use precast_base::formats::{FIRST, Reader};

use crate::readers::{
    charset, check_format,
    gzip::unpacking,
    lines::{line_behind, not_utf8},
};

/// A text.
pub(super) enum Text<'a> {
    Memory(Cow<'a, str>),
    /// A file, perhaps packed, which is read anew for each pass; its text after a mark of the byte order.
    File {
        path: &'a Path,
        mark: usize,
        /// Its encoding, if it is not UTF-8.
        encoding: Option<&'static Encoding>,
    },
}

/// The mark of the byte order with which some programs begin a text.
const MARK: &str = "\u{feff}";

/// Bytes that are read together.
const PART: usize = 1 << 16;

impl<'a> Text<'a> {
    /// Decodes bytes, and returns the text with a note if its encoding was guessed; `origin` names it in errors.
    pub fn of(bytes: &'a [u8], named: Option<&str>, origin: &str) -> Result<(Self, Option<String>)> {
        let is_plain = named.is_none() && charset::shown_by(bytes).is_none();
        if is_plain {
            check_format(bytes, Reader::Table, origin)?;
        }
        let mut is_guessed = false;
        let text = match std::str::from_utf8(bytes) {
            Err(error) if is_plain => {
                is_guessed = charset::may_be_guessed(bytes);
                if !is_guessed {
                    let (before, rest) = bytes.split_at(error.valid_up_to());
                    return Err(not_utf8(rest, !before.is_ascii()).at(origin, line_behind(before), None));
                }
                charset::GUESS.decode_without_bom_handling(bytes).0
            }
            Ok(text) if is_plain => text.into(),
            _ => charset::text(bytes, named, origin)?,
        };
        check_format(text.as_bytes(), Reader::Table, origin)?;
        let text = match text {
            Cow::Borrowed(text) => text.strip_prefix(MARK).unwrap_or(text).into(),
            text => text,
        };
        let is_utf8 = named.is_some_and(|name| charset::named(name).is_ok_and(Encoding::is_single_byte))
            && std::str::from_utf8(bytes).is_ok_and(|text| !text.is_ascii());
        let note = match is_guessed {
            true => Some(charset::note(origin)),
            false => {
                is_utf8.then(|| format!("{origin}: UTF-8 by its bytes, and not read so, for `encoding` names another"))
            }
        };
        Ok((Text::Memory(text), note))
    }

    /// Checks that a file is a text, as [`of`](Text::of) does.
    pub fn of_file(path: &'a Path, named: Option<&str>, origin: &str) -> Result<(Self, Option<String>)> {
        let named = named.map(charset::named).transpose()?;
        let mut start = Vec::new();
        let whole = Text::File { path, mark: 0, encoding: None };
        whole.open()?.take(FIRST as u64).read_to_end(&mut start).map_err(|error| Error::io(path, &error))?;
        if let Some(encoding) = named.or_else(|| charset::shown_by(&start)).filter(|encoding| *encoding != UTF_8) {
            return Ok((Text::checked(path, encoding, origin)?, None));
        }
        match Text::of_utf8(path, origin) {
            Err(error) if named.is_none() && error.kind() == ErrorKind::Data && whole.may_be_guessed()? => {
                let text = Text::File { path, mark: 0, encoding: Some(charset::GUESS) };
                Ok((text, Some(charset::note(origin))))
            }
            read => read.map(|text| (text, None)),
        }
    }

    fn may_be_guessed(&self) -> Result<bool> {
        let (mut text, mut part) = (self.open()?, Vec::new());
        loop {
            // A character of UTF-8 is not divided.
            let kept = part.len().min(3);
            part.drain(..part.len() - kept);
            let read = text.by_ref().take(PART as u64).read_to_end(&mut part);
            match read.map_err(|error| Error::data(format!("the text cannot be read: {error}")))? {
                0 => return Ok(true),
                _ if !charset::may_be_guessed(&part) => return Ok(false),
                _ => {}
            }
        }
    }

    /// Checks that a file has an encoding.
    fn checked(path: &'a Path, encoding: &'static Encoding, origin: &str) -> Result<Self> {
        let text = Text::File { path, mark: 0, encoding: Some(encoding) };
        // The last bytes of a part may begin the character that replaces what has no meaning.
        let (mut read, mut part, mut line) = (text.open()?, Vec::new(), 1);
        loop {
            let kept = part.len();
            read.by_ref().take(PART as u64).read_to_end(&mut part).map_err(|error| Error::io(path, &error))?;
            if line == 1 && kept == 0 {
                check_format(&part, Reader::Table, origin)?;
            }
            if let Some(at) = part.windows(3).position(|bytes| bytes == "\u{fffd}".as_bytes()) {
                return Err(charset::unfit(encoding).at(origin, line + line_behind(&part[..at]) - 1, None));
            }
            if part.len() == kept {
                drop(read);
                return Ok(text);
            }
            let done = part.len().saturating_sub(2);
            line += line_behind(&part[..done]) - 1;
            part.drain(..done);
        }
    }

    /// Checks that a file is UTF-8.
    fn of_utf8(path: &'a Path, origin: &str) -> Result<Self> {
        let (mut line, mut mark, mut is_ascii) = (1, None, true);
        // The last bytes of a part, which may be the beginning of a character or of the end of a line.
        let mut rest = Vec::new();
        let whole = Text::File { path, mark: 0, encoding: None };
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
                    let is_mixed = !(is_ascii && before.is_ascii());
                    return Err(not_utf8(rest, is_mixed).at(origin, line + line_behind(before) - 1, None));
                }
            };
            is_ascii &= rest[..valid].is_ascii();
            if is_end {
                return Ok(Text::File { path, mark: mark.unwrap_or_default(), encoding: None });
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
            Text::File { path, mark, encoding } => {
                let open = || -> io::Result<Box<dyn Read>> {
                    let mut text = unpacking(File::open(path)?)?;
                    if let Some(encoding) = encoding {
                        let decoder =
                            DecodeReaderBytesBuilder::new().encoding(Some(encoding)).strip_bom(true).build(text);
                        return Ok(Box::new(decoder));
                    }
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
