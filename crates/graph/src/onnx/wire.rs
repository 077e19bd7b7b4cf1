//! The fields of protobuf messages, read from a file by position, so that a large tensor costs nothing until its numbers
//! are read, and every field can be written again with the bytes it came with.

use std::{
    fmt,
    fs::File,
    io::{self, Cursor, Read, Seek, SeekFrom},
    path::Path,
};

use precast::error::{Error, Result};

/// Range of bytes in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub start: u64,
    pub len: u64,
}

impl Span {
    pub fn end(self) -> u64 {
        self.start + self.len
    }

    /// Returns the range without its first bytes.
    pub fn after(self, len: u64) -> Span {
        Span { start: self.start + len, len: self.len - len }
    }
}

/// The value of a field, as far as the format knows its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Varint(u64),
    /// A number of 8 bytes, the last ones of the field.
    Fixed64,
    /// A number of 4 bytes, the last ones of the field.
    Fixed32,
    /// A string, a message, or packed numbers.
    Bytes(Span),
}

/// A field of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub number: u32,
    pub value: Value,
    /// All bytes of the field, with its number and its length.
    pub whole: Span,
}

impl Field {
    /// Returns the bytes of a string, a message or packed numbers.
    pub fn bytes(&self) -> Result<Span> {
        match self.value {
            Value::Bytes(span) => Ok(span),
            _ => Err(self.wrong("bytes")),
        }
    }

    pub fn int(&self) -> Result<i64> {
        match self.value {
            Value::Varint(number) => Ok(number as i64),
            _ => Err(self.wrong("a number")),
        }
    }

    /// Returns an enum or an `int32`.
    pub fn int32(&self) -> Result<i32> {
        Ok(self.int()? as i32)
    }

    /// Returns the bytes of a repeated field of numbers with `size` bytes each, packed or not.
    pub fn numbers(&self, size: u64) -> Result<Span> {
        match self.value {
            Value::Bytes(span) if span.len % size == 0 => Ok(span),
            Value::Fixed32 if size == 4 => Ok(self.last(4)),
            Value::Fixed64 if size == 8 => Ok(self.last(8)),
            _ => Err(self.wrong(&format!("numbers of {} bits", size * 8))),
        }
    }

    fn last(&self, len: u64) -> Span {
        Span { start: self.whole.end() - len, len }
    }

    fn wrong(&self, expected: &str) -> Error {
        Error::model(format!("byte {}: field {} must be {expected}", self.whole.start, self.number))
    }
}

trait ReadSeek: Read + Seek + Send {}
impl<T: Read + Seek + Send> ReadSeek for T {}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Bytes that are read ahead of a position. Fields are short, except for those that are skipped.
const WINDOW: u64 = 1 << 16;

/// A file, read by position.
pub(super) struct Source {
    file: Box<dyn ReadSeek>,
    len: u64,
    /// Bytes behind the file.
    added: Vec<u8>,
    window: Vec<u8>,
    at: u64,
}

impl Source {
    /// Opens a file.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](precast::ErrorKind::Io).
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |e: io::Error| Error::io(path, &e);
        let file = File::open(path).map_err(failed)?;
        let met = file.metadata().map_err(failed)?;
        if !met.is_file() {
            return Err(failed(io::Error::other("not a file")));
        }
        Ok(Source { file: Box::new(file), len: met.len(), added: Vec::new(), window: Vec::new(), at: 0 })
    }

    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        let (len, file) = (bytes.len() as u64, Box::new(Cursor::new(bytes)));
        Source { file, len, added: Vec::new(), window: Vec::new(), at: 0 }
    }

    /// Returns the range of the whole file.
    pub fn all(&self) -> Span {
        Span { start: 0, len: self.len }
    }

    /// Puts bytes behind the file, and returns their range.
    pub fn add(&mut self, bytes: &[u8]) -> Span {
        let span = Span { start: self.end(), len: bytes.len() as u64 };
        self.added.extend_from_slice(bytes);
        span
    }

    /// Returns the end of the file and the bytes behind it.
    fn end(&self) -> u64 {
        self.len + self.added.len() as u64
    }

    /// Fills a buffer with the bytes from a position.
    pub fn read_at(&mut self, start: u64, into: &mut [u8]) -> Result<()> {
        let in_file = if self.added.is_empty() { into.len() as u64 } else { self.len.saturating_sub(start) };
        let (into, behind) = into.split_at_mut(in_file.min(into.len() as u64) as usize);
        if !behind.is_empty() {
            let from = (start + into.len() as u64 - self.len) as usize;
            let added = self.added.get(from..).and_then(|added| added.get(..behind.len()));
            behind.copy_from_slice(added.ok_or_else(|| cut(start))?);
        }
        let failed = |e: io::Error| Error::new(precast::ErrorKind::Io, format!("byte {start}: {e}"));
        self.file.seek(SeekFrom::Start(start)).map_err(failed)?;
        self.file.read_exact(into).map_err(failed)
    }

    /// Returns the bytes of a range. Ranges come from fields, so none is longer than the file.
    pub fn bytes(&mut self, span: Span) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.append(span, &mut bytes)?;
        Ok(bytes)
    }

    /// Appends the bytes of a range.
    pub fn append(&mut self, span: Span, bytes: &mut Vec<u8>) -> Result<()> {
        if span.len <= WINDOW {
            self.ahead(span.start, span.len)?;
            let from = (span.start - self.at) as usize;
            bytes.extend_from_slice(&self.window[from..from + span.len as usize]);
            return Ok(());
        }
        if span.end() > self.end() {
            return Err(cut(span.start));
        }
        let old = bytes.len();
        bytes.resize(old + span.len as usize, 0);
        self.read_at(span.start, &mut bytes[old..])
    }

    pub fn text(&mut self, field: &Field) -> Result<String> {
        String::from_utf8(self.bytes(field.bytes()?)?)
            .map_err(|_| Error::model(format!("byte {}: a name that is not UTF-8", field.whole.start)))
    }

    /// Ensures that the window has the bytes from a position.
    fn ahead(&mut self, start: u64, len: u64) -> Result<()> {
        if start >= self.at && start + len <= self.at + self.window.len() as u64 {
            return Ok(());
        }
        if start + len > self.end() {
            return Err(cut(start));
        }
        let size = WINDOW.min(self.end() - start) as usize;
        let mut window = std::mem::take(&mut self.window);
        window.resize(size, 0);
        let read = self.read_at(start, &mut window);
        (self.window, self.at) = (window, start);
        if read.is_err() {
            self.window.clear();
        }
        read
    }

    fn byte(&mut self, at: u64) -> Result<u8> {
        self.ahead(at, 1)?;
        Ok(self.window[(at - self.at) as usize])
    }

    /// Reads a number of 1 to 10 bytes. Returns it and the position after it.
    pub fn varint(&mut self, start: u64, end: u64) -> Result<(u64, u64)> {
        let (mut number, mut at) = (0u64, start);
        for shift in (0..70).step_by(7) {
            if at >= end {
                return Err(cut(at));
            }
            let byte = self.byte(at)?;
            at += 1;
            // The tenth byte has one bit of the number.
            number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok((number, at));
            }
        }
        Err(Error::model(format!("byte {start}: a number of more than 10 bytes")))
    }

    /// Returns the field at a position in a message that ends at `end`.
    pub fn field(&mut self, start: u64, end: u64) -> Result<Field> {
        let (tag, at) = self.varint(start, end)?;
        let number = u32::try_from(tag >> 3).ok().filter(|&number| number > 0 && number < 1 << 29);
        let Some(number) = number else {
            return Err(Error::model(format!("byte {start}: no field has the number {}", tag >> 3)));
        };
        let (value, after) = match tag & 7 {
            0 => {
                let (number, at) = self.varint(at, end)?;
                (Value::Varint(number), at)
            }
            1 if end - at >= 8 => (Value::Fixed64, at + 8),
            5 if end - at >= 4 => (Value::Fixed32, at + 4),
            1 | 5 => return Err(cut(at)),
            2 => {
                let (len, at) = self.varint(at, end)?;
                if len > end - at {
                    return Err(Error::model(format!(
                        "byte {start}: field {number} has {len} bytes, and {} are left; the file is cut short, or no ONNX model",
                        end - at
                    )));
                }
                (Value::Bytes(Span { start: at, len }), at + len)
            }
            other => {
                let words = format!("byte {start}: field {number} has the unknown wire type {other}");
                return Err(Error::model(words));
            }
        };
        Ok(Field { number, value, whole: Span { start, len: after - start } })
    }

    /// Calls `each` with every field of a message, in order.
    pub fn fields(&mut self, message: Span, mut each: impl FnMut(&mut Self, &Field) -> Result<()>) -> Result<()> {
        let (mut at, end) = (message.start, message.end());
        if end > self.end() {
            return Err(cut(message.start));
        }
        while at < end {
            let field = self.field(at, end)?;
            each(self, &field)?;
            at = field.whole.end();
        }
        Ok(())
    }

    /// Returns the numbers of a field of float32, packed or not.
    pub fn floats(&mut self, field: &Field) -> Result<Vec<f32>> {
        let bytes = self.bytes(field.numbers(4)?)?;
        Ok(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    /// Calls `each` with every number of a repeated field of integers, packed or not.
    pub fn ints(&mut self, field: &Field, mut each: impl FnMut(i64)) -> Result<()> {
        match field.value {
            Value::Bytes(span) => {
                let mut at = span.start;
                while at < span.end() {
                    let (number, after) = self.varint(at, span.end())?;
                    each(number as i64);
                    at = after;
                }
                Ok(())
            }
            _ => field.int().map(each),
        }
    }
}

fn cut(at: u64) -> Error {
    Error::model(format!("byte {at}: the file or a message in it ends too early"))
}

/// Appends a number.
pub(super) fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Appends the number and the length of a field of bytes.
pub(super) fn put_head(bytes: &mut Vec<u8>, number: u32, len: u64) {
    put_varint(bytes, u64::from(number) << 3 | 2);
    put_varint(bytes, len);
}

/// Appends a field of bytes.
pub(super) fn put_bytes(bytes: &mut Vec<u8>, number: u32, value: &[u8]) {
    put_head(bytes, number, value.len() as u64);
    bytes.extend_from_slice(value);
}

/// Appends a field with a number.
pub(super) fn put_int(bytes: &mut Vec<u8>, number: u32, value: i64) {
    put_varint(bytes, u64::from(number) << 3);
    put_varint(bytes, value as u64);
}

/// Appends a field with a number of 32 bits.
pub(super) fn put_float(bytes: &mut Vec<u8>, number: u32, value: f32) {
    put_varint(bytes, u64::from(number) << 3 | 5);
    bytes.extend_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(bytes: &[u8]) -> Result<Vec<(u32, Value)>> {
        let mut source = Source::of_bytes(bytes.to_vec());
        let (all, mut met) = (source.all(), Vec::new());
        source.fields(all, |_, field| {
            met.push((field.number, field.value));
            Ok(())
        })?;
        Ok(met)
    }

    /// The examples of the format's own description: 150 is `96 01`, and `testing` is a field of 7 bytes.
    #[test]
    fn fields_are_read_as_the_format_describes_them() {
        assert_eq!(numbers(&[0x08, 0x96, 0x01]).unwrap(), [(1, Value::Varint(150))]);
        let text = numbers(b"\x12\x07testing").unwrap();
        assert_eq!(text, [(2, Value::Bytes(Span { start: 2, len: 7 }))]);
        assert_eq!(numbers(&[0x0d, 1, 0, 0, 0]).unwrap(), [(1, Value::Fixed32)]);
        assert_eq!(numbers(&[0x09, 2, 0, 0, 0, 0, 0, 0, 0]).unwrap(), [(1, Value::Fixed64)]);
        let minus_one = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(numbers(&minus_one).unwrap(), [(1, Value::Varint(u64::MAX))]);
    }

    #[test]
    fn what_is_written_is_read_again() {
        for number in [0, 1, 127, 128, 300, i64::MAX, -1] {
            let mut bytes = Vec::new();
            put_int(&mut bytes, 7, number);
            put_bytes(&mut bytes, 20, b"abc");
            let met = numbers(&bytes).unwrap();
            assert_eq!(met[0], (7, Value::Varint(number as u64)));
            assert!(matches!(met[1], (20, Value::Bytes(Span { len: 3, .. }))));
        }
    }

    #[test]
    fn damaged_bytes_are_errors_with_their_place() {
        for (bytes, words) in [
            (&[0x08][..], "byte 1: the file or a message in it ends too early"),
            (
                &[0x12, 0x05, 0x61],
                "byte 0: field 2 has 5 bytes, and 1 are left; the file is cut short, or no ONNX model",
            ),
            (&[0x08, 0x80, 0x80], "byte 3: the file or a message in it ends too early"),
            (&[0x0b], "byte 0: field 1 has the unknown wire type 3"),
            (&[0x00, 0x00], "byte 0: no field has the number 0"),
            (&[0x0d, 1, 0], "byte 1: the file or a message in it ends too early"),
            (
                &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
                "byte 0: field 2 has 18446744073709551615",
            ),
            (
                &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
                "byte 1: a number of more than",
            ),
        ] {
            let message = numbers(bytes).unwrap_err().to_string();
            assert!(message.starts_with(words), "{message}");
        }
    }
}
